"""Erase the texts of removed messages from the topics and the database's files.

The database notes what is to be erased together with the removal, and forgets it when nothing is left: a worker that
is killed meanwhile begins again.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import orjson

from kingdom.hall.database.base import Database, Row
from kingdom.hall.database.own_rooms import USER
from kingdom.hall.topics.base import Topics
from kingdom.hall.topics.names import COMMANDS, DEAD, MESSAGES, PERSISTED

STEPS = 20
"""Files of topics that one turn looks into."""
_CLIENT_ID = re.compile(rb'"clientMsgId"\s*:\s*"([0-9a-fA-F-]{36})"')


class MessageIdentity(NamedTuple):
    """By what the events of a message are known."""

    room: str
    sender: str
    client_msg_id: str


class Erasing:
    """What is noted in the database, erased in steps."""

    def __init__(self, database: Database, topics: Topics) -> None:
        self._database = database
        self._topics = topics
        self._steps: Iterator[None] = iter(())
        self._noted: list[Row] = []

    def look(self) -> None:
        """Find out what is to be erased, unless that is under way."""
        if not self._noted:
            self._noted = self._database.read(lambda db: db.all("erasures"))
            self._steps = self._erase(self._noted)

    def go_on(self) -> bool:
        """Take some steps. Return whether there is more to do at once. TopicsAway and Unavailable: look again later."""
        noted, self._noted = self._noted, []
        if noted and len(list(islice(self._steps, STEPS))) == STEPS:
            self._noted = noted
            return True
        if noted and self._database.purge():
            self._database.run(lambda db: [db.do("erased", id=row["id"]) for row in noted])
        return False

    def _erase(self, rows: Sequence[Row]) -> Iterator[None]:
        texts = RemovedTexts({MessageIdentity(row["room_id"], row["sender_id"], row["client_msg_id"]) for row in rows})
        for topic in (MESSAGES, COMMANDS, PERSISTED):
            yield from self._topics.amend(topic, texts.taken_from)
        yield from self._topics.amend(DEAD, texts.taken_from_letter)


class RemovedTexts:
    """The texts of removed messages, by what their events are known by."""

    def __init__(self, removed: Collection[MessageIdentity]) -> None:
        self._removed = removed
        self._ids = {identity.client_msg_id.encode() for identity in removed}

    def taken_from(self, value: bytes) -> bytes:
        """Return an event without its text if that was removed, otherwise as it is."""
        if not any(found.lower() in self._ids for found in _CLIENT_ID.findall(value)):
            return value
        try:
            event = orjson.loads(value)
        except ValueError:
            return b'{"removed":true}'  # somebody has damaged the line
        if not isinstance(event, dict) or _identity(event) not in self._removed:
            return value
        event.pop("about", None)
        return orjson.dumps({**event, "content": "", "removed": True})

    def taken_from_letter(self, value: bytes) -> bytes:
        """Return a dead letter without a removed text in the event that it is about, otherwise as it is."""
        try:
            letter = orjson.loads(value)
            head = base64.b64decode(letter["head"])
        except (ValueError, TypeError, KeyError):
            return value
        left = self.taken_from(head)
        return value if left == head else orjson.dumps({**letter, "head": base64.b64encode(left).decode()})


def _identity(event: dict[str, Any]) -> MessageIdentity:
    """Return the identity of the message in an event; a command holds one of the kingdom."""
    return MessageIdentity(*(str(event.get(key, USER)).lower() for key in ("roomId", "senderId", "clientMsgId")))
