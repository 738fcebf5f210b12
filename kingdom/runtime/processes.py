"""Processes known by what they carry, never by their names: a marker in the environment, and their start time.

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
_TICKS = os.sysconf("SC_CLK_TCK")


def end_with_parent(number: signal.Signals) -> None:
    """From now on the end of the parent sends this process a signal. A program keeps that, its children do not."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def stat_fields(pid: int) -> list[bytes] | None:
    """What follows the name in /proc/<pid>/stat: state, parent, group …; None when the process is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields


def started_at(pid: int) -> int | None:
    """The process's start in clock ticks after boot: with the pid it names one process for ever."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def age(start_ticks: int) -> float:
    """Seconds since a start time, by the clock that no one can set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / _TICKS


def soldier_markers(home: Path, task: str) -> Marker:
    """What every process of a task's soldier carries. Another kingdom on this machine has the same task ids."""
    return frozenset({f"KINGDOM_TASK_ID={task}".encode(), home_mark(home)})


def home_mark(home: Path) -> bytes:
    """A path may be any bytes."""
    return b"KINGDOM_HOME=" + os.fsencode(home)


def tasks_at_work(home: Path) -> dict[str, list[tuple[int, int]]]:
    """By task, every process of this home's soldiers, as (pid, start)."""
    ours, prefix = home_mark(home), b"KINGDOM_TASK_ID="
    found: dict[str, list[tuple[int, int]]] = {}
    for pid in all_pids():
        environment = _environment(pid)
        task = next((each for each in environment if each.startswith(prefix)), None)
        start = started_at(pid)
        if ours in environment and task is not None and start is not None and pid != os.getpid():
            found.setdefault(os.fsdecode(task.removeprefix(prefix)), []).append((pid, start))
    return found


def carries(pid: int, markers: Marker) -> bool:
    """Whether a process was started with all of these `NAME=value` in its environment."""
    return markers <= _environment(pid)


def _environment(pid: int) -> frozenset[bytes]:
    """As it was when the program started; empty when the process is gone or not ours to look at."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return frozenset(environ.read().split(b"\0"))
    except OSError:
        return frozenset()


def carriers(markers: Marker, not_before: int = 0) -> list[tuple[int, int]]:
    """Every living process with these markers that started at or after a time, as (pid, start)."""
    found = []
    for pid in all_pids():
        start = started_at(pid)
        if start is not None and start >= not_before and pid != os.getpid() and carries(pid, markers):
            found.append((pid, start))
    return found


def tree(root: int) -> list[int]:
    """Every living descendant of a process."""
    by_parent: dict[int, list[int]] = {}
    for pid in all_pids():
        if fields := stat_fields(pid):
            by_parent.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    row = by_parent.get(root, [])
    while row:
        found += row
        row = [child for pid in row for child in by_parent.get(pid, [])]
    return found


def send(pids: Iterable[tuple[int, int]], number: signal.Signals) -> None:
    """To exactly these processes: a pid that now names another process is left alone."""
    for pid, start in pids:
        if started_at(pid) == start:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def end_carriers(markers: Marker, not_before: int = 0, seconds: float = 5.0) -> int:
    """KILL all that carry the markers, also those born meanwhile. Returns how many there were."""
    give_up = time.monotonic() + seconds
    ended: set[tuple[int, int]] = set()
    while (left := carriers(markers, not_before)) and time.monotonic() < give_up:
        send(left, signal.SIGKILL)
        ended.update(left)
        time.sleep(LOOK_SECONDS)
    return len(ended)
