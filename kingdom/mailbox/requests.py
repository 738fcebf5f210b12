"""What clients ask: one file each, read strictly. What cannot be read says why, and to whom that can be told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kingdom.disk.codec import DEEPEST, parse_json, read_bytes
from kingdom.errors import BadFile, BadInput, BadName
from kingdom.home.places import check_name

LARGEST_REQUEST = 64 << 20
"""A batch of a hundred large payloads; what is larger is no request."""
_SALVAGE = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    filename: str
    id: str
    client: str
    command: str
    payload: Mapping[str, Any]
    deadline_ms: float


class Unreadable(BadInput):
    """{why}"""

    def __init__(self, code: str, why: str, request_id: str | None, client: str | None) -> None:
        super().__init__(why=why)
        self.code = code
        self.why = why
        self.request_id = request_id
        self.client = client

    @property
    def answerable(self) -> bool:
        return self.request_id is not None and self.client is not None


def read(folder: str, filename: str) -> Request:
    """FileNotFoundError when it was taken back; Unreadable for anything that is no request."""
    try:
        data = read_bytes(f"{folder}/{filename}", LARGEST_REQUEST)
    except BadFile as trouble:
        raise Unreadable("ERR_PARSE_ERROR", str(trouble.facts["why"]), None, None) from None
    try:
        value = _as_our_clients_write(data) or parse_json(data)
    except ValueError as trouble:
        raise Unreadable("ERR_PARSE_ERROR", str(trouble), *_salvaged(data)) from None
    if not isinstance(value, dict):
        raise Unreadable("ERR_PARSE_ERROR", f"a JSON {type(value).__name__}, not an object", None, None)
    return _fitting(filename, value)


def _as_our_clients_write(data: bytes) -> Any:
    """Quickly, when it can be written again word for word: then it holds no doubles and nothing unusual.
    What is flat cannot be deep. None for the strict reader to judge."""
    if data.count(b"[") + data.count(b"{") > DEEPEST:
        return None
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE) == data else None


def _fitting(filename: str, value: dict[str, Any]) -> Request:
    request_id, client = _name(value, "requestId"), _name(value, "clientId")
    command, payload = value.get("command"), value.get("payload", {})
    deadline = value.get("deadlineMs")
    wrong = ""
    if not filename.endswith(".json"):
        wrong = "its name does not end in .json"
    elif request_id is None or client is None:
        wrong = _name_trouble(value)
    elif filename[:-5] != request_id:
        wrong = f"its name is not its requestId {request_id!r} and .json"
    elif not isinstance(command, str):
        wrong = "command is missing or no text"
    elif not isinstance(payload, dict):
        wrong = "payload is no object"
    elif not (deadline is None or _is_number(deadline)):
        wrong = "deadlineMs is no number"
    elif not _is_number(value.get("timestampMs", 0)):
        wrong = "timestampMs is no number"
    else:
        return Request(filename, request_id, client, command, payload, deadline or 0)
    raise Unreadable("ERR_INVALID_REQUEST", wrong, request_id, client)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _name(value: Mapping[str, Any], key: str) -> str | None:
    try:
        return check_name(key, value.get(key))
    except BadName:
        return None


def _name_trouble(value: Mapping[str, Any]) -> str:
    for key in ("requestId", "clientId"):
        if key not in value:
            return f"{key} is missing"
        try:
            check_name(key, value[key])
        except BadName as trouble:
            return str(trouble)
    raise AssertionError("both names are good")


def _salvaged(data: bytes) -> tuple[str | None, str | None]:
    """The two names of a broken request, so that its sender hears of it instead of waiting."""
    text = data[:_SALVAGE].decode("utf-8", "replace")
    return _found(text, "requestId"), _found(text, "clientId")


def _found(text: str, key: str) -> str | None:
    hits = set(re.findall(rf'"{key}"\s*:\s*"([^"\\]*)"', text))
    return _name({key: hits.pop()}, key) if len(hits) == 1 else None
