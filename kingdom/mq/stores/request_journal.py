"""What the file store remembers of requests: lines at the end of a file, forgotten a file at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

import orjson

from kingdom.mq.stores.base import DedupEntry

SEGMENT_BYTES = 4 << 20
MOST_BYTES = 192 << 20


class RequestJournal:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.unsynced = False
        self._fd = -1
        self._size = 0
        self._segment = 0

    def write(self, entries: Iterable[DedupEntry]) -> None:
        if self._fd < 0 or self._size >= SEGMENT_BYTES:
            self._turn()
        data = b"".join(orjson.dumps(tuple(entry)) + b"\n" for entry in entries)
        begin = self._size
        try:
            while data:
                written = os.write(self._fd, data)
                self._size += written
                data = data[written:]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, begin)  # half a line would spoil the next one
            self._size = begin
            raise
        self.unsynced = True

    def sync(self) -> None:
        if self.unsynced:
            os.fdatasync(self._fd)
            self.unsynced = False

    def read(self, since: int) -> Iterator[DedupEntry]:
        """Return the entries, oldest first, without a line that a crash cut short."""
        for segment in self._segments():
            with open(self._path(segment), "rb") as file:
                for line in file:
                    entry = _parsed(line)
                    if entry is not None and entry.at >= since:
                        yield entry

    def last(self) -> int:
        """Return when the last entry was made."""
        for segment in reversed(self._segments()):
            with open(self._path(segment), "rb") as file:
                times = [entry.at for line in file if (entry := _parsed(line)) is not None]
            if times:
                return times[-1]
        return 0

    def forget(self, before: int) -> None:
        """Drop whole files that hold nothing younger, and the oldest when they are too many."""
        segments = self._segments()[:-1]
        sizes = {segment: os.stat(self._path(segment)) for segment in segments}
        total = sum(about.st_size for about in sizes.values())
        for segment in segments:
            if sizes[segment].st_mtime * 1000 >= before and total <= MOST_BYTES:
                return
            total -= sizes[segment].st_size
            with suppress(FileNotFoundError):
                os.unlink(self._path(segment))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _turn(self) -> None:
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
            self._fd = -1
        self._segment = max([self._segment, *self._segments()], default=0) + 1
        self._fd = os.open(
            self._path(self._segment), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        self._size = os.fstat(self._fd).st_size

    def _segments(self) -> list[int]:
        try:
            found = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        stems = (name.removesuffix(".log") for name in found if name.endswith(".log"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def _path(self, segment: int) -> str:
        return f"{self.folder}/{segment:08d}.log"


def _parsed(line: bytes) -> DedupEntry | None:
    try:
        kind, at, queue, key, ids = orjson.loads(line)
    except ValueError:
        return None
    return DedupEntry(kind, at, queue, key, tuple(ids))
