"""The checks of `kingdom doctor` for the council."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kingdom.base.home import roster
from kingdom.base.home.places import Places
from kingdom.base.program import home
from kingdom.base.wing import DoctorFinding
from kingdom.base.words import count, one_line
from kingdom.cli import packages
from kingdom.council import players
from kingdom.council.agents import missing


def findings(places: Places) -> Iterator[DoctorFinding]:
    """Yield whether the council's agents could start, and what nobody looks after."""
    waiting = sum(1 for path in places.council.glob("*/*.mime") if path.parent != places.dead_letters)
    if not roster.is_switched_on(places, "council"):
        if waiting:
            what = f"{count(waiting, 'message')} in {places.council} and the council is switched off"
            yield DoctorFinding("warn", "council", what, home.how_to_switch_on(places, "council"))
        return
    agents = players.agents(places)
    if not agents:
        install = f"`{home.command()} generals install {players.GENERAL}`"
        step = f"run {install}, or name agents in {places.config / 'council.yaml'}"
        yield DoctorFinding("warn", "council", "it is switched on and nobody is to be told", step)
    yield from _agents(places, agents)
    if buried := len(list(places.dead_letters.glob("*.mime"))):
        step = f"`{home.command()} council dlq ls` says why"
        yield DoctorFinding("warn", "council", f"{count(buried, 'message was', 'messages were')} given up", step)
    if agents:
        yield DoctorFinding("ok", "council", f"{count(len(agents), 'agent')}, {count(waiting, 'message')} waiting")


def _agents(places: Places, agents: Mapping[str, Any]) -> Iterator[DoctorFinding]:
    """Yield what each agent lacks, and which of them have no sandbox."""
    path, here = places.config / "council.yaml", packages.here(places, home.system(places))
    for agent, row in agents.items():
        if (lacks := missing(here, agent, row)) is not None:
            yield DoctorFinding(
                "bad", "council", f"{agent}: {one_line(lacks, 300)}", f"correct agents.{agent} in {path}"
            )
    if open_ones := [agent for agent, row in agents.items() if row["sandbox"] in ("off", False)]:
        what = f"{', '.join(open_ones)} {'runs' if len(open_ones) == 1 else 'run'} without a sandbox"
        yield DoctorFinding(
            "warn", "council", f"{what} and may write every queue", f"take `sandbox: off` out of {path}"
        )
