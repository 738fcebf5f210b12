"""Delayed messages that an earlier run has left: they are due by the wall clock, which may be set meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop

from kingdom.mq import names
from kingdom.mq.names import NEVER
from kingdom.mq.ordered_names import OrderedNames


class Inherited:
    """None of them waits longer than it was to wait when it was published or failed, counted from the start."""

    __slots__ = ("_ahead", "_ends", "_started", "names")

    def __init__(self, turned: Iterable[str] = (), started: int = 0) -> None:
        #: Turned by names.due_first.
        self.names = OrderedNames(turned)
        self._started = started
        #: By how many ms the wall clock has been set forward since the start.
        self._ahead = 0
        #: A heap of (when, turned name): the message has waited long enough, whatever the wall clock says.
        self._ends: list[tuple[int, str]] = []

    def judge(self, ahead: int, longest_wait: Callable[[str], int]) -> None:
        """Judge anew when each is due, by a wall clock that has been set forward by `ahead` ms since the start."""
        self._ahead = ahead
        ends = ((self._started + longest_wait(names.rank_first(turned)), turned) for turned in self.names)
        self._ends = [end for end in ends if end[0] < self._due(end[1])]
        heapify(self._ends)

    def first_due(self) -> int:
        """Return when the next one is due, by the engine's clock."""
        while self._ends and self._ends[0][1] not in self.names:
            heappop(self._ends)
        due = self._due(self.names.first()) if self.names else NEVER
        return min(due, self._ends[0][0]) if self._ends else due

    def pop_due(self, now: int) -> str:
        """Remove and return the turned name of one that is due by now; an empty text when there is none."""
        if self.first_due() > now:
            return ""
        if self._ends and self._ends[0][0] <= now:
            turned = heappop(self._ends)[1]
            self.names.remove(turned)
            return turned
        return self.names.pop_first()

    def _due(self, turned: str) -> int:
        return int(turned[names.TURNED_DUE]) - self._ahead
