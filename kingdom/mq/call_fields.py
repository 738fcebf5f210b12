"""The fields of a call's payload: each has its name, its type and its default here, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kingdom.base.disk.codec import json_kind
from kingdom.base.durations import LONGEST_MS, in_ms
from kingdom.mq.errors import InvalidRequest, Refusal
from kingdom.mq.message_format import REASON_CODES, Draft
from kingdom.mq.names import HIGHEST
from kingdom.mq.rights import Rights

Data = dict[str, Any]
Payload = Mapping[str, Any]
T = TypeVar("T")

LARGEST_BATCH = 10_000
_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """One field of a payload."""

    name: str

    def read(self, payload: Payload) -> T:
        """Return the field's value; InvalidRequest when it is missing or of another type."""
        raise NotImplementedError

    def _refusal(self, why: str) -> InvalidRequest:
        return InvalidRequest(field=self.name, why=why)


@dataclass(slots=True)
class Call:
    """Who asks what. (Not frozen, which costs µs: each ack of a batch is a call.)"""

    #: The values that the caller gave, by field name.
    payload: Payload
    #: The client that asks; it is the consumer when no other is named.
    client: str
    #: A call with the same request id may come again, and then changes nothing.
    request_id: str = ""
    #: Whether a manager that was killed before it could answer may have carried it out already.
    again: bool = False
    #: What the client may do, of one that belongs to another user; None: everything.
    rights: Rights | None = None

    def __getitem__(self, field: Field[T]) -> T:
        return field.read(self.payload)

    @property
    def consumer(self) -> str:
        """Return the consumer: the client itself, unless it may name another."""
        named = self[CONSUMER]
        return named if named and self.rights is None else self.client


@dataclass(frozen=True, slots=True)
class Text(Field[str]):
    #: None: the field must be given, and not be empty.
    default: str | None = None

    def read(self, payload: Payload) -> str:
        value = payload.get(self.name, self.default)
        if isinstance(value, str):
            if not value and self.default is None:
                raise self._refusal("is empty")
            return value
        if value is not None:
            raise self._refusal(f"is {json_kind(value)}, not a text")
        if self.default is None:
            raise self._refusal("is missing")
        return self.default


@dataclass(frozen=True, slots=True)
class Choice(Text):
    #: The words that may be given.
    among: tuple[str, ...] = ()

    def read(self, payload: Payload) -> str:
        value = Text.read(self, payload)
        if value != self.default and value not in self.among:
            raise self._refusal(f"is {value[:40]!r}; known are {', '.join(self.among)}")
        return value


@dataclass(frozen=True, slots=True)
class Duration(Field[int]):
    """A number in the unit that the field's name says, or a text with its unit; read as milliseconds."""

    unit: str
    #: Whether what is below zero counts as zero.
    clamped: bool = False

    def read(self, payload: Payload) -> int:
        value = payload.get(self.name)
        if value is None:
            return 0
        if type(value) is int and self.unit == "ms" and 0 <= value <= LONGEST_MS:
            return value
        ms = self.exact(value)
        if ms < 0 and not self.clamped:
            raise self._refusal(f"is {value}, out of range")
        return max(0, int(ms))

    def exact(self, value: object) -> float:
        """Return a value of this field in milliseconds, or refuse it."""
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise self._refusal(f"is {json_kind(value)}, not a time")
        try:
            return in_ms(value, self.unit)
        except ValueError as error:
            raise self._refusal(str(error)) from None


@dataclass(frozen=True, slots=True)
class Whole(Field[int]):
    default: int
    lowest: int = 0
    highest: int = 10**15

    def read(self, payload: Payload) -> int:
        value = payload.get(self.name, self.default)
        if type(value) is not int:  # and no bool
            if value is None:
                return self.default
            if not isinstance(value, float) or not value.is_integer():
                raise self._refusal(f"is {json_kind(value)}, not a whole number")
            value = int(value)
        if not self.lowest <= value <= self.highest:
            raise self._refusal(f"is {value}, out of range")
        return value


@dataclass(frozen=True, slots=True)
class Priority(Whole):
    """What is beyond the highest and lowest priorities that messages have counts as these."""

    def read(self, payload: Payload) -> int:
        return max(-HIGHEST, min(HIGHEST, Whole.read(self, payload)))


@dataclass(frozen=True, slots=True)
class Flag(Field[bool]):
    default: bool = False

    def read(self, payload: Payload) -> bool:
        value = payload.get(self.name, self.default)
        if value is None:
            return self.default
        if not isinstance(value, bool):
            raise self._refusal(f"is {json_kind(value)}, not true or false")
        return value


@dataclass(frozen=True, slots=True)
class Objects(Field[list[Payload]]):
    """A batch: a list of objects, not empty and not too long."""

    def read(self, payload: Payload) -> list[Payload]:
        value = payload.get(self.name)
        if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
            raise self._refusal("must be a list of objects")
        if not 0 < len(value) <= LARGEST_BATCH:
            raise self._refusal(f"holds {len(value)} items; 1 to {LARGEST_BATCH} are taken at once")
        return value


@dataclass(frozen=True, slots=True)
class Texts(Field[list[str]]):
    """A list of texts, not too long; none when it is not given."""

    def read(self, payload: Payload) -> list[str]:
        value = payload.get(self.name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise self._refusal("must be a list of texts")
        if len(value) > LARGEST_BATCH:
            raise self._refusal(f"holds {len(value)} items; up to {LARGEST_BATCH} are taken at once")
        return value


@dataclass(frozen=True, slots=True)
class Json(Field[str]):
    """A text that is taken as it is, or any other JSON value, which is written as text."""

    default: str
    #: What null means; None: the default.
    null: str | None = None

    def read(self, payload: Payload) -> str:
        value = payload.get(self.name, self.default)
        if value is None:
            return self.default if self.null is None else self.null
        if isinstance(value, str):
            return value
        try:
            return _ENCODE(value)
        except RecursionError:
            raise self._refusal("is nested too deeply") from None


@dataclass(frozen=True, slots=True)
class Visibility(Field[int | None]):
    """Seconds, or a text with its unit; read as milliseconds, None when the queue's own time-out holds."""

    def read(self, payload: Payload) -> int | None:
        value = payload.get(self.name)
        if value is None:
            return None
        ms = Duration(self.name, "s").exact(value)
        if ms <= 0:
            raise self._refusal("must be more than 0")
        return max(1, int(ms))


QUEUE = Text("queue")
CONSUMER = Text("consumerId", "")
VISIBILITY = Visibility("visibilityTimeoutSec")
WAIT = Duration("waitMs", "ms")
LIMIT = Whole("limit", 100, 1, LARGEST_BATCH)

MESSAGE = Json("message", "{}", "null")
ATTRIBUTES = Json("attributes", "{}")
PRIORITY = Priority("priority", 0, -(2**31), 2**31 - 1)
DELAY = Duration("delayMs", "ms", clamped=True)
TIME_TO_LIVE = Duration("ttlSec", "s")
TYPE = Text("type", "")
TRACE_ID = Text("traceId", "")
DEDUPLICATION_KEY = Text("deduplicationKey", "")
TARGET = Text("targetConsumerId", "")
MESSAGES = Objects("messages")

MESSAGE_KEY = Text("messageKey")
LEASE_ID = Text("leaseId", "")
REASON = Text("reason", "")
REQUEUE = Flag("requeue")
ACKS = Objects("acks")

PEEK_LIMIT = Whole("limit", 10, 1, LARGEST_BATCH)
DEAD_LETTERS = Flag("dlq")
OLDER_THAN = Duration("olderThanMs", "ms")
UNTIL = Whole("until", 0)
ARCHIVE = Flag("archive")
TO = Text("to")
HOLDER = Text("holder")
MESSAGE_KEYS = Texts("messageKeys")
END = Flag("end")

MESSAGE_ID = Text("messageId")
PAYLOAD = Json("payload", "{}", "null")
AVAILABLE_AT = Whole("availableAt", 0)
EXPIRES_AT = Whole("expiresAt", 0)
SINCE = Duration("sinceMs", "ms")
REASON_CODE = Choice("reasonCode", "", REASON_CODES)
NO_MORE_THAN = Whole("limit", 0)
QUARANTINED = Flag("quarantined", True)

DRAFT: tuple[Field[Any], ...] = (
    MESSAGE,
    ATTRIBUTES,
    PRIORITY,
    DELAY,
    TIME_TO_LIVE,
    TARGET,
    DEDUPLICATION_KEY,
    TYPE,
    TRACE_ID,
)
PLAIN = {QUEUE.name, MESSAGE.name}
"""The fields of a message with nothing but content: most have no others, and reading nine takes longer than two."""


def draft(payload: Payload) -> Draft:
    """Return the message that a publisher wants sent."""
    if payload.keys() <= PLAIN:
        return Draft(MESSAGE.read(payload))
    return Draft(
        payload=MESSAGE.read(payload),
        attributes=ATTRIBUTES.read(payload),
        priority=PRIORITY.read(payload),
        delay_ms=DELAY.read(payload),
        ttl_ms=TIME_TO_LIVE.read(payload),
        type=TYPE.read(payload),
        trace_id=TRACE_ID.read(payload),
        dedup_key=DEDUPLICATION_KEY.read(payload),
        target=TARGET.read(payload),
    )


def draft_or_refusal(payload: Payload) -> Draft | Refusal:
    """Return the message of one entry of a batch, or why it cannot be sent."""
    try:
        return draft(payload)
    except Refusal as refusal:
        return refusal


def refuse_given(call: Call, fields: Iterable[Field[Any]], why: str) -> None:
    """Refuse fields that do not apply: ignored, they would let a call do more than its caller wants."""
    for field in fields:
        value = call.payload.get(field.name)
        if value is not None and value is not False:
            raise InvalidRequest(field=field.name, why=why)


def refuse_unknown(call: Call, fields: Iterable[Field[Any]], also: Iterable[str] = ()) -> None:
    """Refuse fields that the call does not have: one that deletes must not pass over a misspelt condition."""
    known = {*(field.name for field in fields), *also}
    for name in call.payload:
        if name not in known:
            raise InvalidRequest(field=str(name)[:80], why=f"is unknown here; known are {', '.join(sorted(known))}")


def by_key(call: Call) -> bool:
    """Return whether a call names a message by its key alone."""
    return not call[LEASE_ID] and not call[CONSUMER]


def holder(call: Call) -> tuple[str, str]:
    """Return lease id and consumer. The lease id says enough; without one the caller must hold the message."""
    lease_id = call[LEASE_ID]
    return lease_id, "" if lease_id and not call[CONSUMER] else call.consumer
