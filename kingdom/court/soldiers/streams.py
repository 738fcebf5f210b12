"""A soldier's output as it is kept: limited, readable by its owner only, and without secrets.

Its serving process sees to it when the soldier has ended, and its general when that process was killed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from kingdom.base.home import dotenv
from kingdom.base.records.soldiers import SoldierOrder

LARGEST_OUTPUT = 64 << 20
"""Bytes on each of its two streams: they are kept, and nobody reads more."""
_PART = 1 << 20


def repair(order: SoldierOrder, secrets: Iterable[str]) -> None:
    """Undo what can be done to files by a descriptor (modes, times to come, sizes), and hide secrets in the output."""
    hidden = [form.encode() for form in dotenv.forms(secrets)]
    for path in (order.prompt, order.out, order.err):
        with suppress(OSError):
            _repair(path, None if path == order.prompt else hidden)


def _repair(path: str, hidden: Sequence[bytes] | None) -> None:
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return
    os.chmod(path, 0o600)
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(fd)
        if hidden is not None:
            if about.st_size > LARGEST_OUTPUT:
                os.truncate(fd, LARGEST_OUTPUT)
            _hide(fd, hidden)
        if about.st_mtime > time.time():
            os.utime(fd)
    finally:
        os.close(fd)


def hide_in(path: str, hidden: Sequence[bytes]) -> None:
    """Hide secrets in a regular file."""
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _hide(fd, hidden)
    finally:
        os.close(fd)


def _hide(fd: int, hidden: Sequence[bytes]) -> None:
    """Write over them, with as many stars: this needs no room on the disk, and little memory."""
    overlap = max(map(len, hidden), default=1) - 1
    at = 0
    while hidden and (part := os.pread(fd, _PART + overlap, at)):
        clean = part
        for secret in hidden:
            clean = clean.replace(secret, b"*" * len(secret))
        if clean != part:
            os.pwrite(fd, clean, at)
        at += _PART
