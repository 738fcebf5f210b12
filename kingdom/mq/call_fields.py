"""The fields of a call's payload: each has its name, its type and its default here, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kingdom.mq.errors import InvalidRequest, Refusal
from kingdom.mq.message_format import Draft

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


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks what."""

    #: The values that the caller gave, by field name.
    payload: Payload
    #: The client that asks; it is the consumer when no other is named.
    client: str
    #: A call with the same request id may come again, and then changes nothing.
    request_id: str = ""
    #: Whether a manager that was killed before it could answer may have carried it out already.
    again: bool = False
    #: For a call that takes several turns: how much the turns before this one have done.
    done: int = 0

    def __getitem__(self, field: Field[T]) -> T:
        return field.read(self.payload)


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
            raise self._refusal(f"is a {type(value).__name__}, not a text")
        if self.default is None:
            raise self._refusal("is missing")
        return self.default


@dataclass(frozen=True, slots=True)
class Number(Field[float]):
    default: float

    def read(self, payload: Payload) -> float:
        value = payload.get(self.name, self.default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._refusal(f"is a {type(value).__name__}, not a number")
        if not 0 <= value < 1e12:
            raise self._refusal(f"is {value}, out of range")
        return value


@dataclass(frozen=True, slots=True)
class Whole(Field[int]):
    default: int
    #: None: as far below zero as `highest` is above.
    lowest: int | None = 0
    highest: int = 10**15

    def read(self, payload: Payload) -> int:
        value = payload.get(self.name, self.default)
        if type(value) is not int:  # and no bool
            raise self._refusal(f"is a {type(value).__name__}, not a whole number")
        lowest = -self.highest if self.lowest is None else self.lowest
        if not lowest <= value <= self.highest:
            raise self._refusal(f"is {value}, out of range")
        return value


@dataclass(frozen=True, slots=True)
class Flag(Field[bool]):
    default: bool = False

    def read(self, payload: Payload) -> bool:
        value = payload.get(self.name, self.default)
        if not isinstance(value, bool):
            raise self._refusal(f"is a {type(value).__name__}, not true or false")
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
class Json(Field[str]):
    """A text that is taken as it is, or any other JSON value, which is written as text."""

    #: None: the field must be given.
    default: str | None = None

    def read(self, payload: Payload) -> str:
        value = payload.get(self.name, self.default)
        if value is None and self.default is None and self.name not in payload:
            raise self._refusal("is missing")
        if isinstance(value, str):
            return value
        try:
            return _ENCODE(value)
        except RecursionError:
            raise self._refusal("is nested too deeply") from None


@dataclass(frozen=True, slots=True)
class Visibility(Field[int | None]):
    """Seconds as people give them; read as milliseconds, None when the queue's own time-out holds."""

    def read(self, payload: Payload) -> int | None:
        if payload.get(self.name) is None:
            return None
        seconds = Number(self.name, 0).read(payload)
        if seconds <= 0:
            raise self._refusal("must be more than 0")
        return max(1, int(seconds * 1000))


QUEUE = Text("queue")
CONSUMER = Text("consumerId", "")
VISIBILITY = Visibility("visibilityTimeoutSec")
WAIT = Whole("waitMs", 0)
LIMIT = Whole("limit", 100, 1, LARGEST_BATCH)

MESSAGE = Json("message")
ATTRIBUTES = Json("attributes", "{}")
PRIORITY = Whole("priority", 0, None)
DELAY = Whole("delayMs", 0)
TIME_TO_LIVE = Number("ttlSec", 0)
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
OLDER_THAN = Whole("olderThanMs", 0)
ARCHIVE = Flag("archive")
SINCE = Whole("sinceMs", 0)
REASON_CODE = Text("reasonCode", "")
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


def draft(payload: Payload) -> Draft:
    """Return the message that a publisher wants sent."""
    return Draft(
        payload=MESSAGE.read(payload),
        attributes=ATTRIBUTES.read(payload),
        priority=PRIORITY.read(payload),
        delay_ms=DELAY.read(payload),
        ttl_ms=int(TIME_TO_LIVE.read(payload) * 1000),
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


def holder(call: Call) -> tuple[str, str]:
    """Return lease id and consumer. The lease id says enough; without one the caller must hold the message."""
    lease_id = call[LEASE_ID]
    return lease_id, call[CONSUMER] or ("" if lease_id else call.client)
