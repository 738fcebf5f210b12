"""Agents of the council as engines know generals: a row of council.yaml in, an engine and its program out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from kingdom.base.home.manifests import Manifest
from kingdom.court.soldiers import engines, prepare
from kingdom.court.soldiers.engines.base import NeedsSetUp, Surroundings
from kingdom.court.soldiers.prepare import Chosen

COUNCIL = "council"
"""The name of the engine of its general, and what its agents have in place of the name of a general."""


def chosen(services: Surroundings, agent: str, row: Mapping[str, Any]) -> Chosen:
    """Return the engine of an agent. NeedsSetUp says what it lacks."""
    if row["engine"] != "command":
        return prepare.choose_engine(services, manifest_of(agent, row))
    engine = engines.load("command")
    return Chosen("command", engine, _program(services, row), engine.account(COUNCIL))


def missing(services: Surroundings, agent: str, row: Mapping[str, Any]) -> str | None:
    """Return what an agent lacks to work here; None when it lacks nothing."""
    if row["engine"] == "command" and "command" not in row:
        return "it has no command, and the engine command needs one"
    try:
        chosen(services, agent, row)
    except NeedsSetUp as error:
        return str(error)
    if row["instructions"] is not None and not (services.places.home / row["instructions"]).is_file():
        return f"its instructions {row['instructions']} are not there"
    return None


def manifest_of(agent: str, row: Mapping[str, Any]) -> Manifest:
    """Return an agent's row as engines know generals."""
    return Manifest(
        name=COUNCIL,
        description=agent,
        timeout_seconds=0,
        subscribes=(),
        schedules=(),
        engine=row["engine"],
        needs_model=row["engine"] != "command",
        supported_engines=(),
        keywords=(),
        default_repo=None,
        cc_plugins=(),
        max_soldiers=None,
        env=tuple(row["env"]),
        limits=row["limits"],
        sandbox=row["sandbox"] in ("on", True),
    )


def _program(services: Surroundings, row: Mapping[str, Any]) -> str:
    """Return the path of an agent's own program; one without a slash is looked up."""
    name = row["command"][0]
    found = services.places.home / name if "/" in name else shutil.which(name)
    if found is None or not os.path.exists(found):
        raise NeedsSetUp(why=f"its program {name} is not there")
    if not os.access(found, os.X_OK) or os.path.isdir(found):
        raise NeedsSetUp(why=f"its program {name} cannot be run")
    return str(found)
