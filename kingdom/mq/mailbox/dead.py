"""Requests that cannot be read or come from strangers, each with its reason: kept within bounds."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import to_json
from kingdom.base.times import stamp
from kingdom.mq.mailbox.pending import printable

REASON = ".reason"
REPORTED_AT_ONCE = 20
REPORT_AGAIN_SECONDS = 60.0


class Bounds(NamedTuple):
    files: int
    bytes: float
    seconds: float


class _Dead(NamedTuple):
    since: float
    name: str
    size: int


class DeadRequests:
    def __init__(
        self,
        folder: Path,
        disk: Disk,
        bounds: Bounds,
        clock: Callable[[], float],
        report: Callable[[str, str], None],
    ) -> None:
        self._folder = folder
        self._disk = disk
        self._bounds = bounds
        self._clock = clock
        self._report = report
        #: The oldest first.
        self._kept: deque[_Dead] = deque()
        self._bytes = 0
        #: How many were removed since the start, and how many of them the log does not know yet.
        self.removed = self._unreported = 0
        #: How many lines the log has got since a time, so that nobody fills it with rubbish.
        self._lines, self._lines_since = 0, clock()

    def open(self) -> None:
        """Find what is there."""
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if not entry.name.endswith(REASON):
                    about = entry.stat(follow_symlinks=False)
                    found.append(_Dead(min(about.st_mtime, about.st_ctime), entry.name, _size(about)))
        self._kept = deque(sorted(found))
        self._bytes = sum(one.size for one in found)
        self.tidy()

    def bury(self, file: Path, code: str, why: str) -> None:
        """Move a file here, with its reason beside it."""
        dead = self._free_path(file.name)
        now = self._clock()
        note = {"file": file.name, "reason": why, "code": code, "buried_at": stamp(now)}
        printed = {key: printable(part) for key, part in note.items()}
        self._disk.rewrite(dead.with_name(f"{dead.name}{REASON}"), to_json(printed))
        try:
            self._disk.move(file, dead)
        except BaseException:
            _remove(dead.with_name(f"{dead.name}{REASON}"))
            raise
        size = _size(os.lstat(dead))
        self._kept.append(_Dead(now, dead.name, size))
        self._bytes += size
        self._note(f"moved {file.name!r} to {dead}: {why}")
        self.tidy()

    def tidy(self) -> None:
        """Remove the oldest that are too many, too large together or too old; the last one only when it is too old."""
        now, removed = self._clock(), 0
        while self._kept and (
            self._kept[0].since + self._bounds.seconds < now
            or len(self._kept) > self._bounds.files
            or (self._bytes > self._bounds.bytes and len(self._kept) > 1)
        ):
            old = self._kept.popleft()
            self._bytes -= old.size
            _remove(self._folder / old.name)
            _remove(self._folder / f"{old.name}{REASON}")
            removed += 1
        self.removed += removed
        self._unreported += removed
        if self._unreported and self._may_report():
            self._report(f"removed {self._unreported} old files from {self._folder}: it is kept within bounds", "warn")
            self._unreported = 0

    def as_json(self) -> dict[str, int]:
        return {"files": len(self._kept), "bytes": self._bytes, "removed": self.removed}

    def _note(self, sentence: str) -> None:
        if self._may_report():
            self._report(sentence, "warn")

    def _may_report(self) -> bool:
        now = self._clock()
        if not 0 <= now - self._lines_since < REPORT_AGAIN_SECONDS:
            self._lines, self._lines_since = 0, now
        self._lines += 1
        return self._lines <= REPORTED_AT_ONCE

    def _free_path(self, name: str) -> Path:
        plain = name.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n")
        if len(plain.encode()) > 200:
            plain = plain.encode()[:160].decode("utf-8", "ignore")
        dead, number = self._folder / plain, 1
        while os.path.lexists(dead):
            number += 1
            dead = self._folder / f"{plain}.{number}"
        return dead


def _size(about: os.stat_result) -> int:
    """Return what a file takes on the disk: one with holes may be called very large."""
    return min(about.st_size, about.st_blocks * 512)


def _remove(path: Path) -> None:
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        pass
