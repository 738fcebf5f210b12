"""Whatever one of the team does, or whoever is killed: each task is given out as often as it must, and goals end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kingdom.base.home.places import find_codec
from tests.council.monitor.councils import caged
from tests.council.team.teams import TASK, Team, team_of
from tests.faults import trees
from tests.machine import needs_sandbox

ODD = {
    "twice": 'say "$good"; say "$good"',
    "of a task that it has not": 'say "{task_id: task_005, status: success}"; say "$good"',
    "well, then an error": 'say "$good"; say "{task_id: $id, status: error, error: {message: x}}"',
    "garbage, then well": 'say "{status: maybe, task_id: [7]}"; say ": : :"; say "$good"',
}
"""How a program may play ignitian_1: it delivers the file that it is asked for, with nothing in it."""
PLAYED = r"""
say() { python3 CODEC send --from ignitian_1 --to coordinator --type task_completed --reply-to "$path" --body "$1"; }
for path; do
    id=$(sed -n 's/^task_id: "\(.*\)"/\1/p' "$path")
    echo - >"$KINGDOM_WORKSPACE/x.md"
    good="{task_id: $id, status: success, deliverables: [{file: x.md, location: $KINGDOM_WORKSPACE/x.md}]}"
    HOW
    rm "$path"
done
"""


@trees.in_campaigns
@pytest.mark.parametrize("how", ODD)
def test_an_ignitian_that_reports_oddly_neither_doubles_nor_stops_the_work(
    how: str, home: Path, tmp_path: Path
) -> None:
    script = PLAYED.replace("CODEC", str(find_codec())).replace("HOW", ODD[how])
    with team_of(home, tmp_path / "shop", agents={"ignitian_1": caged(script)}) as team:
        team.give()
        result = team.result()
        assert result["status"] == "success", result
        assert len(set(assigned(team))) == len(assigned(team)) == 6
        (made,) = (team.places.deliverables / TASK).iterdir()
        assert "- 9 files in all" in made.read_text()


def assigned(team: Team) -> list[str]:
    """Return the tasks that were given out, in order."""
    lines = (team.places.council_threads / f"{TASK}.jsonl").read_text().splitlines()
    return [row["about"] for row in map(json.loads, lines) if row["type"] == "task_assignment"]


SILENT = {
    "an ignitian once": ("ignitian", "once", "success", ""),
    "an ignitian always": ("ignitian", "always", "failed", "failed twice: ignitian_"),
    "coordinator with its plan": (
        "coordinator",
        "always",
        "failed",
        "coordinator has deleted a task_list",
    ),
    "leader with its goal": ("leader", "always", "failed", "leader has deleted a user_goal of user without an answer"),
}
"""Who deletes a message without an answer, how often, and how the goal ends."""


@needs_sandbox
@pytest.mark.parametrize(
    "who", [pytest.param(who, marks=[] if who.endswith("goal") else [trees.in_campaigns]) for who in SILENT]
)
def test_a_goal_does_not_wait_for_an_answer_that_nobody_gives(who: str, home: Path, tmp_path: Path) -> None:
    from kingdom.council import players as rows

    role, how_often, status, why = SILENT[who]
    goes_on = f'exec {" ".join(rows.embedded())} "$@"'
    first = 'ls "$KINGDOM_WORKSPACE"/../*/was >&2 || { touch "$KINGDOM_WORKSPACE/was"; rm "$@"; exit; }; '
    script = 'rm "$@"' if how_often == "always" else first + goes_on
    with team_of(home, tmp_path / "shop", agents={role: caged(script)}) as team:
        team.give()
        result = team.result()
        assert (result["status"], why in (result.get("error") or "")) == (status, True), result
        assert team.council.names("dead_letter") == []
        if status == "success":
            assert len(assigned(team)) > len(set(assigned(team))) == 6


@trees.in_campaigns
def test_a_goal_goes_on_when_council_and_general_are_started_again_after_every_turn(team: Team) -> None:
    def again() -> object:
        team.start()
        if not team.council.job._turns.running:  # a child of ours cannot outlive its parent in one process
            team.council.start(queue={"parallel_max": 8}, retry={"base_delay": 0})
        return team.places.result(TASK).exists()

    team.give()
    team.until(again, "the goal has ended")
    assert team.result()["status"] == "success"
    assert len(set(assigned(team))) == len(assigned(team)) == 6
    assert team.council.names("dead_letter") == []


@trees.in_campaigns
@pytest.mark.parametrize("role", ["leader", "strategist", "coordinator", "evaluator", "innovator", "ignitian"])
def test_a_goal_goes_on_when_an_agent_is_killed_at_its_first_turn(role: str, home: Path, tmp_path: Path) -> None:
    from kingdom.council import players as rows

    once = '[ -e "$KINGDOM_WORKSPACE/killed" ] || { touch "$KINGDOM_WORKSPACE/killed"; kill -9 $$; }; '
    command = " ".join(rows.embedded())
    script = f'{once}exec {command} "$@"'
    with team_of(home, tmp_path / "shop", agents={role: caged(script)}) as team:
        team.give()
        assert team.result()["status"] == "success"
        assert len(set(assigned(team))) == 6
        assert team.council.names("dead_letter") == []
