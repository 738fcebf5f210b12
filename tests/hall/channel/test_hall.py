"""The kingdom in its hall: a room for each task, the throne room, and people's answers, over topics alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.home.places import Places
from kingdom.court.envoy.channels import default_channel, usable_channels, with_products
from kingdom.hall.channel.channel import GROUP
from kingdom.hall.database.ids import new_uuid, next_ulid
from kingdom.hall.database.own_rooms import THRONE_ROOM, USER, client_msg_id
from kingdom.hall.database.records import MessagePersisted
from kingdom.hall.topics.names import PERSISTED
from tests.court.envoy.envoys import TASK, Envoy
from tests.fixtures import Clock, all_of, here, message, put
from tests.hall.channel.halls import contents, hall_envoy, members, owner, rooms, throne_room, turn_until, working
from tests.hall.worker.hall import LONG_AGO, Hall
from tests.hall.worker.hall import message as words

CONTEXT = {"reply_context": {"general": "gen-pr", "task_id": TASK}, "checkpoint_path": "state/results/x"}


@pytest.fixture
def hall(home: Path, clock: Clock) -> Iterator[Hall]:
    opened = Hall(home, clock)
    yield opened
    opened.close()


@pytest.fixture
def envoy(home: Path, clock: Clock, hall: Hall) -> Iterator[Envoy]:
    opened = hall_envoy(home, clock)
    yield opened
    opened.job.close()


def start(home: Path, **fields: Any) -> None:
    content = "[start] github.pr.review_requested — octo/repo\n#4 A title http://a/4"
    put(home, "messages", "pending", **message("msg-1", "thread_start", task_id=TASK, **{"content": content, **fields}))


def ask(home: Path, name: str = "msg-2", **fields: Any) -> None:
    question = {"content": "[question] Which currency?\n- EUR\n- USD", "context": CONTEXT, **fields}
    put(home, "messages", "pending", **message(name, "human_input_request", task_id=TASK, **question))


def sent(home: Path, *names: str) -> bool:
    return set(names) <= set(here(home, "messages", "sent"))


def test_the_throne_room_is_there_as_soon_as_the_envoy_runs_with_the_owners_in_it(envoy: Envoy, hall: Hall) -> None:
    anna, ben = owner(hall), hall.user()
    with working(hall):
        turn_until(envoy, lambda: throne_room(hall), "the throne room")
    assert members(hall, THRONE_ROOM) == {anna, USER}
    assert ben not in members(hall, THRONE_ROOM)
    [welcome] = throne_room(hall)
    assert (welcome["type"], welcome["sender_name"]) == ("SYSTEM", "kingdom")


def test_a_task_gets_a_room_where_it_asks_and_the_answer_becomes_one_event(
    home: Path, envoy: Envoy, hall: Hall
) -> None:
    anna = owner(hall)
    start(home)
    ask(home)
    with working(hall):
        turn_until(envoy, lambda: sent(home, "msg-1", "msg-2"), "the question is asked")
        [(name, room)] = rooms(hall).items()
        assert name == f"{TASK}: #4 A title http://a/4"
        assert members(hall, room) == {anna, USER}
        assert contents(hall, room)[1] == "[question] Which currency?\n- EUR\n- USD"
        hall.publish(words(room, anna, "EUR"))
        [event] = turn_until(envoy, lambda: all_of(home, "events", "pending"), "the answer")
    assert (event["type"], event["source"], event["priority"]) == ("hall.human_response", "hall", "high")
    answer = hall.history(room)[2]
    assert event["payload"] == {
        "user_id": anna,
        "user": anna,
        "text": "EUR",
        "channel": room,
        "message_ts": answer["id"],
        "thread_ts": room,
        "reply_context": CONTEXT["reply_context"],
        "task_id": TASK,
        "human_response": "EUR",
    }
    assert [line["type"] for line in hall.history(room)] == ["SYSTEM", "SYSTEM", "TEXT"]
    assert [json.loads(line["about"]) for line in hall.history(room)[:2]] == [
        {"taskId": TASK, "code": "started"},
        {"taskId": TASK, "code": "question", "choices": ["EUR", "USD"]},
    ]
    assert hall.history(room)[1]["client_msg_id"] == client_msg_id("msg-2")


def test_what_is_said_in_the_throne_room_is_an_order_whose_room_opens_from_there(
    home: Path, envoy: Envoy, hall: Hall
) -> None:
    anna = owner(hall)
    with working(hall):
        turn_until(envoy, lambda: throne_room(hall), "the throne room")
        hall.publish(words(THRONE_ROOM, anna, "brief me"))
        [event] = turn_until(envoy, lambda: all_of(home, "events", "pending"), "the order")
        assert (event["type"], event["payload"]["channel"], event["payload"]["text"]) == (
            "hall.message",
            THRONE_ROOM,
            "brief me",
        )
        asked = event["payload"]["message_ts"]
        ref = {"source": "hall", "user": anna, "channel": THRONE_ROOM, "message_ts": asked, "said": "brief me"}
        there = {"channel": THRONE_ROOM, "thread_ts": asked, "source_ref": ref}
        start(home, content="[start] hall.message", **there)
        ask(home, **there)
        turn_until(envoy, lambda: sent(home, "msg-1", "msg-2"), "the question is asked")
        [(name, room)] = rooms(hall).items()
        assert name == f"{TASK}: brief me"
        assert contents(hall, room)[0] == f"{TASK}: brief me\n[start] hall.message"
        assert contents(hall, THRONE_ROOM)[-1] == f"→ {TASK}: brief me"
        hall.publish(words(room, anna, "yes"))
        answer = turn_until(envoy, lambda: len(found := all_of(home, "events", "pending")) > 1 and found, "the answer")
    [answered] = [event for event in answer if event["type"] == "hall.human_response"]
    assert (answered["payload"]["task_id"], answered["payload"]["thread_ts"]) == (TASK, asked)


def test_what_was_said_on_the_console_is_shown_in_the_hall(home: Path, envoy: Envoy, hall: Hall) -> None:
    console = {"source": "console", "user": "you", "channel": "console", "message_ts": "1.5", "said": "brief me"}
    there = {"channel": "console", "thread_ts": "1.5", "source_ref": console}
    start(home, content="[start] console.message", **there)
    done = {"content": "[complete] All is well.", "code": "completed"}
    put(home, "messages", "pending", **message("msg-2", "notification", task_id=TASK, **done, **there))
    with working(hall):
        turn_until(envoy, lambda: sent(home, "msg-1", "msg-2"), "both are sent")
    [(name, room)] = rooms(hall).items()
    assert name == f"{TASK}: brief me"
    assert contents(hall, room)[1] == "[complete] All is well."


def test_what_belongs_to_no_task_is_in_the_throne_room(home: Path, envoy: Envoy, hall: Hall) -> None:
    put(home, "messages", "pending", **message("msg-1", "notification", channel="dev-eddy", content="[alert] hot"))
    with working(hall):
        turn_until(envoy, lambda: sent(home, "msg-1"), "the alert")
    assert contents(hall, THRONE_ROOM)[1:] == ["[alert] hot"]
    assert rooms(hall) == {}


def test_its_own_words_those_of_systems_removed_ones_and_those_in_other_rooms_are_not_heard(
    home: Path, envoy: Envoy, hall: Hall
) -> None:
    anna = owner(hall)
    elsewhere = hall.room(anna)
    start(home)
    with working(hall):
        turn_until(envoy, lambda: sent(home, "msg-1"), "the start")
        [room] = rooms_of_tasks(hall)
        blank = MessagePersisted(next_ulid(0), THRONE_ROOM, anna, new_uuid(), "TEXT", "", LONG_AGO, removed=True)
        hall.producer.append(PERSISTED, blank.key, blank.to_json(), lambda outcome, why: None)
        hall.publish(
            words(elsewhere, anna, "among us"),
            words(room, USER, "brief me"),
            words(THRONE_ROOM, anna, "brief me", message_type="SYSTEM"),
            words(THRONE_ROOM, anna, "last"),
        )
        turn_until(envoy, lambda: here(home, "events", "pending"), "what was said last")
    [event] = all_of(home, "events", "pending")
    assert event["payload"]["text"] == "last"


def rooms_of_tasks(hall: Hall) -> list[str]:
    return [room for name, room in rooms(hall).items() if name.startswith("task-")]


def test_what_was_said_before_a_kill_is_one_event(home: Path, clock: Clock, hall: Hall) -> None:
    anna = owner(hall)
    killed = hall_envoy(home, clock)
    with working(hall):
        turn_until(killed, lambda: throne_room(hall), "the throne room")
        hall.publish(words(THRONE_ROOM, anna, "brief me"))
        channel = killed.job._channels.get("hall")
        turn_until(killed, lambda: here(home, "events", "pending"), "the event")
        passed = position(home)
        channel.acknowledge = lambda said: None  # type: ignore[method-assign]
        hall.publish(words(THRONE_ROOM, anna, "again"))
        turn_until(killed, lambda: len(here(home, "events", "pending")) == 2, "the second event")
        killed.job.close()
        assert position(home) <= passed + 1, "behind what was not acknowledged nothing is passed"
        events = here(home, "events", "pending")
        reborn = hall_envoy(home, clock)
        turn_until(reborn, lambda: position(home) > passed + 1, "it is read again, and passed")
        reborn.job.close()
    assert here(home, "events", "pending") == events


def position(home: Path) -> int:
    path = Places(home).topics / PERSISTED / "groups" / f"{GROUP}.json"
    return int(read_json(path)["next"]) if path.exists() else 0


def test_while_the_worker_is_away_messages_wait_and_are_then_said_once(
    home: Path, clock: Clock, hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.hall.channel.channel.STORE_SECONDS", 0.05)
    envoy = hall_envoy(home, clock)
    start(home)
    put(home, "messages", "pending", **message("msg-2", "notification", content="[alert] hot"))
    turn_until(envoy, lambda: is_told(home, "its messages wait"), "it says that it waits")
    monkeypatch.setattr("kingdom.hall.channel.channel.STORE_SECONDS", 10.0)
    with working(hall):
        turn_until(envoy, lambda: sent(home, "msg-1", "msg-2"), "both are sent")
    envoy.job.close()
    assert contents(hall, THRONE_ROOM)[1:] == ["[alert] hot"]
    assert [len(hall.history(room)) for room in rooms_of_tasks(hall)] == [1]


def is_told(home: Path, what: str) -> bool:
    log = Places(home).system_log
    return log.exists() and what in log.read_text()


def test_a_post_whose_note_was_lost_is_made_again_and_stored_once(home: Path, envoy: Envoy, hall: Hall) -> None:
    start(home)
    with working(hall):
        turn_until(envoy, lambda: sent(home, "msg-1"), "the start")
        [day] = (Places(home).own("envoy") / "hall").glob("*.jsonl")
        noted = json.loads(day.read_text())
        day.unlink()
        sent_file = Places(home).queue_file("messages", "sent", "msg-1")
        sent_file.rename(Places(home).queue_file("messages", "pending", "msg-1"))
        turn_until(envoy, lambda: sent(home, "msg-1"), "it is sent again")
    [room] = rooms_of_tasks(hall)
    assert (noted["ts"], noted["room"]) == (room, room)
    assert len(hall.history(room)) == 1


def test_what_the_worker_refuses_fails_with_its_reason(home: Path, envoy: Envoy, hall: Hall) -> None:
    start(home)
    with working(hall):
        turn_until(envoy, lambda: sent(home, "msg-1"), "the start")
        [room] = rooms_of_tasks(hall)
        remove_room(hall, room)
        put(home, "messages", "pending", **message("msg-2", "thread_update", task_id=TASK, content="resumed"))
        turn_until(envoy, lambda: here(home, "messages", "failed"), "it fails")
    [failed] = all_of(home, "messages", "failed")
    assert f"there is no room {room}" in failed["refused_because"]


def remove_room(hall: Hall, room: str) -> None:
    with closing(sqlite3.connect(hall.home / "state/hall/hall.db")) as raw, raw:
        for table, column in (("hall_message_positions", ""), ("messages", "room_id"), ("room_members", "room_id")):
            raw.execute(f"DELETE FROM {table}" + (f" WHERE {column} = '{room}'" if column else ""))
        raw.execute(f"DELETE FROM hall_rooms WHERE room_id = '{room}'")
        raw.execute(f"DELETE FROM rooms WHERE id = '{room}'")


@pytest.mark.parametrize(
    ("config", "on", "default", "console"),
    [
        ({}, True, "hall", False),
        ({}, False, "console", True),
        ({"slack": {}}, True, "slack", True),
        ({"webhook": {}}, True, "hall", False),
        ({"channel": "console"}, True, "console", True),
        ({"hall": {}}, False, "hall", False),
    ],
)
def test_the_hall_is_the_default_channel_where_it_runs_and_slack_is_not_set_up(
    config: dict[str, Any], on: bool, default: str, console: bool
) -> None:
    whole = with_products(config, {"roles": {"gateway": on, "worker": on}})
    assert (default_channel(whole), "console" in usable_channels(whole)) == (default, console)
