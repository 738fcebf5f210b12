"""A task's messages are posted in one thread, and its questions wait there for their answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.home import schemas
from kingdom.base.home.places import Places
from kingdom.base.home.schemas import load
from kingdom.base.records import notes
from kingdom.base.records.messages import Message
from kingdom.court.envoy import conversations
from kingdom.court.envoy.conversations import THREAD_RULES, Address, Conversations
from tests.court.envoy import grumpy
from tests.court.envoy.envoys import TASK, open_thread, posted, settle, threads, transcript
from tests.fixtures import MORNING, Clock, message, put, read, services, task, write


def test_a_tasks_messages_hang_under_its_first(home: Path, clock: Clock) -> None:
    envoy = settle(home, clock)
    open_thread(home)
    settle(home, clock, envoy)
    for number, type in enumerate(("thread_update", "thread_reply", "human_input_request", "notification"), 2):
        put(home, "messages", "pending", **message(f"msg-{number}", type, task_id=TASK))
    settle(home, clock)
    first, *others = transcript(home)
    assert first["thread"] is None
    assert {line["thread"] for line in others} == {first["ts"]}
    assert {line["room"] for line in others} == {"dev-eddy"}


def test_a_thread_is_opened_before_the_question_that_overtakes_it(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    for number in range(60):
        open_thread(home, f"msg-1{number:02d}", f"task-{number}", created_at="2026-01-01T00:00:00Z")
    open_thread(home, "msg-500")
    put(home, "messages", "pending", **message("msg-501", "human_input_request", task_id=TASK, urgency="high"))
    put(home, "messages", "pending", **message("msg-502", urgency="urgent"))
    settle(home, clock)
    assert posted(home)[:3] == ["msg-502", "msg-500", "msg-501"]
    lines = {line["letter"]: line for line in transcript(home)}
    assert lines["msg-501"]["thread"] == lines["msg-500"]["ts"]
    assert len(posted(home)) == 63


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"dedup_key": f"{TASK}:notification:success"}, False),
        ({"dedup_key": f"{TASK}:notification:failed"}, False),
        ({"dedup_key": "task-20260207-009:notification:success"}, False),
        ({"dedup_key": f"{TASK}:human_input_request:needs_human", "type": "human_input_request"}, True),
        ({"dedup_key": f"{TASK}:thread_update:open", "type": "thread_update"}, True),
        ({"code": "completed"}, False),
        ({"code": "unanswerable"}, True),
        ({"code": "alert"}, True),
        ({"dedup_key": None}, False),
        ({"dedup_key": f"{TASK}:proclamation", "task_id": f"proclamation-{TASK}"}, True),
    ],
)
def test_a_final_message_ends_the_thread_and_nothing_else_does(
    home: Path, clock: Clock, fields: dict[str, Any], kept: bool
) -> None:
    services(home, "envoy", clock)
    open_thread(home)
    envoy = settle(home, clock)
    put(home, "messages", "pending", **{**message("msg-2", task_id=TASK), **fields})
    settle(home, clock, envoy)
    assert (TASK in threads(home)) is kept


def test_news_for_another_channel_leave_the_thread(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    open_thread(home)
    put(home, "messages", "pending", **message("msg-2", task_id=TASK, channel="C9"))
    put(home, "messages", "pending", **message("msg-3", task_id=f"proclamation-{TASK}", channel="C0TEAMCH"))
    settle(home, clock)
    assert [(line["room"], line["thread"]) for line in transcript(home)[1:]] == [("C9", None), ("C0TEAMCH", None)]


def test_a_question_is_awaited_with_its_context(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    open_thread(home)
    context = {"checkpoint_path": "/c", "reply_context": {"general": "gen-pr"}}
    put(home, "messages", "pending", **message("msg-2", "human_input_request", task_id=TASK, context=context))
    settle(home, clock)
    (entry,) = json.loads((Places(home).own("envoy") / "awaiting-responses.json").read_text())
    assert entry["reply_context"] == {"general": "gen-pr"}
    assert entry["task_id"] == TASK
    assert entry["thread_ts"] == threads(home)[TASK]["thread_ts"]
    assert entry["asked_at"] == MORNING


def test_a_question_that_was_answered_before_it_was_asked_is_not_awaited(home: Path, clock: Clock) -> None:
    envoy = settle(home, clock)
    notes.note_answer(envoy.services.places, envoy.services.disk, TASK, "evt-1")
    put(home, "messages", "pending", **message("msg-2", "human_input_request", task_id=TASK))
    settle(home, clock, envoy)
    assert posted(home) == ["msg-2"]
    assert awaiting(home) == []


def test_a_failure_is_posted_with_how_to_look_further(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    put(home, "messages", "pending", **message(content="[failed] no", context={"failed_task": TASK}))
    settle(home, clock)
    assert transcript(home)[0]["text"] == f"[failed] no\n`kingdom why {TASK}` shows more"
    assert read(home, "messages", "sent", "msg-1")["content"] == "[failed] no"


def awaiting(home: Path) -> list[str]:
    path = Places(home).own("envoy") / "awaiting-responses.json"
    return sorted(row["task_id"] for row in json.loads(path.read_text())) if path.exists() else []


def test_a_question_is_awaited_until_its_own_answer_has_come(home: Path, clock: Clock) -> None:
    """The second question of a thread overtakes the word that the first one was answered."""
    envoy = settle(home, clock)
    open_thread(home)
    for number, asking in ((2, TASK), (3, "task-20260207-002")):
        way_back = {"reply_context": {"task_id": asking, "thread_task_id": TASK}}
        question = message(f"msg-{number}", "human_input_request", task_id=TASK, urgency="high", context=way_back)
        put(home, "messages", "pending", **question)
    settle(home, clock, envoy)
    assert awaiting(home) == [TASK, "task-20260207-002"]
    put(home, "messages", "pending", **message("msg-4", "thread_update", task_id=TASK, context={"answers": TASK}))
    settle(home, clock, envoy)
    assert awaiting(home) == ["task-20260207-002"]


def test_a_message_goes_back_the_way_its_cause_came(home: Path, clock: Clock) -> None:
    services(home, "envoy", clock)
    put(home, "messages", "pending", **message(channel="C1", source_ref={"source": "grumpy"}))
    put(home, "messages", "pending", **message("msg-2", channel="C1", source_ref={"source": "nobody"}))
    settle(home, clock)
    assert (grumpy.posted, posted(home)) == ([("msg-1", "C1", None)], ["msg-2"])


@pytest.mark.parametrize(
    "content", ["{half", "[]", f'{{"{TASK}": 5}}', f'{{"{TASK}": {{}}}}', f'{{"{TASK}": {{"thread_ts": "1.2"}}}}']
)
def test_a_damaged_file_of_threads_stops_no_message(home: Path, clock: Clock, content: str) -> None:
    services(home, "envoy", clock)
    own = Places(home).own("envoy")
    (own / "thread-mappings.json").write_text(content)
    (own / "awaiting-responses.json").write_text(content)
    put(home, "messages", "pending", **message(task_id=TASK))
    settle(home, clock)
    assert "msg-1" in posted(home)


def test_what_belongs_in_a_thread_on_a_channel_that_is_gone_is_posted_on_the_default_one(
    home: Path, clock: Clock
) -> None:
    services(home, "envoy", clock)
    entry = {"channel": "raven", "room": "r", "thread": "t"}
    write(Places(home).own("envoy") / "thread-mappings.json", {TASK: entry})
    put(home, "messages", "pending", **message(task_id=TASK))
    settle(home, clock)
    (line,) = transcript(home)
    assert (line["letter"], line["room"], line["thread"]) == ("msg-1", "console", None)


def test_every_type_of_message_has_its_rule() -> None:
    assert set(THREAD_RULES) == set(load("message")["properties"]["type"]["enum"])


FOREIGN_QUESTION = {
    "task_id": TASK,
    "thread_ts": "1.2",
    "channel": "C1",
    "asked_at": MORNING,
    "reply_context": {"general": "gen-pr", "session_id": "s-1", "repo": ""},
}


def test_threads_and_questions_of_another_envoy_are_read_and_kept(home: Path, clock: Clock) -> None:
    own = services(home, "envoy", clock).places.own("envoy")
    conversations = {"9.9": {"task_id": TASK, "channel": "C1", "expires_at": MORNING}}
    write(own / "thread-mappings.json", {TASK: {"thread_ts": "1.2", "channel": "C1"}})
    (own / "awaiting-responses.json").write_text(json.dumps([FOREIGN_QUESTION]))
    write(own / "conversation-threads.json", conversations)
    put(home, "messages", "pending", **message("msg-2", "thread_update", task_id=TASK))
    settle(home, clock)
    (line,) = transcript(home)
    assert (line["room"], line["thread"]) == ("C1", "1.2")
    given = services(home, "envoy", clock)
    question = Conversations(given).question_in(Address("console", "C1", "1.2"))
    assert question is not None
    assert (question.task, question.reply_context) == (TASK, FOREIGN_QUESTION["reply_context"])
    assert threads(home)[TASK]["thread_ts"] == "1.2"
    assert read_json(own / "conversation-threads.json")["9.9"].items() >= conversations["9.9"].items()


@pytest.mark.parametrize("content", ["{}", "[]"])
def test_no_questions_may_be_written_in_either_form(home: Path, clock: Clock, content: str) -> None:
    own = services(home, "envoy", clock).places.own("envoy")
    (own / "awaiting-responses.json").write_text(content)
    settle(home, clock)
    assert (posted(home), list(own.glob("*set-aside*"))) == ([], [])


@pytest.mark.parametrize("name", ["thread-mappings.json", "awaiting-responses.json"])
@pytest.mark.parametrize("content", ["[1, 2]", '[{"task": "x"}]', '"text"', '{"half', '{"version": 2}', ""])
def test_a_state_file_of_another_form_is_set_aside_with_an_alert(
    home: Path, clock: Clock, name: str, content: str
) -> None:
    own = services(home, "envoy", clock).places.own("envoy")
    (own / name).write_text(content)
    settle(home, clock)
    assert (own / f"{name}.set-aside-1").read_text() == content
    (line,) = transcript(home)
    assert line["text"].startswith("[alert] ")
    assert f"{name}.set-aside-1" in line["text"]
    settle(home, clock)
    assert len(transcript(home)) == 1


def test_messages_of_a_task_that_is_tried_again_go_to_its_old_thread(home: Path, clock: Clock) -> None:
    envoy = settle(home, clock)
    open_thread(home)
    for number in (2, 3):
        put(home, "messages", "pending", **message(f"msg-{number}", task_id=TASK, channel="dev-eddy", code="failed"))
        settle(home, clock, envoy)
        assert threads(home) == {}
        envoy = settle(home, clock)
    first, *finals = transcript(home)
    assert [line["thread"] for line in finals] == [first["ts"], first["ts"]]


def test_so_many_closed_threads_are_remembered_and_no_more(
    home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "MOST_CLOSED", most := 30)
    services(home, "envoy", clock)
    for number in range(most + 5):
        open_thread(home, f"msg-a{number:05d}", f"task-{number:05d}", created_at="2026-01-01T00:00:00Z")
        put(home, "messages", "pending", **message(f"msg-b{number:05d}", task_id=f"task-{number:05d}"))
    settle(home, clock)
    kept = read_json(Places(home).own("envoy") / "closed-threads.json")
    assert (len(kept), "task-00000" in kept, f"task-{most + 4:05d}" in kept) == (most, False, True)


@pytest.mark.parametrize("channel", ["console", None, "dev-eddy"])
def test_the_last_message_of_an_answered_question_stays_in_its_thread(
    home: Path, clock: Clock, channel: str | None
) -> None:
    services(home, "envoy", clock)
    open_thread(home)
    answered = {"source": "console", "channel": "console", "event_id": "evt-console-2"}
    put(home, "messages", "pending", **message("msg-2", task_id=TASK, channel=channel, source_ref=answered))
    settle(home, clock)
    first, last = transcript(home)
    assert (last["room"], last["thread"]) == ("dev-eddy", first["ts"])


@pytest.mark.parametrize("kind", ["thread_start", "thread_update", "human_input_request", "notification"])
def test_a_message_that_says_where_it_belongs_is_posted_there(home: Path, clock: Clock, kind: str) -> None:
    services(home, "envoy", clock)
    if kind != "thread_start":
        write(Places(home).own("envoy") / "thread-mappings.json", {TASK: {"thread_ts": "9.9", "channel": "C9"}})
    put(home, "messages", "pending", **message("msg-2", kind, task_id=TASK, channel="C1", thread_ts="1.2"))
    settle(home, clock)
    (line,) = transcript(home)
    assert (line["room"], line["thread"]) == ("C1", "1.2")
    if kind == "thread_start":
        assert threads(home)[TASK] == {"thread_ts": "1.2", "channel": "C1", "on": "console"}


@pytest.mark.parametrize(("outcome", "kept"), [("skipped", False), ("discarded", False), ("needs_human", True)])
def test_a_task_that_ends_without_a_word_leaves_the_threads(home: Path, clock: Clock, outcome: str, kept: bool) -> None:
    services(home, "envoy", clock)
    open_thread(home)
    envoy = settle(home, clock)
    put(home, "tasks", "completed", **task(TASK, outcome=outcome))
    settle(home, clock, envoy)
    assert (TASK in threads(home)) is kept


IN_THREAD = Address("grumpy", "C1", "1.2")
HERE = ("console", "console", None)
ASKED_IN_C1 = {"source": "grumpy", "channel": "C1"}


@pytest.mark.parametrize(
    ("kind", "fields", "address"),
    [
        ("thread_update", {}, IN_THREAD),
        ("thread_reply", {}, IN_THREAD),
        ("human_input_request", {"channel": "C9"}, IN_THREAD),
        ("notification", {}, IN_THREAD),
        ("notification", {"channel": "C1"}, IN_THREAD),
        ("notification", {"channel": "team"}, IN_THREAD),
        ("notification", {"channel": "C9"}, ("console", "C9", None)),
        ("notification", {"channel": "C9", "source_ref": ASKED_IN_C1}, ("console", "C9", None)),
        ("notification", {"channel": "C1", "source_ref": ASKED_IN_C1}, IN_THREAD),
        ("notification", {"channel": "C1", "source_ref": ASKED_IN_C1, "task_id": None}, ("grumpy", "C1", None)),
        ("notification", {"source_ref": ASKED_IN_C1, "task_id": None}, ("grumpy", "grumpy", None)),
        ("notification", {"channel": "C8", "source_ref": {**ASKED_IN_C1, "channel": "C8"}}, IN_THREAD),
        ("thread_update", {"channel": "C9", "source_ref": ASKED_IN_C1, "task_id": None}, ("grumpy", "C9", None)),
        ("thread_start", {}, HERE),
        ("thread_start", {"channel": "C9"}, ("console", "C9", None)),
        ("report", {}, HERE),
        ("report", {"thread_ts": "7.7"}, HERE),
        ("report", {"channel": "C9", "thread_ts": "7.7"}, ("console", "C9", "7.7")),
    ],
)
def test_where_a_message_of_a_task_with_a_thread_belongs(
    home: Path, clock: Clock, kind: str, fields: dict[str, Any], address: tuple[str, str, str | None]
) -> None:
    given = services(home, "envoy", clock)
    row = {"thread_ts": "1.2", "channel": "C1", "on": "grumpy", "named": "team"}
    write(given.places.own("envoy") / "thread-mappings.json", {TASK: row})
    one = Message.from_json(schemas.check("message", message("msg-1", kind, **{"task_id": TASK, **fields})))
    assert Conversations(given).address(one) == address


@pytest.mark.parametrize(
    ("row", "is_heard"),
    [
        ({}, True),
        ({"channel": "C2"}, False),
        ({"on": "console"}, False),
        ({"expires_at": "2026-02-07T10:00:01Z"}, True),
        ({"expires_at": MORNING}, False),
        ({"expires_at": 1_770_458_401}, True),
        ({"expires_at": 1_770_458_400}, False),
        ({"expires_at": "soon"}, False),
        ({"expires_at": None}, False),
    ],
)
def test_a_reply_goes_on_with_a_conversation_until_its_time_is_over(
    home: Path, clock: Clock, row: dict[str, Any], is_heard: bool
) -> None:
    given = services(home, "envoy", clock)
    path = given.places.own("envoy") / "conversation-threads.json"
    way_back = {"general": "gen-pr"}
    open_until = {"channel": "C1", "on": "grumpy", "expires_at": "2026-02-07T11:00:00Z", "reply_context": way_back}
    write(path, {"1.2": {**open_until, **row}})
    threads = Conversations(given)
    assert threads.reply_in(IN_THREAD) == (way_back if is_heard else None)
    threads.files.save()
    assert (read_json(path)["1.2"].get("last_reply_ts") == MORNING) is is_heard


@pytest.mark.parametrize(("ttl", "until"), [(60, "10:01:00"), (None, "11:00:00"), (90.5, "10:01:30")])
def test_each_reply_renews_the_time_of_its_conversation(
    home: Path, clock: Clock, ttl: float | None, until: str
) -> None:
    given = services(home, "envoy", clock)
    path = given.places.own("envoy") / "conversation-threads.json"
    row = {"channel": "C1", "on": "grumpy", "expires_at": "2026-02-07T10:00:05Z", "ttl_seconds": ttl}
    write(path, {"1.2": row})
    threads = Conversations(given)
    assert threads.reply_in(IN_THREAD) == {}
    threads.files.save()
    assert read_json(path)["1.2"]["expires_at"].startswith(f"2026-02-07T{until}")


@pytest.mark.parametrize(
    ("row", "days"),
    [
        ({"asked_at": "2026-02-06T10:00:01Z"}, None),
        ({"asked_at": "2026-02-06T10:00:00Z"}, 1),
        ({"asked_at": "2026-02-04T09:00:00Z"}, 3),
        ({"asked_at": "2026-02-04T09:00:00Z", "reminded_days": 2}, 3),
        ({"asked_at": "2026-02-04T09:00:00Z", "reminded_days": 3}, None),
        ({"asked_at": "2026-02-04T09:00:00Z", "reminded_days": "often"}, 3),
        ({"asked_at": 1_770_199_200}, 3),
        ({"asked_at": "some day"}, None),
        ({"asked_at": "2026-02-04T09:00:00Z", "thread_ts": None}, None),
    ],
)
def test_a_question_waits_for_whole_days_since_people_were_reminded(
    home: Path, clock: Clock, row: dict[str, Any], days: int | None
) -> None:
    given = services(home, "envoy", clock)
    asked = {"task_id": TASK, "thread_ts": "1.2", "channel": "C1", "on": "grumpy", "question": "Which?"}
    (given.places.own("envoy") / "awaiting-responses.json").write_text(json.dumps([{**asked, **row}]))
    waiting = list(Conversations(given).overdue())
    assert [(question.days, question.thread, question.text) for question in waiting] == (
        [(days, IN_THREAD, "Which?")] if days else []
    )


def test_nobody_is_reminded_of_a_question_that_has_its_answer(home: Path, clock: Clock) -> None:
    given = services(home, "envoy", clock)
    asked = {"task_id": TASK, "thread_ts": "1.2", "channel": "C1", "on": "grumpy", "asked_at": "2026-02-04T09:00:00Z"}
    (given.places.own("envoy") / "awaiting-responses.json").write_text(json.dumps([asked]))
    notes.note_answer(given.places, given.disk, TASK, "evt-1")
    threads = Conversations(given)
    assert list(threads.overdue()) == []
    threads.note_reminder(TASK, 3)
    threads.files.save()
    assert awaiting(home) == []
