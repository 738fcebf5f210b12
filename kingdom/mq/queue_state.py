"""One queue in memory: who waits in which order, and what has been counted."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, merge
from itertools import chain, islice
from typing import NamedTuple

from kingdom.base.retry import backoff
from kingdom.mq import names
from kingdom.mq.inherited import Inherited
from kingdom.mq.large_map import LargeMap
from kingdom.mq.message_format import quoted
from kingdom.mq.names import NEVER
from kingdom.mq.ordered_names import OrderedNames
from kingdom.mq.payload_rules import Check, checker
from kingdom.mq.policy import Policy

FEW = 100
LOOKED_AT_ONCE = 1024
TIMINGS = 1024
RATE_WINDOW_MS = 60_000
COUNTED = ("published", "consumed", "acked", "nacked", "failed")


class CountSample(NamedTuple):
    #: When the sample was taken, in ms.
    at: int
    #: One per name in COUNTED.
    values: tuple[int, ...]


class WaitingPart(NamedTuple):
    """Some of the names that wait."""

    names: list[str]
    #: Where the first of them stands in QueueState.ready; -1: they stand elsewhere.
    at: int


class QueueState:
    """Waiting messages are kept by name alone: a name is its order, its due time, its attempts and its id.

    Whatever happens to one of them costs about the same however many wait.
    """

    __slots__ = (
        "acked",
        "check",
        "consumed",
        "dead",
        "dead_apart",
        "dead_in_line",
        "dead_reasons",
        "dead_rests",
        "dead_returned",
        "delayed",
        "failed",
        "handled_ms",
        "header",
        "header_at",
        "held",
        "history",
        "inflight",
        "inherited",
        "mortal",
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
        self.history: deque[CountSample] = deque()
        self.forget()
        self.set_policy(policy)

    def set_policy(self, policy: Policy) -> None:
        self.policy = policy
        #: What a payload must fit.
        self.check: Check | None = checker(policy.schema, policy.rules)

    def forget(self) -> None:
        """Forget where messages lie: it is about to be read anew. What was counted stays."""
        #: A heap of names that anybody may lease and that do not expire.
        self.ready: list[str] = []
        #: Names that anybody may lease, of messages with a time to live.
        self.mortal = OrderedNames()
        #: Names that only one consumer may lease, by its digest.
        self.targeted: dict[str, OrderedNames] = {}
        self.targeted_count = 0
        #: Names turned by names.due_first.
        self.delayed = OrderedNames()
        #: The delayed ones that were there at the start.
        self.inherited = Inherited()
        #: Dead letters by message id.
        self.dead = LargeMap[str, str]()
        #: The same turned by names.due_first, so that those that died first come first: those that nobody has consumed,
        #: those that a consumer has given back, and the quarantined.
        self.dead_in_line = OrderedNames()
        self.dead_returned = OrderedNames()
        self.dead_apart = OrderedNames()
        #: A heap of (when, turned name): the dead letter that a consumer has given back may be consumed again.
        self.dead_rests: list[tuple[int, str]] = []
        #: How many dead letters there are for each reason.
        self.dead_reasons: Counter[str] = Counter()
        #: Names of messages and dead letters, by id, that are being handed over to another store.
        self.held = LargeMap[str, str]()
        #: How many are out on a lease.
        self.inflight = 0
        #: When the next delayed message is due.
        self.next_release = NEVER

    def add_ready(self, name: str) -> None:
        if len(name) == names.PLAIN_LENGTH:
            heappush(self.ready, name)
        elif target := names.target_of(name):
            self.targeted.setdefault(target, OrderedNames()).add(name)
            self.targeted_count += 1
        elif names.expires_of(name):
            self.mortal.add(name)
        else:
            heappush(self.ready, name)

    def add_delayed(self, name: str) -> None:
        self.delayed.add(names.due_first(name))

    def fill(self, found: list[str], now: int) -> tuple[int, list[str]]:
        """Add all that wait, after a start: in one pass instead of one by one.

        Returns the highest sequence of those that are not due before now, since what is published next must come
        after it; and the names of those that expire.
        """
        now_text = f"{now:013d}"
        latest = ""
        due, plain = names.DUE, names.PLAIN_LENGTH
        inherited: list[str] = []
        mortal: list[str] = []
        expiring: list[str] = []
        targeted: dict[str, list[str]] = {}
        first = names.plain(0, 0, "")[: due.start]
        bound = first + now_text
        self.ready = [name for name in found if len(name) == plain and (first <= name < bound or name[due] < now_text)]
        if len(self.ready) < len(found):
            for name in found:
                if name[due] >= now_text:
                    latest = max(latest, name[names.SEQUENCE])
                elif len(name) == plain:
                    continue
                expires = names.expires_of(name)
                if expires:
                    expiring.append(name)
                if name[due] > now_text and self._longest_wait(name):
                    inherited.append(names.due_first(name))
                elif target := names.target_of(name):
                    targeted.setdefault(target, []).append(name)
                    self.targeted_count += 1
                elif expires:
                    mortal.append(name)
                else:
                    self.ready.append(name)
        heapify(self.ready)
        self.inherited, self.mortal = Inherited(inherited, now), OrderedNames(mortal)
        self.judge_inherited(0)
        self.targeted = {target: OrderedNames(waiting) for target, waiting in targeted.items()}
        return int(latest or 0), expiring

    def judge_inherited(self, ahead: int) -> None:
        """Judge anew when messages from before the start are due, by a wall clock set forward by `ahead` ms."""
        if self.inherited.names:
            self.inherited.judge(ahead, self._longest_wait)

    def due_of(self, name: str, now: int) -> int:
        """Return when a message that waits is due: by its name, but no later than it was to wait from now on."""
        due = names.due_of(name)
        return due if due <= now else min(due, now + self._longest_wait(name))

    def _longest_wait(self, name: str) -> int:
        """Return how many ms a message was to wait since it was published, or since it failed last."""
        if attempt := names.attempt_of(name):
            retry = self.policy.retry
            since_published = max(0, names.due_of(name) - names.created_of(name))
            return min(since_published, round(backoff(retry.shape, attempt, retry.initial_s, retry.longest_s) * 1000))
        return names.own_delay(name)

    def take(self, consumer: str) -> str | None:
        """Remove and return the next ready name for this consumer (its digest)."""
        ready = self.ready
        if not self.targeted_count and not self.mortal.count:
            return heappop(ready) if ready else None
        mine = self.targeted.get(consumer)
        heads = [names.first() for names in (self.mortal, mine) if names]
        if not heads or (ready and ready[0] < min(heads)):
            return heappop(ready) if ready else None
        name = min(heads)
        if mine and mine.first() == name:
            self._take_targeted(consumer, name)
        else:
            self.mortal.pop_first()
        return name

    def take_any(self) -> str | None:
        """Remove and return the waiting name that comes first, whoever it is for; the delayed ones come last."""
        name = self.take("")
        if name is None and self.targeted:
            target, waiting = next(iter(self.targeted.items()))
            name = waiting.first()
            self._take_targeted(target, name)
        if name is None and (line := self._a_delayed_line()):
            name = names.rank_first(line.pop_first())
        return name

    def _a_delayed_line(self) -> OrderedNames:
        """Return names of delayed messages: some of this run or, if it has none, those from before."""
        return self.delayed or self.inherited.names

    def remove(self, name: str, at: int) -> bool:
        """Remove a waiting name that was found `at` a place of `ready`, or elsewhere (-1). Return whether it waited."""
        if at < 0:
            return self.remove_expired(name)
        if self.ready[at : at + 1] != [name]:
            return False
        while at:  # each of those above comes one step down; what is then twice at the top goes
            self.ready[at], at = self.ready[(at - 1) // 2], (at - 1) // 2
        heappop(self.ready)
        return True

    def has_ready(self, consumer: str) -> bool:
        """Return whether there is a ready name for this consumer (its digest)."""
        return bool(self.ready or self.mortal or consumer in self.targeted)

    def _take_targeted(self, target: str, name: str) -> bool:
        """Remove a name from those of one consumer. Return whether it was there."""
        waiting = self.targeted.get(target)
        if waiting is None or not waiting.remove(name):
            return False
        self.targeted_count -= 1
        if not waiting:
            del self.targeted[target]
        return True

    def pop_any(self) -> str | None:
        """Remove and return the waiting name that is least work to take out, whoever it is for."""
        if self.ready:
            return self.ready.pop()
        if self.mortal:
            return self.mortal.pop_last()
        if self.targeted:
            target, waiting = next(iter(self.targeted.items()))
            name = waiting.first()
            self._take_targeted(target, name)
            return name
        line = self._a_delayed_line()
        return names.rank_first(line.pop_last()) if line else None

    def release_due(self, now: int, most: int) -> int:
        """Make up to `most` delayed messages that are due by now ready. Returns how many."""
        now_text = f"{now:013d}"
        released = 0
        while released < most and self.delayed and self.delayed.first()[names.TURNED_DUE] <= now_text:
            self.add_ready(names.rank_first(self.delayed.pop_first()))
            released += 1
        while released < most and (turned := self.inherited.pop_due(now)):
            self.add_ready(names.rank_first(turned))
            released += 1
        return released

    def first_due(self) -> int:
        """Return when the next delayed message is due."""
        due = int(self.delayed.first()[names.TURNED_DUE]) if self.delayed else NEVER
        return min(due, self.inherited.first_due())

    def remove_expired(self, name: str) -> bool:
        """Remove a message with a time to live, wherever it waits. Return whether it waited."""
        turned = names.due_first(name)
        if self.delayed.remove(turned) or self.inherited.names.remove(turned):
            return True
        if target := names.target_of(name):
            return self._take_targeted(target, name)
        return self.mortal.remove(name)

    def holds(self, name: str) -> bool:
        """Return whether a message with a time to live waits here."""
        turned = names.due_first(name)
        if turned in self.delayed or turned in self.inherited.names:
            return True
        return name in (self.targeted.get(target, ()) if (target := names.target_of(name)) else self.mortal)

    def __len__(self) -> int:
        return self.ready_count + self.delayed_count

    def __contains__(self, name: object) -> bool:
        return any(name == waiting for waiting in self)

    def __iter__(self) -> Iterator[str]:
        """Yield every waiting name, in no order."""
        return chain(self._ready_ones(), map(names.rank_first, chain(self.delayed, self.inherited.names)))

    def _ready_ones(self) -> Iterator[str]:
        return chain(self.ready, self.mortal, *self.targeted.values())

    def first(self, limit: int) -> list[str]:
        """Return the names that come next, the delayed ones behind the ready ones."""
        ready = list(islice(merge(_in_order(self.ready), self.mortal, *self.targeted.values()), limit))
        return ready + [names.rank_first(turned) for turned in islice(self._delayed_in_order(), limit - len(ready))]

    def _delayed_in_order(self) -> Iterator[str]:
        return merge(self.delayed, self.inherited.names)

    def parts(self) -> Iterator[WaitingPart]:
        """Yield every waiting name, some at a time, whatever is done with the queue between two parts."""
        for turned in (*self.delayed.parts(), *self.inherited.names.parts()):
            yield WaitingPart([*map(names.rank_first, turned)], -1)
        # From the end on: what is taken from a heap moves others towards its beginning.
        end = len(self.ready)
        while end > 0:
            begin = max(0, end - LOOKED_AT_ONCE)
            yield WaitingPart(self.ready[begin:end], begin)
            end = min(begin, len(self.ready))
        for ordered in (self.mortal, *self.targeted.values()):
            for part in ordered.parts():
                yield WaitingPart(part, -1)

    def oldest(self) -> int:
        """Return when the oldest waiting message was published; in a long queue, the oldest of those that come next."""
        if len(self) <= FEW:
            waiting: Iterable[str] = self
        else:
            heads = [waiting.first() for waiting in (self.mortal, *self.targeted.values()) if waiting]
            waiting = [
                *self.ready[:1],
                *heads,
                *(names.rank_first(turned) for turned in islice(self._delayed_in_order(), 1)),
            ]
        return min(map(names.created_of, waiting), default=NEVER)

    @property
    def ready_count(self) -> int:
        return len(self.ready) + len(self.mortal) + self.targeted_count + len(self.held)

    @property
    def delayed_count(self) -> int:
        return len(self.delayed) + len(self.inherited.names)

    def add_dead(self, name: str, rests_until: int = 0) -> None:
        """Add a dead letter; one that is there under another name is replaced. One that a consumer has given back
        rests for a while, and is handed out after the others."""
        if name[names.MESSAGE_ID] in self.dead:
            self.remove_dead(name)
        self.dead.put(name[names.MESSAGE_ID], name)
        open_line = self.dead_returned if rests_until else self.dead_in_line
        line = self.dead_apart if names.is_quarantined(name) else open_line
        line.add(names.due_first(name))
        if line is self.dead_returned:
            heappush(self.dead_rests, (rests_until, names.due_first(name)))
        self.dead_reasons[names.reason_of(name)] += 1

    def fill_dead(self, found: list[str]) -> None:
        """Add all dead letters, after a start."""
        self.dead = LargeMap((name[names.MESSAGE_ID], name) for name in found)
        turned = [names.due_first(name) for name in self.dead.values()]
        self.dead_in_line = OrderedNames(name for name in turned if not names.is_quarantined(name))
        self.dead_apart = OrderedNames(name for name in turned if names.is_quarantined(name))
        self.dead_reasons = Counter(names.reason_of(name) for name in self.dead.values())

    def remove_dead(self, name: str) -> None:
        old = self.dead.pop(name[names.MESSAGE_ID], None)
        if old is None:
            return
        turned = names.due_first(old)
        _ = self.dead_in_line.remove(turned) or self.dead_returned.remove(turned) or self.dead_apart.remove(turned)
        if self.dead_rests and self.dead_rests[0][1] == turned:
            heappop(self.dead_rests)
        self.dead_reasons[names.reason_of(old)] -= 1

    def pop_dead(self) -> str:
        """Remove and return the dead letter that is least work to take out. There must be one."""
        line = next(line for line in (self.dead_in_line, self.dead_returned, self.dead_apart) if line)
        name = names.rank_first(line.first())
        self.remove_dead(name)
        return name

    def first_dead(self, now: int = NEVER) -> str:
        """Return the dead letter that may be consumed first: the quarantined stay where they are. Empty: none."""
        if self.dead_in_line:
            return names.rank_first(self.dead_in_line.first())
        while self.dead_rests and self.dead_rests[0][1] not in self.dead_returned:
            heappop(self.dead_rests)
        return names.rank_first(self.dead_rests[0][1]) if self.dead_rests and self.dead_rests[0][0] <= now else ""

    def first_dead_before(self, before: int) -> str:
        """Return a dead letter that died then or earlier, not a quarantined one. Empty: none."""
        for line in (self.dead_in_line, self.dead_returned):
            if line and names.due_of(name := names.rank_first(line.first())) <= before:
                return name
        return ""

    def all_dead(self) -> Iterator[str]:
        """Yield all dead letters, those that died first at the head."""
        return map(names.rank_first, merge(self.dead_in_line, self.dead_returned, self.dead_apart))

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
        self.history.append(CountSample(now, counts))
        while len(self.history) > 2 and self.history[1].at <= now - RATE_WINDOW_MS:
            self.history.popleft()
        return True

    def last_minute(self, now: int) -> dict[str, int]:
        """Return what was counted in the last minute."""
        past = next((sample for sample in reversed(self.history) if sample.at <= now - RATE_WINDOW_MS), None)
        before = past.values if past else (0,) * len(COUNTED)
        return {what: count - old for what, count, old in zip(COUNTED, self.counts(), before, strict=True)}


def _in_order(heap: list[str]) -> Iterator[str]:
    """Yield what a heap holds, the lowest first, and leave it as it is. The first few cost little."""
    frontier = [(heap[0], 0)] if heap else []
    while frontier:
        name, at = heappop(frontier)
        yield name
        for child in range(2 * at + 1, min(2 * at + 3, len(heap))):
            heappush(frontier, (heap[child], child))
