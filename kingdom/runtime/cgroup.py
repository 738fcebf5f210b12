"""A control group for one soldier's processes, where the kernel lets us make one: nobody leaves it, whatever it forks.

Without one a soldier's processes are known by their parents and by the markers in their environment alone.
Standard library only, and light: one-shot soldiers import it too.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path

_GROUPS = "/sys/fs/cgroup"
LOOK_SECONDS = 0.01


class Cgroup:
    """Named after its home and task, so that whoever comes later finds it."""

    def __init__(self, home: Path, task: str) -> None:
        place = _own_group()
        name = f"kingdom-{blake2s(os.fsencode(home), digest_size=6).hexdigest()}-{task}"
        self.folder = f"{place}/{name}" if place else None

    def create(self, most_processes: int) -> None:
        """It may hold twice what the soldier may have: who is over the limit is seen, and a bomb still hits a wall."""
        if self.folder is None:
            return
        with suppress(OSError):
            os.mkdir(self.folder)
        with suppress(OSError), open(f"{self.folder}/pids.max", "w") as most:
            most.write(str(2 * most_processes))

    def join(self) -> None:
        if self.folder is not None:
            with suppress(OSError), open(f"{self.folder}/cgroup.procs", "w") as inmates:
                inmates.write("0")

    def members(self) -> list[int]:
        if self.folder is None:
            return []
        try:
            with open(f"{self.folder}/cgroup.procs") as inmates:
                return [int(line) for line in inmates]
        except OSError:
            return []

    def kill_all(self, seconds: float = 5.0) -> int:
        """KILL whoever is in it, and take it down. Returns how many there were."""
        if self.folder is None or not os.path.isdir(self.folder):
            return 0
        give_up = time.monotonic() + seconds
        ended: set[int] = set()
        while (left := self.members()) and time.monotonic() < give_up:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            ended.update(left)
            time.sleep(LOOK_SECONDS)
        with suppress(OSError):
            os.rmdir(self.folder)
        return len(ended)


def _own_group() -> str | None:
    """Where we are among the groups that count processes, or in the one tree of newer systems."""
    with suppress(OSError), open("/proc/self/cgroup") as file:
        rows = [line.rstrip("\n").split(":", 2) for line in file]
        places = [f"{_GROUPS}/pids{path}" for _, controllers, path in rows if controllers == "pids"]
        places += [f"{_GROUPS}{path}" for number, _, path in rows if number == "0"]
        for place in places:
            if os.path.exists(f"{place}/cgroup.procs") and os.access(place, os.W_OK):
                return place.rstrip("/")
    return None
