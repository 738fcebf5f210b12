"""Look at process groups and end them. A group is gone when only zombies are left of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress

from kingdom.base.runtime.processes import all_pids, stat_fields

LOOK_SECONDS = 0.02


def living(leaders: Iterable[int]) -> set[int]:
    """Return those that run, or whose group still has a running member."""
    wanted = set(leaders)
    if not any(_exists(leader) for leader in wanted):
        return set()
    return {name for pid in all_pids() if (fields := stat_fields(pid)) for name in (pid, int(fields[2]))} & wanted


def send(leaders: Iterable[int], number: signal.Signals) -> None:
    """Signal each process's whole group, or the process alone when it leads none: the group is then not its own."""
    for leader in leaders:
        with suppress(ProcessLookupError):
            try:
                os.killpg(leader, number)
            except ProcessLookupError:
                os.kill(leader, number)


def end(leaders: Collection[int], seconds: float) -> None:
    """Send TERM, after `seconds` KILL to those that are left, and wait until they are gone."""
    send(leaders, signal.SIGTERM)
    left = wait_gone(leaders, seconds)
    send(left, signal.SIGKILL)
    wait_gone(left, seconds)


def wait_gone(leaders: Collection[int], seconds: float) -> set[int]:
    """Wait until all are gone; return those that are still there when time is up."""
    give_up = time.monotonic() + seconds
    while (left := living(leaders)) and time.monotonic() < give_up:
        time.sleep(LOOK_SECONDS)
    return left


def wait_ended(pid: int, seconds: float) -> bool:
    """Wait until one process, which is not our child, has ended or time is up. Return whether it has ended."""
    give_up = time.monotonic() + seconds
    while (lives := stat_fields(pid) is not None) and time.monotonic() < give_up:
        time.sleep(LOOK_SECONDS)
    return not lives


def _exists(leader: int) -> bool:
    """Return at once, in the usual case, that neither the process nor its group is there, not even as a zombie."""
    for signal_by in (os.killpg, os.kill):
        try:
            signal_by(leader, 0)
        except ProcessLookupError:
            continue
        except PermissionError:
            return True
        return True
    return False
