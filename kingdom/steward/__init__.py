"""The launchers. A launcher starts the roles, restarts one that crashes, and stops them when asked."""

from __future__ import annotations

from kingdom.errors import LauncherError
from kingdom.home.places import Places
from kingdom.runtime import tables
from kingdom.steward.base import Steward

STEWARDS = {
    "tmux": "kingdom.steward.tmux:Tmux",
    "supervisord": "kingdom.steward.supervisord:Supervisord",
}
"""In the order of preference."""


def pick(places: Places, wanted: str = "auto") -> Steward:
    """Return the launcher of that name; with "auto" the one that runs already, else the first that can run here."""
    if wanted != "auto":
        return _load(wanted, places)
    usable: list[Steward] = []
    unusable: list[str] = []
    for name in STEWARDS:
        try:
            usable.append(_load(name, places))
        except LauncherError as error:
            unusable.append(str(error))
    if not usable:
        raise LauncherError(launcher="no launcher", action="start", what="the roles", why="; ".join(unusable))
    return next((steward for steward in usable if steward.launcher_runs()), usable[0])


def _load(name: str, places: Places) -> Steward:
    if name not in STEWARDS:
        raise LauncherError(launcher=name, action="start", what="the roles", why=f"known are {', '.join(STEWARDS)}")
    steward: Steward = tables.load(STEWARDS[name])(places)
    return steward
