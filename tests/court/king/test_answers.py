"""What a person's answer resumes, and what is told when nobody waits for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.home import schemas
from kingdom.base.records import notes
from kingdom.base.records.messages import Event, Task
from kingdom.court.king.answers import Unanswerable, resume
from tests.fixtures import event, founded, write

ASKED = "task-20260207-001"
CHECKPOINT = {
    "task_id": ASKED,
    "thread_task_id": ASKED,
    "target_general": "gen-pr",
    "repo": "acme/shop",
    "session_id": "s-1",
    "workspace": "/w",
    "question": "which?",
}
CONTEXT = {"general": "gen-pr", "session_id": "s-2", "repo": "acme/shop", "task_id": ASKED}


def answer(home: Path, type: str, **payload: Any) -> Task:
    whole = Event.from_json(schemas.check("event", event("evt-7", type, payload=payload)))
    made = resume(whole, founded(home), {"gen-pr", "gen-test"}, "task-20260207-002", "2026-02-07T10:00:00Z")
    schemas.check("task", made.to_json())
    return made


def test_an_answer_resumes_the_task_that_asked(home: Path) -> None:
    path = write(founded(home).checkpoint(ASKED), CHECKPOINT)
    made = answer(
        home,
        "slack.human_response",
        task_id=ASKED,
        human_response="the second",
        channel="C1",
        thread_ts="1.2",
        user="U",
    )
    assert (made.type, made.target_general, made.priority, made.repo) == ("resume", "gen-pr", "high", "acme/shop")
    assert (made.event_id, made.thread_task_id, made.attempt) == ("evt-7", ASKED, 0)
    assert made.subject == "resume", "nobody has said what it is about"
    assert made.payload == {
        "original_task_id": ASKED,
        "checkpoint_path": str(path),
        "human_response": "the second",
        "reply_context": {},
        "session_id": "s-1",
        "channel": "C1",
        "thread_ts": "1.2",
    }
    assert made.reply_to == {
        "source": "slack",
        "event_id": "evt-7",
        "user": "U",
        "channel": "C1",
        "thread_ts": "1.2",
    }


def test_an_answer_to_a_resumed_tasks_question_stays_in_the_first_thread(home: Path) -> None:
    write(founded(home).checkpoint("task-9"), {**CHECKPOINT, "task_id": "task-9", "thread_task_id": ASKED})
    made = answer(home, "console.human_response", task_id="task-9", human_response="yes")
    assert (made.payload["original_task_id"], made.thread_task_id) == ("task-9", ASKED)


@pytest.mark.parametrize(
    ("told", "matter"), [({"type": "a.b"}, "a.b"), ({"type": "resume", "matter": "a.b"}, "a.b"), ({"matter": 5}, "5")]
)
def test_what_it_is_about_goes_on_with_it(home: Path, told: dict[str, Any], matter: str) -> None:
    write(founded(home).checkpoint(ASKED), {**CHECKPOINT, **told})
    made = answer(home, "slack.human_response", task_id=ASKED, human_response="yes")
    assert made.subject == matter


def test_a_seeds_checkpoint_is_enough(home: Path) -> None:
    write(founded(home).checkpoint(ASKED), {"target_general": "gen-pr", "repo": "acme/shop"})
    made = answer(home, "slack.human_response", task_id=ASKED, human_response="yes")
    assert (made.thread_task_id, made.payload["session_id"]) == (ASKED, None)


def test_a_word_in_a_conversation_goes_on_with_its_context(home: Path) -> None:
    made = answer(home, "slack.thread.reply", text="and the tests?", reply_context=CONTEXT, thread_ts="1.2")
    assert (made.target_general, made.repo, made.thread_task_id) == ("gen-pr", "acme/shop", ASKED)
    assert (made.payload["human_response"], made.payload["session_id"]) == ("and the tests?", "s-2")
    assert made.payload["checkpoint_path"] is None
    assert made.payload["reply_context"] == CONTEXT


UNANSWERABLE: dict[str, tuple[str, dict[str, Any], str]] = {
    "no checkpoint": (
        "slack.human_response",
        {"task_id": "task-8"},
        "task-8 is no longer open (its checkpoint is missing)",
    ),
    "no task": ("slack.human_response", {}, "an unnamed task is no longer open"),
    "a wandering task": ("slack.human_response", {"task_id": "../../x"}, "no longer open (task '../../x' cannot name"),
    "a task that is no text": ("slack.human_response", {"task_id": {"a": 1}}, "no longer open"),
    "no context": ("slack.thread.reply", {"text": "hi"}, "it names no general"),
    "a strange context": ("slack.thread.reply", {"reply_context": "x"}, "it names no general"),
    "an unknown general": ("hall.thread.reply", {"reply_context": {"general": "gen-x"}}, "there is no general 'gen-x'"),
    "a wandering general": ("hall.thread.reply", {"reply_context": {"general": "gen-/../x"}}, "there is no general"),
    "a wandering thread": (
        "hall.thread.reply",
        {"reply_context": {**CONTEXT, "task_id": "../../king"}},
        "nobody can continue it: task: thread_task_id",
    ),
    "a strange repo": ("hall.thread.reply", {"reply_context": {**CONTEXT, "repo": ["a"]}}, "task: repo must be"),
    "a wandering root": (
        "hall.thread.reply",
        {"reply_context": {**CONTEXT, "thread_task_id": "../x"}},
        "nobody can continue it: task: thread_task_id",
    ),
}


@pytest.mark.parametrize("what", UNANSWERABLE)
def test_an_answer_that_nobody_waits_for_is_told_so(home: Path, what: str) -> None:
    type, payload, why = UNANSWERABLE[what]
    with pytest.raises(Unanswerable, match=re.escape(why)):
        answer(home, type, **payload)


def test_a_damaged_checkpoint_is_told_so(home: Path) -> None:
    founded(home).checkpoint(ASKED).write_text("{half")
    with pytest.raises(Unanswerable, match="no longer open"):
        answer(home, "slack.human_response", task_id=ASKED)


def test_a_reply_answers_the_open_question_of_the_task_it_names(home: Path) -> None:
    path = write(founded(home).checkpoint(ASKED), CHECKPOINT)
    made = answer(home, "slack.thread.reply", text="yes", reply_context={**CONTEXT, "repo": ""}, thread_ts="1.2")
    assert (made.payload["session_id"], made.payload["checkpoint_path"]) == ("s-1", str(path))
    assert (made.payload["original_task_id"], made.repo) == (ASKED, "acme/shop")


@pytest.mark.parametrize("type", ["slack.thread.reply", "slack.human_response"])
def test_the_second_answer_of_any_kind_is_told_so(home: Path, type: str) -> None:
    places = founded(home)
    write(places.checkpoint(ASKED), CHECKPOINT)
    make_folder(places.scratch("king"))
    notes.note_answer(places, Disk(places.scratch("king"), durability="process"), ASKED, "evt-6")
    with pytest.raises(Unanswerable, match="already answered"):
        answer(home, type, text="yes", task_id=ASKED, reply_context=CONTEXT)


@pytest.mark.parametrize(
    ("in_checkpoint", "beside", "session"),
    [
        ("s-1", "s-9\n", "s-1"),
        (None, "s-9\n", "s-9"),
        (None, "two\nlines", None),
        (None, "", None),
        (None, "x" * 501, None),
        (None, None, None),
    ],
)
def test_where_the_session_comes_from(home: Path, in_checkpoint: str | None, beside: str | None, session: str) -> None:
    foreign = {"task_id": ASKED, "target_general": "gen-pr", "repo": "", "payload": {}, "created_at": "2026-02-07"}
    write(founded(home).checkpoint(ASKED), {**foreign, "session_id": in_checkpoint})
    if beside is not None:
        founded(home).session_id(ASKED).write_text(beside)
    made = answer(home, "slack.human_response", task_id=ASKED, human_response="yes")
    assert (made.payload["session_id"], made.repo) == (session, None)


def test_an_older_answer_has_nothing_but_its_task_and_its_words(home: Path) -> None:
    write(founded(home).checkpoint(ASKED), CHECKPOINT)
    made = answer(home, "slack.human_response", task_id=ASKED, human_response="yes")
    assert (made.payload["human_response"], made.payload["session_id"]) == ("yes", "s-1")
    assert made.reply_to == {"source": "slack", "event_id": "evt-7"}


@pytest.mark.parametrize("said", [{"user_id": "U"}, {"user": "U"}, {"user_id": "U", "user": "U"}])
def test_who_answered_may_stand_under_either_name(home: Path, said: dict[str, str]) -> None:
    write(founded(home).checkpoint(ASKED), CHECKPOINT)
    made = answer(home, "slack.human_response", task_id=ASKED, human_response="yes", **said)
    assert made.reply_to is not None
    assert made.reply_to["user"] == "U"
