"""Room on the disk that a database keeps for the day on which it is full: then what is there can still be taken out."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

PART_OF_FREE = 3
LOOK_AGAIN_SECONDS = 1.0
LEAST_MORE = 32 << 10
"""Of free room, beside what is set aside, before anything is taken in again."""


class Reserve:
    def __init__(self, path: Path, mib: float) -> None:
        """Set room aside at `path`: so many MiB, on a small disk a part of what is free."""
        self._path = path
        #: Whether the disk was full, and the room was given away since.
        self.spent = False
        self._look_at = 0.0
        try:
            self._size = os.stat(path).st_size
        except FileNotFoundError:
            self._size = 0
        if not self._size:
            self._size = min(int(mib * (1 << 20)), self.free() // PART_OF_FREE)
            with suppress(OSError):
                self._take()

    def spend(self) -> None:
        """Give the room away: the disk is full."""
        self.spent = True
        self._look_at = time.monotonic() + LOOK_AGAIN_SECONDS
        with suppress(OSError):
            os.unlink(self._path)

    def restored(self) -> bool:
        """Return whether there is room again; then as much is set aside as before. Looks about once a second."""
        if self.spent and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_AGAIN_SECONDS
            if self.free() >= 1.5 * self._size + LEAST_MORE:
                with suppress(OSError):
                    self._take()
                    self.spent = False
        return not self.spent

    def free(self) -> int:
        """Return how many bytes are free on the disk."""
        about = os.statvfs(self._path.parent)
        return about.f_bavail * about.f_frsize

    def _take(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if self._size:
                os.posix_fallocate(fd, 0, self._size)
        except OSError:
            os.unlink(self._path)
            raise
        finally:
            os.close(fd)
