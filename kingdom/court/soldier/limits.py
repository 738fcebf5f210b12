"""Limits of a running engine that no rlimit enforces for a whole tree of processes."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from kingdom.base.runtime.processes import stat_fields, tree
from kingdom.court.soldiers.disk_space import why_full
from kingdom.court.soldiers.streams import LARGEST_OUTPUT

DISK, OUTPUT, PROCESSES, MEMORY, PROCESSOR = "disk", "output", "processes", "memory", "processor"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class Exceeded(NamedTuple):
    """A limit that was exceeded."""

    #: Which one: one of the five words above.
    limit: str
    #: By how much, in words.
    why: str


class Limits:
    def __init__(self, home: str, limits: Mapping[str, int], streams: Sequence[str]) -> None:
        self._home = home
        self._limits = limits
        self._streams = streams
        self._worked_before = _seconds_of_the_ended()

    def exceeded(self) -> Exceeded | None:
        """Return the limit that the engine and its descendants are over; None while they are within all of them."""
        members = tree(os.getpid())
        if len(members) > self._limits["processes"]:
            return Exceeded(PROCESSES, f"{len(members)} processes, more than {self._limits['processes']}")
        used = _memory(members, self._limits["memory_mb"] << 20) >> 20
        if used > self._limits["memory_mb"]:
            return Exceeded(MEMORY, f"{used} MB of memory, more than {self._limits['memory_mb']}")
        worked = _processor_seconds(members) - self._worked_before
        if worked > self._limits["cpu_seconds"]:
            why = f"{worked:.0f} s of processor time, more than {self._limits['cpu_seconds']}"
            return Exceeded(PROCESSOR, why)
        if any(os.stat(stream).st_size > LARGEST_OUTPUT for stream in self._streams):
            return Exceeded(OUTPUT, f"more than {LARGEST_OUTPUT >> 20} MB of output")
        return self._full_disk()

    def exceeded_at_end(self, peak_mb: int) -> Exceeded | None:
        """Return the limit that may have ended an engine without a result, faster than it is measured.

        `peak_mb` is the most memory that one of its processes had.
        """
        if peak_mb >= self._limits["memory_mb"]:
            return Exceeded(MEMORY, f"{peak_mb} MB of memory, more than {self._limits['memory_mb']}")
        return self._full_disk()

    def _full_disk(self) -> Exceeded | None:
        why = why_full(self._home)
        return Exceeded(DISK, why) if why else None


def _memory(pids: Iterable[int], enough: int) -> int:
    """Return the memory of all processes; only if that exceeds `enough`, each shared page is counted once."""
    pids = list(pids)
    unmapped = _memory_files(pids)
    found = unmapped + sum(_resident(pid) for pid in pids)
    return found if found <= enough else unmapped + sum(_proportional(pid) for pid in pids)


def _memory_files(pids: Iterable[int]) -> int:
    """Return what files without a name hold (memfd_create): they are in memory, also while nobody has them mapped."""
    held: dict[tuple[int, int], int] = {}
    for pid in pids:
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{name}").startswith("/memfd:"):
                        about = os.stat(f"/proc/{pid}/fd/{name}")
                        held[about.st_dev, about.st_ino] = about.st_blocks * 512
    return sum(held.values())


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            return next(int(line.split()[1]) << 10 for line in rollup if line.startswith(b"Pss:"))
    except (OSError, StopIteration):
        return _resident(pid)


def _processor_seconds(pids: Iterable[int]) -> float:
    """Count the living with the children whose end they have seen, and those whose end we have seen ourselves."""
    rows = (fields for pid in pids if (fields := stat_fields(pid)))
    living = sum(sum(int(ticks) for ticks in fields[11:15]) for fields in rows) / _TICKS
    return living + _seconds_of_the_ended()


def _seconds_of_the_ended() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime
