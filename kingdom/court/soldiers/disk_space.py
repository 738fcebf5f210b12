"""Whether the home's disk is too full for soldiers. Loads nothing: soldiers ask it too."""

from __future__ import annotations

import os

FULL_PERCENT = 97.0
"""A disk fuller than this ends soldiers before it ends the kingdom."""


def why_full(home: str | os.PathLike[str]) -> str:
    """Return in words how full the disk is when it is too full; "" when it is not."""
    disk = os.statvfs(home)
    full = 100.0 * (1.0 - disk.f_bavail / disk.f_blocks) if disk.f_blocks else 0.0
    if full > FULL_PERCENT:
        return f"the disk is {full:.0f} % full"
    used = 100.0 * (1.0 - disk.f_favail / disk.f_files) if disk.f_files else 0.0
    return f"the disk is full: {used:.0f} % of its inodes are used" if used > FULL_PERCENT else ""
