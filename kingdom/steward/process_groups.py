"""Process groups, looked at and ended. A group is gone when only its zombies are left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress

from kingdom.runtime.processes import all_pids, stat_fields

LOOK_SECONDS = 0.02


def living(leaders: Iterable[int]) -> set[int]:
    """Those of the processes that live, or whose group still has a living member."""
    wanted = set(leaders)
    if not any(_exists(leader) for leader in wanted):
        return set()
    return {name for pid in all_pids() if (fields := stat_fields(pid)) for name in (pid, int(fields[2]))} & wanted


def send(leaders: Iterable[int], number: signal.Signals) -> None:
    """To each process's whole group; to the process alone when it leads none: the others there are innocent."""
    for leader in leaders:
        with suppress(ProcessLookupError):
            try:
                os.killpg(leader, number)
            except ProcessLookupError:
                os.kill(leader, number)


def end(leaders: Collection[int], patience: float) -> None:
    """TERM, then after `patience` KILL, confirmed."""
    send(leaders, signal.SIGTERM)
    left = wait_gone(leaders, patience)
    send(left, signal.SIGKILL)
    wait_gone(left, patience)


def wait_gone(leaders: Collection[int], seconds: float) -> set[int]:
    """Returns those that are still there when time is up."""
    give_up = time.monotonic() + seconds
    while (left := living(leaders)) and time.monotonic() < give_up:
        time.sleep(LOOK_SECONDS)
    return left


def wait_ended(pid: int, seconds: float) -> None:
    """For one process that is not ours to reap."""
    give_up = time.monotonic() + seconds
    while stat_fields(pid) and time.monotonic() < give_up:
        time.sleep(LOOK_SECONDS)


def _exists(leader: int) -> bool:
    """The quick answer for the usual case: neither the process nor its group is there, not even as a zombie."""
    for ask in (os.killpg, os.kill):
        try:
            ask(leader, 0)
        except ProcessLookupError:
            continue
        except PermissionError:
            return True
        return True
    return False
