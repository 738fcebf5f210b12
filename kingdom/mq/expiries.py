"""When messages with a time to live expire."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from kingdom.mq import names
from kingdom.mq.names import MESSAGE_ID, NEVER
from kingdom.mq.queue_state import QueueState
from kingdom.mq.queues import QueueStates


class Expiries:
    """Those from an earlier run expire by the wall clock, which may be set meanwhile, but none lives longer after the
    start than it was to live when it was published."""

    def __init__(self, queues: QueueStates) -> None:
        self._queues = queues
        self.begin(0)

    def begin(self, now: int) -> None:
        """Begin anew: the store is about to be loaded."""
        self._started = now
        #: By how many ms the wall clock has been set forward since the start.
        self._ahead = 0
        #: Heaps of (when, queue, name): of this run, and of earlier ones.
        self._own: list[tuple[int, str, str]] = []
        self._inherited: list[tuple[int, str, str]] = []
        #: When a message ends at the latest, by its id, where the clock was ahead when it was published.
        self._latest: dict[str, int] = {}

    def inherit(self, queue: QueueState, name: str) -> None:
        """Add a message that was there at the start."""
        if (created := names.created_of(name)) >= self._started:
            self._latest[name[MESSAGE_ID]] = self._started + names.expires_of(name) - created
        heappush(self._inherited, (self.end_of(name), queue.name, name))

    def add(self, queue: QueueState, name: str) -> None:
        """Add a message that waits, if it has a time to live."""
        if end := self.end_of(name):
            heappush(self._inherited if self._is_inherited(name) else self._own, (end, queue.name, name))

    def judge(self, ahead: int) -> None:
        """Judge anew when those from before the start expire, by a wall clock set forward by `ahead` ms."""
        self._ahead = ahead
        self._inherited = [(self.end_of(name), queue, name) for _, queue, name in self._inherited]
        heapify(self._inherited)

    def end_of(self, name: str) -> int:
        """Return when a message expires, by the engine's clock; 0: never."""
        expires = names.expires_of(name)
        if not expires or not self._is_inherited(name):
            return expires
        return min(expires - self._ahead, self._latest.get(name[MESSAGE_ID], NEVER))

    def pop(self, now: int) -> tuple[str, str] | None:
        """Remove one that expires by now, and return its queue and its name; it may be gone."""
        for heap in (self._own, self._inherited):
            if heap and heap[0][0] <= now:
                return heappop(heap)[1:]
        return None

    def next_end(self) -> int:
        return min((heap[0][0] for heap in (self._own, self._inherited) if heap), default=NEVER)

    def depend_on_wall_clock(self) -> bool:
        """Return whether any from before the start still waits."""
        while self._inherited:
            _, queue_name, name = self._inherited[0]
            if (queue := self._queues.by_name.get(queue_name)) is not None and queue.holds(name):
                return True
            heappop(self._inherited)
        return False

    def _is_inherited(self, name: str) -> bool:
        return names.created_of(name) < self._started or name[MESSAGE_ID] in self._latest
