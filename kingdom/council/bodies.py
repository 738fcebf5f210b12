"""The bodies of the council's messages: YAML mappings, each type with a schema in `schemas/council/`."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kingdom.base.disk.codec import parse_json
from kingdom.base.errors import BadConfig, BadMessage
from kingdom.base.home import config, schemas
from kingdom.base.home.places import Places, as_filename, find_schema
from kingdom.base.times import stamp

WRAPPED = frozenset({"type", "payload"})
"""The keys of a body that repeats its headers: its payload is the body that is meant."""

OUTBOXES = "outboxes"
"""Begins the `original_file` of what lay in an outbox: it is put back into no queue."""
LARGEST_DEAD_LETTER = 4 << 20
"""A dead letter is larger than the message in it."""
_OF_A_ROW = frozenset(["id", "file", "agent", "in_reply_to", "type", "from", "at"])
_UNREADABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def read_body(text: str) -> dict[str, Any]:
    """Return a body's mapping; BadMessage when it is none."""
    try:
        value, _ = config.from_yaml(text, Path("body"))
    except BadConfig as error:
        raise BadMessage(what="the body", why=f"{error.facts['why']}{error.facts['line']}") from None
    if isinstance(value, dict) and value.keys() >= WRAPPED and isinstance(value["payload"], dict):
        value = value["payload"]
    if not isinstance(value, dict) or not value:
        raise BadMessage(what="the body", why="it is no YAML mapping")
    return value


def faults_of_body(kind: str, text: str) -> list[str]:
    """Return what is wrong with the body of a message of this type. Of a type without a schema any mapping will do."""
    try:
        body = read_body(text)
    except BadMessage as error:
        return [str(error)]
    if not find_schema(_schema(kind)).is_file():
        return []
    misfit = schemas.judge_by_name(_schema(kind))(body)
    return [f"the body of a {kind}: {misfit}"] if misfit else []


def yaml_of(body: Mapping[str, Any], literal: str = "") -> str:
    """Return a mapping as YAML with one key a line; the value under `literal` as a block that reads as it is."""
    lines = [f"{key}: {_block(value)}" if key == literal else f"{key}: {_flow(value)}" for key, value in body.items()]
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    """Return a value as JSON that YAML reads alike: what it takes for no character is escaped."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
    return _UNREADABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _block(text: str) -> str:
    """Return a text as a literal block, with all its line breaks at the end."""
    bare = text.rstrip("\n")
    ending = {0: "-", 1: ""}.get(len(text) - len(bare), "+")
    return "\n".join([f"|2{ending}", *(line and f"  {line}" for line in text.removesuffix("\n").split("\n"))])


def with_original(body: Mapping[str, Any], original: bytes) -> str:
    """Return the body of a dead letter: the message as it was as a literal block, in base64 where that cannot be."""
    try:
        text = original.decode()
        written = yaml_of({**body, "original_message": text}, literal="original_message")
        if read_body(written)["original_message"] == text:
            return written
    except (UnicodeDecodeError, BadMessage):
        pass
    encoded = base64.b64encode(original).decode()
    return yaml_of({**body, "original_encoding": "base64", "original_message": encoded})


def original_of(body: Mapping[str, Any]) -> bytes:
    """Return the message that a dead letter holds, byte for byte; BadMessage when it holds none."""
    text = body.get("original_message")
    if not isinstance(text, str):
        raise BadMessage(what="the dead letter", why="it holds no original_message")
    try:
        return base64.b64decode(text, validate=True) if body.get("original_encoding") == "base64" else text.encode()
    except (binascii.Error, ValueError):
        raise BadMessage(what="the dead letter", why="its original_message is no base64") from None


def list_of(places: Places, thread: str, moment: float) -> Path:
    """Return the list of a thread's messages. Those without one are listed by day: such a list ends, and is deleted."""
    return places.council_threads / f"{as_filename(thread or f'without-{stamp(moment)[:10]}')}.jsonl"


def listed_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the messages in the list of a thread, oldest first, as far as it can be read: a kill may tear a line."""
    with suppress(FileNotFoundError), open(path, "rb") as lines:
        for line in lines:
            with suppress(ValueError):
                row = parse_json(line)
                if isinstance(row, dict) and row.keys() >= _OF_A_ROW:
                    yield row


def _schema(kind: str) -> str:
    return f"council/{kind.replace('/', '_')}"
