"""Ids that count up, and never give a number twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

from kingdom.base.disk.atomic import Disk, Item


def by_day_and_number(name: str) -> tuple[str, int, str]:
    """Return a sort key by which `task-20261118-1000` follows `task-20261118-999`."""
    day, _, number = name.rpartition("-")
    return day, len(number), number


class DailyCounter:
    """Ids that count up within a day: `20261118-001`. They survive restarts and never go back, as clocks may.

    The file holds the last number that may have been given away; a number is noted there before it is used,
    with some more `ahead`, so that not every id costs a write. Only a kill leaves a gap.
    """

    def __init__(self, disk: Disk, path: Path, used: Callable[[str], int], ahead: int = 0) -> None:
        self._disk = disk
        self._path = path
        self._used = used
        self._ahead = ahead
        self._day, self._last = self._remembered()
        self._noted = self._last

    def take(self, count: int, today: date) -> list[str]:
        day = today.strftime("%Y%m%d")
        if day > self._day:
            # Where no day was noted, or it was damaged, it goes on after the highest number that is seen in use.
            self._day, self._last, self._noted = day, 0 if self._day else self._used(day), 0
        first = self._last + 1
        if self._last + count > self._noted:
            noted = self._last + count + self._ahead
            self._disk.rewrite_all([self._file(noted)])
            self._noted = noted
        self._last += count
        return [f"{self._day}-{number:03d}" for number in range(first, first + count)]

    def without_rest(self) -> list[Item]:
        """Return the file that gives back what was noted ahead, to be written at the end; [] if nothing was."""
        return [self._file(self._last)] if self._noted > self._last else []

    def _file(self, number: int) -> Item:
        return self._path, f"{self._day}:{number:03d}\n".encode()

    def _remembered(self) -> tuple[str, int]:
        try:
            written = re.fullmatch(r"(\d{8}):(\d{1,12})\s*", self._path.read_text("ascii"))
        except (OSError, UnicodeDecodeError):
            written = None
        if written is None:
            return "", 0
        # A file put back from a copy may be behind what is in use.
        return written[1], max(int(written[2]), self._used(written[1]))


def highest_number(folders: list[Path], shape: str) -> Callable[[str], int]:
    """Return the highest number of a day, for `DailyCounter`, among files like `task-{day}-` in these folders."""

    def used(day: str) -> int:
        pattern = re.compile(rf"{re.escape(shape.format(day=day))}(\d+)\.json")
        names = (entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir())
        return max((int(found[1]) for name in names if (found := pattern.fullmatch(name))), default=0)

    return used
