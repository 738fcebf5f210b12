"""Who holds which message until when; and who held it, for an ack that comes twice or too late."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from heapq import heapify, heappop, heappush

from kingdom.mq import message_format, names
from kingdom.mq.errors import LeaseExpired, LeaseMismatch, MessageNotFound, Refusal
from kingdom.mq.expiring_map import Recall, fingerprint
from kingdom.mq.queue_state import NEVER, Line
from kingdom.mq.queues import Queues

KEPT_MS = 86_400_000
MOST_PAST = 8_192


class Flight:
    """A message out on a lease."""

    __slots__ = ("attempt", "consumer", "consumer_digest", "key", "lease", "line", "name", "since", "until")

    def __init__(self, line: Line, name: str, lease: str, digest: str, until: int) -> None:
        self.line = line
        self.name = name
        self.key = f"msg:{line.name}:{name[-36:]}"
        self.lease = lease
        self.consumer = ""
        self.consumer_digest = digest
        self.until = until
        self.attempt = 0
        self.since = 0

    @property
    def is_dead_letter(self) -> bool:
        return ".r" in self.name


@lru_cache(maxsize=10_000)
def digest_of(consumer: str) -> str:
    message_format.whole_text("consumerId", consumer)
    return names.digest(consumer)


class Leases:
    _past_young: dict[str, Flight]
    _past_old: dict[str, Flight]
    _expired: Recall[bool]

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self.out: dict[str, Flight] = {}
        """By message id."""
        self._ends: list[tuple[int, str]] = []
        self.forget()

    def forget(self) -> None:
        self.out.clear()
        self._ends.clear()
        self._past_young, self._past_old = {}, {}
        self._expired = Recall(KEPT_MS, MOST_PAST)

    def begin(self, flight: Flight) -> None:
        message_id = flight.name[-36:]
        self.out[message_id] = flight
        flight.line.inflight += 1
        heappush(self._ends, (flight.until, message_id))

    def find(self, line: Line, name: str) -> None:
        """One that an earlier life has given."""
        marks = names.marks_of(name)
        flight = Flight(line, name, marks.get("l", ""), marks.get("c", ""), names.due_of(name))
        flight.attempt = int(marks[""])
        self.begin(flight)

    def extend(self, flight: Flight, name: str, until: int) -> None:
        flight.name = name
        flight.until = until
        self._queues.touched = True
        heappush(self._ends, (until, name[-36:]))

    def end(self, flight: Flight, now: int) -> None:
        """Not by an ack: whoever asks for it later hears that it has expired."""
        if self.out.pop(flight.name[-36:], None) is not None:
            flight.line.inflight -= 1
            self._queues.touched = True
            self._expired.put(fingerprint(flight.key, flight.lease), True, now)

    def done(self, flight: Flight) -> None:
        """Acknowledged, and remembered for a while."""
        message_id = flight.name[-36:]
        del self.out[message_id]
        flight.line.inflight -= 1
        if len(self._past_young) >= MOST_PAST:
            self._past_old, self._past_young = self._past_young, {}
        flight.until = -1
        self._past_young[message_id] = flight

    # --- whose it is

    def held(self, key: str, lease_id: str, consumer: str, now: int) -> Flight:
        """The flight that the caller may end. With neither lease id nor consumer nobody's right is checked."""
        flight = self.out.get(key[-36:])
        if flight is None or flight.key != key:
            raise self._why_not(key, lease_id)
        if lease_id:
            if lease_id != flight.lease:
                raise self._why_not(key, lease_id)
        elif consumer and digest_of(consumer) != flight.consumer_digest:
            raise LeaseMismatch(key=key)
        if flight.until <= now:
            raise LeaseExpired(key=key)
        return flight

    def was_acked(self, key: str, lease_id: str, consumer: str) -> bool:
        """Whether the same ack was answered before."""
        flight = self._past(key)
        if flight is None:
            return False
        return lease_id == flight.lease if lease_id else consumer in ("", flight.consumer)

    def _past(self, key: str) -> Flight | None:
        flight = self._past_young.get(key[-36:]) or self._past_old.get(key[-36:])
        return flight if flight is not None and flight.key == key else None

    def _why_not(self, key: str, lease_id: str) -> Refusal:
        if lease_id and self._expired.get(fingerprint(key, lease_id)):
            return LeaseExpired(key=key)
        message_id = key[-36:]
        line = self._queues.lines.get(key[4:-37])
        if line is None or not key.startswith("msg:"):
            return MessageNotFound(key=key)
        if message_id in self.out or message_id in line.dead or self._past(key) is not None:
            return LeaseMismatch(key=key)
        waiting = line.find(message_id)
        if waiting is None:
            return MessageNotFound(key=key)
        # Leased before, perhaps in another life of ours: then it is this lease that ended.
        return LeaseExpired(key=key) if lease_id and names.attempt_of(waiting) else LeaseMismatch(key=key)

    # --- time

    def expired(self, now: int) -> Iterator[Flight]:
        ends = self._ends
        while ends and ends[0][0] <= now:
            entry = heappop(ends)
            if self._is_live(entry):
                yield self.out[entry[1]]
        if len(ends) > 2 * len(self.out) + 4096:
            ends[:] = [(flight.until, message_id) for message_id, flight in self.out.items()]
            heapify(ends)

    def next_end(self) -> int:
        while self._ends and not self._is_live(self._ends[0]):
            heappop(self._ends)
        return self._ends[0][0] if self._ends else NEVER

    def _is_live(self, entry: tuple[int, str]) -> bool:
        flight = self.out.get(entry[1])
        return flight is not None and flight.until == entry[0]
