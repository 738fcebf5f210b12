"""What waits in one folder of a queue, in the order of service."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from typing import Generic

from kingdom.disk.atomic import is_there
from kingdom.records.messages import Queued
from kingdom.records.queues import Queue, R

LOOK_AGAIN_SECONDS = 0.5


class Backlog(Generic[R]):
    """Reads every file once. Arrivals are noted by name as they come; a rescan catches what inotify missed."""

    def __init__(
        self,
        queue: Queue[R],
        state: str = "pending",
        *,
        mine: Callable[[R], bool] | None = None,
        owner: bool = True,
    ) -> None:
        self._queue = queue
        self._state = state
        self._mine = mine
        self._owner = owner
        self._known: dict[str, Queued | None] = {}
        self._order: list[Queued] = []
        self._unfinished: set[str] = set()

    @property
    def unsettled(self) -> bool:
        """Whether something may still be written at this moment: rescan in LOOK_AGAIN_SECONDS."""
        return bool(self._unfinished)

    def rescan(self) -> None:
        self._unfinished.clear()
        there = self._queue.file_names(self._state)
        gone = self._known.keys() - set(there)
        if gone:
            self._known = {name: queued for name, queued in self._known.items() if name not in gone}
            self._order = [queued for queued in self._order if queued.filename not in gone]
        new = [queued for name in there if name not in self._known and (queued := self._look(name))]
        if new:
            self._order = sorted([*self._order, *new])

    def note(self, names: Iterable[str]) -> None:
        """Take in files that have arrived."""
        for name in names:
            if name not in self._known and (queued := self._look(name)):
                insort(self._order, queued)

    def drop(self, filenames: Iterable[str]) -> None:
        """Forget files that somebody has moved."""
        gone = set(filenames)
        for name in gone:
            self._known.pop(name, None)
        self._order = [queued for queued in self._order if queued.filename not in gone]

    def __iter__(self) -> Iterator[Queued]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def _look(self, filename: str) -> Queued | None:
        record = self._queue.take(self._state, filename, owner=self._owner)
        self._unfinished.discard(filename)
        if record is None:
            if self._owner and is_there(self._queue.folder(self._state) / filename):
                self._unfinished.add(filename)
            return None
        mine = self._mine is None or self._mine(record)
        self._known[filename] = record.queued() if mine else None
        return self._known[filename]
