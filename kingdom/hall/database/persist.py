"""Store messages: each once, under ids that grow within their room, however often they arrive."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kingdom.hall.database import moderation
from kingdom.hall.database.base import DatabaseRefused, Transaction
from kingdom.hall.database.ids import iso, next_ulid
from kingdom.hall.database.own_rooms import USER
from kingdom.hall.database.records import MessageCreated, MessagePersisted


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message as it was found in a topic."""

    event: MessageCreated
    topic: str
    #: It distinguishes a redelivery from a message that its client sent again.
    position: str


def persist(db: Transaction, arrivals: Sequence[Arrival], now: float) -> list[MessagePersisted | None]:
    """Store messages in this transaction, in their order. Return what is to be published of each.

    That is the stored message, also when it had been stored from the same position before, and blank if it was removed
    meanwhile; None for one that its client has sent again, unless that is the kingdom, which waits to read it.
    DatabaseRefused if one of them names a room or a sender that is not there.
    """
    at = iso(now)
    last = _lock_rooms(db, arrivals)
    ids = []
    for arrival in arrivals:
        room = arrival.event.key
        last[room] = id = next_ulid(int(now * 1000), last[room])
        ids.append(id)
    rows = [
        {
            "id": id,
            **_client_key(arrival),
            "type": arrival.event.message_type,
            "content": arrival.event.content,
            "created_at": at,
            "topic": arrival.topic,
            "position": arrival.position,
        }
        for id, arrival in zip(ids, arrivals, strict=True)
    ]
    added = [row is not None for row in db.each("store_message", rows)]
    for id, arrival, is_new in zip(ids, arrivals, added, strict=True):
        if is_new and arrival.event.about is not None:
            note_about(db, id, arrival.event.about)
    return [
        _message(arrival.event, id, at) if is_new else _stored_before(db, arrival)
        for id, arrival, is_new in zip(ids, arrivals, added, strict=True)
    ]


def _lock_rooms(db: Transaction, arrivals: Sequence[Arrival]) -> dict[str, str | None]:
    """Return the last message of each room. In one order everywhere: two workers must not wait for each other."""
    rooms = sorted({arrival.event.key for arrival in arrivals})
    found = zip(rooms, db.each("lock_room", [{"room_id": room} for room in rooms]), strict=True)
    last: dict[str, str | None] = {}
    for room, row in found:
        if row is None:
            raise DatabaseRefused(why=f"there is no room {room}")
        last[room] = row["last_message_id"]
    return last


def _client_key(arrival: Arrival) -> dict[str, object]:
    event = arrival.event
    return {
        "room_id": event.key,
        "sender_id": event.sender_id.lower(),
        "client_msg_id": event.client_msg_id.lower(),
    }


def _stored_before(db: Transaction, arrival: Arrival) -> MessagePersisted | None:
    row = db.one("message_of_client", **_client_key(arrival))
    if row is None:
        return None
    is_removed = not row["content"]
    if is_removed and arrival.event.content:
        moderation.note_erasure(db, row["id"])
    is_redelivery = row["position"] in (None, arrival.position) and row["topic"] in (None, arrival.topic)
    if not is_redelivery and arrival.event.sender_id.lower() != USER:
        return None
    event = replace(arrival.event, content="", about=None, removed=True) if is_removed else arrival.event
    return _message(event, row["id"], row["created_at"])


def note_about(db: Transaction, id: str, about: Mapping[str, Any]) -> None:
    """Keep what a stored message is about."""
    db.do("note_about", message_id=id, about=json.dumps(about))


def _message(event: MessageCreated, id: str, at: str) -> MessagePersisted:
    return MessagePersisted(
        message_id=id,
        room_id=event.room_id,
        sender_id=event.sender_id,
        client_msg_id=event.client_msg_id,
        message_type=event.message_type,
        content=event.content,
        created_at=at,
        about=event.about,
        removed=event.removed,
    )
