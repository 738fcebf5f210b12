"""Process groups, looked at and ended. A group is gone when only its zombies are left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

LOOK_SECONDS = 0.02


def all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def living(groups: Iterable[int]) -> set[int]:
    """Those of the process groups that still have a living member."""
    wanted = {group for group in groups if _exists(group)}
    if not wanted:
        return wanted
    return {group for pid in all_pids() if (group := _group_of_living(pid)) in wanted}


def send(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def end(groups: Iterable[int], patience: float) -> set[int]:
    """TERM, then after `patience` KILL, confirmed. Returns the groups that needed the KILL."""
    left = living(groups)
    for group in left:
        send(group, signal.SIGTERM)
    left = wait_gone(left, patience)
    for group in left:
        send(group, signal.SIGKILL)
    wait_gone(left, patience)
    return left


def wait_gone(groups: Iterable[int], seconds: float) -> set[int]:
    """Returns those that are still there when time is up."""
    give_up = time.monotonic() + seconds
    while (left := living(groups)) and time.monotonic() < give_up:
        time.sleep(LOOK_SECONDS)
    return left


def wait_ended(pid: int, seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while _group_of_living(pid):
        if time.monotonic() > give_up:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _group_of_living(pid: int) -> int:
    """0 for a process that is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, _parent, group = stat.read().rpartition(b")")[2].split()[:3]
    except OSError:
        return 0
    return 0 if state in (b"Z", b"X") else int(group)
