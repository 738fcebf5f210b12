"""Process groups, looked at and ended. A group is gone when only its zombies are left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress

from kingdom.processes import all_pids, stat_fields

LOOK_SECONDS = 0.02


def living(groups: Iterable[int]) -> set[int]:
    """Those of the process groups that still have a living member."""
    wanted = {group for group in groups if _exists(group)}
    if not wanted:
        return wanted
    return {group for pid in all_pids() if (group := _group(pid)) in wanted}


def send(groups: Iterable[int], number: signal.Signals) -> None:
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, number)


def end(groups: Collection[int], patience: float) -> None:
    """TERM, then after `patience` KILL, confirmed."""
    send(groups, signal.SIGTERM)
    left = wait_gone(groups, patience)
    send(left, signal.SIGKILL)
    wait_gone(left, patience)


def wait_gone(groups: Collection[int], seconds: float) -> set[int]:
    """Returns those that are still there when time is up."""
    give_up = time.monotonic() + seconds
    while (left := living(groups)) and time.monotonic() < give_up:
        time.sleep(LOOK_SECONDS)
    return left


def wait_ended(pid: int, seconds: float) -> None:
    """For one process that is not ours to reap."""
    give_up = time.monotonic() + seconds
    while stat_fields(pid) and time.monotonic() < give_up:
        time.sleep(LOOK_SECONDS)


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _group(pid: int) -> int | None:
    fields = stat_fields(pid)
    return int(fields[2]) if fields else None
