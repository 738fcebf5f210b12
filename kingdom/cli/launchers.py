"""The launchers as commands use them: which ones run, what they start and stop, and whether a role came up."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kingdom.base.disk.codec import read_json_or
from kingdom.base.disk.lock import holder_pid, is_locked
from kingdom.base.errors import Exit, LauncherError, NotRunning
from kingdom.base.home import manifests
from kingdom.base.home.places import Places
from kingdom.base.home.roster import ROLES, RoleRow, desired_state, with_needed
from kingdom.base.program import home
from kingdom.base.records import heartbeats
from kingdom.base.runtime.processes import send, start_and_work, started_at
from kingdom.base.runtime.wake import Waker
from kingdom.base.words import one_line
from kingdom.court.soldiers.disk_space import why_full
from kingdom.court.steward import STEWARDS, pick
from kingdom.court.steward.base import Steward

END_SECONDS = 20.0
START_SECONDS = 15.0
MOST_STARTS = 8
"""How often START_SECONDS may begin again while the missing roles use the processor: the machine is slow."""
LOOK_SECONDS = 0.03
LogEnds = Mapping[Path, int]
"""Sizes of log files at some moment."""
AWAKE = ("idle", "working", "degraded")


def all_running(places: Places) -> list[Steward]:
    """Return the launchers that run, also one that hangs; a change of configuration may have left a second one."""
    found = []
    for name in STEWARDS:
        try:
            steward = pick(places, name)
        except LauncherError:
            continue
        if steward.launcher_runs():
            found.append(steward)
    return found


def one_running(places: Places) -> Steward:
    """Return the launcher that runs; NotRunning when there is none."""
    launchers = all_running(places)
    if not launchers:
        raise NotRunning(what="the kingdom", hint=f"start it with `{home.command()} up`")
    return launchers[0]


def end_all(places: Places) -> None:
    """Stop every launcher, with all its roles. One that cannot do so is killed; its roles end with it."""
    for steward in all_running(places):
        try:
            steward.down()
        except LauncherError as error:
            print(f"{error}; it is killed, and its roles are ended one by one", file=sys.stderr)
            steward.kill()
            wait(lambda: not steward.launcher_runs(), END_SECONDS)  # noqa: B023


def end_stragglers(places: Places) -> bool:
    """End roles that outlived their launcher or were started without one. Return whether there were any."""
    names = [name for name in all_names(places) if is_locked(places.lock(name))]
    end_holders(names, places)
    return bool(names)


def end_holders(names: Iterable[str], places: Places) -> None:
    """End whoever holds these roles' locks: TERM, then KILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        holders = {
            name: pid for name in names if is_locked(places.lock(name)) and (pid := holder_pid(places.lock(name)))
        }
        send([(pid, start) for pid in holders.values() if (start := started_at(pid))], number)
        if wait(lambda: not any(is_locked(places.lock(name)) for name in holders), END_SECONDS):  # noqa: B023
            return


def take_over(places: Places, name: str) -> str | None:
    """Start a general if the kingdom is up, and wait until it and the king work by its manifest as it is now.

    Return why it does not; None when all is well.
    """
    started = with_needed(places, name)
    before = log_ends(places, ["king", *(row.name for row in started)])
    for steward in all_running(places):
        for row in started:
            steward.start(row)
        if desired_state(places, name) != "up":
            return f"It stays down; `{home.command()} start {name}` starts it."
        for late in not_up(places, steward, started):
            return f"{late} has not come up: {last_error(places, late, before)}"
    roles = [role for role in ("king", name) if is_locked(places.lock(role))]
    roles = [role for role in roles if heartbeats.foreign_age(places, role, time.time()) is None]

    def slow() -> list[str]:
        return [role for role in roles if not manifests.is_in_use(places, role, name)]

    if wait(lambda: not slow(), START_SECONDS):
        return None
    role = slow()[0]
    return f"{role} has not taken its manifest over within {START_SECONDS:g} s: {last_error(places, role, before)}"


def remove_role(places: Places, name: str) -> None:
    """Stop a role that has been uninstalled, and forget how it ran."""
    for steward in all_running(places):
        steward.stop(name)
    places.starts(name).unlink(missing_ok=True)


def allow(places: Places, name: str) -> None:
    """Let a role run again: neither stopped by hand nor quarantined, and its crashes forgotten."""
    disk = home.disk(places)
    for path in (places.wanted(name), places.starts(name)):
        if path.exists():
            disk.remove(path)


def forget_starts(places: Places) -> None:
    """Forget how the roles ran: who was stopped while it was still loading has not crashed."""
    for name in all_names(places):
        places.starts(name).unlink(missing_ok=True)


def all_names(places: Places) -> list[str]:
    """Return the names of all roles, also of those that are switched off or uninstalled but were started once."""
    started = {path.parent.name for path in places.state.glob("*/lock")}
    return sorted({*ROLES, *(row.name for row in home.rows(places)), *started})


def not_up(places: Places, steward: Steward, rows: list[RoleRow]) -> list[str]:
    """Wait for the first heartbeats. Return the roles that time ran out for, or that ended for good before that."""

    def settled() -> bool:
        silent = [row.name for row in rows if not is_up(places, row.name)]
        if silent and not steward.launcher_runs():
            return True
        return not silent or all(_has_given_up(places, steward, name) for name in silent)

    before = _work(places, steward, rows)
    for _ in range(MOST_STARTS):
        if wait(settled, START_SECONDS):
            break
        now = _work(places, steward, rows)
        if not any(now[process] > spent for process, spent in before.items() if process in now):
            break
        before = now
    return [row.name for row in rows if not is_up(places, row.name)]


def _work(places: Places, steward: Steward, rows: list[RoleRow]) -> dict[tuple[int, int], int]:
    """Return the processor time of each role that has not come up, by pid and start: a new process begins anew."""
    statuses = steward.statuses()
    pids = [statuses[row.name].pid for row in rows if row.name in statuses and not is_up(places, row.name)]
    return {(pid, work[0]): work[1] for pid in pids if pid is not None and (work := start_and_work(pid)) is not None}


def is_up(places: Places, name: str) -> bool:
    """Return whether it holds its lock and this process has written a heartbeat, or another program plays it."""
    age = heartbeats.foreign_age(places, name, time.time())
    if age is not None and age <= home.hang_seconds(places):
        return True
    if not is_locked(places.lock(name)):
        return False
    heartbeat = read_json_or(places.heartbeat(name), {})
    return heartbeat.get("state") in AWAKE and heartbeat.get("pid") == holder_pid(places.lock(name))


def _has_given_up(places: Places, steward: Steward, name: str) -> bool:
    if desired_state(places, name) != "up":
        return True
    status = steward.statuses().get(name)
    return status is not None and status.code in (Exit.REFUSED, Exit.LOCKED)


def wait(done: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is done or time is up. Return whether it is done."""
    give_up = time.monotonic() + seconds
    waker = Waker((), "poll")
    try:
        while not (finished := done()) and time.monotonic() < give_up:
            waker.wait(LOOK_SECONDS)
        return finished
    finally:
        waker.close()


def log_ends(places: Places, names: Iterable[str]) -> LogEnds:
    """Return the lengths of these roles' logs, to tell old lines from those of the next start."""
    paths = (path for name in names for path in (places.role_log(name), places.last_words(name)))
    return {path: path.stat().st_size if path.exists() else 0 for path in paths}


def reasons(places: Places, names: Iterable[str], since: LogEnds) -> dict[str, list[str]]:
    """Return why roles have not come up, each reason once with all whom it keeps."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(last_error(places, name, since), []).append(name)
    return found


def disk_is_full(places: Places) -> str:
    """Return in words how full the home's disk is when it is too full, and what to do; "" when it is not."""
    return (full := why_full(places.home)) and f"{full}; make room on the disk of {places.home}"


def last_error(places: Places, name: str, since: LogEnds) -> str:
    """Return the newest error that a role has logged since then, or how to see why it does not run.

    A disk that is full is the reason for all else, and then logs say nothing.
    """
    if full := disk_is_full(places):
        return full
    for path in (places.role_log(name), places.last_words(name)):
        try:
            with open(path, "rb") as log:
                log.seek(since.get(path, 0))
                lines = log.read().decode("utf-8", "replace").splitlines()[-50:]
        except FileNotFoundError:
            continue
        errors = [line for line in lines if f" error {name}: " in line or path == places.last_words(name)]
        if errors:
            return one_line(errors[-1].partition(f"{name}: ")[2].removeprefix("does not start: ") or errors[-1], 300)
    module = name if name in ROLES else f"general {name}"
    return f"no error in {places.role_log(name)} since; run `python -m kingdom.{module}` to see what it says"
