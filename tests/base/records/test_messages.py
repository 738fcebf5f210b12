"""Nouns become JSON and come back with everything they held; numbers count up and never go back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kingdom.base.records.messages import Event, Task, alert, code_of, rank
from kingdom.base.times import moment, stamp
from tests.fixtures import event, task


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "1970-01-01T00:00:00Z"), (1770458400.999, "2026-02-07T10:00:00Z"), (-0.5, "1969-12-31T23:59:59Z")],
)
def test_time_is_written_in_utc_to_the_second(seconds: float, text: str) -> None:
    assert stamp(seconds) == text
    assert moment(text) == int(seconds // 1)


@pytest.mark.parametrize(
    ("fields", "attempt"),
    [({}, 0), ({"retry_count": 2}, 2), ({"attempt": 1}, 1), ({"attempt": 3, "retry_count": 1}, 3)],
)
def test_attempts_are_read_under_their_older_name_too(fields: dict[str, int], attempt: int) -> None:
    whole = {**task(), "repo": None, "priority": "low", "status": "pending", **fields}
    assert Task.from_json(whole).attempt == attempt


def test_the_queue_is_served_by_priority_age_and_id() -> None:
    at = "2026-02-07T10:00:00Z"
    order = [
        ("urgent", at, "b"),
        ("high", at, "a"),
        ("odd", "2026-02-06", "b"),
        ("normal", at, "999"),
        ("low", at, "9"),
    ]
    assert sorted(order, key=lambda thing: rank(*thing)) == order
    assert rank("odd", at, "a") == rank("normal", at, "a")
    assert rank("normal", at, "999") < rank("normal", at, "1000")


def test_only_what_a_person_resumed_has_an_original() -> None:
    asked = {**task(payload={"original_task_id": "task-1"}), "repo": None, "priority": "low", "status": "pending"}
    assert Task.from_json(asked).original is None
    assert Task.from_json({**asked, "type": "resume"}).original == "task-1"


def test_the_thread_of_a_task_is_its_root() -> None:
    plain = Task.from_json({**task("task-9"), "repo": None, "priority": "low", "status": "pending"})
    assert plain.thread == "task-9"
    assert replace(plain, thread_task_id="task-1").thread == "task-1"


@pytest.mark.parametrize(
    ("type", "answer"),
    [
        ("slack.human_response", True),
        ("console.thread.reply", True),
        ("slack.channel.message", False),
        ("human_response", False),
    ],
)
def test_answers_are_known_by_their_type(type: str, answer: bool) -> None:
    whole = {**event(type=type), "repo": None, "priority": "low", "status": "pending"}
    assert Event.from_json(whole).is_answer is answer


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ({"code": "failed", "content": "[complete] x"}, "failed"),
        ({"content": "[complete] x"}, "completed"),
        ({"content": "[failed]"}, "failed"),
        ({"content": "[failing] x"}, None),
        ({"code": 5, "content": "[skipped] x"}, "skipped"),
        ({"code": "splendid", "content": "news"}, None),
        ({}, None),
        ({"content": "✅ done"}, "completed"),
        ({"content": "❌ no tests"}, "failed"),
        ({"content": "❌no tests"}, "failed"),
        ({"content": "⏭️ out of scope"}, "skipped"),
        ({"content": "⏭ out of scope"}, "skipped"),
        ({"content": "done ✅"}, None),
    ],
)
def test_what_a_message_tells_is_its_code_or_its_first_word(written: dict[str, object], code: str | None) -> None:
    assert code_of(written.get("code"), written.get("content", "")) == code


def test_an_alert_says_that_it_is_one() -> None:
    written = alert("msg-1", "the disk is full", None, "2026-02-07T10:00:00Z")
    assert code_of(written.code, written.content) == "alert"
