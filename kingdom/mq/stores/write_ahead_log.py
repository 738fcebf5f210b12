"""The file at whose end SQLite writes its commits: synced here, when something must survive a power cut."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MOST_AHEAD = 1 << 20
"""Bytes."""


class WriteAheadLog:
    def __init__(self, database: Path) -> None:
        self._fd = os.open(f"{database}-wal", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        #: How long the file was when it was last synced.
        self._size = 0

    def sync(self) -> None:
        """Make durable what was committed so far.

        The file is kept longer than what is in it: a sync takes half as long where the file system need not also note
        a new size. SQLite knows the end of its commits by their checksums.
        """
        size = os.fstat(self._fd).st_size
        if size != self._size:
            with suppress(OSError):  # a full disk: it goes on without
                os.pwrite(self._fd, bytes(min(size, MOST_AHEAD)), size)
            self._size = os.fstat(self._fd).st_size
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)
