"""Heartbeats of foreign roles: another program, such as a shell script, may play a role without our lock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from kingdom.base.disk.codec import parse_json, read_bytes
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadFile
from kingdom.base.home.places import Places

OURS = b"\0kingdom."
"""In a command line: the module of a role."""
_TICKS = os.sysconf("SC_CLK_TCK")
CLOCK_TOLERANCE_SECONDS = 1.0
FUTURE_SECONDS = 60.0
"""The clock was set back since: who lives will write it anew."""


def foreign_age(places: Places, role: str, now: float) -> float | None:
    """Return the seconds since a foreign role's last heartbeat; None when no foreign one has written it.

    It is foreign when it is no record of ours, such as an empty file that is touched, or when it names a living process
    that runs another program than ours.
    """
    path = places.heartbeat(role)
    try:
        written, content = os.stat(path).st_mtime, read_bytes(path, 4096)
    except (OSError, BadFile):
        return None
    if written > now + FUTURE_SECONDS:
        return None
    record = _record(content)
    if record is not None and (record.get("state") == "stopped" or not _is_foreign(record["pid"], written, now)):
        return None
    return max(0.0, now - written)


def is_played(places: Places, role: str, hang_seconds: Callable[[], float], now: float) -> bool:
    """Return whether somebody plays a role: ours, which holds its lock, or another program that beats.

    Where ours does, the configuration is not asked for `hang_seconds`.
    """
    if is_locked(places.lock(role)):
        return True
    age = foreign_age(places, role, now)
    return age is not None and age <= hang_seconds()


def _record(content: bytes) -> dict[str, Any] | None:
    try:
        value = parse_json(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("pid"), int) and "seq" in value else None


def process_age(pid: object) -> float | None:
    """Return the seconds since a living process was started; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS


def is_ours(pid: int) -> bool:
    """Return whether a living process runs one of our programs."""
    return OURS in _command_line(pid)


def _is_foreign(pid: int, written: float, now: float) -> bool:
    """Return whether this process lived when the heartbeat was written, lives now, and is none of our roles."""
    age, words = process_age(pid), _command_line(pid)
    lived_then = age is not None and now - age <= written + CLOCK_TOLERANCE_SECONDS
    return lived_then and bool(words) and OURS not in words and pid != os.getpid()


def _command_line(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as words:
            return words.read()
    except OSError:
        return b""
