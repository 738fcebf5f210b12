"""What may be asked of the worker on `hall.commands.v1`, and the table of it.

A command is carried out in one transaction, and may come again: then it changes nothing and publishes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kingdom.hall.database import moderation, own_rooms
from kingdom.hall.database.base import DatabaseRefused, Transaction
from kingdom.hall.database.ids import iso
from kingdom.hall.database.own_rooms import client_msg_id
from kingdom.hall.database.persist import Arrival, persist
from kingdom.hall.database.records import HallCommand, MessageCreated, MessagePersisted, Signal
from kingdom.hall.topics.base import TopicRecord
from kingdom.hall.topics.names import PERSISTED, SIGNALS


class Consequence(NamedTuple):
    """What is to be published, as a command was carried out."""

    topic: str
    key: str
    value: bytes


def open_room(db: Transaction, command: HallCommand, record: TopicRecord, now: float) -> list[Consequence]:
    """Open a room of the kingdom with a first message, published also if it is there: somebody waits for it."""
    facts = command.facts
    room = facts["roomId"].lower()
    added = own_rooms.open_room(db, room, facts["name"], facts["kind"], iso(now))
    first = (facts["clientMsgId"], facts["content"], facts.get("about"))
    said = _persisted(_say(db, command, record, now, room, *first))
    return [said, *(_signal("joined", user, roomId=room) for user in added)]


def remove_message(db: Transaction, command: HallCommand, record: TopicRecord, now: float) -> list[Consequence]:
    """Blank a message, and add an item to its room's history that names it: who was away learns of it there."""
    room, removed = command.facts["roomId"].lower(), command.facts["messageId"]
    if not moderation.blank(db, room, removed):
        raise DatabaseRefused(why=f"there is no message {removed} in room {room}")
    own_rooms.add_user(db, iso(now))
    item = _say(db, command, record, now, room, client_msg_id(f"removal of {removed}"), moderation.REMOVED)
    db.do("note_removal", message_id=removed, item_id=item.message_id)
    return [_persisted(replace(item, removes=removed))]


def remove_member(db: Transaction, command: HallCommand, record: TopicRecord, now: float) -> list[Consequence]:
    """End a membership, and the delivery of the room to its sockets."""
    room, user = command.facts["roomId"].lower(), command.facts["userId"].lower()
    moderation.remove_member(db, room, user)
    return [_signal("left", user, roomId=room)]


def ban(db: Transaction, command: HallCommand, record: TopicRecord, now: float) -> list[Consequence]:
    """Keep somebody out, and end their sessions."""
    user = command.facts["userId"].lower()
    ended = _signal("session_ended", user, sessions=moderation.ban(db, user, now))
    return [ended, *_told_in_rooms(db, user)]


def unban(db: Transaction, command: HallCommand, record: TopicRecord, now: float) -> list[Consequence]:
    """Let somebody in again."""
    user = command.facts["userId"].lower()
    moderation.unban(db, user)
    return _told_in_rooms(db, user)


def end_sessions(db: Transaction, command: HallCommand, record: TopicRecord, now: float) -> list[Consequence]:
    """End all sessions of somebody, who may sign in again."""
    user = command.facts["userId"].lower()
    return [_signal("session_ended", user, sessions=moderation.end_sessions(db, user, now))]


def keep_room(db: Transaction, command: HallCommand, record: TopicRecord, now: float) -> list[Consequence]:
    """Note for how many days a room keeps its messages; 0 is for ever."""
    room = command.facts["roomId"].lower()
    if db.one("room", id=room) is None:
        raise DatabaseRefused(why=f"there is no room {room}")
    db.do("keep_room", room_id=room, days=command.facts["days"])
    return []


COMMANDS: Mapping[str, Callable[[Transaction, HallCommand, TopicRecord, float], list[Consequence]]] = {
    "openRoom": open_room,
    "removeMessage": remove_message,
    "removeMember": remove_member,
    "ban": ban,
    "unban": unban,
    "endSessions": end_sessions,
    "keepRoom": keep_room,
}
"""One more command is a function and a row here, and its fields in schemas/hall/command.schema.json."""


def carry_out(db: Transaction, command: HallCommand, record: TopicRecord, now: float) -> list[Consequence]:
    """Carry a command out, and note who has ordered it, if that was a person."""
    events = COMMANDS[command.name](db, command, record, now)
    if (by := command.facts.get("by")) is not None:
        target = next(command.facts[key] for key in ("messageId", "userId", "roomId") if key in command.facts)
        about = {"ordered_by": by, "command": command.name, "target": target}
        db.do("audit", command_id=command.id.lower(), at=iso(now), **about)
    return events


def _say(
    db: Transaction,
    command: HallCommand,
    record: TopicRecord,
    now: float,
    room: str,
    client_id: str,
    text: str,
    about: Mapping[str, Any] | None = None,
) -> MessagePersisted:
    """Store a message of the kingdom, and return it; the one that was stored before if the command is a repetition."""
    event = MessageCreated(command.id, room, own_rooms.USER, client_id, "SYSTEM", text, command.produced_at, about)
    [message] = persist(db, [Arrival(event, record.topic, record.position)], now)
    assert message is not None, "a repetition of the kingdom's own message was left out"
    return message


def _told_in_rooms(db: Transaction, user: str) -> list[Consequence]:
    """Return what lets everybody who is in a room with somebody read its members again."""
    return [_signal("joined", user, roomId=row["room_id"]) for row in db.all("rooms_with", user_id=user)]


def _persisted(message: MessagePersisted) -> Consequence:
    return Consequence(PERSISTED, message.key, message.to_json())


def _signal(kind: str, user: str, **facts: object) -> Consequence:
    return Consequence(SIGNALS, user, Signal(kind, "worker", {"userId": user, **facts}).to_json())
