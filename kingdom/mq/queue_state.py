"""One queue in memory: who waits in which order, and what has been counted."""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, nsmallest
from itertools import chain
from typing import NamedTuple

from kingdom.mq import names
from kingdom.mq.message_format import quoted
from kingdom.mq.payload_rules import Check, checker
from kingdom.mq.policy import Policy

NEVER = 1 << 62
FEW = 100
PLAIN = 69
"""As long is the name of a message that says nothing but its payload."""
TIMINGS = 1024
RATE_WINDOW_MS = 60_000
COUNTED = ("published", "consumed", "acked", "nacked", "failed")


class Counts(NamedTuple):
    at: int
    values: tuple[int, ...]


class Line:
    """Waiting messages stand in heaps by name alone: a name is its order, its due time, its attempts and its id."""

    __slots__ = (
        "acked",
        "aimed",
        "aimed_count",
        "alarm",
        "check",
        "consumed",
        "dead",
        "delayed",
        "failed",
        "handled_ms",
        "head",
        "head_at",
        "history",
        "inflight",
        "mortal",
        "nacked",
        "name",
        "paused",
        "policy",
        "published",
        "quoted",
        "ready",
        "timings",
        "timings_next",
    )

    def __init__(self, name: str, policy: Policy, paused: bool = False) -> None:
        self.name = name
        self.quoted = quoted(name)
        self.head, self.head_at = "", -1
        self.paused = paused
        self.published = self.consumed = self.acked = self.nacked = self.failed = 0
        self.handled_ms = 0
        self.timings = array("Q")
        self.timings_next = 0
        self.history: deque[Counts] = deque()
        self.forget()
        self.use(policy)

    def use(self, policy: Policy) -> None:
        self.policy = policy
        self.check: Check | None = checker(policy.schema, policy.rules)

    def forget(self) -> None:
        """Where messages lie is about to be read anew; what was counted stays."""
        self.ready: list[str] = []
        self.aimed: dict[str, list[str]] = {}
        self.aimed_count = 0
        self.delayed: list[str] = []
        self.dead: OrderedDict[str, str] = OrderedDict()
        self.mortal: set[str] = set()
        self.inflight = 0
        self.alarm = NEVER

    # --- waiting

    def add_ready(self, name: str) -> None:
        if ".t" in name:
            heappush(self.aimed.setdefault(names.marks_of(name)["t"], []), name)
            self.aimed_count += 1
        else:
            heappush(self.ready, name)
        if ".e" in name:
            self.mortal.add(name)

    def add_delayed(self, name: str) -> None:
        heappush(self.delayed, names.due_first(name))
        if ".e" in name:
            self.mortal.add(name)

    def fill(self, found: list[str], now: int) -> int:
        """All at once, after a start: in one pass instead of a push each. Returns the highest sequence of those
        that are not due before now: what is published next must come after it."""
        now_text = f"{now:013d}"
        latest = ""
        self.ready = [name for name in found if len(name) == PLAIN and name[8:21] < now_text]
        if len(self.ready) < len(found):
            for name in found:
                if name[8:21] >= now_text:
                    latest = max(latest, name[22:30])
                elif len(name) == PLAIN:
                    continue
                if name[8:21] > now_text:
                    self.delayed.append(names.due_first(name))
                elif ".t" in name:
                    self.aimed.setdefault(names.marks_of(name)["t"], []).append(name)
                    self.aimed_count += 1
                else:
                    self.ready.append(name)
                if ".e" in name:
                    self.mortal.add(name)
        heapify(self.ready)
        heapify(self.delayed)
        for heap in self.aimed.values():
            heapify(heap)
        return int(latest or 0)

    def take(self, consumer: str) -> str | None:
        """The next name for this consumer (its digest), ripe and not purged. It is out of the line then."""
        ready = self.ready
        if not self.aimed_count:
            return heappop(ready) if ready else None
        mine = self.aimed.get(consumer)
        if mine and (not ready or mine[0] < ready[0]):
            self.aimed_count -= 1
            name = heappop(mine)
            if not mine:
                del self.aimed[consumer]
            return name
        return heappop(ready) if ready else None

    def pop_any(self) -> str | None:
        """A waiting name that is least work to take out, whoever it is for."""
        if self.ready:
            name = self.ready.pop()
        elif self.aimed:
            digest, heap = next(iter(self.aimed.items()))
            name = heap.pop()
            self.aimed_count -= 1
            if not heap:
                del self.aimed[digest]
        elif self.delayed:
            name = names.rank_first(self.delayed.pop())
        else:
            return None
        self.mortal.discard(name)
        return name

    def ripen(self, now: int) -> int:
        """Delayed messages due by now are ready. Returns how many."""
        now_text = f"{now:013d}"
        ripe = 0
        while self.delayed and self.delayed[0][:13] <= now_text:
            self.add_ready(names.rank_first(heappop(self.delayed)))
            ripe += 1
        return ripe

    def next_ripe(self) -> int:
        return int(self.delayed[0][:13]) if self.delayed else NEVER

    def remove(self, name: str) -> None:
        """Out of the middle: rare, and as slow as the line is long."""
        heaps: list[list[str]] = [self.ready, *self.aimed.values()]
        for heap in heaps:
            if name in heap:
                heap.remove(name)
                heapify(heap)
                self.aimed_count -= heap is not self.ready
        turned = names.due_first(name)
        if turned in self.delayed:
            self.delayed.remove(turned)
            heapify(self.delayed)
        self.mortal.discard(name)

    def __len__(self) -> int:
        return self.ready_count + len(self.delayed)

    def __contains__(self, name: object) -> bool:
        return any(name == each for each in self)

    def __iter__(self) -> Iterator[str]:
        """Every waiting name, in no order."""
        return chain(self.ready, *self.aimed.values(), map(names.rank_first, self.delayed))

    def first(self, limit: int) -> list[str]:
        ready = nsmallest(limit, chain(self.ready, *self.aimed.values()))
        return ready + [names.rank_first(each) for each in nsmallest(limit - len(ready), self.delayed)]

    def find(self, message_id: str) -> str | None:
        """The waiting name of a message. As slow as the line is long: for telling a caller what was wrong."""
        return next((name for name in self if name.endswith(message_id)), None)

    def oldest(self) -> int:
        """When the oldest waiting message was published; in a long line, the oldest of those whose turn is next."""
        if len(self) <= FEW:
            waiting: Iterable[str] = self
        else:
            heads = [heap[0] for heap in (self.ready, *self.aimed.values()) if heap]
            waiting = [*heads, *(names.rank_first(each) for each in self.delayed[:1])]
        return min(map(names.created_of, waiting), default=NEVER)

    @property
    def ready_count(self) -> int:
        return len(self.ready) + self.aimed_count

    def first_dead(self) -> str:
        """The dead letter that may be consumed first: the quarantined stay where they are. Empty when there is none."""
        return next((name for name in self.dead.values() if ".q" not in name), "")

    # --- counting

    def handled(self, ms: int) -> None:
        self.handled_ms += ms
        if len(self.timings) < TIMINGS:
            self.timings.append(ms)
        else:
            self.timings[self.timings_next] = ms
            self.timings_next = (self.timings_next + 1) % TIMINGS

    def p99_ms(self) -> int:
        return sorted(self.timings)[len(self.timings) * 99 // 100] if self.timings else 0

    def counts(self) -> tuple[int, ...]:
        return (self.published, self.consumed, self.acked, self.nacked, self.failed)

    def note(self, now: int) -> None:
        """A sample for the rates, about once a second while something happens."""
        self.history.append(Counts(now, self.counts()))
        while len(self.history) > 2 and self.history[1].at <= now - RATE_WINDOW_MS:
            self.history.popleft()

    def lately(self, now: int) -> dict[str, int]:
        """What happened in the last minute."""
        past = next((each for each in reversed(self.history) if each.at <= now - RATE_WINDOW_MS), None)
        before = past.values if past else (0,) * len(COUNTED)
        return {what: count - old for what, count, old in zip(COUNTED, self.counts(), before, strict=True)}
