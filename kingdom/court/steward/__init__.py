"""The launchers. A launcher starts the roles, restarts one that crashes, and stops them when asked."""

from __future__ import annotations

from kingdom.base import tables
from kingdom.base.errors import LauncherError
from kingdom.base.home.places import Places
from kingdom.court.steward.base import TIMEOUTS, Steward, Timeouts, last_used

STEWARDS = {
    "tmux": "kingdom.court.steward.tmux:Tmux",
    "supervisord": "kingdom.court.steward.supervisord:Supervisord",
}
"""In the order of preference."""


def pick(places: Places, wanted: str = "auto", timeouts: Timeouts = TIMEOUTS) -> Steward:
    """Return the launcher of that name.

    With "auto" it is the one that runs, else the one that ran last and was not stopped by `down`, else the first that
    can run here.
    """
    if wanted != "auto":
        return _load(wanted, places, timeouts)
    usable: list[Steward] = []
    unusable: list[str] = []
    for name in STEWARDS:
        try:
            usable.append(_load(name, places, timeouts))
        except LauncherError as error:
            unusable.append(str(error))
    if not usable:
        raise LauncherError(launcher="no launcher", action="start", what="the roles", why="; ".join(unusable))
    if running := [steward for steward in usable if steward.launcher_runs()]:
        return running[0]
    return next((steward for steward in usable if steward.name == last_used(places)), usable[0])


def _load(name: str, places: Places, timeouts: Timeouts) -> Steward:
    if name not in STEWARDS:
        raise LauncherError(launcher=name, action="start", what="the roles", why=f"known are {', '.join(STEWARDS)}")
    steward: Steward = tables.load(STEWARDS[name])(places, timeouts)
    return steward
