"""Locks: an flock on a file, with one holder at a time who writes its pid into it.

Standard library only, and light: one-shot soldiers import it too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadFile, Locked, LockLost


class Lock:
    """An flock on a file, held until `release` or the end of this process."""

    def __init__(self, path: Path, role: str) -> None:
        self.path = path
        self.role = role
        self._fd = -1
        #: Device and inode of the file that is open.
        self._file = (-1, -1)

    def acquire(self, wait: float = 0.0) -> None:
        """Take the lock within `wait` seconds, or raise Locked, which names the holder."""
        deadline = time.monotonic() + wait
        while not self._try():
            if time.monotonic() >= deadline:
                raise Locked(role=self.role, path=self.path, holder=self.holder())
            time.sleep(0.02)

    def check(self) -> None:
        """Raise LockLost when the file that we locked is no longer the one at its path."""
        if not self._same_file():
            raise LockLost(path=self.path, role=self.role)

    def holder(self) -> str:
        """Return what the holder wrote into the file, such as `pid 4711`."""
        try:
            return read_bytes(self.path, 4096).decode("utf-8", "replace").strip() or "unnamed"
        except (OSError, BadFile):
            return "unnamed"

    def fileno(self) -> int:
        return self._fd

    def release(self) -> None:
        """Give the lock up; no error if it is not held."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _try(self) -> bool:
        self._fd = self._open()
        ours = os.fstat(self._fd)
        self._file = (ours.st_dev, ours.st_ino)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = self._same_file()
            if held:
                os.pwrite(self._fd, f"pid {os.getpid():<10}\n".encode(), 0)
        except BlockingIOError:
            held = False
        except OSError:
            # A failing disk: a lock that stayed held after an error would keep out even ourselves.
            self.release()
            raise
        if not held:
            self.release()
        return held

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            make_folder(self.path.parent)
        return os.open(self.path, flags, 0o600)

    def _same_file(self) -> bool:
        try:
            at_path = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (at_path.st_dev, at_path.st_ino) == self._file


@contextmanager
def held(path: Path, role: str, wait: float) -> Iterator[Lock]:
    """Hold a lock for a few lines. Locked, which names the holder, when it cannot be had within `wait` seconds."""
    lock = Lock(path, role)
    lock.acquire(wait)
    try:
        yield lock
    finally:
        lock.release()


def holder_pid(path: Path) -> int | None:
    """Return the pid of a lock's holder, if it is held: as the kernel lists it, else as it was last written there.

    What is written may be an earlier holder's, whose pid may be another program's by now.
    """
    with suppress(OSError):
        for line in _listed(path):
            if (pid := int(line.split()[4])) > 0:  # else it belongs to another container
                return pid
    try:
        words = read_bytes(path, 4096).split()
    except (OSError, BadFile):
        return None
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the lock at `path`. Works for readers that may not write there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # it may be a pipe
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        return bool(_listed(path))
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False  # a link, which nobody can lock
        raise
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def _listed(path: Path) -> list[str]:
    """Return the kernel's lines about a lock that is held. A soldier may not open lock files, as it could take them.

    Some file systems are listed by another number, and then there are none.
    """
    status = os.stat(path)
    lock = f" {os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino} "
    with open("/proc/locks", encoding="ascii") as held:
        return [line for line in held if "FLOCK" in line and lock in line and "->" not in line]
