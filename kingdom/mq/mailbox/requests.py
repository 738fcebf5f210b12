"""Requests of clients, one file each, read strictly. An unreadable one says why, and whom to tell."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import orjson

from kingdom.base.disk.bulk import FileIdentity
from kingdom.base.disk.codec import DEEPEST, json_kind, parse_json, read_with_status
from kingdom.base.errors import BadFile, BadInput, BadName
from kingdom.mq.mailbox_folders import LARGEST_REQUEST, check_client_id, check_request_id

_CHECKS: Mapping[str, Callable[[object], str]] = {"requestId": check_request_id, "clientId": check_client_id}
_HIDDEN_NAME = re.compile(r"\.\w{1,64}", re.ASCII)
_SALVAGE = 1 << 16
"""Bytes of a broken request in which the names of its sender are looked for."""


class Sender(NamedTuple):
    """Who owns the file that a request was read from."""

    uid: int
    #: How many names the file has: somebody may have given one to a file of another user.
    links: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        return cls(status.st_uid, status.st_nlink)


class MailboxRequest(NamedTuple):
    filename: str
    #: Which file of that name it is: a client may use the name again as soon as it has its answer.
    identity: FileIdentity
    id: str
    client: str
    #: The command's name, in any spelling.
    command: str
    payload: Mapping[str, Any]
    #: When it shall no longer be carried out, ms since the epoch; 0: never.
    deadline_ms: float
    sender: Sender
    #: What its client holds a lock on while it lives, by its name in the client's folder; empty when it does not say.
    locked: str = ""


class Unreadable(BadInput):
    """{why}"""

    # `request_id` and `client`, where they are known: then the sender can be told. `sender`, once the file was read.

    def __init__(
        self, code: str, why: str, request_id: str | None, client: str | None, sender: Sender | None = None
    ) -> None:
        super().__init__(why=why)
        self.sender = sender
        self.code = code
        self.why = why
        self.request_id = request_id
        self.client = client


def read(folder: str, filename: str) -> MailboxRequest:
    """Return the request in a file. FileNotFoundError: its client removed it; Unreadable: it is not a request."""
    try:
        data, status = read_with_status(f"{folder}/{filename}", LARGEST_REQUEST)
    except BadFile as error:
        raise Unreadable("ERR_PARSE_ERROR", str(error.facts["why"]), None, None) from None
    try:
        value = _as_our_clients_write(data) or parse_json(data)
    except ValueError as error:
        raise Unreadable("ERR_PARSE_ERROR", str(error), *_salvaged(data), Sender.of(status)) from None
    if not isinstance(value, dict):
        raise Unreadable("ERR_PARSE_ERROR", f"{json_kind(value)}, not an object", None, None)
    return _validated(filename, status, value)


def _as_our_clients_write(data: bytes) -> Any:
    """Return the content of a file that the fast reader would write again byte for byte: then it has no duplicate
    keys and nothing unusual, and few brackets cannot be nested deeply. None: the strict reader must judge."""
    if data.count(b"[") + data.count(b"{") > DEEPEST:
        return None
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE) == data else None


def _validated(filename: str, status: os.stat_result, value: dict[str, Any]) -> MailboxRequest:
    identity, sender = FileIdentity.of(status), Sender.of(status)
    request_id, client = _name(value, "requestId"), _name(value, "clientId")
    command, payload = value.get("command"), value.get("payload")
    deadline = value.get("deadlineMs")
    wrong = ""
    if not filename.endswith(".json"):
        wrong = "the file's name does not end in .json"
    elif request_id is None or client is None:
        wrong = _name_error(value)
    elif not isinstance(command, str):
        wrong = "command is missing or not a text"
    elif not (deadline is None or _is_number(deadline)):
        wrong = "deadlineMs is not a number"
    elif not _is_number(value.get("timestampMs", 0)):
        wrong = "timestampMs is not a number"
    else:
        # Original clients write null where a command has no fields.
        given = payload if isinstance(payload, dict) else {}
        locked = _hidden_name(value)
        return MailboxRequest(filename, identity, request_id, client, command, given, deadline or 0, sender, locked)
    raise Unreadable("ERR_INVALID_REQUEST", wrong, request_id, client, sender)


def _hidden_name(value: Mapping[str, Any]) -> str:
    name = value.get("aliveWhileLocked")
    return name if isinstance(name, str) and _HIDDEN_NAME.fullmatch(name) else ""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _name(value: Mapping[str, Any], key: str) -> str | None:
    try:
        return _CHECKS[key](value.get(key))
    except BadName:
        return None


def _name_error(value: Mapping[str, Any]) -> str:
    for key, check in _CHECKS.items():
        if key not in value:
            return f"{key} is missing"
        try:
            check(value[key])
        except BadName as error:
            return str(error)
    raise AssertionError("both names are good")


def _salvaged(data: bytes) -> tuple[str | None, str | None]:
    """Return requestId and clientId of a broken request, so that its sender is told instead of left waiting."""
    text = data[:_SALVAGE].decode("utf-8", "replace")
    return _found(text, "requestId"), _found(text, "clientId")


def _found(text: str, key: str) -> str | None:
    hits = set(re.findall(rf'"{key}"\s*:\s*"([^"\\]*)"', text))
    return _name({key: hits.pop()}, key) if len(hits) == 1 else None
