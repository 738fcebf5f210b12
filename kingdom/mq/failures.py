"""What becomes of a message whose lease did not end well: another try, the dead letters, or the archive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from kingdom.mq import message_format, names
from kingdom.mq.leases import Flight, Leases
from kingdom.mq.message_format import Failure, Unfit
from kingdom.mq.queue_state import Line
from kingdom.mq.queues import Queues
from kingdom.mq.stores.base import Gone, Store
from kingdom.mq.timers import Timers
from kingdom.rules.retry import backoff, jittered, may_retry

LATEST = 10**13 - 1

Code = Literal["VALIDATION_ERROR", "HANDLER_ERROR", "TIMEOUT", "RETRY_EXCEEDED", "POISON"]
Fate = Literal["retry", "dlq", "archived"]
Say = Callable[..., None]

_SAID: Mapping[Code, str] = {
    "VALIDATION_ERROR": "the message does not fit",
    "HANDLER_ERROR": "refused by its consumer",
    "TIMEOUT": "its lease ended without an answer",
    "RETRY_EXCEEDED": "no tries left",
    "POISON": "the same failure again and again",
}


class Fates:
    def __init__(
        self, store: Store, queues: Queues, timers: Timers, leases: Leases, dice: Callable[[], float], say: Say
    ) -> None:
        self._store = store
        self._queues = queues
        self._timers = timers
        self._leases = leases
        self._dice = dice
        self._say = say

    def fail(self, flight: Flight, now: int, exhausted: Code, reason: str) -> Fate:
        """The retry rule."""
        if flight.is_dead_letter:
            return self.put_back(flight, now)
        line = flight.line
        policy = line.policy
        marks = _without_lease(flight.name)
        row = 0
        if reason:
            row, marks["s"] = _row(marks.get("s", ""), reason)
        else:
            marks.pop("s", None)
        if policy.poison_after and row >= policy.poison_after:
            return self.bury(flight, now, "POISON", reason)
        if not may_retry(flight.attempt, policy.retry.limit):
            return self.bury(flight, now, exhausted, reason)
        retry = policy.retry
        wait = backoff(retry.shape, flight.attempt, retry.initial_s, retry.longest_s)
        due = min(now + round(jittered(wait, retry.jitter, self._dice) * 1000), LATEST)
        new = names.changed(flight.name, due, names.join(marks))
        try:
            self._store.move(line.name, "inflight", flight.name, "delayed" if due > now else "ready", new)
        except Gone:
            self._leases.end(flight, now)
            return "retry"
        self._leases.end(flight, now)
        self._timers.wait(line, new, due, now)
        if "e" in marks:
            self._timers.end_at(int(marks["e"]), line, new)
        return "retry"

    def bury(self, flight: Flight, now: int, code: Code, reason: str, body: str | None = None) -> Fate:
        line = flight.line
        marks = _without_lease(flight.name)
        try:
            if not line.policy.dlq_enabled:
                self._store.move(line.name, "inflight", flight.name, "archived", resting(flight.name, now))
                self._leases.end(flight, now)
                self._say("mq.dropped", f"{flight.key} goes to the archive: {code} {reason}", queue=line.name)
                return "archived"
            if body is None:
                body = self._body(line.name, flight.name)
            failure = Failure(code, reason or _SAID[code], now, flight.attempt, flight.consumer)
            record = message_format.dead(body, failure, line.name, line.policy.dlq_of(line.name))
            marks.pop("e", None)
            marks |= {"r": code, "a": str(now)}
            new = names.changed(flight.name, now, names.join(marks))
            self._store.rewrite(line.name, "inflight", flight.name, "dlq", new, record)
        except Gone:
            self._leases.end(flight, now)
            return "dlq"
        self._leases.end(flight, now)
        self._lay_dead(line, new)
        self._say("mq.dead", f"{flight.key} is a dead letter: {code} {reason}", queue=line.name, reason=code)
        return "dlq"

    def put_back(self, flight: Flight, now: int) -> Fate:
        """A dead letter that nobody wanted after all."""
        marks = _without_lease(flight.name)
        new = names.changed(flight.name, int(marks["a"]), names.join(marks))
        try:
            self._store.move(flight.line.name, "inflight", flight.name, "dlq", new)
        except Gone:
            self._leases.end(flight, now)
            return "dlq"
        self._leases.end(flight, now)
        self._lay_dead(flight.line, new)
        return "dlq"

    def _lay_dead(self, line: Line, name: str) -> None:
        line.dead[name[-36:]] = name
        self._queues.arrived.add(line.policy.dlq_of(line.name))

    def _body(self, queue: str, name: str) -> str:
        try:
            return self._store.read(queue, "inflight", name)
        except Unfit as spoiled:
            return str(spoiled.args[1])


def resting(name: str, now: int) -> str:
    """In the archive: since when, and how often it was tried."""
    return names.changed(name, now, names.join(_without_lease(name)))


def _without_lease(name: str) -> dict[str, str]:
    marks = names.marks_of(name)
    marks.pop("l", None)
    marks.pop("c", None)
    return marks


def _row(before: str, reason: str) -> tuple[int, str]:
    """How often in a row this reason was given, and the mark that remembers it."""
    count, _, same = before.partition("x")
    digest = names.digest(reason)
    row = int(count) + 1 if same == digest else 1
    return row, f"{row}x{digest}"
