"""Bring back messages that the database has lost from the topic that told of them, under the ids that they had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kingdom.hall.database import moderation
from kingdom.hall.database.base import Database, DatabaseRefused, Transaction
from kingdom.hall.database.persist import note_about
from kingdom.hall.database.records import BadEvent, MessagePersisted


class PersistedEvent(NamedTuple):
    """An event of the persisted topic."""

    #: Where it lies, for people.
    place: str
    value: bytes


class Rebuilt(NamedTuple):
    """What became of events."""

    #: Messages that were missing and are there again.
    stored: int = 0
    #: Messages that were there.
    known: int = 0
    #: Why others could not be stored.
    refused: tuple[str, ...] = ()

    def __add__(self, other: Rebuilt) -> Rebuilt:  # type: ignore[override]
        return Rebuilt(self.stored + other.stored, self.known + other.known, self.refused + other.refused)


def rebuild(database: Database, events: Sequence[PersistedEvent]) -> Rebuilt:
    """Store what is missing of these, all in one transaction; if something is refused, each alone."""
    try:
        return database.run(lambda db: sum((_store(db, event) for event in events), Rebuilt()))
    except DatabaseRefused as error:
        if len(events) == 1:
            return Rebuilt(refused=(f"{events[0].place}: {error}",))
    return sum((rebuild(database, [event]) for event in events), Rebuilt())


def _store(db: Transaction, event: PersistedEvent) -> Rebuilt:
    try:
        message = MessagePersisted.from_json(event.value)
    except BadEvent as error:
        return Rebuilt(refused=(f"{event.place}: {error}",))
    row = {
        "id": message.message_id,
        "room_id": message.key,
        "sender_id": message.sender_id.lower(),
        "client_msg_id": message.client_msg_id.lower(),
        "type": message.message_type,
        "content": message.content,
        "created_at": message.created_at,
    }
    is_new = db.one("store_under_its_id", **row) is not None
    if is_new:
        if message.about is not None:
            note_about(db, message.message_id, message.about)
        db.do("note_last_message", id=message.message_id, room_id=message.key, created_at=message.created_at)
    if message.removes is not None and moderation.blank(db, message.key, message.removes):
        db.do("note_removal", message_id=message.removes, item_id=message.message_id)
    return Rebuilt(stored=1) if is_new else Rebuilt(known=1)
