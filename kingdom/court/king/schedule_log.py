"""Which scheduled runs are due, which one is half-made, and up to when each schedule is handled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from kingdom.base.disk.codec import to_json
from kingdom.base.disk.json_file import JsonFile
from kingdom.base.home.manifests import Manifest
from kingdom.base.records.messages import Json
from kingdom.base.times import moment, stamp
from kingdom.court.king.context import KingContext
from kingdom.court.rules import schedules
from kingdom.court.rules.gate import Gate, Work
from kingdom.court.rules.schedules import ScheduleEntry

PRIORITY = "low"
START = "start"
"""The part of the one message that follows from a run."""
SHORTEST_SLEEP = 0.05

Holds = dict[bool, str | None]
"""Why runs wait: those that need a model, and those that need none."""


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """One due minute of one schedule."""

    entry: ScheduleEntry
    #: Seconds since the epoch.
    due: float
    #: The task it becomes, if that was noted before a restart.
    task_id: str | None = None
    #: By part, the ids noted for its messages.
    message_ids: Json = field(default_factory=dict)


class ScheduleLog:
    """`schedule-sent.json`: by schedule, what is handled, what waits and what was begun. Other kings note days."""

    def __init__(self, king: KingContext) -> None:
        self._king = king
        path = king.places.own("king") / "schedule-sent.json"
        self._file = JsonFile(path, king.disk, king.log.error, _is_sound)
        self._plan_path = king.places.own("king") / "schedules.json"
        self._entries: list[ScheduleEntry] = []
        self._planned: list[dict[str, Any]] | None = None
        self._held: Holds = {}
        self.next_look = 0.0

    def take_over(self, generals: Iterable[Manifest]) -> list[str]:
        """Use the generals' schedules. Return what is wrong with those that cannot be used."""
        entries = schedules.entries(generals)
        bad = {entry.key: why for entry in entries if (why := schedules.misfit(entry))}
        self._entries = [entry for entry in entries if entry.key not in bad]
        self.next_look = 0.0
        return [f"{key.partition(':')[0]}: {why}" for key, why in bad.items()]

    def next_due(self, gate: Callable[[], Gate], look: bool) -> ScheduledRun | None:
        """Return a run to make now: one that was begun, else one that waits, if the gate admits it.

        Without `look` only when it is time to, or when what held a run has changed.
        """
        now = self._king.monotonic()
        if not look and now < self.next_look and not self._held_because_changed(gate):
            return None
        run = self._find(gate)
        most = self._king.config["intervals"]["schedule_check_seconds"]
        self.next_look = now if run is not None else now + self._sleep(most)
        return run

    def note(self, run: ScheduledRun) -> None:
        """Note the ids of what follows from a run before it is made."""
        noted = {"due": stamp(run.due), "task_id": run.task_id, "letter_id": run.message_ids[START]}
        self._file.set(run.entry.key, {**self._value(run.entry), **noted})
        self._file.save()

    def remove(self, run: ScheduledRun) -> None:
        """Take a run that has been made off what waits."""
        value = self._value(run.entry)
        waiting = [due for due in value.get("waiting", ()) if moment(due) != run.due]
        kept = {key: part for key, part in value.items() if key not in ("due", "task_id", "letter_id")}
        new = {"waiting": waiting, "since": next(iter(waiting), None), "last": stamp(run.due)}
        self._file.set(run.entry.key, {**kept, **new})
        self._file.save()

    @property
    def holds(self) -> bool:
        """Whether runs that are due are not made yet."""
        return any(self._held.values())

    def _held_because_changed(self, gate: Callable[[], Gate]) -> bool:
        """Return whether the gate's reason for holding a run that is due has changed since the last look."""
        return self.holds and self._held != _holds(gate())

    def _anything_waits(self) -> bool:
        return any(self._value(entry).get("waiting") for entry in self._entries)

    def _find(self, gate: Callable[[], Gate]) -> ScheduledRun | None:
        now = self._king.clock()
        self._note_due(now)
        self._held = _holds(gate()) if self._anything_waits() else {}
        self._plan(now)
        begun = next((run for entry in self._entries if (run := self._begun(entry))), None)
        if begun is not None:
            return begun
        for entry in self._entries:
            if self._held.get(entry.needs_model) is not None:
                continue
            for due in map(moment, self._value(entry).get("waiting", ())):
                run = ScheduledRun(entry, due)
                if self._king.replays.task_of(entry.run_key(due)) is None:
                    return run
                self.remove(run)
        return None

    def _begun(self, entry: ScheduleEntry) -> ScheduledRun | None:
        value = self._value(entry)
        if "task_id" not in value:
            return None
        return ScheduledRun(entry, moment(value["due"]), value["task_id"], {START: value["letter_id"]})

    def _note_due(self, now: float) -> None:
        """Add the minutes that came due to what waits, so that the gate delays them and loses none."""
        zone = self._king.zone
        for entry in self._entries:
            value = self._value(entry) or {"handled": stamp(now)}
            # A clock that was ahead and is set right must not silence a schedule; the replay index knows what was made.
            handled = min(max(moment(value["handled"]), self._handled_elsewhere(entry)), now)
            new = [stamp(due) for due in schedules.due(entry, handled, now, zone)]
            waiting = [*value.get("waiting", ()), *new]
            kept = waiting if entry.schedule.catch_up == "all" else waiting[-1:]
            passed = schedules.last_due(entry, handled, now, zone)
            since = value.get("since") or next(iter(waiting), None)
            noted = {"waiting": kept, "since": since, "handled": stamp(passed or handled)}
            self._file.set(entry.key, {**value, **noted})
        for entry in self._entries:
            self._file.remove(entry.schedule.name)
        self._file.save()

    def _handled_elsewhere(self, entry: ScheduleEntry) -> float:
        """Return until when another king has made a schedule's runs: he notes the day, by the schedule's name alone."""
        day = self._file.get(entry.schedule.name)
        return datetime.fromisoformat(f"{day}T23:59").replace(tzinfo=self._king.zone).timestamp() if day else 0.0

    def _plan(self, now: float) -> None:
        """Write the snapshot that others read, if it has changed: next run, last run, what holds a run that is due."""
        plan = [self._plan_of(entry, self._value(entry), now) for entry in self._entries]
        if plan != self._planned:
            self._planned = plan
            self._king.unsynced.rewrite(self._plan_path, to_json({"schedules": plan}))

    def _plan_of(self, entry: ScheduleEntry, value: Mapping[str, Any], now: float) -> dict[str, Any]:
        since, held = value.get("since"), self._held.get(entry.needs_model)
        return {
            "schedule": entry.key,
            "general": entry.general,
            "name": entry.schedule.name,
            "cron": entry.schedule.cron,
            "next": stamp(schedules.next_run(entry, now, self._king.zone)),
            "last": value.get("last"),
            "held_since": since if held else None,
            "held_because": held if since else None,
        }

    def _sleep(self, most: float) -> float:
        """Return the seconds until the next run is due, at most the given."""
        now = self._king.clock()
        soonest = min((moment(plan["next"]) for plan in self._planned or ()), default=now + most)
        return max(SHORTEST_SLEEP, min(most, soonest - now))

    def _value(self, entry: ScheduleEntry) -> Mapping[str, Any]:
        value: Mapping[str, Any] = self._file.get(entry.key, {})
        return value


def _holds(gate: Gate) -> Holds:
    return {needs: gate.holds_because(Work(PRIORITY, needs_model=needs)) for needs in (True, False)}


def _is_sound(schedule: str, value: Any) -> bool:
    """Return whether a value can be used; one that somebody has damaged starts anew."""
    try:
        if ":" not in schedule:
            return bool(date.fromisoformat(value))
        moments = [value["handled"], *value.get("waiting", ()), *([value["due"]] if "task_id" in value else [])]
        moments += [value[key] for key in ("since", "last") if value.get(key) is not None]
        return all(moment(text) > 0 for text in moments) and ("task_id" in value) == ("letter_id" in value)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
