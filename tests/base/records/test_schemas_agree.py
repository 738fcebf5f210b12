"""Every noun and its schema agree: what passes the door becomes a noun, and comes back as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kingdom.base.home import schemas
from kingdom.base.records.messages import Checkpoint, Event, Message, Order, Record, Result, SessionRow, Task
from tests.fixtures import event, message, task

AT = "2026-02-07T10:00:00Z"
# noun · the least that a foreign writer gives · what we always write too
SHAPES: list[tuple[type[Record], dict[str, Any], dict[str, Any]]] = [
    (
        Event,
        {"id": "evt-1", "type": "t", "source": "s", "payload": {}, "created_at": AT},
        {
            "repo": None,
            "priority": "normal",
            "status": "pending",
            "task_id": None,
            "letters": {},
            "discarded_reason": None,
        },
    ),
    (
        Task,
        {
            "id": "task-1",
            "event_id": "evt-1",
            "target_general": "gen-pr",
            "type": "t",
            "payload": {},
            "created_at": AT,
        },
        {
            "repo": None,
            "priority": "normal",
            "status": "pending",
            "attempt": 0,
            "not_before": None,
            "thread_task_id": None,
            "scheduled_for": None,
            "reply_to": None,
            "outcome": None,
            "letters": {},
        },
    ),
    (
        Message,
        {"id": "msg-1", "type": "report", "content": "c", "created_at": AT},
        {
            "task_id": None,
            "channel": None,
            "urgency": "normal",
            "context": {},
            "source_ref": None,
            "status": "pending",
            "dedup_key": None,
        },
    ),
    (
        Result,
        {"task_id": "task-1", "status": "success"},
        {
            "summary": None,
            "error": None,
            "question": None,
            "reason": None,
            "checkpoint_path": None,
            "memory_updates": [],
            "notify_channel": None,
            "proclamation": None,
            "metrics": {},
        },
    ),
    (
        Order,
        {"id": "order-1", "action": "retry", "target": "task-1", "by": "you", "created_at": AT},
        {"outcome": None},
    ),
    (
        Checkpoint,
        {},
        {
            "task_id": None,
            "thread_task_id": None,
            "target_general": None,
            "type": None,
            "matter": None,
            "repo": None,
            "session_id": None,
            "workspace": None,
            "payload": {},
            "question": None,
            "asked_at": None,
            "asks": None,
        },
    ),
    (
        SessionRow,
        {"task_id": "task-1"},
        {},
    ),
]
# what we write only when it is set
NOTES: dict[str, dict[str, Any]] = {
    "event": {"requeued_by": "ord-1", "discarded_by_order": "ord-2"},
    "task": {
        "waits_because": "attempt 1 failed",
        "waits_for": "account",
        "spent_usd": 0.5,
        "spent_tokens": 7,
        "matter": "a.b",
        "retried_as": ["task-2"],
        "cancelled_by_order": "ord-1",
        "requeued_by": "ord-2",
    },
    "message": {
        "code": "completed",
        "thread_ts": "1.2",
        "reply_context": {"general": "gen-pr"},
        "tries": 1,
        "refused_because": "no such room",
        "not_before": AT,
        "posted": {"post": "1"},
        "requeued_by": "ord-1",
    },
    "result": {"session_id": "s-1", "quota": {"resets_at": AT}, "warnings": ["w"]},
    "order": {"code": "done", "made": "task-2", "says": {"code": "order_no_task", "values": {"task": "task-1"}}},
    "checkpoint": {},
    "session": {"id": "s", "soldier": "s", "general": "gen-pr", "pid": 7, "started_at": AT, "priority": "low"},
}
EXTRA = {"colour": "파랑", "deep": {"list": [1, None, {"a": "b"}]}}

EVENT_TYPES = [
    *("github.pr.review_requested", "github.pr.mentioned", "github.pr.assigned", "github.pr.comment"),
    *("github.pr.state_change", "github.issue.assigned", "github.notification.subscribed"),
    *("jira.ticket.assigned", "jira.ticket.updated", "jira.ticket.commented"),
    *("slack.channel.message", "slack.app_mention", "hall.message", "console.message"),
    *("slack.human_response", "hall.human_response", "console.thread.reply"),
]
IDS = [
    "evt-github-12345678-2026-02-07T10:00:00Z",
    "evt-jira-QP-123-20260207100000",
    "evt-slack-msg-1234-5678",
    "evt-slack-mention-1234-5678",
    "evt-slack-reply-1234-5678-1707300000",
    "evt-console-1707300000000000",
    "schedule-daily-test",
]


@pytest.mark.parametrize(("noun", "least", "always"), SHAPES)
def test_the_least_is_filled_up_and_written_whole(
    noun: type[Record], least: dict[str, Any], always: dict[str, Any]
) -> None:
    assert noun.from_json(schemas.check(noun.kind, dict(least))).to_json() == {**least, **always}


@pytest.mark.parametrize(("noun", "least", "always"), SHAPES)
def test_unknown_fields_come_back_behind_our_own(
    noun: type[Record], least: dict[str, Any], always: dict[str, Any]
) -> None:
    thing = noun.from_json(schemas.check(noun.kind, {**least, **EXTRA}))
    written = replace(thing).to_json()
    assert written == {**least, **always, **EXTRA}
    assert list(written)[-len(EXTRA) :] == list(EXTRA)
    assert noun.from_json(schemas.check(noun.kind, written)).to_json() == written


@pytest.mark.parametrize(("noun", "least", "always"), SHAPES)
def test_a_note_is_a_field_and_is_written_only_when_it_is_set(
    noun: type[Record], least: dict[str, Any], always: dict[str, Any]
) -> None:
    notes = NOTES[noun.kind]
    thing = noun.from_json(schemas.check(noun.kind, {**least, **notes, "retry_count": 0}))
    assert (thing.extra, [getattr(thing, name) for name in notes]) == ({"retry_count": 0}, list(notes.values()))
    assert thing.to_json() == {**least, **always, **notes, "retry_count": 0}
    assert replace(thing, **dict.fromkeys(notes)).to_json() == {**least, **always, "retry_count": 0}
    assert notes.keys() <= schemas.load(noun.kind)["properties"].keys()


@pytest.mark.parametrize(("noun", "least", "always"), SHAPES)
def test_every_field_of_a_noun_stands_in_its_schema(
    noun: type[Record], least: dict[str, Any], always: dict[str, Any]
) -> None:
    properties = schemas.load(noun.kind)["properties"]
    assert {*least, *always} <= set(properties)
    optional = {key for key, part in properties.items() if "default" in part}
    assert optional <= set(always)
    assert set(schemas.load(noun.kind)["required"]) == set(least)
    assert noun.from_json(dict(least)).to_json() == {**least, **always}, "a new one has the defaults of its schema"


@pytest.mark.parametrize("type", EVENT_TYPES)
def test_every_event_type_of_the_court_passes(type: str) -> None:
    schemas.check("event", event("evt-1", type))


@pytest.mark.parametrize("name", IDS)
def test_every_kind_of_id_passes(name: str) -> None:
    schemas.check("event", event(name))
    schemas.check("task", task("task-20260207-1000", event_id=name))
    schemas.check("message", message(f"msg-20260207-{name}"[:200]))


def test_a_task_of_the_seed_passes() -> None:
    """With retry_count and an empty repo, as the first king wrote it."""
    whole = {**task(), "repo": "", "priority": "normal", "retry_count": 1, "status": "pending"}
    read = Task.from_json(schemas.check("task", whole))
    assert (read.attempt, read.repo, read.to_json()["retry_count"]) == (1, "", 1)
