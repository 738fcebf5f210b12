"""Processes, known by markers in their environment and by their start time, never by their names.

Standard library only, and light: one-shot soldiers import it too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

LOOK_SECONDS = 0.02
Marker = frozenset[bytes]
_PR_SET_PDEATHSIG = 1
_SOLDIER = b"KINGDOM_SOLDIER="
_TICKS = os.sysconf("SC_CLK_TCK")


def end_with_parent(number: signal.Signals) -> None:
    """Get a signal when the parent ends. It lasts over an exec, and children do not inherit it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def stat_fields(pid: int) -> list[bytes] | None:
    """Return what follows the name in /proc/<pid>/stat: state, parent, group …; None when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields


def started_at(pid: int) -> int | None:
    """Return a process's start in clock ticks after boot: with the pid it names one process for good."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def age(start_ticks: int) -> float:
    """Return the seconds since a start time, by the clock that nobody can set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / _TICKS


def soldier_markers(home: Path, task: str) -> Marker:
    """Return what every process of a task's soldier carries. Another kingdom on this machine has the same task ids.

    KINGDOM_TASK_ID is no marker: people set it to try a program by hand, and foreign generals for their own soldiers.
    """
    return frozenset({_SOLDIER + task.encode(), home_mark(home)})


def home_mark(home: Path) -> bytes:
    """Return the marker of a home; its path may be any bytes."""
    return b"KINGDOM_HOME=" + os.fsencode(home)


def tasks_at_work(home: Path) -> dict[str, list[tuple[int, int]]]:
    """Return every process of this home's soldiers by task, as (pid, start)."""
    ours = home_mark(home)
    found: dict[str, list[tuple[int, int]]] = {}
    for pid in all_pids():
        environment = _environment(pid)
        task = next((pair for pair in environment if pair.startswith(_SOLDIER)), None)
        start = started_at(pid)
        if ours in environment and task is not None and start is not None and pid != os.getpid():
            found.setdefault(os.fsdecode(task.removeprefix(_SOLDIER)), []).append((pid, start))
    return found


def carries(pid: int, markers: Marker) -> bool:
    """Whether a process was started with all of these `NAME=value` in its environment."""
    return markers <= _environment(pid)


def _environment(pid: int) -> frozenset[bytes]:
    """Return it as it was when the program started; empty when the process is gone or not ours to look at."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return frozenset(environ.read().split(b"\0"))
    except OSError:
        return frozenset()


def carriers(markers: Marker, not_before: int = 0) -> list[tuple[int, int]]:
    """Return every living process with these markers that started at or after a time, as (pid, start)."""
    found = []
    for pid in all_pids():
        start = started_at(pid)
        if start is not None and start >= not_before and pid != os.getpid() and carries(pid, markers):
            found.append((pid, start))
    return found


def tree(root: int) -> list[int]:
    """Return the pids of all living descendants of a process."""
    by_parent: dict[int, list[int]] = {}
    for pid in all_pids():
        if fields := stat_fields(pid):
            by_parent.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    generation = by_parent.get(root, [])
    while generation:
        found += generation
        generation = [child for pid in generation for child in by_parent.get(pid, [])]
    return found


def send(pids: Iterable[tuple[int, int]], number: signal.Signals) -> None:
    """Send a signal to exactly these processes: a pid that now names another one is left alone."""
    for pid, start in pids:
        if started_at(pid) == start:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def end_carriers(markers: Marker, not_before: int = 0, seconds: float = 5.0) -> int:
    """Kill all that carry the markers, also those born meanwhile, and return how many there were."""
    give_up = time.monotonic() + seconds
    ended: set[tuple[int, int]] = set()
    while (left := carriers(markers, not_before)) and time.monotonic() < give_up:
        send(left, signal.SIGKILL)
        ended.update(left)
        time.sleep(LOOK_SECONDS)
    return len(ended)
