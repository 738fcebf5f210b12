"""Stores that the original system has written are served completely, with its keys and its times."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.mq.errors import LeaseExpired
from tests.mq import originals
from tests.mq.originals import Message
from tests.mq.rigs import QUEUE, Rig

Open = Callable[[], Rig]


@pytest.fixture(params=["sqlite-1", "sqlite-2", "sqlite-3", "hybrid-1", "hybrid-2", "hybrid-3", "filesystem-3"])
def place(request: pytest.FixtureRequest, home: Path) -> tuple[str, list[Message]]:
    """A store of the original where `open_rig` will open one, and what is in it."""
    backend, _, age = request.param.partition("-")
    root = home / "mq0"
    if backend == "filesystem":
        return backend, originals.folders(root / "fs")
    payloads = root / "payloads" if backend == "hybrid" else None
    return backend, originals.database(root / "yirangmq.db", int(age), payloads)


@pytest.fixture
def old_house(place: tuple[str, list[Message]], open_rig: Callable[..., Rig]) -> Rig:
    return open_rig(place[0])


def take_all(rig: Rig) -> dict[str, Any]:
    """Consume all there is now, as whoever it is meant for; by key."""
    found: dict[str, Any] = {}
    for queue in originals.QUEUES:
        for consumer in ("consumer 01", "anybody"):
            found |= {leased.message_key: leased for leased in rig.mq.lease(queue, consumer, 100)}
    rig.mq.commit()
    return found


@pytest.mark.parametrize("restart", [False, True])
def test_every_message_is_served(place: tuple[str, list[Message]], old_house: Rig, restart: bool) -> None:
    there = place[1]
    if restart:
        old_house.reopen(kill=True)
    assert old_house.mq.check() == []
    waiting = {one.key: one for one in there if one.state == "ready" or one.number == 9}
    old_house.sweep()
    old_house.sweep(1)
    found = take_all(old_house)
    assert found.keys() == waiting.keys()
    for key, leased in found.items():
        told = waiting[key]
        assert (leased.message_id, leased.created_at, leased.queue) == (told.message_id, told.created, told.queue)
        assert (leased.payload, leased.attributes) == (told.payload, told.attributes)
        assert (leased.priority, leased.attempt) == (told.priority, told.attempt + 1)
    old_house.mq.commit()
    for leased in found.values():
        old_house.ack(leased)
        old_house.ack(leased)
    old_house.reopen(kill=True)
    assert old_house.counts()[0] == 0


@pytest.mark.parametrize("age", [1, 2, 3])
def test_no_payload_of_the_original_stays_beside_ours(home: Path, open_rig: Callable[..., Rig], age: int) -> None:
    payloads = home / "mq0" / "payloads"
    originals.database(home / "mq0" / "yirangmq.db", age, payloads)
    theirs = [path for folder in ("active", "dlq") for path in payloads.glob(f"*/{folder}/*")]
    open_rig("hybrid")
    assert theirs
    assert not any(path.exists() for path in theirs)


def test_what_comes_first_comes_first(place: tuple[str, list[Message]], old_house: Rig) -> None:
    first = [leased.message_id for leased in old_house.mq.lease(QUEUE, "anybody", 3)]
    by_number = {message.number: message.message_id for message in place[1]}
    assert first == [by_number[number] for number in (3, 1, 2)]


def test_leases_go_on_until_they_end(place: tuple[str, list[Message]], old_house: Rig) -> None:
    [leased] = [message for message in place[1] if message.number == 8]
    assert old_house.mq.status(QUEUE).inflight >= 1
    old_house.mq.ack(leased.key, "00AA-11BB-22CC-33DD-44EE", "consumer 08")
    old_house.mq.ack(leased.key, "00AA-11BB-22CC-33DD-44EE", "consumer 08")
    old_house.mq.commit()
    old_house.reopen()
    old_house.sweep(60)
    assert leased.key not in take_all(old_house)


def test_a_lease_that_ends_gives_its_message_back(place: tuple[str, list[Message]], old_house: Rig) -> None:
    [leased] = [message for message in place[1] if message.number == 8]
    old_house.sweep(25)
    with pytest.raises(LeaseExpired):
        old_house.mq.ack(leased.key, "00AA-11BB-22CC-33DD-44EE")
    old_house.sweep(1)
    assert take_all(old_house)[leased.key].attempt == 2


def test_delayed_messages_come_when_they_are_due(place: tuple[str, list[Message]], old_house: Rig) -> None:
    [delayed] = [message for message in place[1] if message.state == "delayed"]
    old_house.sweep(29)
    assert delayed.key not in take_all(old_house)
    old_house.sweep(1)
    assert delayed.key in take_all(old_house)


def test_dead_letters_say_why_and_go_back_to_work(place: tuple[str, list[Message]], old_house: Rig) -> None:
    dead = [message for message in place[1] if message.state == "dlq"]
    letters = old_house.mq.dead_letters.listed(QUEUE)
    told = [(letter.message_key, letter.message, letter.dlq_at - originals.MORNING_MS) for letter in letters]
    assert told == [(message.key, message.reason, message.dead_at) for message in dead]
    assert {letter.reason for letter in letters} <= {"HANDLER_ERROR", "TIMEOUT"}
    for message in dead:
        assert old_house.mq.dead_letters.reprocess(message.key) == message.key
    old_house.mq.commit()
    old_house.reopen(kill=True)
    found = take_all(old_house)
    assert {found[message.key].payload for message in dead} == {'{"temp":36.5}'}
    assert old_house.nack(found[dead[0].key], "again", requeue=False) == "dlq"
    old_house.reopen(kill=True)
    [again] = old_house.mq.dead_letters.listed(QUEUE)
    assert (again.message_key, again.message) == (dead[0].key, "again")


def test_the_policy_is_taken_over_as_far_as_it_can_be(place: tuple[str, list[Message]], old_house: Rig) -> None:
    for _ in range(2):
        policy = old_house.mq.status(QUEUE).policy
        assert (policy.visibility_ms, policy.retry.limit, policy.retry.initial_s) == (45_000, 2, 0)
        old_house.reopen()


def test_a_message_moves_to_another_queue(old_house: Rig) -> None:
    old_house.finish(old_house.mq.moving.move("it's", "there"))
    old_house.reopen(kill=True)
    for _ in range(2):
        leased = old_house.lease(queue="there")
        assert leased.message_key.startswith("msg:there:9")
        old_house.ack(leased)
    assert old_house.counts("there") == (0, 0, 0, 0)


@pytest.mark.parametrize("key", ["odd", "msg:other:9b2f2f2a-6f64-4f8b-a9b5-1e0d6f3a0d71", "msg:telemetry:a:b/c", "키"])
def test_a_key_of_any_form_is_kept(home: Path, open_rig: Callable[..., Rig], key: str) -> None:
    path = home / "mq0" / "yirangmq.db"
    originals.database(path, 3)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE kv SET key = ? WHERE key = ?", (key, "msg:telemetry:AB03-0F3C-77E1-9A00-1B2C"))
    connection.execute(
        "UPDATE msg_index SET message_key = ? WHERE message_key = ?", (key, "msg:telemetry:AB03-0F3C-77E1-9A00-1B2C")
    )
    connection.commit()
    connection.close()
    rig = open_rig("sqlite")
    leased = rig.lease()
    assert (leased.message_key, leased.message_id) == (key, "AB03-0F3C-77E1-9A00-1B2C")
    rig.nack(leased, "no", requeue=False)
    rig.reopen(kill=True)
    assert rig.mq.dead_letters.reprocess(key) == key
    rig.ack(rig.lease())
    rig.reopen()
    assert rig.mq.store._query("select_body", (key,)) == []  # type: ignore[attr-defined]
