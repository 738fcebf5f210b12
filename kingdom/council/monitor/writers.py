"""Whether a file is finished: nobody has it open for writing, or nothing has changed for a while."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

STILL_SECONDS = 1.0
Mark = tuple[int, int, int]


class Writers:
    """Remembers since when files have not changed, by the monotonic clock."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._unchanged: dict[Path, tuple[Mark, float]] = {}

    def are_done(self, path: Path, mark: Mark) -> bool:
        """Return whether nobody writes this file any more; `mark` changes with each write."""
        if _nobody_writes(path):
            self._unchanged.pop(path, None)
            return True
        now = self._monotonic()
        known, since = self._unchanged.get(path, (None, now))
        if known != mark:
            self._unchanged[path] = mark, now
            return False
        if now - since < STILL_SECONDS:
            return False
        del self._unchanged[path]
        return True

    @property
    def seconds_left(self) -> float:
        """Seconds until the first of the files that have been seen unfinished may be taken for finished."""
        now = self._monotonic()
        for path in [path for path, (_, since) in self._unchanged.items() if now - since > 2 * STILL_SECONDS]:
            del self._unchanged[path]  # it has gone
        return min((max(0.02, since + STILL_SECONDS - now) for _, since in self._unchanged.values()), default=3600.0)


def _nobody_writes(path: Path) -> bool:
    """Ask the kernel by a lease, which it gives only while nobody has the file open for writing.

    False also where it cannot be asked. Whoever opens the file meanwhile waits until the lease is given back, and
    the kernel tells us so by SIGIO, which the job ignores.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
