"""A goal goes through the whole team: the plan, the work, a flaw that is found, and the report."""

from __future__ import annotations

import pytest

from tests.council.team.teams import TASK, Team
from tests.faults import trees

OUTLINE = """\
# shop

## What it is

- in one line: Sells things
- the README of today begins with Shop
- version 1.2
- files by language: Python (4)
- 9 files in all

## What lies where

- `docs/`: 1 file
- `shop/`: 3 files
- `tests/`: 1 file

## Getting started

- requirements: `pyproject.toml`
- command `shop`: `shop.main:main`
- `make test`
- `make run`

## Working on it

- tests in `tests`: 1 file
- see `Makefile`

## Further reading

- licence: `LICENSE`
- `README.md`
- `docs/guide.md`
"""
HEAD = "[council] leader (final, 100 %, done)"
REPORT = """\
README-outline.md
evaluator sent back 1 of 6 tasks, which innovator improved
suggested: let ignitians count the lines of 'What it is' before they report"""


def test_a_goal_goes_through_the_whole_team(team: Team) -> None:
    team.give()
    result = team.result()
    path = team.places.deliverables / TASK / "README-outline.md"
    assert (result["status"], result["session_id"]) == ("success", TASK)
    assert result["summary"].splitlines() == [
        "done: the outline of a README, for 'README outline'",
        "README-outline.md",
        "evaluator sent back 1 of 6 tasks, which innovator improved",
        "suggested: let ignitians count the lines of 'What it is' before they report",
        f"deliverable: {path}",
    ]
    assert path.read_text() == OUTLINE
    assert "[council] leader (strategy, 0 %): strategist makes a plan for: README outline" in team.posts()
    assert "[council] leader (plan, 10 %): the plan has 6 tasks: the outline of a README" in team.posts()
    assert [post for post in team.posts() if "(work" in post and "' is accepted" not in post] == []
    assert team.told()[0] == "user → leader user_goal"
    assert sorted(team.told("strategy_request", "strategy_response", "task_list")) == [
        "leader → strategist strategy_request",
        "strategist → coordinator task_list",
        "strategist → leader strategy_response",
    ]
    assert len(team.told("task_assignment")) == 6
    assert team.told("improvement_request", "improvement_completed", "revision_request") == [
        "evaluator → innovator improvement_request",
        "innovator → leader improvement_completed",
        "leader → coordinator revision_request",
    ]
    assert team.council.everything == []


@trees.in_campaigns
@pytest.mark.parametrize(
    ("goal", "file", "lines"),
    [
        (
            "find all TODOs",
            "TODO-inventory.md",
            [
                "## TODOs in shop",
                "- `shop/cart.py:2` TODO: count \\`twice\\` \\<b\\>",
                "- `shop/price.py:1` FIXME: ann) round it",
            ],
        ),
        ("what has no test: a gap list", "test-gaps.md", ["- `shop/price.py`: no test names `price`"]),
    ],
)
def test_other_kinds_of_goals(goal: str, file: str, lines: list[str], team: Team) -> None:
    team.give(goal)
    assert team.result()["status"] == "success"
    text = (team.places.deliverables / TASK / file).read_text()
    assert [line for line in lines if line not in text] == []
    assert "secret" not in text


def test_a_goal_without_rules_is_refused_plainly(team: Team) -> None:
    team.give("make me rich")
    result = team.result()
    assert result["status"] == "skipped"
    assert result["reason"].startswith("without a model this team can do only the outline of a README, an inventory")
    assert team.told("task_assignment") == []


@trees.in_campaigns
def test_a_goal_that_a_program_wrote_into_the_queue_is_worked_on_and_reported(team: Team) -> None:
    team.council.write("leader", folder="processed", body=f"goal: README outline\nworkspace: {team.shop}\n")
    report = team.until(lambda: [post for post in team.posts() if "(final" in post], "leader has reported")
    (place,) = team.places.workspaces.rglob("README-outline.md")
    assert report == [f"{HEAD}: done: the outline of a README, for 'README outline'\n{REPORT}\ndeliverable: {place}"]
    assert place.read_text() == OUTLINE
