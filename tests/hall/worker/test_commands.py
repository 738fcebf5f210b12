"""Commands are carried out once, told, and refused with their reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home import schemas
from kingdom.hall.database import accounts, own_rooms
from kingdom.hall.database.ids import iso, new_uuid
from kingdom.hall.database.records import BadEvent, HallCommand, Signal
from kingdom.hall.topics.names import COMMANDS as TOPIC
from kingdom.hall.topics.names import SIGNALS
from kingdom.hall.worker.commands import COMMANDS
from tests.fixtures import Clock
from tests.hall.worker.hall import Hall, at_work, give, message, ordered, work
from tests.waiting import SOON, wait_until


@pytest.fixture
def hall(home: Path) -> Iterator[Hall]:
    opened = Hall(home, Clock())
    yield opened
    opened.close()


def carry_out(hall: Hall) -> None:
    """Run a worker until it has read all commands."""
    with at_work(hall) as worker:

        def turned() -> bool:
            worker.turn(None)
            return hall.topics.lag("chat-persistor", TOPIC) == 0

        wait_until(turned, SOON, "the worker has passed the commands")


def opening(room: str, **fields: Any) -> HallCommand:
    facts = {"roomId": room, "name": "a room", "kind": "task", "clientMsgId": new_uuid(), "content": "hello", **fields}
    return HallCommand(new_uuid(), "openRoom", iso(0.0), facts)


def test_every_command_has_its_part_of_the_schema() -> None:
    known = schemas.load("hall/command")
    assert set(known["properties"]["command"]["enum"]) == set(COMMANDS)
    assert {part["if"]["properties"]["command"]["const"] for part in known["allOf"]} == set(COMMANDS)


def test_a_room_is_opened_once_and_its_first_message_is_told_whenever_it_is_asked_for(hall: Hall) -> None:
    room = new_uuid()
    first, signals = opening(room.upper()), hall.topics.follow(SIGNALS)
    give(hall, first, opening(room, clientMsgId=first.facts["clientMsgId"], name="another name"))
    carry_out(hall)
    told, again = hall.told(2)
    assert told == again
    [joined] = [Signal.from_json(record.value) for record in hall._next(signals, 1)]
    assert (joined.kind, dict(joined.facts)) == ("joined", {"userId": own_rooms.USER, "roomId": room})
    assert (told["roomId"], told["messageType"], told["content"]) == (room, "SYSTEM", "hello")
    [row] = hall.history(room)
    assert (row["sender_id"], row["sender_name"]) == (own_rooms.USER, "kingdom")
    about = hall.database.read(lambda db: db.one("room", id=room))
    assert about is not None
    assert (about["name"], about["last_message_id"]) == ("a room", row["id"])


def test_a_removed_message_is_blank_and_an_item_of_its_own_tells_so_however_often_it_is_ordered(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    hall.publish(message(room, user, "a secret"), message(room, user, "after it"))
    with at_work(hall) as worker:
        work(hall, worker, 2)
    said = hall.history(room)
    hall.told(2)
    first = ordered("removeMessage", roomId=room, messageId=said[0]["id"])
    give(hall, first, ordered("removeMessage", roomId=room, messageId=said[0]["id"]))
    carry_out(hall)
    blank, other, item = hall.history(room)
    assert (blank["content"], blank["removed_by"], other["content"]) == ("", item["id"], "after it")
    assert (item["removes"], item["type"], item["sender_id"]) == (said[0]["id"], "SYSTEM", own_rooms.USER)
    assert item["id"] > other["id"]
    told, again = hall.told(2)
    assert told == again
    assert (told["messageId"], told["removes"]) == (item["id"], said[0]["id"])
    audit = hall.database.read(lambda db: db.one("audited", command_id=first.id))
    assert audit is not None
    assert (audit["ordered_by"], audit["command"], audit["target"]) == (
        "anna@example.org",
        "removeMessage",
        said[0]["id"],
    )


def test_what_is_not_in_its_room_is_not_removed(hall: Hall) -> None:
    user = hall.user()
    room, other = hall.room(user), hall.room(user)
    hall.publish(message(room, user, "stays"))
    with at_work(hall) as worker:
        work(hall, worker, 1)
    [said] = hall.history(room)
    give(hall, ordered("removeMessage", roomId=other, messageId=said["id"]))
    carry_out(hall)
    assert f"there is no message {said['id']} in room {other}" in hall.buried(1)[0]["reason"]
    assert [row["content"] for row in hall.history(room)] == ["stays"]
    assert hall.history(other) == []


def test_a_ban_ends_all_sessions_and_tells_them_again_when_it_is_repeated(hall: Hall) -> None:
    user, session = hall.user(), new_uuid()
    now, room = hall.clock(), hall.room(user)
    hall.room(hall.user())
    hall.database.run(lambda db: accounts.begin_session(db, session, user, "", now, 60.0))
    signals = hall.topics.follow(SIGNALS)
    give(hall, ordered("ban", userId=user), ordered("ban", userId=user.upper()))
    carry_out(hall)
    told = [Signal.from_json(record.value) for record in hall._next(signals, 4)]
    in_room = ("joined", {"userId": user, "roomId": room})
    assert [(signal.kind, dict(signal.facts)) for signal in told] == [
        ("session_ended", {"userId": user, "sessions": [session]}),
        in_room,
    ] * 2
    assert banned(hall, user)
    give(hall, ordered("unban", userId=user))
    carry_out(hall)
    assert not banned(hall, user)
    [told_again] = [Signal.from_json(record.value) for record in hall._next(signals, 1)]
    assert (told_again.kind, dict(told_again.facts)) == in_room


def banned(hall: Hall, user: str) -> bool:
    row = hall.database.read(lambda db: db.one("user_by_id", id=user))
    assert row is not None
    return row["banned_at"] is not None


@pytest.mark.parametrize("command", ["ban", "unban", "endSessions"])
def test_nobody_and_the_kingdom_itself_cannot_be_kept_out(command: str, hall: Hall) -> None:
    give(hall, opening(new_uuid()), ordered(command, userId=own_rooms.USER), ordered(command, userId=new_uuid()))
    carry_out(hall)
    assert all("no person has the ID" in letter["reason"] for letter in hall.buried(2))


def test_a_removed_member_is_one_no_longer(hall: Hall) -> None:
    user = hall.user()
    room = hall.room(user)
    signals = hall.topics.follow(SIGNALS)
    give(hall, ordered("removeMember", roomId=room, userId=user))
    carry_out(hall)
    assert hall.database.read(lambda db: db.one("membership", room_id=room, user_id=user)) is None
    [signal] = [Signal.from_json(record.value) for record in hall._next(signals, 1)]
    assert (signal.kind, dict(signal.facts)) == ("left", {"userId": user, "roomId": room})


def test_a_room_keeps_its_messages_as_long_as_was_ordered(hall: Hall) -> None:
    user = hall.user()
    room, other = hall.room(user), hall.room(user)
    for old in (room, other):
        hall.publish(*(message(old, user, f"{number}") for number in range(2_500)))
    give(hall, ordered("keepRoom", roomId=room, days=7), ordered("keepRoom", roomId=new_uuid(), days=7))
    with at_work(hall) as worker:
        work(hall, worker, 5_000)
        wait_until(lambda: (worker.turn(None), hall.topics.lag("chat-persistor", TOPIC) == 0)[1], SOON, "the order")
        assert len(hall.history(room)) == 2_500
        hall.clock.pass_(8 * 86_400)
        worker._cut_at = 0.0
        before = len(hall.history(room))
        turn = worker.turn(None)
        assert before - len(hall.history(room)) == 1_000, "so many in a turn"
        assert turn.wait == 0.0, "and the next at once"
        wait_until(lambda: (worker.turn(None), len(hall.history(room)) == 1)[1], SOON, "the old ones are gone")
    assert [row["content"] for row in hall.history(room)] == ["2499"]
    assert len(hall.history(other)) == 2_500
    assert "there is no room" in hall.buried(1)[0]["reason"]


def test_a_bad_command_becomes_a_dead_letter_and_the_next_is_carried_out(hall: Hall) -> None:
    plain = opening(new_uuid()).to_json()
    bad = {
        "must be one of ['openRoom'": plain.replace(b"openRoom", b"openDoor"),
        "roomId must be a UUID": plain.replace(b'"roomId":"', b'"roomId":"x'),
        "U+0000": plain.replace(b'"a room"', rb'"a\u0000room"'),
        "content is longer than 5000": opening(new_uuid(), content="\U0001f451" * 2501).to_json(),
        "not a JSON object": b"[]",
    }
    good = opening(new_uuid())
    give(hall, *bad.values(), good)
    carry_out(hall)
    reasons = [letter["reason"] for letter in hall.buried(len(bad))]
    for why, reason in zip(bad, reasons, strict=True):
        assert why.lower() in reason.lower()
    assert [message["roomId"] for message in hall.told(1)] == [good.facts["roomId"]]


def test_commands_come_back_as_they_were() -> None:
    command = opening(new_uuid())
    assert HallCommand.from_json(command.to_json()) == command
    with pytest.raises(BadEvent):
        HallCommand.from_json(json.dumps({"commandId": "x"}).encode())
