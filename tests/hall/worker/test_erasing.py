"""The text of a removed message leaves the database's files and the topics; late readers find a blank message."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.hall.database import own_rooms
from kingdom.hall.database.ids import iso, new_uuid
from kingdom.hall.database.records import HallCommand, MessageCreated
from kingdom.hall.topics.names import COMMANDS, DEAD, MESSAGES, PERSISTED
from kingdom.hall.worker.job import WorkerJob
from tests.contracts.topics import taken
from tests.faults.oracle import Figure
from tests.fixtures import Clock
from tests.hall.worker.hall import Hall, at_work, give, message, ordered, work
from tests.waiting import SOON, wait_until

SECRET = "the launch code is 4711"


@pytest.fixture
def hall(home: Path) -> Iterator[Hall]:
    opened = Hall(home, Clock())
    yield opened
    opened.close()


def places_of(text: str, home: Path) -> list[Path]:
    """Return every file below a home that holds a text, dead letters' base64 included."""
    found = [path for path in home.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
    for path in (home / "queue/topics" / DEAD).glob("*.jsonl"):
        letters = [json.loads(line)["value"] for line in path.read_bytes().splitlines() if line]
        found += [path for letter in letters if text.encode() in base64.b64decode(letter["head"])]
    return found


def erase(hall: Hall, worker: WorkerJob) -> None:
    """Run turns until nothing is left to erase."""

    def turned() -> bool:
        turn = worker.turn(None)
        behind = [hall.topics.lag("chat-persistor", topic) for topic in (MESSAGES, COMMANDS)]
        return not turn.worked and behind == [0, 0]

    wait_until(turned, SOON, "the worker has nothing left to do")
    assert hall.database.read(lambda db: db.all("erasures")) == []


def remove(hall: Hall, room: str, sent: MessageCreated) -> str:
    [id] = [row["id"] for row in hall.history(room) if row["client_msg_id"] == sent.client_msg_id.lower()]
    give(hall, ordered("removeMessage", roomId=room, messageId=id))
    return str(id)


def test_a_removed_text_is_nowhere_and_a_late_reader_gets_a_blank_message_in_its_place(
    hall: Hall, figure: Figure
) -> None:
    user = hall.user()
    room = hall.room(user)
    late = hall.topics.group("late", PERSISTED, MESSAGES)
    secret, beside = message(room, user, f"{SECRET} " * 100), message(room, user, "stays")
    hall.publish(message(room, user, "before"), secret, beside)
    with at_work(hall) as worker:
        work(hall, worker, 3)
        assert places_of(SECRET, hall.home), "the test can find it"
        removed = remove(hall, room, secret)
        erase(hall, worker)
        left = places_of(SECRET, hall.home)
        figure(f"a removed text: in {len(left)} files afterwards")
        assert left == []
        assert len(places_of("stays", hall.home)) >= 3, "in the database and both topics"
    events = [(record.topic, record.position, json.loads(record.value)) for record in taken(late, 7)]
    told = [(position, event["content"]) for topic, position, event in events if topic == PERSISTED]
    assert told == [("0:0", "before"), ("0:1", ""), ("0:2", "stays"), ("0:3", "A message was removed.")]
    sent = [(position, event["content"]) for topic, position, event in events if topic == MESSAGES]
    assert sent == [("0:0", "before"), ("0:1", ""), ("0:2", "stays")]
    [blank] = [event for topic, _, event in events if topic == PERSISTED and event.get("removed")]
    assert (blank["messageId"], blank["clientMsgId"], blank["senderId"]) == (removed, secret.client_msg_id, user)


def test_files_keep_their_time_so_that_they_are_removed_as_soon_as_before(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    secret = message(room, user, SECRET)
    hall.publish(secret)
    with at_work(hall) as worker:
        work(hall, worker, 1)
        file = hall.home / "queue/topics" / MESSAGES / f"{0:020}.jsonl"
        before = file.stat()
        remove(hall, room, secret)
        erase(hall, worker)
        assert file.stat().st_ino != before.st_ino
        assert file.stat().st_mtime_ns == before.st_mtime_ns
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_text_that_its_client_sends_again_after_the_removal_is_erased_too(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    secret = message(room, user, SECRET)
    hall.publish(secret)
    with at_work(hall) as worker:
        work(hall, worker, 1)
        remove(hall, room, secret)
        erase(hall, worker)
        hall.publish(secret)
        work(hall, worker, 1)
        erase(hall, worker)
    assert places_of(SECRET, hall.home) == []
    assert [row["content"] for row in hall.history(room)] == ["", "A message was removed."]


def test_a_text_in_a_dead_letter_of_an_earlier_try_is_erased(hall: Hall) -> None:
    user = hall.user()
    room = new_uuid()
    secret = message(room, user, SECRET)
    hall.publish(secret)
    with at_work(hall) as worker:
        work(hall, worker, 1)
        hall.database.run(lambda db: db.do("add_room", id=room, name="opened late", created_at=iso(0.0)))
        hall.publish(secret)
        work(hall, worker, 1)
        assert hall.home / "queue/topics" / DEAD / f"{0:020}.jsonl" in places_of(SECRET, hall.home)
        remove(hall, room, secret)
        erase(hall, worker)
    assert places_of(SECRET, hall.home) == []


def test_the_first_message_of_a_room_is_erased_from_the_command_that_opened_it(hall: Hall) -> None:
    room = new_uuid()
    about = {"taskId": "task-20260207-001", "choices": [SECRET]}
    facts = {"roomId": room, "name": "a room", "kind": "task", "clientMsgId": new_uuid(), "content": SECRET}
    give(hall, HallCommand(new_uuid(), "openRoom", iso(0.0), {**facts, "about": about}))
    with at_work(hall) as worker:
        erase(hall, worker)
        [row] = hall.history(room)
        assert (row["sender_id"], row["content"]) == (own_rooms.USER, SECRET)
        give(hall, ordered("removeMessage", roomId=room, messageId=row["id"]))
        erase(hall, worker)
    assert places_of(SECRET, hall.home) == []


def test_a_message_that_was_stored_before_a_kill_and_removed_meanwhile_is_told_blank(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    secret = message(room, user, SECRET)
    hall.publish(secret)
    killed = WorkerJob(hall.of("worker"))
    killed._store.store(killed._read())
    killed._topics.close()
    killed._database.close()
    remove(hall, room, secret)
    again = WorkerJob(hall.of("worker"))
    assert [event.topic for event in again._store.store(again._read()) if SECRET.encode() in event.value] == []
    again._topics.close()
    again._database.close()
    with at_work(hall) as worker:
        erase(hall, worker)
    assert places_of(SECRET, hall.home) == []
    told = [(event["content"], event.get("removed")) for event in hall.told(2)]
    assert told == [("A message was removed.", None), ("", True)]


def test_only_the_kingdom_says_that_a_message_is_removed(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    hall.publish(message(room, user, ""), message(room, user, "text", removed=True))
    with at_work(hall) as worker:
        work(hall, worker, 2)
    assert ["content" in letter["reason"] for letter in hall.buried(2)] == [True, True]
    assert hall.history(room) == []
