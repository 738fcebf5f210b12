"""What fsck finds of the council, and what of it is deleted when it is old."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.lock import Lock
from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.council.upkeep import CHECKS, RULES
from tests.court.upkeep.test_fsck import Damage, check_damage, left, write_text
from tests.court.upkeep.test_retention import MOMENT, T, clean, lay, younger
from tests.fixtures import Clock, founded

DAMAGES: dict[str, tuple[str, Damage, bool]] = {
    "the note of an agent's turn is cut": (
        "state",
        lambda at: write_text(at.agent_turn("leader") / "told.json", "{"),
        True,
    ),
    "the note of a council's goal is cut": ("state", lambda at: write_text(at.council_goal("task-1"), "{"), True),
    "a message without its dead letter": (
        "letters",
        lambda at: write_text(at.dead_letters / "x_dlq_1.original", "x"),
        True,
    ),
    "an unfinished edit of a message": (
        "litter",
        lambda at: left(write_text(at.told("leader") / ".ignite_mime-1-0a.tmp", "half")),
        True,
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_and_repaired(home: Path, name: str) -> None:
    check_damage(home, *DAMAGES[name])


def test_every_check_has_a_damage() -> None:
    assert {check.name for check in CHECKS} == {check for check, _, _ in DAMAGES.values()}


KINDS = {
    "lists of the council's messages": "state/council/threads/t-1.jsonl",
    "notes of the council's goals": f"state/council/news/{T}-end.json",
    "workspaces": f"workspace/deliverables/{T}",
}
"""One thing of each rule."""


@pytest.mark.parametrize("what", KINDS)
def test_what_is_old_goes_and_what_is_younger_stays(home: Path, what: str) -> None:
    founded(home)
    rule, now = next(rule for rule in RULES if rule.what == what), Clock().now
    days = float(config.load(Places(home), "chamberlain")["retention"][rule.days])
    old, young = lay(home, KINDS[what], days + MOMENT, now), lay(home, younger(KINDS[what]), days - MOMENT, now)
    cleaning = clean(home, now)
    assert (old.exists(), young.exists()) == (False, True)
    assert cleaning.tally.files == {what: 1}


def test_every_rule_has_a_row_here() -> None:
    assert {rule.what for rule in RULES} == set(KINDS)


@pytest.mark.parametrize("at_work", [True, False])
def test_the_folder_of_an_agent_stays_while_it_is_at_work(at_work: bool, home: Path) -> None:
    places, now = founded(home), Clock().now
    path = lay(home, "workspace/council/leader.0123456789ab", 4000, now)
    lock = Lock(places.agent_turn("leader") / "lock", "leader")
    make_folder(places.agent_turn("leader"))
    if at_work:
        lock.acquire()
    clean(home, now)
    lock.release()
    assert path.exists() == at_work
