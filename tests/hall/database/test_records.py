"""Events of the chat are read strictly and written as the seed spells them."""

import json
import uuid
from typing import Any

import pytest

from kingdom.hall.database.ids import ALPHABET, is_ulid, iso, new_uuid, next_ulid
from kingdom.hall.database.records import BadEvent, MessageCreated, MessagePersisted, Signal, unfit_content, utf16_units

ROOM = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"
CREATED: dict[str, Any] = {
    "eventId": new_uuid(),
    "roomId": ROOM,
    "senderId": new_uuid(),
    "clientMsgId": new_uuid(),
    "messageType": "TEXT",
    "content": "안녕, 王國 👑",
    "producedAt": "2026-11-19T01:02:03.123Z",
}
PERSISTED: dict[str, Any] = {
    "messageId": next_ulid(1),
    **{key: CREATED[key] for key in ("roomId", "senderId", "clientMsgId", "messageType", "content")},
    "createdAt": "2026-11-19T01:02:03.123Z",
}


@pytest.mark.parametrize(("event", "told"), [(MessageCreated, CREATED), (MessagePersisted, PERSISTED)])
def test_an_event_goes_round_in_one_line_with_its_keys_in_order(event: Any, told: dict[str, Any]) -> None:
    line = event.from_json(json.dumps(told).encode()).to_json()
    assert b"\n" not in line
    assert list(json.loads(line).items()) == list(told.items())


def test_unknown_keys_are_ignored_and_the_key_of_a_room_is_lower_case() -> None:
    told = {**CREATED, "roomId": ROOM.upper(), "later": 1}
    event = MessageCreated.from_json(json.dumps(told).encode())
    assert (event.room_id, event.key) == (ROOM.upper(), ROOM)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"content": ""}, "content"),
        ({"content": "a\0b"}, "U+0000"),
        ({"content": "x" * 5001}, "content"),
        ({"content": "👑" * 2501}, "UTF-16"),
        ({"content": "\ud83d"}, "surrogate"),
        ({"content": 7}, "content"),
        ({"roomId": "here"}, "roomId"),
        ({"messageType": "VIDEO"}, "messageType"),
        ({"senderId": None}, "senderId"),
    ],
)
def test_an_unfit_event_is_refused_with_its_reason(change: dict[str, Any], why: str) -> None:
    with pytest.raises(BadEvent, match=why.replace("+", r"\+")):
        MessageCreated.from_json(json.dumps({**CREATED, **change}).encode())


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"\xff", b'{"eventId":1', b"{}"])
def test_what_is_no_event_is_refused(raw: bytes) -> None:
    with pytest.raises(BadEvent):
        MessageCreated.from_json(raw)


def test_lengths_are_those_of_utf_16() -> None:
    assert [utf16_units(text) for text in ("", "왕", "👑", "a👑b")] == [0, 1, 2, 4]
    assert unfit_content("👑" * 2500) == ""


def test_a_signal_goes_round() -> None:
    signal = Signal("typing", "gateway-1", {"roomId": ROOM, "on": True})
    assert Signal.from_json(signal.to_json()) == signal
    for raw in (b"[]", b"{}", b'{"kind":1,"gateway":"g"}', b"nonsense"):
        with pytest.raises(BadEvent):
            Signal.from_json(raw)


def test_random_ids_are_uuids_of_version_4() -> None:
    ids = [uuid.UUID(given) for given in {new_uuid() for _ in range(500)}]
    assert {(id.version, id.variant) for id in ids} == {(4, uuid.RFC_4122)}
    assert len(ids) == 500
    for bit in (0, 61, 64, 75, 80, 127):  # all but those of version and variant
        assert {id.int >> bit & 1 for id in ids} == {0, 1}


def test_ulids_only_grow_also_when_the_clock_goes_back() -> None:
    made = [next_ulid(2_000_000)]
    for now in (2_000_000, 1_000, 2_000_001, 5):
        made.append(next_ulid(now, made[-1]))
    assert made == sorted(set(made))
    assert all(is_ulid(ulid) for ulid in made)
    assert not any(map(is_ulid, ("", made[0].lower(), made[0][1:], "8" + made[0][1:], "I" * 26)))
    assert len(ALPHABET) == 32


def test_moments_are_cut_to_the_millisecond() -> None:
    assert [iso(at) for at in (0.9999, 1.0, 1.5)] == [
        "1970-01-01T00:00:00.999Z",
        "1970-01-01T00:00:01.000Z",
        "1970-01-01T00:00:01.500Z",
    ]
