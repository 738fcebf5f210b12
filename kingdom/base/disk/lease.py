"""Whether somebody has a file open for writing, as the kernel knows."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path


def is_open_for_writing(path: Path) -> bool | None:
    """Return whether a process has this file open for writing; None where the kernel cannot be asked.

    It gives a lease only while nobody has. A process that opens the file meanwhile waits until the lease is given
    back, and the kernel sends SIGIO, which a role must ignore.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(fd)
    return False
