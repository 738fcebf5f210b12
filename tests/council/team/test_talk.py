"""People and a goal: they are asked whether the plan is good, are heard while it goes on, and may end it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.base.disk.codec import read_json, to_json
from kingdom.council.cli.council_thread import state_of, waiting_rows
from kingdom.court.soldiers.consent import NO, YES, meaning
from tests.council.team.teams import TASK, Team
from tests.faults import trees
from tests.fixtures import write

SECOND = "task-20260207-002"


def asked(team: Team) -> str:
    """Give a goal whose plan has to be approved, and return the question."""
    team.give(payload={"approve": "plan"})
    result = team.result()
    assert result["status"] == "needs_human"
    return str(result["question"])


@pytest.mark.parametrize(
    ("said", "goal"),
    [
        ({"text": "Council: a README outline"}, "a README outline"),
        ({"text": "councils of Europe"}, "councils of Europe"),
        ({"text": "council"}, "council"),
        ({"goal": "council tax form"}, "council tax form"),
    ],
)
def test_a_keyword_that_only_calls_the_council_is_no_part_of_the_goal(
    said: dict[str, str], goal: str, team: Team
) -> None:
    team.give(payload={"goal": None, **said})
    team.general.turn(None)
    assert read_json(team.places.council_goal(TASK))["goal"] == goal


@trees.in_campaigns
def test_a_plan_waits_for_a_yes(team: Team) -> None:
    question = asked(team)
    assert question.splitlines() == [
        "The plan for 'README outline' has 6 tasks:",
        "1. What it is",
        "2. What lies where",
        "3. Getting started",
        "4. Working on it",
        "5. Further reading",
        "6. the outline of a README",
        "What it will cost is not known: no plan has been carried out yet.",
        "Shall the council go on? Answer yes or no; leader is told of any other words, and you are asked again.",
    ]
    team.council.settle()
    assert team.told("task_assignment") == []
    (plan,) = team.council.names("coordinator")
    (row,) = [row for row in waiting_rows(team.places) if row["file"] == plan]
    assert state_of(team.places, row, []) == "waits for a yes"
    team.start()
    team.council.start()
    team.answer("Yes.")
    assert team.result(SECOND)["status"] == "success"
    assert len(team.told("task_assignment")) == 6


@pytest.mark.parametrize("word", ["no", pytest.param("아니요", marks=trees.in_campaigns)])
def test_after_a_no_nothing_is_given_out(word: str, team: Team) -> None:
    asked(team)
    team.council.settle()
    assert team.told("task_assignment") == [], "the plan waits"
    team.answer(word)
    assert team.result(SECOND)["reason"] == "the plan was not approved"
    team.until(lambda: team.council.everything == [], "what waited is dropped")
    assert team.told("task_assignment") == []
    assert "drops coordinator/task_list_" in team.council.log


@trees.in_campaigns
def test_other_words_go_to_leader_and_the_question_is_asked_again(team: Team) -> None:
    asked(team)
    team.answer("only the layout, please")
    again = team.result(SECOND)
    assert again["status"] == "needs_human"
    heard = "'only the layout, please' is no yes and no no: leader has been told."
    assert again["question"].startswith(f"{heard}\nThe plan for")
    team.until(lambda: team.told("user_goal") == ["user → leader user_goal"] * 2, "leader is told")
    team.answer("yes", original=SECOND, name="task-20260207-003")
    assert "you also said: only the layout, please" in team.result("task-20260207-003")["summary"]


def test_yes_and_no_are_told_apart() -> None:
    assert not YES & NO
    said = {"Nope!": False, "아니요.": False, "いいえ。": False, "yes but later": None, "": None}
    assert {words: meaning(words) for words in said} == said


@trees.in_campaigns
def test_the_estimate_is_what_such_tasks_have_cost(team: Team) -> None:
    ended = {"thread": "t", "task": "t", "begun": "2026-02-06T10:00:00Z", "seconds": 120, "tasks": 3, "over": "success"}
    team.places.council_goals.mkdir(parents=True, exist_ok=True)
    write(team.places.council_goal("task-1"), ended)
    team.places.ledger.parent.mkdir(parents=True, exist_ok=True)
    row = {"usd": 1.5, "tokens": 3000, "accounts": {}, "tasks": {}}
    team.places.ledger.write_bytes(to_json({"2026-02-06": {"council": row}, "2026-02-05": {"council": row}}))
    assert asked(team).splitlines()[-2] == (
        "Going by 3 tasks of earlier goals, it will cost 3.00 USD and 6,000 tokens, and take 4 min."
    )


@trees.in_campaigns
def test_a_persons_words_reach_leader_while_it_goes_on(team: Team) -> None:
    team.give()
    team.until(lambda: team.told("strategy_request"), "it has begun")
    team.answer("and be quick")
    assert team.result(SECOND)["summary"] == "leader has your words; the goal goes on"
    assert "you also said: and be quick" in team.result()["summary"]


@trees.in_campaigns
def test_words_after_the_end_are_a_new_goal_that_knows_the_old_one(team: Team) -> None:
    team.give("make me rich")
    team.result()
    team.answer("a README outline, then")
    team.until(team.places.council_goal(SECOND).exists, "it has begun")
    note = read_json(team.places.council_goal(SECOND))
    assert (note["goal"], note["root"]) == ("a README outline, then", TASK)
    assert note["context"] == "an earlier goal of this conversation ended with: skipped"


def test_a_cancelled_goal_ends_for_everybody(team: Team) -> None:
    team.give()
    team.until(lambda: team.told("strategy_request"), "it has begun")
    write_cancelled(team)
    assert team.result()["error"] == "cancelled by console"
    team.until(lambda: team.council.everything == [] and not team.council.job._turns.running, "all is dropped")
    assert not team.places.council_end(TASK).exists(), "nobody went on to its end"


def test_words_that_are_cancelled_do_not_end_the_goal_that_they_are_about(team: Team) -> None:
    team.give()
    team.until(team.places.council_goal(TASK).exists, "it has begun")
    write_cancelled(team, SECOND)
    team.answer("and short", name=SECOND)
    assert team.result(SECOND)["error"] == "cancelled by console"
    assert read_json(team.places.council_goal(TASK))["over"] is None


def write_cancelled(team: Team, task: str = TASK) -> None:
    path = team.places.cancelled(task)
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, {"task_id": task, "by": "console"})


def test_a_goal_that_takes_too_long_fails(team: Team) -> None:
    team.give("a README", payload={"approve": "plan"})
    team.until(team.places.council_goal(TASK).exists, "it has begun")
    team.clock.pass_(3600)
    assert team.result()["error"] == "timeout: it took 60 min (timeout_seconds of gen-council)"


def test_only_files_of_agents_are_delivered(team: Team, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("x")
    team.give()
    team.until(team.places.council_goal(TASK).exists, "it has begun")
    agents = team.places.workspaces / "council" / "leader"
    agents.mkdir(parents=True, exist_ok=True)
    (agents / "good.md").write_text("good")
    (agents / "link.md").symlink_to(secret)
    listed = [{"file": "a", "location": str(path)} for path in (secret, agents / "link.md", agents / "good.md")]
    note = {"thread": TASK, "status": "success", "summary": "done", "deliverables": [*listed, 7]}
    write(team.places.council_end(TASK), note)
    result = team.result()
    assert [path.name for path in (team.places.deliverables / TASK).iterdir()] == ["good.md"]
    assert len(result["warnings"]) == 3


def test_leader_alone_ends_a_goal(team: Team) -> None:
    team.give()
    team.until(team.places.council_goal(TASK).exists, "it has begun")
    team.council.write(
        "user", msg_type="progress_update", from_agent="ignitian_1", thread_id=TASK, body="{summary: done, final: true}"
    )
    team.until(lambda: any("ignitian_1" in post for post in team.posts()), "people have read it")
    assert not team.places.council_end(TASK).exists()
