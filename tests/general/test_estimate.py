"""What a plan of the council will cost, by what earlier goals have cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.general import council
from kingdom.home.places import Places
from tests.fixtures import founded, write

GOAL = {"tasks": 4, "seconds": 120.0, "begun": "2026-02-07T09:00:00Z"}


@pytest.fixture
def places(home: Path) -> Places:
    places = founded(home)
    places.council_goals.mkdir(parents=True)
    places.ledger.parent.mkdir(parents=True, exist_ok=True)
    write(places.council_goals / "open.json", {**GOAL, "seconds": None, "begun": "2026-02-01T09:00:00Z"})
    return places


def test_nothing_is_known_before_a_goal_has_ended(places: Places) -> None:
    assert council._estimate(places, 2) == "What it will cost is not known: no plan has been carried out yet."


@pytest.mark.parametrize(
    ("row", "cost"),
    [
        ({"usd": 2.0, "tokens": 8000}, "1.00 USD and 4,000 tokens"),
        ({"usd": 0.0, "tokens": 0}, "nothing, as far as engines report it,"),
    ],
)
def test_a_plan_costs_as_much_for_each_task_as_earlier_ones(places: Places, row: dict[str, float], cost: str) -> None:
    """As those that have ended, and only since the first of these began."""
    write(places.council_goals / "ended.json", GOAL)
    before = {"2026-02-06": {council.COUNCIL: {"usd": 50.0, "tokens": 1}}}
    write(places.ledger, {**before, "2026-02-07": {council.COUNCIL: row, "gen-pr": {"usd": 9.0, "tokens": 9}}})
    said = f"By what 4 tasks of earlier goals have cost, it will take {cost} and 60 s."
    assert council._estimate(places, 2) == said
