"""Whose words need a sandbox or a person's yes, and which answer counts as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home import schemas
from kingdom.base.home.places import Places
from kingdom.base.records import notes
from kingdom.base.records.messages import Task
from kingdom.court.soldiers import consent
from kingdom.court.soldiers.consent import ConsentRefused
from tests import fixtures
from tests.fixtures import founded, write

ASKED = "task-20260207-000"
CHECKPOINT = {"target_general": "gen-pr", "type": "github.pr.mentioned", "payload": {"a": 1}, "asks": "consent"}


@pytest.fixture
def places(home: Path) -> Places:
    return founded(home)


def a_task(**fields: Any) -> Task:
    return Task.from_json(schemas.check("task", fixtures.task(**fields)))


def answer(text: str) -> Task:
    return a_task(type="resume", payload={"original_task_id": ASKED, "human_response": text})


def trusted(places: Places, task: Task) -> tuple[Task, bool]:
    return consent.task_and_trust(notes.checkpoint_answered_by(places, task), "gen-pr", task)


@pytest.mark.parametrize(
    ("fields", "external"),
    [
        ({}, True),
        ({"type": "slack.message"}, True),
        ({"type": "console.message"}, False),
        ({"scheduled_for": "2026-02-07T10:00:00Z"}, False),
    ],
)
def test_words_are_from_outside_unless_typed_here_or_scheduled(
    places: Places, fields: dict[str, Any], external: bool
) -> None:
    task = a_task(**fields)
    assert trusted(places, task) == (task, external)


@pytest.mark.parametrize(
    "text", ["yes", "Yes.", " OK! ", "네", "はい", "はい。", "\uff39\uff25\uff33\uff01", "yes, please", "Go on.\n"]
)
def test_a_yes_brings_back_the_task_that_asked(places: Places, text: str) -> None:
    write(places.checkpoint(ASKED), CHECKPOINT)
    task, external = trusted(places, answer(text))
    assert (task.type, task.payload, external) == ("github.pr.mentioned", {"a": 1}, False)


def test_a_checkpoint_without_a_payload_comes_back_with_an_empty_one(places: Places) -> None:
    write(places.checkpoint(ASKED), {key: part for key, part in CHECKPOINT.items() if key != "payload"})
    task, _ = trusted(places, answer("yes"))
    assert (task.type, task.payload) == ("github.pr.mentioned", {})


OLD = "May gen-pr work on text from outside without a cage, yes or no? (`sandbox: off` says yes for good)"


@pytest.mark.parametrize(("asks", "is_consent"), [({}, True), ({"asks": None}, False)])
def test_a_question_from_before_an_upgrade_is_not_asked_again(
    places: Places, asks: dict[str, Any], is_consent: bool
) -> None:
    """Today's generals write `asks` beside every question: a soldier that repeats the old words gains nothing."""
    before = {key: part for key, part in CHECKPOINT.items() if key != "asks"}
    write(places.checkpoint(ASKED), {**before, "question": f"No Landlock here. {OLD}", **asks})
    task, external = trusted(places, answer("yes"))
    assert (task.type == "github.pr.mentioned", external) == (is_consent, not is_consent)


@pytest.mark.parametrize("text", ["no", "", "yes please do whatever it says", "maybe"])
def test_any_other_answer_refuses(places: Places, text: str) -> None:
    write(places.checkpoint(ASKED), CHECKPOINT)
    with pytest.raises(ConsentRefused, match="a person answered"):
        trusted(places, answer(text))


@pytest.mark.parametrize(
    "changes", [{"asks": None}, {"asks": "more"}, {"target_general": "gen-other"}], ids=lambda changes: str(changes)
)
def test_a_yes_to_another_question_is_no_consent(places: Places, changes: dict[str, Any]) -> None:
    write(places.checkpoint(ASKED), {**CHECKPOINT, **changes})
    task = answer("yes")
    assert trusted(places, task) == (task, True)


@pytest.mark.parametrize("original", ["../../x", "task-gone", 7, None])
def test_an_answer_to_nothing_is_a_task_like_any_other(places: Places, original: object) -> None:
    task = a_task(type="resume", payload={"original_task_id": original, "human_response": "yes"})
    assert trusted(places, task) == (task, True)
