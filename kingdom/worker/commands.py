"""What may be asked of the worker on `hall.commands.v1`, and the table of it.

A command is carried out in one transaction, and may come again: then it changes nothing and tells the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kingdom.hall import own_rooms
from kingdom.hall.base import Connection
from kingdom.hall.ids import iso
from kingdom.hall.persist import Arrival, persist
from kingdom.hall.records import Command, MessageCreated, MessagePersisted
from kingdom.topics.base import Record

Told = list[MessagePersisted]
"""What is to be published of a command."""


def open_room(db: Connection, command: Command, record: Record, now: float) -> Told:
    """Open a room of the kingdom with a first message, which is told also if it is there: somebody waits for it."""
    facts = command.facts
    room = facts["roomId"].lower()
    own_rooms.open_room(db, room, facts["name"], facts["kind"], iso(now))
    whose = (command.id, room, own_rooms.USER, facts["clientMsgId"])
    first = MessageCreated(*whose, "SYSTEM", facts["content"], command.produced_at)
    return [message for message in persist(db, [Arrival(first, record.topic, record.position)], now) if message]


COMMANDS: Mapping[str, Callable[[Connection, Command, Record, float], Told]] = {"openRoom": open_room}
"""One more command is a function and a row here, and its fields in schemas/hall/command.schema.json."""
