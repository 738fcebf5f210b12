"""What the original system says of a message, read into a name of ours; its key stays byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import orjson

from kingdom.mq import names

STATES = {"archive": "archived", "acked": "archived"}
CODES = (
    ("valid", "VALIDATION_ERROR"),
    ("expire", "TIMEOUT"),
    ("timeout", "TIMEOUT"),
    ("ttl", "TIMEOUT"),
    ("retr", "RETRY_EXCEEDED"),
    ("exceed", "RETRY_EXCEEDED"),
    ("poison", "POISON"),
)


class Original(NamedTuple):
    """A message as the original has it. Zero, None and an empty text mean that there is none."""

    queue: str
    #: ready, delayed, inflight, dlq or archived.
    state: str
    key: str
    #: Its place among those that are equal otherwise.
    sequence: int
    priority: object
    #: When it can be handed out, when its lease ends, or when it came to rest.
    due: object
    attempt: object
    created: object
    expires: object = 0
    target: object = ""
    dead_reason: object = ""
    #: The digest of the consumer that holds it.
    consumer: str = ""


def name_of(message: Original) -> str:
    """Return a name of ours for a message; what is out of bounds is brought within."""
    message_id = names.id_of_key(message.key)
    fields = names.first_fields(
        0 if message.state == "dlq" else _within(message.expires, names.LATEST), _text(message.target)
    )
    fields[names.ATTEMPTS] = str(_within(message.attempt, 999_999))
    due = _within(message.due, names.LATEST)
    if message.key != names.key(message.queue, message_id):
        fields |= names.foreign_fields(message.queue, message.key, _within(message.created, names.LATEST))
    if message.state == "inflight":
        fields |= {names.LEASE: "", names.CONSUMER: message.consumer}
    if message.state == "dlq":
        fields |= {names.REASON: code_of(_text(message.dead_reason)), names.DEAD_SINCE: str(due)}
    priority = max(-names.HIGHEST, min(names.HIGHEST, _whole(message.priority)))
    return names.compose(priority, due, message.sequence % names.SEQUENCES, fields, message_id)


def code_of(reason: str) -> str:
    """Return the code for the free text that the original keeps with a dead letter."""
    low = reason.lower()
    return next((code for part, code in CODES if part in low), "HANDLER_ERROR")


def envelope(text: object) -> Mapping[str, Any]:
    """Return what an envelope of the original says; nothing when it is none."""
    try:
        value = orjson.loads(text) if isinstance(text, (str, bytes)) else None
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {}


def payload_file(root: Path, queue: str, about: Mapping[str, Any]) -> Path | None:
    """Return the file with the payload of a message: the original moves it without changing the row."""
    file = PurePath(_text(about.get("payloadPath"))).name
    if not file or "/" in queue or queue in (".", ".."):
        return None
    places = (root / queue / folder / file for folder in ("active", "dlq", "archive"))
    return next((place for place in places if place.is_file()), None)


def whole(about: Mapping[str, Any], payload: bytes) -> bytes:
    """Return the whole envelope of a message whose payload lay apart. A payload that is damaged stays as it is."""
    found = envelope(payload)
    if not found:
        return payload
    kept = {key: part for key, part in about.items() if key != "payloadPath"}
    return orjson.dumps({**kept, **found})


def _within(value: object, most: int) -> int:
    return max(0, min(_whole(value), most))


def _whole(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) and value == value and abs(value) < 1 << 62 else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
