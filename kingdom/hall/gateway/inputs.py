"""Read what requests and sockets bring: every text is checked here, and trusted afterwards."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect, Request

from kingdom.base.disk.codec import parse_json
from kingdom.base.errors import BadName
from kingdom.base.home.places import check_name
from kingdom.hall.database import passwords
from kingdom.hall.database.ids import is_ulid
from kingdom.hall.database.records import unfit_content
from kingdom.hall.gateway.orders import ACTIONS
from kingdom.hall.gateway.refusals import HttpRefusal, invalid

LARGEST_BODY = 64 << 10
MOST_MESSAGES = 100
USUAL_MESSAGES = 50
LONGEST_QUERY = 100
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+\Z")
NAME = re.compile(r"[^\u0000-\u001F\u007F-\u009F\u2028-\u202E\u2066-\u2069]*\Z")
BLANKS = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and signs by their category that nobody sees, such as the Hangul filler."""
LONGEST_EMAIL = 254
SENT_TYPES = ("TEXT", "IMAGE")
Json = dict[str, Any]


class InputField(NamedTuple):
    """What a field of a body must be: for the check of a request, and for the description of the operation."""

    #: Returns what is wrong with a value, or "".
    check: Callable[[Any], str]
    schema: Json
    is_needed: bool = True


Fields = Mapping[str, InputField]


class Page(NamedTuple):
    """Which messages of a room are asked for."""

    limit: int
    before: str | None
    after: str | None


class SearchQuery(NamedTuple):
    """What is looked for."""

    text: str
    #: None: in all rooms of who asks.
    room: str | None
    before: str | None
    limit: int


class Sent(NamedTuple):
    """A message as its sender gave it."""

    room: str
    client_msg_id: str
    type: str
    content: str


async def body(request: Request, fields: Fields) -> dict[str, Any]:
    """Return the checked fields of a JSON body; other fields are ignored."""
    value = await _json(request)
    errors = [(name, why) for name, field in fields.items() if (why := field.check(value.get(name)))]
    if errors:
        raise invalid(*errors)
    return {name: value.get(name) for name in fields}


async def _json(request: Request) -> dict[str, Any]:
    raw = await _raw(request)
    try:
        value = parse_json(raw) if raw.strip() else {}
    except ValueError as error:
        raise invalid(("", f"Not JSON: {error}")) from None
    if not isinstance(value, dict):
        raise invalid(("", "Expected an object"))
    return value


async def _raw(request: Request) -> bytes:
    raw = bytearray()
    try:
        async for part in request.stream():
            raw += part
            if len(raw) > LARGEST_BODY:
                raise HttpRefusal(413, f"The body is larger than {LARGEST_BODY} bytes")
    except ClientDisconnect:
        raise HttpRefusal(400, "The request was not sent whole") from None
    return bytes(raw)


def _text(least: int, most: int) -> InputField:
    """Return a text of so many characters."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            return "Required" if value is None else "Expected a string"
        if not least <= len(value) <= most:
            return f"Must have {least} to {most} characters"
        return "Must not hold U+0000" if "\0" in value else ""

    return InputField(check, {"type": "string", "minLength": least, "maxLength": most, "pattern": r"^[^\u0000]*$"})


def _room_name() -> InputField:
    whole = _text(1, 100)

    def check(value: Any) -> str:
        misleads = "Must not hold control characters or such as change the direction of text"
        if why := whole.check(value) or ("" if NAME.match(value) else misleads):
            return why
        return "" if any(map(_is_seen, value)) else "Must not look empty"

    return InputField(check, {**whole.schema, "pattern": _pattern(NAME)})


def _is_seen(character: str) -> bool:
    return character not in BLANKS and unicodedata.category(character)[0] not in "CMZ"


def _or_none(field: InputField) -> InputField:
    """Return a field that may be left out or null."""
    schema = {"anyOf": [field.schema, {"type": "null"}]}
    return InputField(lambda value: "" if value is None else field.check(value), schema, is_needed=False)


def _email(value: Any) -> str:
    if not isinstance(value, str):
        return "Required" if value is None else "Expected a string"
    return "" if len(value) <= LONGEST_EMAIL and EMAIL.match(value) else "Invalid email"


def cursor(value: Any) -> str:
    """Return what is wrong with the id of a message, or ""."""
    if not isinstance(value, str):
        return "Required" if value is None else "Expected a string"
    return "" if is_ulid(value) else "Expected 26 upper-case Crockford characters"


def _one_of(*words: str) -> InputField:
    return InputField(
        lambda value: "" if value in words else f"Must be one of {', '.join(words)}", {"enum": list(words)}
    )


def name(value: object) -> str:
    """Return what keeps a value from being the name of a file in a queue, or ""."""
    try:
        check_name("id", value)
    except BadName as error:
        return str(error)
    return ""


def _pattern(expression: re.Pattern[str]) -> str:
    return f"^{expression.pattern}".replace("\\Z", "$")


ADDRESS = InputField(_email, {"type": "string", "maxLength": LONGEST_EMAIL, "pattern": _pattern(EMAIL)})
CURSOR = InputField(cursor, {"type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"})
FILE = InputField(name, {"type": "string", "pattern": "^[A-Za-z0-9_:@+-][A-Za-z0-9._:@+-]{0,199}$"})
INVITE = _or_none(_text(1, 100))
NEW_PASSWORD = _text(passwords.LONG_ENOUGH, passwords.LONGEST)
# What may be tried at a login: imported accounts may have what nobody can register with now.
TRIED_EMAIL, TRIED_PASSWORD = _text(1, 320), _text(1, 100)
SEARCHED = _text(1, LONGEST_QUERY)
REGISTRATION: Fields = {"email": ADDRESS, "password": NEW_PASSWORD, "invite": INVITE}
CREDENTIALS: Fields = {"email": TRIED_EMAIL, "password": TRIED_PASSWORD}
CHANGED_PASSWORD: Fields = {"current": TRIED_PASSWORD, "new": NEW_PASSWORD}
NEW_ROOM: Fields = {"name": _room_name()}
JOINING: Fields = {"invite": INVITE}
READ_MARK: Fields = {"lastReadMessageId": CURSOR}
KINGDOM_ORDER: Fields = {"action": _one_of(*ACTIONS), "target": FILE}


def path_id(request: Request) -> str:
    """Return the room, or the session, that the path names, in lower case."""
    given: str = request.path_params["id"]
    if not UUID.match(given):
        raise HttpRefusal(400, "Validation failed (uuid is expected)")
    return given.lower()


def path_cursor(request: Request) -> str:
    """Return the message that the path names."""
    given: str = request.path_params["message"]
    if not is_ulid(given):
        raise HttpRefusal(400, "Validation failed (ulid is expected)")
    return given


def page(request: Request) -> Page:
    """Return which messages the query asks for."""
    given, errors = _query(request, "limit", "before", "after")
    limit = _limit(given["limit"], errors)
    errors += [(name, why) for name in ("before", "after") if given[name] is not None and (why := cursor(given[name]))]
    if errors:
        raise invalid(*errors)
    return Page(limit, given["before"], given["after"])


def search(request: Request) -> SearchQuery:
    """Return what the query looks for."""
    given, errors = _query(request, "q", "room", "before", "limit")
    limit = _limit(given["limit"], errors)
    errors += [("q", why)] if (why := SEARCHED.check(given["q"])) else []
    if given["room"] is not None and not UUID.match(given["room"]):
        errors.append(("room", "Expected a UUID"))
    if given["before"] is not None and (why := cursor(given["before"])):
        errors.append(("before", why))
    if errors:
        raise invalid(*errors)
    room = None if given["room"] is None else given["room"].lower()
    return SearchQuery(str(given["q"]), room, given["before"], limit)


def _query(request: Request, *names: str) -> tuple[dict[str, str | None], list[tuple[str, str]]]:
    """Return these parts of the query, and an error for each that is given twice."""
    found = {name: request.query_params.getlist(name) for name in names}
    errors = [(name, "Must be given once") for name, values in found.items() if len(values) > 1]
    return {name: values[0] if values else None for name, values in found.items()}, errors


def _limit(given: str | None, errors: list[tuple[str, str]]) -> int:
    limit = USUAL_MESSAGES
    if given is not None:
        if re.fullmatch(r"[1-9][0-9]{0,2}", given, re.ASCII) and int(given) <= MOST_MESSAGES:
            limit = int(given)
        else:
            errors.append(("limit", f"Must be a whole number from 1 to {MOST_MESSAGES}"))
    return limit


def sent(value: object) -> Sent | None:
    """Return the message in the payload of a `sendMessage`, or None when there is none."""
    if not isinstance(value, dict):
        return None
    room, client_msg_id, content = value.get("roomId"), value.get("clientMsgId"), value.get("content")
    type_ = value.get("type", "TEXT")
    if not isinstance(content, str) or unfit_content(content) or type_ not in SENT_TYPES:
        return None
    if not is_uuid(room) or not is_uuid(client_msg_id):
        return None
    return Sent(str(room).lower(), str(client_msg_id), type_, content)


def is_uuid(value: object) -> bool:
    """Return whether a value is a UUID as text."""
    return isinstance(value, str) and UUID.match(value) is not None
