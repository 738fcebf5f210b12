"""The launchers as a person's commands see them: who stands, what is given into their care, how all of it ends."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from kingdom.cli import home
from kingdom.cli.beats import wait
from kingdom.disk.lock import holder_pid, is_locked
from kingdom.errors import LauncherError, NotRunning
from kingdom.home.places import Places
from kingdom.home.roster import ROLES, RoleRow
from kingdom.runtime.processes import send, started_at
from kingdom.steward import STEWARDS, pick
from kingdom.steward.base import Steward

LEAVE_SECONDS = 20.0


def all_running(places: Places) -> list[Steward]:
    """Those that stand; a change of configuration may have left another one behind."""
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
    launchers = all_running(places)
    if not launchers:
        raise NotRunning(what="the kingdom", hint=f"start it with `{home.command()} up`")
    return launchers[0]


def end_all(places: Places) -> None:
    for steward in all_running(places):
        steward.down()


def end_stragglers(places: Places) -> bool:
    """Roles that outlived their launcher, or were started without one."""
    names = [name for name in all_names(places) if is_locked(places.lock(name))]
    end_holders(names, places)
    return bool(names)


def end_holders(names: Iterable[str], places: Places) -> None:
    """TERM, then KILL, for whoever holds these roles' locks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        holders = {
            name: pid for name in names if is_locked(places.lock(name)) and (pid := holder_pid(places.lock(name)))
        }
        send([(pid, start) for pid in holders.values() if (start := started_at(pid))], number)
        if wait(lambda: not any(is_locked(places.lock(name)) for name in holders), LEAVE_SECONDS):  # noqa: B023
            return


def take_in(places: Places, row: RoleRow) -> None:
    """A row that has just been set up starts at once when the kingdom is up."""
    for steward in all_running(places):
        steward.start(row)


def let_go(places: Places, name: str) -> None:
    """A row that is no longer there ends, and nothing of its runs is remembered."""
    for steward in all_running(places):
        steward.stop(name)
    allow(places, name)


def allow(places: Places, name: str) -> None:
    """Wanted again, and its short lives forgotten: who starts it by hand does not want it to wait."""
    disk = home.disk(places)
    for trace in (places.wanted(name), places.starts(name)):
        if trace.exists():
            disk.remove(trace)


def all_names(places: Places) -> list[str]:
    """Also roles that are switched off or uninstalled by now, but were started once."""
    started = {path.parent.name for path in places.state.glob("*/lock")}
    return sorted({*ROLES, *(row.name for row in home.rows(places)), *started})
