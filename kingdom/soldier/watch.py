"""What a running engine uses, as long as it runs: the caps that no rlimit holds for a whole tree of processes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kingdom.processes import tree

FULL_PERCENT = 97.0
"""A disk fuller than this ends the soldier before it ends the kingdom."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    def __init__(self, home: str, limits: Mapping[str, int]) -> None:
        self._home = home
        self._limits = limits

    def excess(self) -> str | None:
        """Which cap the engine and its descendants are over; None while they are within all of them."""
        members = tree(os.getpid())
        if len(members) > self._limits["processes"]:
            return f"{len(members)} processes, more than {self._limits['processes']}"
        used = sum(_resident(pid) for pid in members) >> 20
        if used > self._limits["memory_mb"]:
            return f"{used} MB of memory, more than {self._limits['memory_mb']}"
        room = os.statvfs(self._home)
        full = 100.0 * (1.0 - room.f_bavail / max(1, room.f_blocks))
        if full > FULL_PERCENT:
            return f"the disk is {full:.0f} % full"
        return None


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0
