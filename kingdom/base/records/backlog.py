"""What waits in one folder of a queue, in the order of service."""

from __future__ import annotations

import os
from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from kingdom.base.records.messages import Filed, Queued
from kingdom.base.records.queues import Queue, R

LOOK_AGAIN_SECONDS = 0.5
MOST_KEPT = 512
LARGEST_KEPT = 16 << 10
"""Records are kept between a look at their file and their turn, but only so many, and only small ones."""

Arrivals = Mapping[Path, list[str]] | None
Version = tuple[int, int, int]
T = TypeVar("T", bound=Filed)


def refresh_due(backlogs: Iterable[Backlog[Any]], arrivals: Arrivals, now: float) -> bool:
    """Refresh those for which something has arrived, or whose time it is. Return whether one was rescanned."""
    rescanned = False
    for backlog in backlogs:
        if arrivals is None or backlog.folder in arrivals or now >= backlog.next_look:
            rescanned |= backlog.refresh(arrivals, now)
    return rescanned


class _Kept(NamedTuple, Generic[T]):
    """A record as it was in one version of its file."""

    version: Version
    record: T


class Backlog(Generic[R]):
    """Reads every file once, when it arrives. A rescan now and then catches what inotify missed."""

    def __init__(
        self,
        queue: Queue[R],
        state: str = "pending",
        *,
        period: Callable[[], float],
        mine: Callable[[R], bool] | None = None,
        owner: bool = True,
        most_kept: int = MOST_KEPT,
    ) -> None:
        self._queue = queue
        self.folder = queue.folders[state]
        self._state = state
        self._period = period
        self._mine = mine
        self._owner = owner
        self._most_kept = most_kept
        self._known: dict[str, Queued | None] = {}
        self._kept: dict[str, _Kept[R]] = {}
        self._unfinished: set[str] = set()
        self.waiting: list[Queued] = []
        """What waits, in the order of service."""
        self.next_look = 0.0
        """When `refresh` wants to be called at the latest, by the monotonic clock."""
        self.unsettled = False
        """Whether something may still be written at this moment: rescan in LOOK_AGAIN_SECONDS."""

    def refresh(self, arrivals: Arrivals, now: float) -> bool:
        """Take in what has arrived; rescan when arrivals were lost or it is time to. Return whether it rescanned."""
        rescans = arrivals is None or now >= self.next_look
        if arrivals is None or rescans:
            self.rescan()
            self.next_look = now + self._period()
        else:
            self.note(arrivals.get(self.folder, ()))
        if self._unfinished:
            self.next_look = min(self.next_look, now + LOOK_AGAIN_SECONDS)
        return rescans

    def rescan(self) -> None:
        self._unfinished.clear()
        self.unsettled = False
        there = self._queue.file_names(self._state)
        self.drop(self._known.keys() - set(there))
        new = [queued for name in there if name not in self._known and (queued := self._look(name))]
        if new:
            self.waiting = sorted([*self.waiting, *new])

    def note(self, names: Iterable[str]) -> None:
        """Take in files that have arrived. Echoes of our own renames are known, or gone again."""
        for name in names:
            if name not in self._known and (queued := self._look(name)):
                insort(self.waiting, queued)

    def take(self, filename: str) -> R | None:
        """Return the record that waits in a file, read again only if the file has changed since it arrived.

        None when the file is gone or cannot be read.
        """
        version = self._version(filename)
        kept = self._kept.get(filename)
        if kept is not None and kept.version == version:
            return kept.record
        record = self._queue.take(self._state, filename, owner=self._owner) if version else None
        if record is not None and filename in self._known:
            self._keep(filename, version, record)
        return record

    def drop(self, filenames: Iterable[str]) -> None:
        """Forget files that somebody has moved."""
        gone = set(filenames)
        for name in gone:
            self._known.pop(name, None)
            self._kept.pop(name, None)
        if gone:
            self.waiting = [queued for queued in self.waiting if queued.filename not in gone]

    def hold(self, filenames: Iterable[str]) -> None:
        """Take files out of `waiting` that somebody sees to; they come back when they are dropped and still there."""
        held = set(filenames)
        self.waiting = [queued for queued in self.waiting if queued.filename not in held]

    def give(self, filenames: Iterable[str], other: Backlog[R]) -> None:
        """Hand over files that were moved into the folder of another backlog, with what is known of them."""
        names = list(filenames)
        for name in names:
            queued = self._known.get(name)
            if queued is not None and name not in other._known:
                other._known[name] = queued
                insort(other.waiting, queued)
                if (kept := self._kept.get(name)) is not None:
                    other._kept[name] = kept
        self.drop(names)

    def _look(self, filename: str) -> Queued | None:
        # Before it is read: should the file change meanwhile, its version will not fit, and it is read again.
        version = self._version(filename)
        self._unfinished.discard(filename)
        record = self._queue.take(self._state, filename, owner=self._owner) if version else None
        if record is None:
            if self._owner and self._version(filename) is not None:
                self._unfinished.add(filename)
            self.unsettled = bool(self._unfinished)
            return None
        if self._mine is not None and not self._mine(record):
            self._known[filename] = None
            return None
        self.unsettled = bool(self._unfinished)
        self._keep(filename, version, record)
        queued = self._known[filename] = record.queued()
        return queued

    def _keep(self, filename: str, version: Version | None, record: R) -> None:
        has_room = filename in self._kept or len(self._kept) < self._most_kept
        if version is not None and version[2] <= LARGEST_KEPT and has_room:
            self._kept[filename] = _Kept(version, record)
        else:
            self._kept.pop(filename, None)

    def _version(self, filename: str) -> Version | None:
        try:
            about = os.lstat(f"{self.folder}/{filename}")
        except FileNotFoundError:
            return None
        return about.st_ino, about.st_mtime_ns, about.st_size
