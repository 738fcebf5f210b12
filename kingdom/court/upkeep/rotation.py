"""Rotate logs: rename them when they are large, and the internal events every day.

A log is renamed, never copied: writers open it for each write, so a line is in the old file or in the new one, and
whoever reads knows a file again by its inode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import count
from pathlib import Path

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import parse_json
from kingdom.base.errors import Collision
from kingdom.base.home.places import Places
from kingdom.base.times import moment

MEGABYTE = 1 << 20
FIRST_LINE = 4096


@dataclass(frozen=True, slots=True)
class Rotated:
    """A log that got another name."""

    file: str
    size_mb: float


def rotate(places: Places, disk: Disk, most_mb: float, hour: float, now: float, zone: tzinfo) -> Iterator[Rotated]:
    """Rename the logs that are too large, and that of internal events if it was begun on an earlier day.

    `hour` is when such a day begins.
    """
    for path in sorted(places.logs.glob("*.log")):
        with suppress(FileNotFoundError):
            size = os.lstat(path).st_size
            is_due = size > most_mb * MEGABYTE
            is_due = is_due or (path == places.events_log and _is_of_yesterday(path, hour, now, zone))
            if is_due and size:
                _rename(disk, path, datetime.fromtimestamp(now, zone))
                yield Rotated(path.name, round(size / MEGABYTE, 3))


def _rename(disk: Disk, path: Path, now: datetime) -> None:
    for again in count(1):
        more = f"-{again}" if again > 1 else ""
        try:
            disk.move(path, path.with_name(f"{path.name}.{now:%Y%m%d-%H%M%S}{more}"))
        except Collision:
            continue
        return


def _is_of_yesterday(path: Path, hour: float, now: float, zone: tzinfo) -> bool:
    """Return whether the first line of a log is of an earlier day than now; a damaged one says nothing."""
    with open(path, "rb") as log:
        line = log.readline(FIRST_LINE)
    try:
        begun = moment(parse_json(line)["ts"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return False
    return _day(begun, hour, zone) < _day(now, hour, zone)


def _day(at: float, hour: float, zone: tzinfo) -> str:
    return str((datetime.fromtimestamp(at, zone) - timedelta(hours=hour)).date())
