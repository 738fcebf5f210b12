"""The worker stores what people sent, tells the gateways, and passes on only then."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.hall.database.ids import new_uuid
from kingdom.hall.topics.names import MESSAGES, SIGNALS
from kingdom.hall.worker.job import WorkerJob
from tests.fixtures import Clock
from tests.hall.worker.hall import Hall, at_work, message, work
from tests.waiting import SOON, wait_until


@pytest.fixture
def hall(home: Path) -> Iterator[Hall]:
    opened = Hall(home, Clock())
    yield opened
    opened.close()


def test_a_message_is_stored_told_and_passed(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    sent = message(room, user, "왕 ⚔")
    hall.publish(sent)
    with at_work(hall) as worker:
        work(hall, worker, 1)
    [row] = hall.history(room)
    [told] = hall.told(1)
    assert told == {
        "messageId": row["id"],
        "roomId": room,
        "senderId": user,
        "clientMsgId": sent.client_msg_id,
        "messageType": "TEXT",
        "content": "왕 ⚔",
        "createdAt": row["created_at"],
    }
    about = hall.database.read(lambda db: db.one("room", id=room))
    assert about is not None
    assert (about["last_message_id"], about["last_message_at"]) == (row["id"], row["created_at"])


def test_a_worker_that_starts_first_after_a_hundred_messages_stores_them_all_in_order(hall: Hall) -> None:
    user = hall.user()
    rooms = [hall.room(user), hall.room(user)]
    for number in range(100):
        hall.publish(message(rooms[number % 2], user, str(number)))
    with at_work(hall) as worker:
        work(hall, worker, 100)
    for rest, room in enumerate(rooms):
        assert [row["content"] for row in hall.history(room)] == [str(n) for n in range(rest, 100, 2)]
    told = hall.told(100)
    assert [message["messageId"] for message in told if message["roomId"] == rooms[0]] == [
        row["id"] for row in hall.history(rooms[0])
    ]


def test_bad_events_become_dead_letters_and_those_behind_them_are_stored(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    plain = message(room, user, "x").to_json()
    bad = {
        "U+0000": plain.replace(b'"x"', rb'"\u0000"'),
        "surrogate": plain.replace(b'"x"', rb'"\ud800"'),
        "no room": message(new_uuid(), user).to_json(),
        "FOREIGN KEY": message(room, new_uuid()).to_json(),
        "shorter than or equal to 5000": plain.replace(b'"x"', b'"' + b"x" * 990_000 + b'"'),
        "not a JSON object": b"[]",
    }
    for value in bad.values():
        hall.publish(message(room, user, "before"), value, message(room, user, "after"), key=room)
    with at_work(hall) as worker:
        work(hall, worker, 3 * len(bad))
    assert [row["content"] for row in hall.history(room)] == ["before", "after"] * len(bad)
    letters = hall.buried(len(bad))
    for (why, value), letter in zip(bad.items(), letters, strict=True):
        assert why.lower() in letter["reason"].lower()
        assert (letter["topic"], letter["size"]) == (MESSAGES, len(value))
    assert len({letter["position"] for letter in letters}) == len(bad)
    assert [message["content"] for message in hall.told(2 * len(bad))] == ["before", "after"] * len(bad)


def test_a_damaged_file_with_a_line_too_many_costs_only_its_own_message(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    for number in range(5):
        hall.publish(message(room, user, str(number)))
    damaged = hall.services.places.topics / MESSAGES / f"{3:020}.jsonl"
    damaged.write_bytes(b"no event\n" + hall.services.places.topics.joinpath(MESSAGES, f"{0:020}.jsonl").read_bytes())
    with at_work(hall) as worker:
        work(hall, worker, 5)
    assert [row["content"] for row in hall.history(room)] == ["0", "1", "2", "4"]
    letters = hall.buried(2)
    assert [(letter["position"], letter["key"]) for letter in letters] == [("0:3", ""), ("0:3+1", "")]
    assert "the file has more lines than events" in letters[1]["reason"]
    assert [told["content"] for told in hall.told(4)] == ["0", "1", "2", "4"]


def test_what_a_client_sends_again_is_stored_and_told_once(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    sent = message(room, user)
    hall.publish(sent, sent)
    with at_work(hall) as worker:
        work(hall, worker, 2)
        hall.publish(sent, message(room, user, "another"))
        work(hall, worker, 2)
    assert [row["content"] for row in hall.history(room)] == ["hello", "another"]
    assert [message["content"] for message in hall.told(2)] == ["hello", "another"]


def test_what_a_killed_worker_had_stored_is_told_again_by_the_next_under_the_same_id(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    hall.publish(message(room, user, "one"), message(room, user, "two"))
    killed = WorkerJob(hall.of("worker"))
    records = wait_until(lambda: killed._reader.poll(0.1), SOON, "messages")
    killed._store.store(records)
    killed._topics.close()
    killed._database.close()
    hall.clock.pass_(60)
    with at_work(hall) as worker:
        work(hall, worker, 2)
    told = hall.told(2)
    assert [(message["messageId"], message["createdAt"]) for message in told] == [
        (row["id"], row["created_at"]) for row in hall.history(room)
    ]


def test_ids_grow_within_a_room_also_when_the_clock_goes_back(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    with at_work(hall) as worker:
        for number in range(3):
            hall.publish(message(room, user, str(number)))
            work(hall, worker, 1)
            hall.clock.pass_(-3600)
    assert [row["content"] for row in hall.history(room)] == ["0", "1", "2"]


def test_without_its_database_it_passes_nothing_and_goes_on_when_it_is_back(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    file = hall.home / "state" / "hall"
    hall.database.close()
    away = file.rename(file.with_name("away"))
    file.touch()
    hall.publish(message(room, user))
    with at_work(hall) as worker:
        for _ in range(3):
            turn = worker.turn(None)
        assert turn.wait > 0
        snapshot = read_json(hall.home / "state" / "worker" / "worker.json")
        assert (snapshot["state"], snapshot["passed"]) == ("waiting", 0)
        file.unlink()
        away.rename(file)
        work(hall, worker, 1)
        worker.turn(None)
        log = logged(worker)
    assert len(hall.history(room)) == len(hall.told(1)) == 1
    assert (log.count("waits, and stores nothing"), log.count("goes on")) == (1, 1)


def logged(worker: WorkerJob) -> str:
    worker._services.log.flush()
    return worker._services.places.system_log.read_text()


def test_messages_that_somebody_removed_unread_are_a_gap_that_is_told(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    with at_work(hall) as worker:
        for content in ("one", "two", "three"):
            hall.publish(message(room, user, content))
        (hall.services.places.topics / MESSAGES / f"{1:020}.jsonl").unlink()
        wait_until(lambda: worker.turn(None) and len(hall.history(room)) == 2, SOON, "two messages")
        log = logged(worker)
    assert [row["content"] for row in hall.history(room)] == ["one", "three"]
    assert log.count("messages are lost: the group chat-persistor had not yet read") == 1
    assert worker._vitals._counts["gaps"] == 1


def test_files_that_all_groups_have_read_are_removed_when_they_are_old_enough(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    keep = {MESSAGES: hall.services.config["retention_minutes"] * 60, SIGNALS: 600}
    for content in ("one", "two", "three"):
        hall.publish(message(room, user, content))
        hall.producer.append(SIGNALS, "key", b'{"kind":"presence","gateway":"a"}', lambda *_: None)
        assert hall.producer.flush(SOON)
    folders = {topic: hall.services.places.topics / topic for topic in keep}
    for topic, seconds in keep.items():
        for number, age in ((0, seconds + 0.5), (1, seconds - 0.5)):
            at = hall.clock.now - age
            os.utime(folders[topic] / f"{number:020}.jsonl", (at, at))
    with at_work(hall) as worker:
        work(hall, worker, 3)
    left = {topic: sorted(int(path.stem) for path in folder.glob("*.jsonl")) for topic, folder in folders.items()}
    assert left == {MESSAGES: [1, 2], SIGNALS: [1, 2]}


def test_it_sleeps_until_its_figures_are_due_and_leaves_nothing_open(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    with at_work(hall) as worker:
        worker.turn(None)
        assert 1.0 < worker.turn(None).wait <= 30.0
        hall.publish(message(room, user))
        work(hall, worker, 1)
        assert 0.0 < worker.turn(None).wait <= 1.0
    hall.database.close()
    hall.topics.close()
    left = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert [path for path in left if "hall.db" in path or "/queue/topics/" in path] == []


def test_the_program_stores_what_is_there_and_ends(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    hall.publish(message(room, user))
    environment = {**os.environ, "KINGDOM_HOME": str(hall.home)}
    done = subprocess.run(
        [sys.executable, "-m", "kingdom.worker", "b", "--once"], env=environment, timeout=SOON, check=False
    )
    assert (done.returncode, len(hall.history(room))) == (0, 1)
    assert read_json(hall.home / "state/worker-b/heartbeat")["state"] == "stopped"


def test_it_says_what_it_has_done(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    sent = message(room, user)
    hall.publish(sent, b"{}", sent)
    with at_work(hall) as worker:
        work(hall, worker, 3)
        wait_until(
            lambda: worker.turn(None) and read_json(hall.home / "state/worker/worker.json")["passed"] == 3,
            SOON,
            "snapshot",
        )
        assert "goes on" not in logged(worker)
    snapshot = read_json(hall.home / "state" / "worker" / "worker.json")
    assert {key: snapshot[key] for key in ("state", "lag", "stored", "repeated", "dead", "gaps")} == {
        "state": "working",
        "lag": 0,
        "stored": 1,
        "repeated": 1,
        "dead": 1,
        "gaps": 0,
    }
