"""What the council is asked, and what a plan of it will cost by what earlier goals have cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import read_json
from kingdom.base.home.places import Places
from kingdom.base.records.messages import Task
from kingdom.council import general as goals
from tests.court.general.rig import GENERAL, TASK, GeneralRig, unwritable
from tests.fixtures import Clock, founded, put, task, write

ASKED: dict[str, tuple[str, dict[str, str], str]] = {
    "a person's answer": ("resume", {"human_response": "go on", "text": "before"}, "go on"),
    "a person's words": ("hall.message", {"human_response": "of another", "text": "plan it"}, "plan it"),
    "what was planned": ("console.message", {"goal": " plan it ", "text": "council plan it"}, "plan it"),
    "what was seen": ("jira.ticket.assigned", {"headline": "ACME-1"}, "ACME-1"),
    "nothing": ("jira.ticket.assigned", {"text": " "}, ""),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_goal_is_what_was_answered_planned_said_or_seen(general: GeneralRig, what: str) -> None:
    type, payload, goal = ASKED[what]
    assert goals._goal(general.job._general, Task.from_json(task(type=type, payload=payload))) == goal


@pytest.mark.parametrize(("context", "more"), [("", {}), ("of ACME-1", {"context": "of ACME-1"})])
def test_leader_is_told_the_context_where_there_is_one(context: str, more: dict[str, str]) -> None:
    note = {"goal": "plan it", "workspace": "/w", "context": context, "approve": None}
    assert goals._goal_body(note) == {"goal": "plan it", "workspace": "/w", **more}


GOAL = {"tasks": 4, "seconds": 120.0, "begun": "2026-02-07T09:00:00Z"}


@pytest.fixture
def places(home: Path) -> Places:
    places = founded(home)
    places.council_goals.mkdir(parents=True)
    places.ledger.parent.mkdir(parents=True, exist_ok=True)
    write(places.council_goals / "open.json", {**GOAL, "seconds": None, "begun": "2026-02-01T09:00:00Z"})
    return places


def test_nothing_is_known_before_a_goal_has_ended(places: Places) -> None:
    assert goals._estimate(places, 2) == "What it will cost is not known: no plan has been carried out yet."


@pytest.mark.parametrize(
    ("row", "cost"),
    [
        ({"usd": 2.0, "tokens": 8000}, "1.00 USD and 4,000 tokens"),
        ({"usd": 0.0, "tokens": 0}, "nothing that engines report"),
    ],
)
def test_a_plan_costs_as_much_for_each_task_as_earlier_ones(places: Places, row: dict[str, float], cost: str) -> None:
    """As those that have ended, and only since the first of these began."""
    write(places.council_goals / "ended.json", GOAL)
    before = {"2026-02-06": {goals.COUNCIL: {"usd": 50.0, "tokens": 1}}}
    write(places.ledger, {**before, "2026-02-07": {goals.COUNCIL: row, "gen-pr": {"usd": 9.0, "tokens": 9}}})
    said = f"Going by 4 tasks of earlier goals, it will cost {cost}, and take 60 s."
    assert goals._estimate(places, 2) == said


NAME_OF_ANSWER = "user_goal_1770458400180202.mime"
"""The second at which its task was made, and six digits by its id: a repetition has the same name."""
NOTE = {"thread": "goal-1", "task": TASK, "goal": "plan it", "approve": True, "approved": None, "said": None}


def test_people_are_asked_about_each_task_of_a_plan_by_its_number(general: GeneralRig) -> None:
    context, asks = general.job._general, Task.from_json(task(TASK))
    note = {**NOTE, "said": "perhaps"}
    goals._ask(context, asks, context.handle(TASK), "goal-1", note, {"titles": ["read", "write"]})
    [ending] = context.endings
    assert str(ending.result.question).splitlines()[:4] == [
        "'perhaps' is no yes and no no: leader has been told.",
        "The plan for 'plan it' has 2 tasks:",
        "1. read",
        "2. write",
    ]
    assert read_json(general.places.council_goal("goal-1"))["tasks"] == 2


def test_what_is_no_yes_and_no_no_is_kept_and_told_to_leader(general: GeneralRig) -> None:
    context, payload = general.job._general, {"original_task_id": TASK, "human_response": "perhaps"}
    answer = Task.from_json(task("task-20260207-002", type="resume", payload=payload))
    make_folder(general.places.agent("leader"))
    assert goals._take_words(context, answer, context.handle(answer.id), "goal-1", {**NOTE}) is False
    kept = read_json(general.places.council_goal("goal-1"))
    assert (kept["said"], kept["task"], kept["approved"]) == ("perhaps", answer.id, None)
    [told] = general.places.agent("leader").glob("*.mime")
    assert "perhaps" in told.read_text()
    assert told.name == NAME_OF_ANSWER
    assert f"info {answer.id} is with leader as {NAME_OF_ANSWER}" in general.log()


@pytest.fixture
def council_general(general: GeneralRig) -> GeneralRig:
    general.manifest(engine="council")
    general.restart()
    make_folder(general.places.agent("leader"))
    return general


def begun(general: GeneralRig, **fields: Any) -> bool | None:
    context, given = general.job._general, Task.from_json(task(TASK, GENERAL, repo=None, **fields))
    return goals.step(context, given, context.handle(TASK))


def test_news_of_the_council_wake_its_general_and_no_other(general: GeneralRig) -> None:
    assert general.places.council_news not in general.job.folders()
    general.manifest(engine="council")
    general.restart()
    assert general.places.council_news in general.job.folders()


def test_a_goal_that_names_no_folder_has_a_workspace_of_its_own(council_general: GeneralRig) -> None:
    assert begun(council_general, payload={"goal": "plan it"}) is False
    note = read_json(council_general.places.council_goal(TASK))
    assert note["workspace"] == str(council_general.places.workspace(GENERAL, TASK))
    assert Path(note["workspace"]).is_dir()


def test_a_goal_is_told_to_have_begun_when_that_is_noted(council_general: GeneralRig) -> None:
    with unwritable(council_general):
        begun(council_general, payload={"goal": "plan it", "folder": "/w"})
    begun(council_general, payload={"goal": "plan it", "folder": "/w"})
    council_general.services.log.flush()
    assert council_general.events().count("task.started") == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_words_about_a_goal_leave_the_workspace_in_which_it_goes_on(
    council_general: GeneralRig, is_restarted: bool
) -> None:
    """Two retries of one answer: the goal goes on by the first, and the second tells leader the words once more."""
    general, said = council_general, {"original_task_id": TASK, "human_response": "yes", "session_id": TASK}
    assert begun(general, payload={"goal": "plan it", "approve": "plan"}) is False
    make_folder(general.places.council_news)
    write(general.places.council_plan(TASK), {"titles": ["read"]})
    put(general.home, "tasks", "in_progress", **task(TASK, GENERAL, payload={"goal": "plan it"}))
    assert general.result()["status"] == "needs_human"
    by_king_done(general, TASK)
    workspace = general.places.workspace(GENERAL, TASK)
    first, second = "task-20260207-002", "task-20260207-003"
    put(general.home, "tasks", "pending", **task(first, GENERAL, type="resume", payload=said))
    general.until(lambda: read_json(general.places.council_goal(TASK))["task"] == first, "the goal goes on")
    put(general.home, "tasks", "pending", **task(second, GENERAL, type="resume", payload=said))
    assert "leader has your words" in general.result(second)["summary"]
    if is_restarted:
        general.restart()
        general.job.turn(None)
    assert workspace.is_dir()
    by_king_done(general, second)
    write(general.places.council_end(TASK), {"status": "success", "summary": "read"})
    assert general.result(first)["summary"] == "read"
    general.until(lambda: not workspace.exists(), "nothing is left in it")


def by_king_done(general: GeneralRig, name: str) -> None:
    general.services.queues.tasks.move([name], "in_progress", "completed")


@pytest.mark.parametrize(
    ("end", "over", "more"),
    [
        ({"status": "success"}, "success", {"seconds": 90.0, "tasks": 2}),
        ({"status": "failed", "summary": "x" * 400}, "x" * 299 + "…", {}),
        ({"status": "refused", "summary": "not ours"}, "not ours", {}),
    ],
)
def test_what_a_goal_took_is_noted_when_it_ends_well(
    council_general: GeneralRig, clock: Clock, end: dict[str, str], over: str, more: dict[str, float]
) -> None:
    begun(council_general, payload={"goal": "plan it", "folder": "/w"})
    places = council_general.places
    for path, what in ((places.council_plan(TASK), {"titles": ["read", "write"]}), (places.council_end(TASK), end)):
        make_folder(path.parent)
        write(path, what)
    clock.pass_(90)
    assert begun(council_general, payload={"goal": "plan it", "folder": "/w"}) is True
    note = read_json(places.council_goal(TASK))
    assert note["over"] == over
    assert {name: note[name] for name in ("seconds", "tasks") if name in note} == more


def test_a_deliverable_from_elsewhere_is_left_out_and_said_shortly(council_general: GeneralRig) -> None:
    listed = [{"location": f"/etc/{'x' * 300}"}, {"location": "/etc/passwd"}]
    kept, lost = goals._keep_deliverables(council_general.job._general, Task.from_json(task(TASK)), listed)
    assert kept == []
    head = "a deliverable is left out: "
    assert [len(line) for line in lost] == [len(head) + 200, len(head) + len("/etc/passwd: ") + len(WHY)]
    assert lost[1] == f"{head}/etc/passwd: {WHY}"


WHY = "it lies in no folder of an agent"
