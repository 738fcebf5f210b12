"""What travels on the topics of the chat: frozen, read strictly, written in one line of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import orjson

from kingdom.base.disk.codec import parse_json
from kingdom.base.errors import BadInput
from kingdom.base.home import schemas

_SURROGATE = re.compile("[\ud800-\udfff]")
LONGEST_CONTENT = 5000
"""UTF-16 units of a message's content, as browsers count them."""


class BadEvent(BadInput):
    """no {what}: {why}"""


def utf16_units(text: str) -> int:
    """Return the length of a text as JavaScript counts it; a lone surrogate counts as one."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def unfit(event: Mapping[str, Any]) -> str:
    """Return what makes the content of an event unfit for a message, or "". Of a removed one nothing may be left."""
    if event.get("removed"):
        return "a removed message has content" if event["content"] else ""
    return unfit_content(event["content"])


def unfit_content(content: str) -> str:
    """Return what makes a content unfit for a message, or ""."""
    if "\0" in content:
        return "content holds U+0000"
    if not content.isascii() and _SURROGATE.search(content):
        return "content holds a lone surrogate, which is no character"
    if not content:
        return "content is empty"
    if utf16_units(content) > LONGEST_CONTENT:
        return f"content is longer than {LONGEST_CONTENT} UTF-16 units"
    return ""


@dataclass(frozen=True, slots=True)
class _Event:
    """One JSON object of a topic. Fields have the names of the JSON in snake_case, and its order."""

    schema: ClassVar[str] = ""

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Return the event in these bytes; BadEvent says why there is none. Unknown keys are ignored."""
        value = _object(cls.schema, raw)
        if why := schemas.judge_by_name(cls.schema)(value) or unfit(value):
            raise BadEvent(what=cls.schema, why=why)
        return cls(**{name: value[key] for name, key in _keys(cls).items() if key in value})

    def to_json(self) -> bytes:
        """Return the event as one line of JSON without a line break. A field that is None is left out."""
        values = ((key, getattr(self, name)) for name, key in _keys(type(self)).items())
        return orjson.dumps({key: value for key, value in values if value is not None})


@dataclass(frozen=True, slots=True)
class MessageCreated(_Event):
    """What somebody sent: on its way to the database."""

    schema: ClassVar[str] = "hall/message-created"

    #: Of this event, not of the message.
    event_id: str
    room_id: str
    #: The user who sent it.
    sender_id: str
    #: The sender's own id of the message, by which a repetition is known.
    client_msg_id: str
    #: TEXT, IMAGE, or SYSTEM from the kingdom.
    message_type: str
    #: At most LONGEST_CONTENT UTF-16 units.
    content: str
    #: When the gateway took it in.
    produced_at: str
    #: Of the kingdom's messages: what they are about, as data.
    about: Mapping[str, Any] | None = None
    #: True for a message that was removed; its content is "" then.
    removed: bool | None = None

    @property
    def key(self) -> str:
        """Return what keeps the messages of one room in order."""
        return self.room_id.lower()


@dataclass(frozen=True, slots=True)
class MessagePersisted(_Event):
    """What the database holds: on its way to those who listen."""

    schema: ClassVar[str] = "hall/message-persisted"

    #: Grows within a room.
    message_id: str
    #: As in MessageCreated, up to the content.
    room_id: str
    sender_id: str
    client_msg_id: str
    message_type: str
    content: str
    #: When it was stored.
    created_at: str
    #: The message that was removed, if this is the item of the history that tells so.
    removes: str | None = None
    #: As in MessageCreated.
    about: Mapping[str, Any] | None = None
    removed: bool | None = None

    @property
    def key(self) -> str:
        """Return what keeps the messages of one room in order."""
        return self.room_id.lower()


@dataclass(frozen=True, slots=True)
class HallCommand:
    """What somebody wants the worker to do."""

    schema: ClassVar[str] = "hall/command"

    #: By which a repetition is known.
    id: str
    #: openRoom, removeMessage, removeMember, ban, unban, endSessions or keepRoom.
    name: str
    #: When it was given.
    produced_at: str
    #: What belongs to the command: roomId, content, …
    facts: Mapping[str, Any]

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Return the command in these bytes; BadEvent says why there is none."""
        value = _object(cls.schema, raw)
        if why := schemas.judge_by_name(cls.schema)(value) or _unfit_texts(value):
            raise BadEvent(what=cls.schema, why=why)
        known = ("commandId", "command", "producedAt")
        facts = {key: part for key, part in value.items() if key not in known}
        return cls(value["commandId"], value["command"], value["producedAt"], facts)

    def to_json(self) -> bytes:
        """Return the command as one line of JSON without a line break."""
        head = {"commandId": self.id, "command": self.name, "producedAt": self.produced_at}
        return _ENCODE({**head, **self.facts}).encode()


@dataclass(frozen=True, slots=True)
class Signal:
    """A passing thing that gateways tell each other: presence, typing, joined, left, read, session_ended."""

    #: One of those words.
    kind: str
    #: The gateway that sent it, under the name that it chose when it started.
    gateway: str
    #: What belongs to the kind: roomId, userId, on, …
    facts: Mapping[str, Any]

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Return the signal in these bytes; BadEvent says why there is none."""
        try:
            value = parse_json(raw)
            facts = {key: part for key, part in value.items() if key not in ("kind", "gateway")}
            signal = cls(value["kind"], value["gateway"], facts)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise BadEvent(what="signal", why=str(error)) from None
        if not isinstance(signal.kind, str) or not isinstance(signal.gateway, str):
            raise BadEvent(what="signal", why="kind and gateway must be texts")
        return signal

    def to_json(self) -> bytes:
        """Return the signal as one line of JSON without a line break."""
        return _ENCODE({"kind": self.kind, "gateway": self.gateway, **self.facts}).encode()


_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_KEYS: dict[type, dict[str, str]] = {}


def _keys(event: type[_Event]) -> dict[str, str]:
    """Return the JSON name of each field."""
    if event not in _KEYS:
        _KEYS[event] = {field.name: camel(field.name) for field in fields(event)}
    return _KEYS[event]


def _object(what: str, raw: bytes) -> dict[str, Any]:
    try:
        value = parse_json(raw)
    except ValueError as error:
        raise BadEvent(what=what, why=str(error)) from None
    if not isinstance(value, dict):
        raise BadEvent(what=what, why="not a JSON object")
    return value


def _unfit_texts(value: Mapping[str, Any]) -> str:
    """Return what makes the texts of a command unfit to be stored, or ""."""
    if why := unfit(value) if "content" in value else "":
        return why
    texts = [part for part in value.values() if isinstance(part, str)]
    return "a text holds U+0000 or a lone surrogate" if any("\0" in t or _SURROGATE.search(t) for t in texts) else ""


def camel(name: str) -> str:
    """Return a name of ours as JSON spells it."""
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)
