"""What people are told about a finished task: outcome by channel by proclamation by who had asked."""

from __future__ import annotations

from typing import Any

import pytest

from kingdom.base.home import schemas
from kingdom.base.log import EVENTS
from kingdom.base.records.messages import Event, Result, Task
from kingdom.court.king import messages
from kingdom.court.king.orders import ORDERS
from kingdom.court.king.outcomes import OUTCOMES
from tests.fixtures import event, task

DEFAULT = "kingdom"
WORDS = {"channel": "C0TEAMCH", "message": "PR News"}
ASKER = {"source": "slack", "event_id": "evt-1", "channel": "C1", "user": "U1"}


def a_task(**fields: Any) -> Task:
    return Task.from_json(schemas.check("task", task(**fields)))


def told(task: Task, status: str, **fields: Any) -> list[tuple[str, str | None, str]]:
    """(type, channel, content) of every message."""
    result = Result.from_json(schemas.check("result", {"task_id": task.id, "status": status, **fields}))
    drafts = OUTCOMES[status].drafts(task, result, DEFAULT)
    made = [draft.message(f"msg-{n}", "2026-02-07T10:00:00Z") for n, draft in enumerate(drafts)]
    for message in made:
        schemas.check("message", message.to_json())
    return [(message.type, message.channel, message.content) for message in made]


NEWS, ASK = "notification", "human_input_request"
TYPE = "github.pr.review_requested"
KEPT = [f"/srv/castle/workspace/gen-pr/{name}" for name in ("task-20260207-001", "task-20260207-001.earlier-1")]
WHERE = (
    "Its work is kept in workspace/gen-pr/task-20260207-001 and workspace/gen-pr/task-20260207-001.earlier-1; "
    "`kingdom tasks work task-20260207-001` shows it."
)
CASES: list[tuple[str, dict[str, Any], dict[str, Any], list[tuple[str, str, str]]]] = [
    ("success", {"summary": "3 comments"}, {}, [(NEWS, DEFAULT, f"[complete] {TYPE} — 3 comments")]),
    ("success", {}, {}, [(NEWS, DEFAULT, f"[complete] {TYPE} — completed")]),
    ("success", {"summary": "3", "kept": KEPT}, {}, [(NEWS, DEFAULT, f"[complete] {TYPE} — 3\n{WHERE}")]),
    ("failed", {"kept": KEPT}, {}, [(NEWS, DEFAULT, f"[failed] unknown\n{WHERE}")]),
    ("skipped", {"kept": KEPT}, {"reply_to": ASKER}, [(NEWS, "C1", f"[skipped] out of scope\n{WHERE}")]),
    ("needs_human", {"question": "which?", "kept": KEPT}, {}, [(ASK, DEFAULT, "[question] which?")]),
    ("success", {"summary": ""}, {}, [(NEWS, DEFAULT, f"[complete] {TYPE} — completed")]),
    ("success", {"notify_channel": "C9"}, {}, [(NEWS, "C9", f"[complete] {TYPE} — completed")]),
    (
        "success",
        {"proclamation": WORDS},
        {},
        [(NEWS, DEFAULT, f"[complete] {TYPE} — completed"), (NEWS, "C0TEAMCH", "PR News")],
    ),
    (
        "success",
        {"proclamation": WORDS, "notify_channel": "C9"},
        {},
        [(NEWS, "C9", f"[complete] {TYPE} — completed"), (NEWS, "C0TEAMCH", "PR News")],
    ),
    ("success", {}, {"reply_to": ASKER}, [(NEWS, "C1", f"[complete] {TYPE} — completed")]),
    ("success", {"notify_channel": "C9"}, {"reply_to": ASKER}, [(NEWS, "C9", f"[complete] {TYPE} — completed")]),
    ("success", {}, {"scheduled_for": "x", "type": "daily"}, [(NEWS, DEFAULT, "[complete] daily — completed")]),
    ("success", {}, {"type": "resume"}, [(NEWS, DEFAULT, "[complete] resume — completed")]),
    ("success", {}, {"type": "resume", "matter": TYPE}, [(NEWS, DEFAULT, f"[complete] resume of {TYPE} — completed")]),
    ("failed", {"error": "no tests"}, {}, [(NEWS, DEFAULT, "[failed] no tests")]),
    ("failed", {}, {}, [(NEWS, DEFAULT, "[failed] unknown")]),
    ("failed", {"notify_channel": "C9"}, {}, [(NEWS, "C9", "[failed] unknown")]),
    (
        "failed",
        {"proclamation": WORDS},
        {},
        [(NEWS, DEFAULT, "[failed] unknown"), (NEWS, "C0TEAMCH", "PR News")],
    ),
    ("failed", {"error": "x"}, {"reply_to": ASKER}, [(NEWS, "C1", "[failed] x")]),
    ("skipped", {"reason": "merged"}, {}, []),
    ("skipped", {}, {}, []),
    ("skipped", {"reason": "merged", "notify_channel": "C9"}, {}, [(NEWS, "C9", "[skipped] merged")]),
    ("skipped", {"notify_channel": "C9"}, {}, [(NEWS, "C9", "[skipped] out of scope")]),
    ("skipped", {"proclamation": WORDS}, {}, [(NEWS, "C0TEAMCH", "PR News")]),
    ("skipped", {"reason": "merged"}, {"reply_to": ASKER}, [(NEWS, "C1", "[skipped] merged")]),
    ("needs_human", {"question": "which?"}, {}, [(ASK, DEFAULT, "[question] which?")]),
    ("needs_human", {"question": "which?"}, {"reply_to": ASKER}, [(ASK, "C1", "[question] which?")]),
    ("needs_human", {"question": "which?", "proclamation": WORDS}, {}, [(ASK, DEFAULT, "[question] which?")]),
]


@pytest.mark.parametrize(("status", "result", "task", "expected"), CASES)
def test_an_outcome_becomes_these_messages(
    status: str, result: dict[str, Any], task: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    assert told(a_task(**task), status, **result) == expected


def drafts(task: Task, status: str, **fields: Any) -> list[messages.MessageDraft]:
    result = Result.from_json(schemas.check("result", {"task_id": task.id, "status": status, **fields}))
    return OUTCOMES[status].drafts(task, result, DEFAULT)


def test_a_question_is_urgent_and_carries_the_way_back() -> None:
    (question,) = drafts(
        a_task(repo="acme/shop"),
        "needs_human",
        question="which?",
        session_id="s-1",
        checkpoint_path="/home/checkpoint.json",
    )
    assert question.urgency == "high"
    assert question.context == {
        "checkpoint_path": "/home/checkpoint.json",
        "reply_context": {
            "general": "gen-pr",
            "session_id": "s-1",
            "repo": "acme/shop",
            "task_id": "task-20260207-001",
            "thread_task_id": "task-20260207-001",
            "matter": TYPE,
        },
    }


def test_a_failure_names_its_task_for_whoever_looks_further() -> None:
    (final,) = drafts(a_task(thread_task_id="task-20260207-009"), "failed", error="no tests")
    assert final.context is not None
    assert final.context["failed_task"] == "task-20260207-001"


@pytest.mark.parametrize("status", ["success", "failed", "skipped"])
def test_a_last_message_carries_with_what_a_reply_goes_on(status: str) -> None:
    final, *_ = drafts(a_task(repo="acme/shop", reply_to=ASKER), status, session_id="s-1")
    message = final.message("msg-1", "2026-02-07T10:00:00Z")
    assert message.reply_context == message.context["reply_context"]
    assert message.reply_context is not None
    assert {key: message.reply_context[key] for key in ("general", "session_id", "repo", "task_id")} == {
        "general": "gen-pr",
        "session_id": "s-1",
        "repo": "acme/shop",
        "task_id": "task-20260207-001",
    }


PERSONS_THREADS: list[tuple[dict[str, Any], dict[str, Any], str | None]] = [
    ({"message_ts": "1.1"}, {}, "1.1"),
    ({"message_ts": "1.2", "thread_ts": "1.1"}, {}, "1.1"),
    ({"message_ts": 1.5}, {}, "1.5"),
    ({"channel": None, "message_ts": "1.1"}, {}, None),
    ({"message_ts": "1.2"}, {"type": "resume", "thread_task_id": "task-1"}, None),
    ({"message_ts": "1.2", "thread_ts": "1.1"}, {"type": "resume", "thread_task_id": "task-1"}, "1.1"),
]


@pytest.mark.parametrize(("said", "task", "thread"), PERSONS_THREADS)
def test_what_is_said_to_a_person_hangs_under_what_they_wrote(
    said: dict[str, Any], task: dict[str, Any], thread: str | None
) -> None:
    given = a_task(reply_to={**ASKER, **said}, **task)
    (question,) = drafts(given, "needs_human", question="which?")
    (final,) = drafts(given, "success")
    (elsewhere,) = drafts(given, "success", notify_channel="C9")
    (start,) = [messages.started(given, DEFAULT)]
    assert [draft.thread_ts for draft in (question, final, start)] == [thread] * 3
    assert (elsewhere.channel, elsewhere.thread_ts) == ("C9", None)


def test_a_proclamation_is_no_word_in_the_tasks_thread() -> None:
    news, proclamation = drafts(a_task(), "success", proclamation=WORDS)
    assert (news.task_id, proclamation.task_id) == ("task-20260207-001", "proclamation-task-20260207-001")


def test_all_messages_of_a_resumed_task_go_to_the_first_ones_thread() -> None:
    resumed = a_task(id="task-20260207-009", type="resume", thread_task_id="task-20260207-001")
    (news,) = drafts(resumed, "success")
    assert news.task_id == "task-20260207-001"
    assert messages.resumed(resumed, DEFAULT).task_id == "task-20260207-001"


def test_every_message_names_its_cause() -> None:
    done = a_task(outcome="success")
    keys = [draft.dedup_key for draft in drafts(done, "success", proclamation=WORDS)]
    assert keys == ["task-20260207-001:notification:success", "task-20260207-001:proclamation"]
    assert messages.started(a_task(), DEFAULT).dedup_key == "task-20260207-001:thread_start:open"


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({}, f"[start] {TYPE}"),
        ({"repo": "acme/shop"}, f"[start] {TYPE} — acme/shop"),
        ({"repo": ""}, f"[start] {TYPE}"),
        ({"scheduled_for": "2026-02-07T10:00:00Z", "type": "daily"}, "[start] schedule.daily"),
        ({"payload": {"headline": "#4 A\nline", "url": "http://a/4"}}, f"[start] {TYPE}\n#4 A line http://a/4"),
        ({"payload": {"headline": "x" * 400, "url": None}}, f"[start] {TYPE}\n{'x' * 299}…"),
    ],
)
def test_a_start_is_told_like_this(fields: dict[str, Any], content: str) -> None:
    assert messages.started(a_task(**fields), DEFAULT).content == content


@pytest.mark.parametrize(
    ("type", "payload", "address"),
    [
        ("github.pr.mentioned", {"user": "u", "channel": "c"}, None),
        ("a.new.channel.message", {"user": "u"}, {"source": "a", "event_id": "evt-1", "user": "u"}),
        ("console.human_response", {"channel": "c"}, {"source": "console", "event_id": "evt-1", "channel": "c"}),
        (
            "console.message",
            {"text": "hi\nthere", "user": "you"},
            {"source": "console", "event_id": "evt-1", "user": "you", "said": "hi there"},
        ),
        (
            "slack.app_mention",
            {"user": "U", "channel": "C", "message_ts": "1.2", "thread_ts": "1.1", "text": "hi"},
            {
                "source": "slack",
                "event_id": "evt-1",
                "user": "U",
                "channel": "C",
                "message_ts": "1.2",
                "thread_ts": "1.1",
                "said": "hi",
            },
        ),
    ],
)
def test_an_answer_goes_where_the_person_wrote(
    type: str, payload: dict[str, Any], address: dict[str, Any] | None
) -> None:
    whole = Event.from_json(schemas.check("event", event(type=type, payload=payload)))
    assert messages.reply_address(whole) == address


def test_every_outcome_has_a_row_whose_event_is_known() -> None:
    assert set(OUTCOMES) == set(schemas.load("result")["properties"]["status"]["enum"])
    assert {outcome.logged_as for outcome in OUTCOMES.values()} <= EVENTS.keys()


def test_every_order_has_a_row() -> None:
    action = schemas.load("order")["properties"]["action"]
    assert set(ORDERS) == set(action["enum"]) == set(action["x-commands"])
