"""What existing kings, envoys and generals write, and what ours makes of it: a row for each promise to them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places
from kingdom.base.records import notes
from kingdom.base.records.messages import code_of
from kingdom.cli.say import _event
from kingdom.court.king.job import KingJob
from tests.fixtures import Clock, all_of, event, here, install, put, read, services, task, write

TASK = "task-20260207-001"
SAID = {"text": "look at it", "user_id": "U1", "channel": "C1", "message_ts": "1.1"}
CHECKPOINT = {"task_id": TASK, "target_general": "gen-pr", "repo": "", "payload": None, "session_id": "s-1"}
CONTEXT = {"general": "gen-pr", "session_id": "s-2", "repo": ""}


def run_king(home: Path) -> None:
    king = KingJob(services(home, "king", Clock(), king={"slack": {"default_channel": "dev"}}))
    while king.turn(None).worked:
        pass


def told(home: Path, **event_fields: Any) -> None:
    put(home, "events", "pending", **event(**event_fields))
    run_king(home)


def ends(home: Path, result: dict[str, Any], **fields: Any) -> None:
    """A foreign general has done it."""
    put(home, "tasks", "in_progress", **task(**fields))
    write(Places(home).result(TASK), {"task_id": TASK, **result})
    run_king(home)


def made(home: Path) -> dict[str, Any]:
    (only,) = all_of(home, "tasks", "pending")
    return only


def last_message(home: Path) -> dict[str, Any]:
    return all_of(home, "messages", "pending")[-1]


def people_have_a_user_id(home: Path) -> None:
    told(home, type="slack.channel.message", payload=SAID)
    assert made(home)["reply_to"]["user"] == "U1"
    assert made(home)["payload"] == SAID


def what_is_typed_here_carries_both(home: Path) -> None:
    write(Places(home).checkpoint(TASK), CHECKPOINT)
    said = _event(Places(home), "yes", TASK).payload
    assert said["user"] == said["user_id"]
    known = {"general": "gen-pr", "session_id": "s-1", "repo": None, "task_id": TASK, "thread_task_id": TASK}
    assert said["reply_context"] == known


def an_answer_of_two_fields(home: Path) -> None:
    write(Places(home).checkpoint(TASK), CHECKPOINT)
    told(home, type="slack.human_response", payload={"task_id": TASK, "human_response": "yes"})
    assert (made(home)["type"], made(home)["payload"]["session_id"], made(home)["repo"]) == ("resume", "s-1", None)


def a_reply_without_a_task(home: Path) -> None:
    told(home, type="slack.thread.reply", payload={"text": "and?", "thread_ts": "1.1", "reply_context": CONTEXT})
    assert (made(home)["type"], made(home)["payload"]["session_id"], made(home)["repo"]) == ("resume", "s-2", None)


def a_question_says_where_it_belongs(home: Path) -> None:
    ends(home, {"status": "needs_human", "question": "which?"}, reply_to={"source": "slack", **SAID})
    question = last_message(home)
    assert (question["channel"], question["thread_ts"]) == ("C1", "1.1")
    assert question["reply_context"] == question["context"]["reply_context"]


def two_replies_to_a_question_are_one_answer(home: Path) -> None:
    write(Places(home).checkpoint(TASK), CHECKPOINT)
    for number in (1, 2):
        payload = {"text": "yes", "reply_context": {**CONTEXT, "task_id": TASK}, "channel": "C1", "thread_ts": "1.1"}
        told(home, name=f"evt-{number}", type="slack.thread.reply", payload=payload)
    assert made(home)["payload"]["session_id"] == "s-1"
    late = last_message(home)
    assert late["content"].startswith("[failed] ")
    assert late["thread_ts"] == "1.1"


def what_another_king_took_as_answer_stays_taken(home: Path) -> None:
    places, other = Places(home), "task-20260207-009"
    for asked in (TASK, other):
        write(places.checkpoint(asked), CHECKPOINT)
    resumed = {"original_task_id": TASK, "human_response": "yes"}
    put(home, "tasks", "completed", **task("task-20260207-002", type="resume", payload=resumed))
    put(home, "tasks", "completed", **task("task-20260207-003", payload={"original_task_id": other}))
    told(home, name="evt-3", type="slack.human_response", payload={"task_id": TASK, "human_response": "no"})
    assert notes.open_questions(places) == [other]
    assert notes.answered_by(places, TASK) == "evt-1"
    assert here(home, "tasks", "pending") == []
    assert last_message(home)["content"].startswith("[failed] ")


def a_session_in_a_file_beside_the_results(home: Path) -> None:
    Places(home).session_id(TASK).write_text("s-9\n")
    ends(home, {"status": "success"}, reply_to={"source": "slack", **SAID})
    assert last_message(home)["reply_context"]["session_id"] == "s-9"


def a_persons_task_speaks_under_their_words(home: Path) -> None:
    told(home, type="slack.channel.message", payload=SAID)
    start = last_message(home)
    assert (start["type"], start["channel"], start["thread_ts"]) == ("thread_start", "C1", "1.1")
    ends(home, {"status": "success"}, reply_to={"source": "slack", **SAID})
    final = last_message(home)
    assert (final["type"], final["channel"], final["thread_ts"]) == ("notification", "C1", "1.1")
    assert final["source_ref"]["message_ts"] == "1.1"


def prefixes_tell_what_a_message_is(home: Path) -> None:
    seen = [code_of(None, f"{prefix} x") for prefix in ("[complete]", "[failed]", "✅", "❌", "⏭️")]
    assert seen == ["completed", "failed", "completed", "failed", "skipped"]
    ends(home, {"status": "failed"})
    assert last_message(home)["content"] == "[failed] unknown"


def results_of_any_shape(home: Path) -> None:
    odd = {"memory_updates": None, "metrics": None, "proclamation": {}, "notify_channel": "", "error": None}
    ends(home, {"status": "killed", **odd})
    assert read(home, "tasks", "completed", TASK)["outcome"] == "failed"


def odd_levels_and_nulls(home: Path) -> None:
    told(home, priority="urgent", payload=None, repo="")
    assert (made(home)["priority"], made(home)["payload"], made(home)["repo"]) == ("normal", {}, None)


ROWS: dict[str, Callable[[Path], None]] = {
    "1 user_id": people_have_a_user_id,
    "1 the console": what_is_typed_here_carries_both,
    "2 older envoys": an_answer_of_two_fields,
    "2 newer envoys": a_reply_without_a_task,
    "3 questions": a_question_says_where_it_belongs,
    "4 one answer": two_replies_to_a_question_are_one_answer,
    "4 answered elsewhere": what_another_king_took_as_answer_stays_taken,
    "5 sessions": a_session_in_a_file_beside_the_results,
    "6 people's threads": a_persons_task_speaks_under_their_words,
    "8 prefixes": prefixes_tell_what_a_message_is,
    "10 results": results_of_any_shape,
    "10 levels": odd_levels_and_nulls,
}
"""7 (the envoy's files) is in tests/court/envoy/test_conversations.py.

9 (configuration) is in tests/base/home/test_config.py.
"""


@pytest.mark.parametrize("row", ROWS)
def test_what_others_write_is_understood(home: Path, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_DEFAULT_CHANNEL", raising=False)
    services(home, "king", Clock())
    install(home, "gen-pr", subscribes=["github.pr.*", "slack.channel.*"])
    ROWS[row](home)
    assert (here(home, "events", "dead"), here(home, "tasks", "dead")) == ([], [])
    assert os.listdir(Places(home).folder("messages", "dead")) == []
