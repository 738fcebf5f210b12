"""Run one watcher: look, make events, tell the source, wait; and report failures to people."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Any

from kingdom.base import tables
from kingdom.base.disk.json_file import JsonFile
from kingdom.base.errors import BadInput
from kingdom.base.home import schemas
from kingdom.base.records.messages import Event
from kingdom.base.runtime.processes import give_back_memory
from kingdom.base.runtime.role import Services
from kingdom.base.times import moment, stamp
from kingdom.base.words import count, duration, one_line
from kingdom.court.connections.base import MISSHAPEN, ServiceDown, ServiceError, ServiceLimited, ServiceRefused
from kingdom.court.sentinel.background_call import BackgroundCall
from kingdom.court.sentinel.breaker import Breaker
from kingdom.court.sentinel.seen import SeenEvents
from kingdom.court.sentinel.watchers import WATCHERS
from kingdom.court.sentinel.watchers.base import Watcher, WatcherKit

BATCH = 128
"""Events that are made in one turn, durable together."""
LONGEST_BACKOFF = 900.0
ABANDONED_AFTER = 900.0
"""A look that has not ended by then is reported; nothing else is begun before it ends."""


class Phase(Enum):
    WAITS = auto()
    LOOKS = auto()
    MAKES_EVENTS = auto()
    TELLS_SOURCE = auto()


class WatcherTurns:
    """A watcher between two looks, or in the middle of one. Its turns never wait."""

    def __init__(self, name: str, services: Services, seen: SeenEvents, breaker: Breaker) -> None:
        self.name = name
        self._services = services
        self._seen = seen
        self._breaker = breaker
        config = services.config["polling"][name]
        self._interval = float(config["interval_seconds"])
        path = services.places.own(services.name) / f"{name}-state.json"
        self._state = JsonFile(path, services.disk, services.log.error, lambda _key, _value: True)
        kit = WatcherKit(
            config, services.places, self._state, seen.is_known, services.clock, self._tell, services.secrets
        )
        self._watcher: Watcher[Any] = tables.load(WATCHERS[name])(kit)
        self.off = self._watcher.is_off()
        self.folders = () if self.off else tuple(self._watcher.folders())
        self._phase = Phase.WAITS
        self._due = services.monotonic() + self._rest_of_pause()
        self._call: BackgroundCall | None = None
        self._began = 0.0
        self._found: Any = None
        self._left: list[Event] = []
        self._is_whole = True
        self._failures = 0
        #: What kind of trouble there is: limited, refused, down; "" for none.
        self._trouble = ""
        self._problem = ""
        self._since = services.clock()
        self._held = ""
        self._looked_at: float | None = None
        self._next_at = services.clock() + self._due - services.monotonic()

    @property
    def is_busy(self) -> bool:
        return self._phase is not Phase.WAITS

    @property
    def due(self) -> float:
        """Return when it wants a turn, by the monotonic clock. A call that ends earlier wakes the loop."""
        if self._phase is Phase.MAKES_EVENTS:
            return self._services.monotonic()
        return self._due if self._phase is Phase.WAITS else self._began + ABANDONED_AFTER

    def look_soon(self) -> None:
        """Make the next look due, because something has arrived in its folders."""
        if self._phase is Phase.WAITS and not self._failures:
            self._due = self._services.monotonic()

    def turn(self) -> bool:
        """Do what is due, and return whether anything was done."""
        now = self._services.monotonic()
        if self.off or (self._phase is Phase.WAITS and now < self._due):
            return False
        try:
            return self._turn(now)
        except ServiceError as error:
            self._fails(error)
        except MISSHAPEN as error:
            why = f"its answer has an unknown format ({type(error).__name__}: {error})"
            self._fails(ServiceDown(service=self.name, why=why))
        return True

    def report(self) -> dict[str, Any]:
        """Return how it is, for those who look at the kingdom."""
        if self.off:
            return {"state": "off", "why": self.off}
        state = self._trouble or "ok"
        status: dict[str, Any] = {"state": state, "why": self._problem, "since": stamp(self._since)}
        status["next_at"] = stamp(self._next_at)
        if self._looked_at is not None:
            status["looked_at"] = stamp(self._looked_at)
        if self._held:
            status |= {"state": "held", "why": self._held}
        if state == "limited":
            status["until"] = str(self._state.get("not_before", ""))
        return status

    def close(self) -> None:
        if not self.off:
            self._watcher.close()

    def _turn(self, now: float) -> bool:
        if self._phase is Phase.WAITS:
            self._send(Phase.LOOKS, self._watcher.fetch)
            return False
        if self._phase is Phase.MAKES_EVENTS:
            self._make_events()
            return True
        assert self._call is not None
        if not self._call.is_done:
            if now >= self._began + ABANDONED_AFTER:
                self._began = now
                self._say_trouble("down", f"{self.name}: no answer for {duration(ABANDONED_AFTER)}")
            return False
        call, self._call = self._call, None
        result = call.result()
        if self._phase is Phase.TELLS_SOURCE or result is None:
            self._end(again=bool(result))
        else:
            self._parse(result)
        return True

    def _parse(self, found: Any) -> None:
        """Say which events follow. What the watcher notes of them is durable before the first is made."""
        self._rest(self._interval)  # unless all of this succeeds
        fit = [event for event in map(_encodable, self._watcher.parse(found)) if self._is_fit(event)]
        self._state.save()
        new = [event for event in fit if not self._seen.is_known(event.id)]
        passing, why = self._breaker.passing(new, self._services.monotonic())
        self._hold(len(new) - len(passing), why)
        held = {event.id for event in new} - {event.id for event in passing}
        # Known ones are among them: after a kill the marker of one may be missing.
        self._left = [event for event in fit if event.id not in held]
        self._found, self._is_whole, self._phase = found, not held, Phase.MAKES_EVENTS

    def _make_events(self) -> None:
        batch = self._left[:BATCH]
        new = [event for event in batch if not self._seen.is_known(event.id)]
        self._seen.create(batch)
        del self._left[: len(batch)]
        for event in new:
            data = {"event_id": event.id, "source": event.source, "event_type": event.type}
            self._services.log.info(f"{event.id} ({event.type})", event="event.detected", **data)
        if not self._left:
            self._send(Phase.TELLS_SOURCE, partial(self._watcher.after_emit, self._found, self._is_whole))

    def _send(self, phase: Phase, call: Any) -> None:
        self._phase, self._began = phase, self._services.monotonic()
        self._call = BackgroundCall(call, self._services.alarm.ring)

    def _end(self, again: bool) -> None:
        """End a round that went well, and rest."""
        self._looked_at = self._services.clock()
        period = max(self._interval, self._watcher.least_wait)
        self._rest(0.0 if again else min(period, self._watcher.most_wait))
        self._state.remove("not_before")
        if self._trouble:
            self._tell(f"{self.name}: answers again after {duration(self._services.clock() - self._since)}")
            self._trouble, self._problem, self._since = "", "", self._services.clock()
        self._failures = 0
        self._state.save()
        give_back_memory()

    def _fails(self, error: ServiceError) -> None:
        """Wait as long as the source has asked, or longer with each failure."""
        self._failures += 1
        self._looked_at = self._services.clock()
        growth = 2.0 ** min(self._failures - 1, 16)
        if isinstance(error, ServiceLimited):
            pause = error.seconds if error.is_named else min(error.seconds * growth, LONGEST_BACKOFF)
            self._state.set("not_before", stamp(self._services.clock() + pause + 1))
            self._say_trouble("limited", str(error))
        else:
            pause = max(self._interval, min(self._interval * growth, LONGEST_BACKOFF))
            self._say_trouble("refused" if isinstance(error, ServiceRefused) else "down", str(error))
        self._rest(pause)
        self._state.save()

    def _rest(self, seconds: float) -> None:
        self._phase, self._found, self._left = Phase.WAITS, None, []
        self._due = self._services.monotonic() + seconds
        self._next_at = self._services.clock() + seconds

    def _rest_of_pause(self) -> float:
        """Return how much is left of a pause that the source asked for before a restart."""
        try:
            left = moment(str(self._state.get("not_before", ""))) - self._services.clock()
        except (ValueError, OverflowError):
            return 0.0
        return max(0.0, min(left, 86400.0))

    def _say_trouble(self, kind: str, why: str) -> None:
        """Log a failure once, and again only when it is of another kind."""
        if self._trouble != kind:
            self._services.log.error(one_line(why, 300))
            if not self._trouble:
                self._since = self._services.clock()
        self._trouble, self._problem = kind, one_line(self._services.log.clean(why), 300)

    def _hold(self, number: int, why: str) -> None:
        if number and not self._held:
            self._services.log.warn(
                f"{self.name}: holds {count(number, 'event')} back: {why}; they follow when the hour is over"
            )
        self._held = f"{count(number, 'event')} held back: {why}" if number else ""

    def _is_fit(self, event: Event) -> bool:
        """Return whether it can be an event at all; else say why not."""
        try:
            self._seen.is_known(event.id)
            schemas.check("event", event.to_json())
        except BadInput as error:
            self._services.log.error(f"{self.name}: this makes no event: {one_line(error, 300)}")
            return False
        return True

    def _tell(self, sentence: str) -> None:
        self._services.log.info(sentence)


def _encodable(event: Event) -> Event:
    """Return it without what UTF-8 cannot hold, which could not be written."""
    return replace(event, payload=_clean(event.payload), repo=_clean(event.repo))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_clean(name): _clean(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(part) for part in value]
    return value
