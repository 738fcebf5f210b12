"""When delayed messages become ready, and when those with a time to live expire."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from kingdom.mq import names
from kingdom.mq.budget import Budget
from kingdom.mq.expiries import Expiries
from kingdom.mq.names import NEVER
from kingdom.mq.queue_state import QueueState
from kingdom.mq.queues import QueueStates
from kingdom.mq.stores.base import MessageStore

RELEASED_BY_A_CALL = 64
RELEASED_AT_ONCE = 250


class Timers:
    def __init__(self, store: MessageStore, queues: QueueStates) -> None:
        self._store = store
        self._queues = queues
        #: A heap of (when, queue name): a delayed message of the queue may be due.
        self._releases: list[tuple[int, str]] = []
        self.expiries = Expiries(queues)
        #: A heap of (when, name of a dead-letter queue): a dead letter that was given back may be consumed again.
        self._rests: list[tuple[int, str]] = []

    def begin(self, now: int) -> None:
        """Begin anew: the store is about to be loaded."""
        self._releases.clear()
        self.expiries.begin(now)
        self._rests.clear()

    def add(self, queue: QueueState, name: str, due: int, now: int) -> None:
        """Add a message to its queue, ready or delayed."""
        if len(name) != names.PLAIN_LENGTH:
            self.expiries.add(queue, name)
        if due <= now:
            queue.add_ready(name)
            self._queues.arrived.add(queue.name)
            return
        queue.add_delayed(name)
        if due < queue.next_release:
            queue.next_release = due
            heappush(self._releases, (due, queue.name))

    def fill(self, queue: QueueState, found: list[str], now: int) -> int:
        """Add all that wait in a queue, after a start. Returns the sequence to go on from."""
        sequence, expiring = queue.fill(found, now)
        for name in expiring:
            self.expiries.inherit(queue, name)
        if queue.ready_count:
            self._queues.arrived.add(queue.name)
        self._set_next_release(queue)
        return sequence

    def judge_inherited(self, queue: QueueState, ahead: int) -> None:
        """Judge anew when delayed messages from before the start are due, by a wall clock set forward by `ahead` ms."""
        queue.judge_inherited(ahead)
        self._set_next_release(queue)

    def rest(self, queue: QueueState, until: int) -> None:
        """Let those who wait for dead letters of a queue look again then."""
        heappush(self._rests, (until, queue.policy.dlq_of(queue.name)))

    def release_due(self, queue: QueueState, now: int, most: int = RELEASED_BY_A_CALL) -> int:
        """Make some delayed messages of a queue that are due by now ready; the next sweep goes on. Returns how many."""
        released = queue.release_due(now, most)
        if released:
            self._queues.arrived.add(queue.name)
            self._store.release_due(queue.name, now, released)
        self._set_next_release(queue)
        return released

    def release_all_due(self, now: int, budget: Budget) -> None:
        """Make the delayed messages of all queues that are due by now ready, as many as the budget allows; and the
        dead letters that have rested."""
        while self._rests and self._rests[0][0] <= now and budget.is_left():
            self._queues.arrived.add(heappop(self._rests)[1])
            budget.spend()
        while self._releases and self._releases[0][0] <= now and budget.is_left():
            queue = self._queues.by_name.get(heappop(self._releases)[1])
            budget.spend()
            if queue is not None and queue.next_release <= now:
                budget.spend(self.release_due(queue, now, RELEASED_AT_ONCE))

    def take_expired(self, now: int, budget: Budget) -> Iterator[tuple[QueueState, str]]:
        """Remove from their queues and yield messages that waited too long, as many as the budget allows."""
        while budget.is_left() and (expired := self.expiries.pop(now)) is not None:
            budget.spend()
            queue = self._queues.by_name.get(expired[0])
            if queue is not None and queue.remove_expired(expired[1]):
                yield queue, expired[1]

    def next_due(self) -> int:
        due = self.expiries.next_end()
        for heap in (self._releases, self._rests):
            if heap and heap[0][0] < due:
                due = heap[0][0]
        return due

    def _set_next_release(self, queue: QueueState) -> None:
        queue.next_release = queue.first_due()
        if queue.next_release != NEVER:
            heappush(self._releases, (queue.next_release, queue.name))
