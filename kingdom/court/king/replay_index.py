"""Which event or scheduled run became which task: kept longer than their files, so that a replay is recognised."""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kingdom.base.disk.atomic import Disk

KEPT_DAYS = 400


class ReplayIndex:
    """Lines `<day> <key> <task id>`. In memory only 8 bytes for each; a hit is confirmed in the file."""

    def __init__(self, disk: Disk, path: Path, clock: Callable[[], float]) -> None:
        self._disk = disk
        self._path = path
        self._clock = clock
        self._hashes = self._load()

    def task_of(self, key: str) -> str | None:
        """Return the task that an event or a scheduled run became; None if it never became one."""
        data = key.encode()
        at = bisect_left(self._hashes, hash(data))
        is_likely = at < len(self._hashes) and self._hashes[at] == hash(data)
        return self._find(data) if is_likely else None

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Remember keys and their tasks; a key that is known stays with its first task."""
        new = [(key, task) for key, task in pairs if self.task_of(key) is None]
        if not new:
            return
        day = self._day(0)
        self._disk.append(self._path, "".join(f"{day} {key} {task}\n" for key, task in new).encode(), sync=True)
        for key, _ in new:
            insort(self._hashes, hash(key.encode()))

    def _find(self, key: bytes) -> str | None:
        try:
            with open(self._path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as lines:
                return _newest(lines, key)
        except (FileNotFoundError, ValueError):
            # Somebody has removed or emptied it.
            return None

    def _load(self) -> array[int]:
        """Read the file. Lines that are too old, or that a power cut left torn, are dropped."""
        oldest = self._day(KEPT_DAYS).encode()
        if any(line is None or line[0] < oldest for line in self._lines()):
            kept = [b"%b %b %b\n" % line for line in self._lines() if line and line[0] >= oldest]
            self._disk.rewrite(self._path, b"".join(kept))
        hashes = array("q", (hash(line[1]) for line in self._lines() if line))
        return array("q", sorted(hashes))

    def _lines(self) -> Iterator[tuple[bytes, bytes, bytes] | None]:
        """Yield day, key and task of every line; None for one that is damaged."""
        try:
            file = open(self._path, "rb")  # noqa: SIM115
        except FileNotFoundError:
            return
        with file:
            for line in file:
                parts = line.removesuffix(b"\n").split(b" ")
                sound = line.endswith(b"\n") and len(parts) == 3 and parts[0].isdigit()
                yield (parts[0], parts[1], parts[2]) if sound else None

    def _day(self, days_ago: int) -> str:
        return (datetime.fromtimestamp(self._clock(), UTC) - timedelta(days=days_ago)).strftime("%Y%m%d")


def _newest(lines: mmap.mmap, key: bytes) -> str | None:
    """Return what the last whole line of a key says: an older one may have been torn."""
    at = len(lines)
    while (at := lines.rfind(b" %b " % key, 0, at)) >= 0:
        begin, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
        if lines[begin:at].isdigit() and end > 0:
            return lines[at + len(key) + 2 : end].decode("utf-8", "replace")
    return None
