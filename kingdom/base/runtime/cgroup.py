"""A control group for one soldier's processes, where the kernel lets us make one: no process leaves it by forking.

Without one a soldier's processes are known by their parents and by the markers in their environment alone.
Standard library only, and light: one-shot soldiers import it too.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import cache
from hashlib import blake2s
from pathlib import Path
from typing import NamedTuple

_GROUPS = "/sys/fs/cgroup"
LOOK_SECONDS = 0.01


class OpenGroup(NamedTuple):
    """A control group that is open: who writes 0 to it is put into it."""

    fd: int
    #: Whether that is the writing thread alone, as in older systems. To move a process the kernel waits until no other
    #: is forked or ends.
    takes_threads: bool


class Cgroup:
    """Named after its home and task, so that any process finds it. Without a folder nothing here does anything."""

    def __init__(self, home: Path, task: str) -> None:
        parent = _own_group(_GROUPS)
        name = f"kingdom-{blake2s(os.fsencode(home), digest_size=6).hexdigest()}-{task}"
        self.folder = f"{parent}/{name}" if parent else None

    def create(self, most_processes: int) -> None:
        """Make it, for twice the soldier's limit: exceeding that is seen first, and a fork bomb is still bounded."""
        if self.folder is None:
            return
        with suppress(OSError):
            os.mkdir(self.folder)
        _write(f"{self.folder}/pids.max", str(2 * most_processes))

    def is_there(self) -> bool:
        """Return whether it could be made."""
        return self.folder is not None and os.path.isdir(self.folder)

    def open(self) -> OpenGroup | None:
        """Open it for those that go there. None when there is no such group."""
        for name in ("tasks", "cgroup.procs") if self.folder is not None else ():
            with suppress(OSError):
                return OpenGroup(os.open(f"{self.folder}/{name}", os.O_WRONLY | os.O_CLOEXEC), name == "tasks")
        return None

    def members(self) -> list[int]:
        """Return the pids in it."""
        if self.folder is None:
            return []
        try:
            with open(f"{self.folder}/cgroup.procs") as members:
                return [int(line) for line in members]
        except OSError:
            return []

    def kill_all(self, seconds: float = 5.0) -> int:
        """Kill every process in it, remove it, and return how many there were."""
        if self.folder is None:
            return 0
        try:
            os.rmdir(self.folder)  # nobody is in it
        except FileNotFoundError:
            return 0
        except OSError:
            return self._kill_all(seconds)
        return 0

    def _kill_all(self, seconds: float) -> int:
        assert self.folder is not None
        give_up = time.monotonic() + seconds
        ended: set[int] = set()
        while left := self.members():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            ended.update(left)
            if time.monotonic() > give_up:
                break
            time.sleep(LOOK_SECONDS)
        with suppress(OSError):
            os.rmdir(self.folder)
        return len(ended)


def _write(path: str, text: str) -> None:
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


@cache
def _own_group(groups: str) -> str | None:
    """Return our own group among those that count processes, or in the one tree of newer systems."""
    with suppress(OSError), open("/proc/self/cgroup") as file:
        rows = [line.rstrip("\n").split(":", 2) for line in file]
        folders = [f"{groups}/pids{path}" for _, controllers, path in rows if controllers == "pids"]
        folders += [f"{groups}{path}" for number, _, path in rows if number == "0"]
        for folder in folders:
            if os.path.exists(f"{folder}/cgroup.procs") and os.access(folder, os.W_OK):
                return folder.rstrip("/")
    return None
