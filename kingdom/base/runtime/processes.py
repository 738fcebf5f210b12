"""Processes, known by markers in their environment, by their mounts and by their start time, never by their names.

Standard library only, and light: one-shot soldiers import it too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kingdom.base.home.places import LONGEST_NAME, Places

LOOK_SECONDS = 0.02
END_SECONDS = 5.0
"""For so long it is tried to end processes: the kernel may hold one that it has killed."""
_PR_SET_PDEATHSIG = 1
_SOLDIER = b"KINGDOM_SOLDIER="
_MARKERS = ("KINGDOM_HOME", "KINGDOM_SOLDIER")
_ENVIRONMENT = slice(47, 49)
"""Where the memory with a process's environment begins and ends, among the fields of its stat."""
_TICKS = os.sysconf("SC_CLK_TCK")
_MOUNT_POINT = 4


class Markers(NamedTuple):
    """What a soldier's processes are known by: either of the two is enough."""

    #: `NAME=value` of the environment that they were started with, all of them. A process can start another without.
    environment: frozenset[bytes]
    #: A folder that is a mount point in the sandbox's own namespace. No process of a sandbox gets rid of it.
    mount: bytes | None = None


def end_with_parent(number: signal.Signals) -> None:
    """Get a signal when the parent ends. It lasts over an exec, and children do not inherit it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def give_back_memory() -> None:
    """Return freed memory to the machine: after a large answer the C library would keep it for good."""
    with suppress(AttributeError):  # another C library than GNU's
        ctypes.CDLL(None).malloc_trim(0)


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


def start_and_work(pid: int) -> tuple[int, int] | None:
    """Return a process's start, and the processor time that it has used; None when it is gone."""
    fields = stat_fields(pid)
    return (int(fields[19]), int(fields[11]) + int(fields[12])) if fields else None


def tracer(pid: int) -> int | None:
    """Return the debugger that is attached to a process, also to one that has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
            (found,) = (int(line.split()[1]) for line in status if line.startswith("TracerPid:"))
    except (OSError, ValueError):
        return None
    return found or None


def age(start_ticks: int) -> float:
    """Return the seconds since a start time, by the time since boot."""
    return since_boot() - start_ticks / _TICKS


def since_boot() -> float:
    """Return the seconds since this machine was started, also those for which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def seconds_suspended() -> float:
    """Return for how many seconds this machine has been suspended since its boot."""
    return since_boot() - time.clock_gettime(time.CLOCK_MONOTONIC)


def soldier_markers(home: Path, task: str) -> Markers:
    """Return what every process of a task's soldier carries. Another kingdom on this machine has the same task ids.

    KINGDOM_TASK_ID is no marker: people set it to try a program by hand, and foreign generals for their own soldiers.
    """
    return Markers(frozenset({_SOLDIER + task.encode(), home_mark(home)}), _soldiers_folder(home) + task.encode())


def home_mark(home: Path) -> bytes:
    """Return the marker of a home; its path may be any bytes."""
    return b"KINGDOM_HOME=" + os.fsencode(home)


def overwrite_environment(environment: Mapping[str, str]) -> None:
    """Let others see our markers as if we had been started with them, as much as there is room for.

    The kernel shows the memory that held our environment at the start. Nothing may use that any more.
    """
    begin, end = environment_memory()
    marks = [(name, environment[name]) for name in _MARKERS if name in environment]
    shown = b"".join(b"%s=%s\0" % (os.fsencode(name), os.fsencode(value)) for name, value in marks)
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, shown, min(len(shown), end - begin))


@cache
def environment_memory() -> tuple[int, int]:
    """Return where the memory with our environment begins and ends: at the same place in processes that we fork."""
    begin, end = (int(field) for field in (stat_fields(os.getpid()) or ())[_ENVIRONMENT])
    return begin, end


def room_for_markers(home: Path) -> str:
    """Return a value for a variable of a process that will overwrite its environment: so long are our markers."""
    return "-" * (len(home_mark(home)) + len(_SOLDIER) + LONGEST_NAME)


def homes_at_work() -> set[Path]:
    """Return the home of every kingdom of which a process runs that we may look at."""
    name = b"KINGDOM_HOME="
    found = {pair[len(name) :] for pid in all_pids() for pair in _environment(pid) if pair.startswith(name)}
    return {Path(os.fsdecode(home)) for home in found if home.startswith(b"/")}


def tasks_at_work(home: Path) -> dict[str, list[tuple[int, int]]]:
    """Return every process of this home's soldiers by task, as (pid, start)."""
    ours, folder = home_mark(home), _soldiers_folder(home)
    found: dict[str, list[tuple[int, int]]] = {}
    for pid in all_pids():
        environment = _environment(pid)
        task = next((pair[len(_SOLDIER) :] for pair in environment if pair.startswith(_SOLDIER)), None)
        if task is None or ours not in environment:
            inside = (point[len(folder) :] for point in _own_mounts(pid) if point.startswith(folder))
            task = next((name for name in inside if b"/" not in name), None)
        start = started_at(pid)
        if task is not None and start is not None and pid != os.getpid():
            found.setdefault(os.fsdecode(task), []).append((pid, start))
    return found


def carries(pid: int, pairs: frozenset[bytes]) -> bool:
    """Return whether a process was started with all of these `NAME=value` in its environment."""
    return pairs <= _environment(pid)


def _environment(pid: int) -> frozenset[bytes]:
    """Return it as it was when the program started; empty when the process is gone or not ours to look at."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return frozenset(environ.read().split(b"\0"))
    except OSError:
        return frozenset()


def _own_mounts(pid: int) -> frozenset[bytes]:
    """Return the mount points of a process in another mount namespace than ours."""
    try:
        if os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            return frozenset()
        with open(f"/proc/{pid}/mountinfo", "rb") as mounts:
            return frozenset(_unescaped(line.split(b" ")[_MOUNT_POINT]) for line in mounts)
    except OSError:
        return frozenset()


def _unescaped(path: bytes) -> bytes:
    """Return a path as it is: the kernel writes spaces, line breaks and backslashes as three octal digits."""
    for code in (b" ", b"\t", b"\n"):
        path = path.replace(b"\\%03o" % ord(code), code)
    return path.replace(b"\\134", b"\\")


def _soldiers_folder(home: Path) -> bytes:
    """Return the folder of the soldiers' own folders, as the kernel names it."""
    return os.path.realpath(os.fsencode(Places(home).soldiers)) + b"/"


def carriers(markers: Markers, not_before: int = 0) -> list[tuple[int, int]]:
    """Return every living process with these markers that started at or after a time, as (pid, start)."""
    found = []
    for pid in all_pids():
        start = started_at(pid)
        if start is None or start < not_before or pid == os.getpid():
            continue
        if _is_carrier(pid, markers):
            found.append((pid, start))
    return found


def _is_carrier(pid: int, markers: Markers) -> bool:
    return carries(pid, markers.environment) or markers.mount in _own_mounts(pid)


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


def end_carriers(markers: Markers, not_before: int = 0, seconds: float = END_SECONDS) -> int:
    """Kill all that carry the markers with all that they have started, and return how many there were.

    They are stopped and looked at once more before that: a serving process may have gone on to its next task.
    """
    give_up = time.monotonic() + seconds
    ended = 0
    while (left := carriers(markers, not_before)) and time.monotonic() < give_up:
        send(left, signal.SIGSTOP)
        still = [(pid, start) for pid, start in left if _is_carrier(pid, markers)]
        send(set(left).difference(still), signal.SIGCONT)
        ended += end(still, give_up - time.monotonic())
        time.sleep(LOOK_SECONDS)
    return ended


def end(pids: Iterable[tuple[int, int]], seconds: float = END_SECONDS) -> int:
    """Kill exactly these processes and their descendants, and return how many there were.

    Those without a parent among them come last. They are stopped first, so that they start nothing more; a soldier's
    serving process then gets every orphan, also one with an empty environment, which nobody would find after its end.
    """
    give_up = time.monotonic() + seconds
    ended = {(pid, start) for pid, start in pids if started_at(pid) == start}
    roots = ended - {(pid, start) for root, _ in ended for pid in tree(root) if (start := started_at(pid)) is not None}
    send(roots, signal.SIGSTOP)
    while (under := _under(roots)) and time.monotonic() < give_up:
        send(under, signal.SIGSTOP)
        send(under, signal.SIGKILL)
        ended |= under
        time.sleep(LOOK_SECONDS)
    send(roots, signal.SIGKILL)
    return len(ended)


def _under(roots: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the living descendants of exactly these processes."""
    pids = {pid for root, start in roots if started_at(root) == start for pid in tree(root)}
    return {(pid, start) for pid in pids if (start := started_at(pid)) is not None}
