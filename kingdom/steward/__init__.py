"""The launchers: whatever starts a role, restarts it when it dies, and ends it when asked."""

from __future__ import annotations

from importlib import import_module

from kingdom.errors import LauncherTrouble
from kingdom.home.places import Places
from kingdom.steward.base import Steward

STEWARDS = {
    "tmux": "kingdom.steward.tmux:Tmux",
    "supervisord": "kingdom.steward.supervisord:Supervisord",
}
"""In the order of preference."""


def pick(places: Places, wanted: str = "auto") -> Steward:
    """The launcher of that name; with "auto" the one that stands already, else the first that can run here."""
    if wanted != "auto":
        return _load(wanted, places)
    able: list[Steward] = []
    unable: list[str] = []
    for name in STEWARDS:
        try:
            able.append(_load(name, places))
        except LauncherTrouble as trouble:
            unable.append(str(trouble))
    if not able:
        raise LauncherTrouble(launcher="no launcher", action="start", what="the roles", why="; ".join(unable))
    return next((steward for steward in able if steward.standing()), able[0])


def _load(name: str, places: Places) -> Steward:
    if name not in STEWARDS:
        raise LauncherTrouble(launcher=name, action="start", what="the roles", why=f"known are {', '.join(STEWARDS)}")
    module, attribute = STEWARDS[name].split(":")
    steward: Steward = getattr(import_module(module), attribute)(places)
    return steward
