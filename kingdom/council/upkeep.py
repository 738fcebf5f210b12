"""What `kingdom fsck` checks of the council's files, and what is deleted of them when it is old."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kingdom.base.disk.atomic import is_there, names_in
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadName
from kingdom.base.home.places import Places
from kingdom.council.agents import COUNCIL
from kingdom.court.upkeep.fsck import (
    ASIDE,
    LITTER_RULE,
    STATE_RULE,
    Check,
    FsckFault,
    StateFiles,
    View,
    set_aside,
    unfinished,
    unfit_files,
)
from kingdom.court.upkeep.retention import OldFile, RetentionRule, is_kept, nothing_keeps_it, workspace_is_kept

STATE_FILES: StateFiles = {
    lambda at: sorted(at.agent_turns.glob("*/told.json")): dict,
    lambda at: sorted(path for folder in (at.council_goals, at.council_news) for path in folder.glob("*.json")): dict,
}


def _litter(view: View) -> Iterator[FsckFault]:
    agents = names_in(view.places.council)
    yield from unfinished(view, (folder for agent in agents for folder in _folders_of(view.places, agent)))


def _folders_of(places: Places, agent: str) -> Iterator[Path]:
    """Yield where messages of an agent of the council are."""
    with suppress(BadName):
        yield from (places.agent(agent), places.told(agent))


def _lost_letters(view: View) -> Iterator[FsckFault]:
    """Check that what the council could not read lies beside the dead letter that says why."""
    folder = view.places.dead_letters
    for name in names_in(folder):
        path = folder / name
        if name.endswith(".original") and not is_there(path.with_suffix(".mime")) and is_there(path):
            yield FsckFault(path, "there is no dead letter beside it")


def _agent_is_at_work(found: OldFile) -> bool:
    """Return whether the agent of a workspace runs."""
    return is_locked(found.places.agent_turn(found.path.name.partition(".")[0]) / "lock")


CHECKS = (
    Check("litter", LITTER_RULE, _litter, ASIDE, set_aside),
    Check("state", STATE_RULE, lambda view: unfit_files(view, STATE_FILES), ASIDE, set_aside),
    Check("letters", "What the council could not read has its dead letter.", _lost_letters, ASIDE, set_aside),
)
RULES = (
    RetentionRule(
        "workspaces",
        lambda at: [at.workspace(COUNCIL, "any").parent],
        "workspaces_days",
        _agent_is_at_work,
        is_tree=True,
    ),
    RetentionRule("workspaces", lambda at: [at.deliverables], "workspaces_days", workspace_is_kept, is_tree=True),
    RetentionRule("lists of the council's messages", lambda at: [at.council_threads], "results_days", nothing_keeps_it),
    RetentionRule(
        "notes of the council's goals",
        lambda at: [at.council_goals, at.council_news],
        "results_days",
        lambda found: is_kept(found, found.path.stem.removesuffix("-plan").removesuffix("-end")),
    ),
)
