"""A message as published: one JSON object, header first, the payload last and word for word as it came.

The layout is fixed, so that the payload is cut out and put in without being parsed and written again.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from kingdom.base.disk.codec import parse_json
from kingdom.mq import names
from kingdom.mq.errors import InvalidRequest

_START = '{\n  "messageId": "'
_ATTRIBUTES = '\n  "attributes": '
_PAYLOAD = ',\n  "payload": '
_TEXT = ',\n  "payloadIsText": true'
_FAILURE = '{\n  "failure": '
_ORIGINAL = ',\n  "originalMessage": '
_END = "\n}\n"
_PLAIN_LABELS = ',\n  "type": "",\n  "version": 1,\n  "traceId": "",\n  "deduplicationKey": "",\n  "priority": '
_PLAIN_END = ',\n  "expiresAt": null,\n  "targetConsumerId": ""'
_SKIP_ATTRIBUTES, _SKIP_PAYLOAD = len(_ATTRIBUTES), len(_PAYLOAD)


class Draft(NamedTuple):
    """What a publisher wants sent. (A named tuple, as all records of the hot path: a frozen dataclass costs µs.)"""

    payload: str
    attributes: str = "{}"
    priority: int = 0
    delay_ms: int = 0
    ttl_ms: int = 0
    type: str = ""
    version: int = 1
    trace_id: str = ""
    dedup_key: str = ""
    target: str = ""


class Content(NamedTuple):
    """What a consumer gets of a body."""

    payload: str
    attributes: str


class MalformedBody(Exception):
    """A body that is no message."""

    def __init__(self, why: str, text: str = "") -> None:
        super().__init__(why)
        #: What is wrong with it.
        self.why = why
        #: The body as far as it can be shown, when the store could not read it as text.
        self.text = text


def decoded(data: bytes) -> str:
    """Return a body as text. MalformedBody when it is none."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedBody(f"not UTF-8 at byte {error.start}", data.decode("utf-8", "replace")) from None


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def stamp(now: int) -> str:
    return f"{_second(now // 1000)}Z"


def quoted(text: str) -> str:
    return orjson.dumps(text).decode() if text else '""'


def whole_text(field: str, text: str) -> str:
    """Return text that any file can hold, or raise InvalidRequest."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequest(field=field, why="a lone surrogate, which is no character") from None
    return text


def is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


class Labels(NamedTuple):
    """What a publisher said of a message besides payload, attributes and priority."""

    type: str = ""
    trace_id: str = ""
    dedup_key: str = ""
    #: The only consumer that may have it.
    target: str = ""
    #: In ms since the epoch; 0 when it does not expire.
    expires: int = 0


NO_LABELS = Labels()


def labels(body: str) -> Labels:
    """Return what a body says of its message, a dead letter's as well. Empty where it does not say."""
    start = body[:700]
    if _PLAIN_LABELS in start and _PLAIN_END in start and not start.startswith(_FAILURE):
        return NO_LABELS
    about = header(body)
    return Labels(
        _text(about.get("type")),
        _text(about.get("traceId")),
        _text(about.get("deduplicationKey")),
        _text(about.get("targetConsumerId")),
        max(0, _whole(about.get("expiresAt"))),
    )


def head(draft: Draft, quoted_queue: str, now: int, due: int, expires: int) -> str:
    """Write the header between message id and request: the same for all alike of a millisecond."""
    return (
        f'",\n  "timestamp": "{_second(now // 1000)}Z",\n  "queue": {quoted_queue},'
        f'\n  "type": {quoted(draft.type)},\n  "version": {draft.version},\n  "traceId": {quoted(draft.trace_id)},'
        f'\n  "deduplicationKey": {quoted(draft.dedup_key)},\n  "priority": {draft.priority},\n  "attempt": 0,'
        f'\n  "createdAt": {now},\n  "availableAt": {due},\n  "expiresAt": {expires or "null"},'
        f'\n  "targetConsumerId": {quoted(draft.target)}'
    )


def write(message_id: str, head: str, request: str, attributes: str, payload: str) -> str:
    """Write a body. `payload` is the JSON to splice in; `request` more header lines, or nothing."""
    return f"{_START}{message_id}{head}{request},{_ATTRIBUTES}{attributes}{_PAYLOAD}{payload}{_END}"


def request_line(request_id: str, request_key: str, index: int) -> str:
    return f',\n  "requestId": {quoted(request_id)},\n  "requestKey": "{request_key}",\n  "requestIndex": {index}'


def spliced(draft: Draft) -> tuple[str, str]:
    """Return the payload as JSON, and the header line that says it came as plain text, if it did."""
    try:
        orjson.loads(draft.payload)
    except orjson.JSONDecodeError:
        return quoted(whole_text("message", draft.payload)), _TEXT
    return draft.payload, ""


def checked_attributes(attributes: str) -> str:
    """Return attributes as a JSON object on one line, or raise InvalidRequest."""
    if attributes == "{}" or not attributes:
        return "{}"
    try:
        value = orjson.loads(attributes)
    except orjson.JSONDecodeError:
        raise InvalidRequest(field="attributes", why="not JSON") from None
    if not isinstance(value, dict):
        raise InvalidRequest(field="attributes", why="not a JSON object")
    return orjson.dumps(value).decode() if "\n" in attributes else attributes


def content(body: str, doubt: bool) -> Content:
    """Return payload and attributes, or raise MalformedBody.

    With doubt (a person may have edited the body) the JSON in it is parsed.
    """
    at = body.find(_ATTRIBUTES)
    cut = body.find(_PAYLOAD, at)
    if at < 0 or cut < 0 or body[-3:] != _END:
        return _foreign(body)
    attributes, payload = body[at + _SKIP_ATTRIBUTES : cut], body[cut + _SKIP_PAYLOAD : -3]
    if doubt and not (is_json(payload) and (attributes == "{}" or is_json(attributes))):
        return _foreign(body)
    if body[at - 2] == "e" and body.startswith(_TEXT, at - 1 - len(_TEXT)):
        payload = orjson.loads(payload)
    return Content(payload, attributes)


def _foreign(body: str) -> Content:
    """Return what was laid in by hand: an envelope in another layout, a dead letter or a bare payload."""
    value = _strict(body)
    if isinstance(value, dict) and {"failure", "originalMessage"} <= value.keys():
        return content(original(body), True)
    if not is_envelope(value):
        return Content(body.strip(), "{}")
    payload, attributes = value["payload"], value.get("attributes", {})
    if not isinstance(attributes, dict):
        attributes = _loads_object(attributes)
        if isinstance(payload, str):
            return Content(payload, orjson.dumps(attributes).decode())
    if value.get("payloadIsText") is True and isinstance(payload, str):
        return Content(payload, orjson.dumps(attributes).decode())
    return Content(orjson.dumps(payload).decode(), orjson.dumps(attributes).decode())


def is_envelope(value: Any) -> bool:
    return isinstance(value, dict) and "payload" in value


def _loads_object(text: object) -> dict[str, Any]:
    """Return an object that older envelopes hold as a JSON text."""
    try:
        value = orjson.loads(text or "{}") if isinstance(text, str) else None
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise MalformedBody("attributes is no JSON object")
    return value


def _strict(body: str) -> Any:
    try:
        return parse_json(body.encode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise MalformedBody(str(error)) from None


def header(body: str) -> dict[str, Any]:
    """Return all of the envelope, also that in a dead letter, but payload and attributes. Empty for a bare payload."""
    if is_dead_letter(body):
        try:
            body = original(body)
        except MalformedBody:
            return {}
    at = body.find("," + _ATTRIBUTES)
    if at > 0 and body.endswith(_END):
        try:
            value = orjson.loads(body[:at] + "}")
        except orjson.JSONDecodeError:
            value = None
    else:
        value = None
    if value is None:
        try:
            value = _strict(body)
        except MalformedBody:
            return {}
        if not is_envelope(value):
            return {}
        value = {key: part for key, part in value.items() if key not in ("payload", "attributes")}
    return dict(value)


REASON_CODES = ("VALIDATION_ERROR", "HANDLER_ERROR", "TIMEOUT", "RETRY_EXCEEDED", "POISON")


class Failure(NamedTuple):
    #: One of REASON_CODES.
    code: str
    message: str
    at: int
    attempt: int
    consumer: str


def is_dead_letter(body: str) -> bool:
    """Return whether this is a dead letter as `dead` writes it."""
    return body.startswith(_FAILURE) and _ORIGINAL in body


def dead(body: str, failure: Failure, queue: str, dlq: str) -> str:
    """Write a dead letter, with the message in it word for word (as a text, when it is no JSON)."""
    if is_dead_letter(body):  # it was one before, and was moved to another queue
        with suppress(MalformedBody):
            body = original(body)
    about = {
        "reasonCode": failure.code,
        "reasonMessage": failure.message,
        "failedAt": stamp(failure.at),
        "attempt": failure.attempt,
        "consumerId": failure.consumer,
    }
    routing = {"sourceQueue": queue, "dlqQueue": dlq}
    message = body.strip() if is_json(body) else quoted(body.encode("utf-8", "replace").decode())
    return (
        f'{_FAILURE}{orjson.dumps(about).decode()},\n  "routing": {orjson.dumps(routing).decode()}'
        f"{_ORIGINAL}{message}{_END}"
    )


def original(record: str) -> str:
    """Return the body that died, or raise MalformedBody."""
    cut = record.find(_ORIGINAL)
    if record.startswith(_FAILURE) and cut > 0 and record.endswith(_END):
        text = record[cut + len(_ORIGINAL) : -len(_END)]
        if text.startswith('"'):
            return str(orjson.loads(text))
        return f"{text}\n"
    value = _strict(record)
    if is_envelope(value) and "originalMessage" not in value:
        if "dlqReason" not in value and "dlqAt" not in value:
            return record
        return orjson.dumps({key: part for key, part in value.items() if key not in ("dlqReason", "dlqAt")}).decode()
    if not isinstance(value, dict) or "originalMessage" not in value:
        raise MalformedBody("no originalMessage in it")
    inner = value["originalMessage"]
    return inner if isinstance(inner, str) else orjson.dumps(inner).decode()


def failure_of(record: str) -> dict[str, Any]:
    """Return the failure part of a dead letter; empty when a person damaged it."""
    line_end = record.find("\n", len(_FAILURE))
    try:
        if record.startswith(_FAILURE):
            value = orjson.loads(record[len(_FAILURE) : line_end].rstrip(","))
        else:
            about = _strict(record)
            value = {"reasonMessage": about["dlqReason"]} if "dlqReason" in about else about.get("failure")
    except (orjson.JSONDecodeError, MalformedBody, AttributeError):
        return {}
    return value if isinstance(value, dict) else {}


class ToldByHand(NamedTuple):
    """What the header of a file says that somebody laid in; zeros and an empty text where it does not say."""

    priority: int
    #: availableAt, in ms since the epoch.
    due: int
    #: expiresAt, in ms since the epoch.
    expires: int
    #: targetConsumerId.
    target: str
    #: messageId.
    message_id: str


def told_by_hand(body: str) -> ToldByHand:
    """Read the header of a file that somebody laid in; what is out of bounds is brought within."""
    try:
        about = header(body)
    except MalformedBody:
        about = {}
    return ToldByHand(
        max(-names.HIGHEST, min(names.HIGHEST, _whole(about.get("priority")))),
        max(0, min(_whole(about.get("availableAt")), names.LATEST)),
        max(0, min(_whole(about.get("expiresAt")), names.LATEST)),
        _text(about.get("targetConsumerId")),
        _text(about.get("messageId")),
    )


def name_of(body: str, message_id: str) -> str:
    """Return the name under which a body was published."""
    about = told_by_hand(body)
    fields = names.first_fields(about.expires, about.target)
    return names.compose(about.priority, about.due, names.tie_of(message_id), fields, message_id)


def shown_id(name: str, body: str) -> str:
    """Return the message id as its publisher heard it: a message from another system says it itself."""
    if not names.is_foreign(name):
        return name[names.MESSAGE_ID]
    return _text(header(body).get("messageId")) or name[names.MESSAGE_ID]


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
