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
TIMINGS = 1024
RATE_WINDOW_MS = 60_000
COUNTED = ("published", "consumed", "acked", "nacked", "failed")


class Counts(NamedTuple):
    #: When the sample was taken, in ms.
    at: int
    #: One per name in COUNTED.
    values: tuple[int, ...]


class QueueState:
    """Waiting messages stand in heaps by name alone: a name is its order, its due time, its attempts and its id."""

    __slots__ = (
        "acked",
        "check",
        "consumed",
        "dead",
        "delayed",
        "expiring",
        "failed",
        "handled_ms",
        "header",
        "header_at",
        "history",
        "inflight",
        "nacked",
        "name",
        "next_release",
        "paused",
        "policy",
        "published",
        "quoted_name",
        "ready",
        "targeted",
        "targeted_count",
        "timings",
        "timings_next",
    )

    def __init__(self, name: str, policy: Policy, paused: bool = False) -> None:
        self.name = name
        #: The name as JSON.
        self.quoted_name = quoted(name)
        #: The header of plain messages published at `header_at`, which they share.
        self.header, self.header_at = "", -1
        self.paused = paused
        self.published = self.consumed = self.acked = self.nacked = self.failed = 0
        #: The time from lease to ack, summed up.
        self.handled_ms = 0
        #: The latest of these times, the oldest overwritten first.
        self.timings = array("Q")
        self.timings_next = 0
        #: Samples of the counts, for the rates.
        self.history: deque[Counts] = deque()
        self.forget()
        self.set_policy(policy)

    def set_policy(self, policy: Policy) -> None:
        self.policy = policy
        #: What a payload must fit.
        self.check: Check | None = checker(policy.schema, policy.rules)

    def forget(self) -> None:
        """Forget where messages lie: it is about to be read anew. What was counted stays."""
        #: A heap of names that anybody may lease.
        self.ready: list[str] = []
        #: Heaps of names that only one consumer may lease, by its digest.
        self.targeted: dict[str, list[str]] = {}
        self.targeted_count = 0
        #: A heap of names turned by names.due_first.
        self.delayed: list[str] = []
        #: Dead letters by message id, those that died first at the head.
        self.dead: OrderedDict[str, str] = OrderedDict()
        #: The names of those that wait and have a time to live.
        self.expiring: set[str] = set()
        #: How many are out on a lease.
        self.inflight = 0
        #: When the next delayed message is due.
        self.next_release = NEVER

    def add_ready(self, name: str) -> None:
        if len(name) == names.PLAIN_LENGTH:
            heappush(self.ready, name)
            return
        if target := names.target_of(name):
            heappush(self.targeted.setdefault(target, []), name)
            self.targeted_count += 1
        else:
            heappush(self.ready, name)
        if names.expires_of(name):
            self.expiring.add(name)

    def add_delayed(self, name: str) -> None:
        heappush(self.delayed, names.due_first(name))
        if names.expires_of(name):
            self.expiring.add(name)

    def fill(self, found: list[str], now: int) -> int:
        """Add all that wait, after a start: in one pass instead of a push each.

        Returns the highest sequence of those that are not due before now: what is published next must come after it.
        """
        now_text = f"{now:013d}"
        latest = ""
        due, plain = names.DUE, names.PLAIN_LENGTH
        self.ready = [name for name in found if len(name) == plain and name[due] < now_text]
        if len(self.ready) < len(found):
            for name in found:
                if name[due] >= now_text:
                    latest = max(latest, name[names.SEQUENCE])
                elif len(name) == plain:
                    continue
                if name[due] > now_text:
                    self.delayed.append(names.due_first(name))
                elif target := names.target_of(name):
                    self.targeted.setdefault(target, []).append(name)
                    self.targeted_count += 1
                else:
                    self.ready.append(name)
                if names.expires_of(name):
                    self.expiring.add(name)
        heapify(self.ready)
        heapify(self.delayed)
        for heap in self.targeted.values():
            heapify(heap)
        return int(latest or 0)

    def take(self, consumer: str) -> str | None:
        """Remove and return the next ready name for this consumer (its digest)."""
        ready = self.ready
        if not self.targeted_count:
            return heappop(ready) if ready else None
        mine = self.targeted.get(consumer)
        if mine and (not ready or mine[0] < ready[0]):
            self.targeted_count -= 1
            name = heappop(mine)
            if not mine:
                del self.targeted[consumer]
            return name
        return heappop(ready) if ready else None

    def pop_any(self) -> str | None:
        """Remove and return the waiting name that is least work to take out, whoever it is for."""
        if self.ready:
            name = self.ready.pop()
        elif self.targeted:
            digest, heap = next(iter(self.targeted.items()))
            name = heap.pop()
            self.targeted_count -= 1
            if not heap:
                del self.targeted[digest]
        elif self.delayed:
            name = names.rank_first(self.delayed.pop())
        else:
            return None
        self.expiring.discard(name)
        return name

    def release_due(self, now: int) -> int:
        """Make delayed messages due by now ready. Returns how many."""
        now_text = f"{now:013d}"
        released = 0
        while self.delayed and self.delayed[0][names.TURNED_DUE] <= now_text:
            self.add_ready(names.rank_first(heappop(self.delayed)))
            released += 1
        return released

    def first_due(self) -> int:
        """Return when the next delayed message is due."""
        return int(self.delayed[0][names.TURNED_DUE]) if self.delayed else NEVER

    def remove(self, name: str) -> None:
        """Remove from the middle: rare, and as slow as the queue is long."""
        heaps: list[list[str]] = [self.ready, *self.targeted.values()]
        for heap in heaps:
            if name in heap:
                heap.remove(name)
                heapify(heap)
                self.targeted_count -= heap is not self.ready
        turned = names.due_first(name)
        if turned in self.delayed:
            self.delayed.remove(turned)
            heapify(self.delayed)
        self.expiring.discard(name)

    def __len__(self) -> int:
        return self.ready_count + len(self.delayed)

    def __contains__(self, name: object) -> bool:
        return any(name == waiting for waiting in self)

    def __iter__(self) -> Iterator[str]:
        """Yield every waiting name, in no order."""
        return chain(self.ready, *self.targeted.values(), map(names.rank_first, self.delayed))

    def first(self, limit: int) -> list[str]:
        """Return the names that come next, the delayed ones behind the ready ones."""
        ready = nsmallest(limit, chain(self.ready, *self.targeted.values()))
        return ready + [names.rank_first(turned) for turned in nsmallest(limit - len(ready), self.delayed)]

    def find(self, message_id: str) -> str | None:
        """Return the waiting name of a message. As slow as the queue is long: for telling a caller what was wrong."""
        return next((name for name in self if name.endswith(message_id)), None)

    def oldest(self) -> int:
        """Return when the oldest waiting message was published; in a long queue, the oldest of those that come next."""
        if len(self) <= FEW:
            waiting: Iterable[str] = self
        else:
            heads = [heap[0] for heap in (self.ready, *self.targeted.values()) if heap]
            waiting = [*heads, *(names.rank_first(turned) for turned in self.delayed[:1])]
        return min(map(names.created_of, waiting), default=NEVER)

    @property
    def ready_count(self) -> int:
        return len(self.ready) + self.targeted_count

    def add_dead(self, name: str) -> None:
        self.dead[name[names.MESSAGE_ID]] = name

    def remove_dead(self, name: str) -> None:
        del self.dead[name[names.MESSAGE_ID]]

    def first_dead(self) -> str:
        """Return the dead letter that may be consumed first: the quarantined stay where they are. Empty: none."""
        return next((name for name in self.dead.values() if not names.is_quarantined(name)), "")

    def note_handled(self, ms: int) -> None:
        """Count the time from a lease to its ack."""
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

    def sample_counts(self, now: int) -> bool:
        """Take a sample for the rates, about once a second while something happens. False: nothing has happened."""
        counts = self.counts()
        if self.history and self.history[-1].values == counts:
            return False
        self.history.append(Counts(now, counts))
        while len(self.history) > 2 and self.history[1].at <= now - RATE_WINDOW_MS:
            self.history.popleft()
        return True

    def last_minute(self, now: int) -> dict[str, int]:
        """Return what was counted in the last minute."""
        past = next((sample for sample in reversed(self.history) if sample.at <= now - RATE_WINDOW_MS), None)
        before = past.values if past else (0,) * len(COUNTED)
        return {what: count - old for what, count, old in zip(COUNTED, self.counts(), before, strict=True)}
