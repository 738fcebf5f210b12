"""Commands are carried out once, told, and refused with their reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.hall import own_rooms
from kingdom.hall.ids import iso, new_uuid
from kingdom.hall.records import BadEvent, Command
from kingdom.home import schemas
from kingdom.topics.base import Outcome
from kingdom.topics.names import COMMANDS as TOPIC
from kingdom.worker.commands import COMMANDS
from tests.fixtures import Clock
from tests.waiting import SOON, wait_until
from tests.worker.hall import Hall, at_work


@pytest.fixture
def hall(home: Path) -> Iterator[Hall]:
    opened = Hall(home, Clock())
    yield opened
    opened.close()


def give(hall: Hall, *values: Command | bytes) -> None:
    """Publish commands."""
    outcomes: list[Outcome] = []
    for value in values:
        raw = value if isinstance(value, bytes) else value.to_json()
        hall.producer.append(TOPIC, "key", raw, lambda outcome, why: outcomes.append(outcome))
    assert hall.producer.flush(SOON)
    assert outcomes == [Outcome.STORED] * len(values)


def carry_out(hall: Hall) -> None:
    """Run a worker until it has read all commands."""
    with at_work(hall) as worker:

        def turned() -> bool:
            worker.turn(None)
            return hall.topics.lag("chat-persistor", TOPIC) == 0

        wait_until(turned, SOON, "the worker has passed the commands")


def opening(room: str, **fields: Any) -> Command:
    facts = {"roomId": room, "name": "a room", "kind": "task", "clientMsgId": new_uuid(), "content": "hello", **fields}
    return Command(new_uuid(), "openRoom", iso(0.0), facts)


def test_every_command_has_its_part_of_the_schema() -> None:
    known = schemas.load("hall/command")
    assert set(known["properties"]["command"]["enum"]) == set(COMMANDS)
    assert {part["if"]["properties"]["command"]["const"] for part in known["allOf"]} == set(COMMANDS)


def test_a_room_is_opened_once_and_its_first_message_is_told_whenever_it_is_asked_for(hall: Hall) -> None:
    room = new_uuid()
    first = opening(room.upper())
    give(hall, first, opening(room, clientMsgId=first.facts["clientMsgId"], name="another name"))
    carry_out(hall)
    told, again = hall.told(2)
    assert told == again
    assert (told["roomId"], told["messageType"], told["content"]) == (room, "SYSTEM", "hello")
    [row] = hall.history(room)
    assert (row["sender_id"], row["sender_name"]) == (own_rooms.USER, "kingdom")
    about = hall.database.read(lambda db: db.one("room", id=room))
    assert about is not None
    assert (about["name"], about["last_message_id"]) == ("a room", row["id"])


def test_a_bad_command_becomes_a_dead_letter_and_the_next_is_carried_out(hall: Hall) -> None:
    plain = opening(new_uuid()).to_json()
    bad = {
        "must be one of ['openRoom'": plain.replace(b"openRoom", b"openDoor"),
        "roomId must match": plain.replace(b'"roomId":"', b'"roomId":"x'),
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
    assert Command.from_json(command.to_json()) == command
    with pytest.raises(BadEvent):
        Command.from_json(json.dumps({"commandId": "x"}).encode())
