"""Who plays the council's agents that have no row in council.yaml: the team of the general that comes along."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from kingdom.base.disk.atomic import is_there
from kingdom.base.home import config
from kingdom.base.home.places import Places

GENERAL = "gen-council"
"""The general whose package holds what each agent is told. The team plays where it is installed."""
ROLES = ("leader", "strategist", "architect", "evaluator", "coordinator", "innovator", "ignitian")
EMBEDDED, AT_ONCE = "embedded", 16


def is_installed(places: Places) -> bool:
    return is_there(places.manifest(GENERAL))


def embedded() -> list[str]:
    """Return the program that plays any agent by rules."""
    return [sys.executable, "-P", "-m", "kingdom.team"]


def with_team(places: Places, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of council.yaml with a row for each agent of the team that has none."""
    whole: dict[str, Any] = config.thawed(settings)
    if not is_installed(places):
        return whole
    if whole["team"] == EMBEDDED:
        rows: dict[str, Any] = {role: {"command": embedded(), "at_once": AT_ONCE} for role in ROLES}
    else:
        agents = places.package(GENERAL).relative_to(places.home) / "agents"
        rows = {role: {"engine": whole["team"], "instructions": str(agents / f"{role}.md")} for role in ROLES}
    changed = {**whole, "agents": {**rows, **whole["agents"]}}
    return config.validated("config/council", changed, {}, places.config / "council.yaml")


def agents(places: Places) -> Mapping[str, Any]:
    """Return the rows of all agents that are started here, for commands that look."""
    found: Mapping[str, Any] = with_team(places, config.for_looking(places, "council")[0])["agents"]
    return found
