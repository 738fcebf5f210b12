"""The calls as they travel: a JSON payload in, JSON data out. One function per call.

The mailbox and `yirangmq --direct` answer by these same functions, so that both say the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kingdom.mq.engine import Engine, Leased
from kingdom.mq.engine import Published as Stored
from kingdom.mq.errors import InvalidRequest, MessageNotFound, Refusal
from kingdom.mq.message_format import Draft

Data = dict[str, Any]
Payload = Mapping[str, Any]

LARGEST_BATCH = 10_000
PURGED_AT_ONCE = 10_000
_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks what. A call with a request id may come again, and then changes nothing.

    `again`: it may have been carried out by a manager that was killed before it could say so.
    """

    payload: Payload
    client: str
    request_id: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True)
class Unfinished:
    """So far this much; the call goes on after the next commit."""

    done: int


Answering = Callable[[Engine, Call], Data | Unfinished]


# --- messages


def publish(engine: Engine, call: Call) -> Data:
    stored = engine.publish(_text(call.payload, "queue"), _draft(call.payload), call.request_id)
    return _stored(stored)


def publish_batch(engine: Engine, call: Call) -> Data:
    """Each message for itself: a bad one is refused in its place and does not stop the others."""
    drafts = [_draft_or_refusal(each) for each in _objects(call.payload, "messages")]
    good = [each for each in drafts if isinstance(each, Draft)]
    outcomes = iter(engine.publish_batch(_text(call.payload, "queue"), good, call.request_id) if good else [])
    each_outcome = [next(outcomes) if isinstance(each, Draft) else each for each in drafts]
    return {"messages": [_failed(each) if isinstance(each, Refusal) else _stored(each) for each in each_outcome]}


def consume_next(engine: Engine, call: Call) -> Data:
    wait_ms(call.payload)
    leased = engine.lease(_text(call.payload, "queue"), _consumer(call), 1, _visibility_ms(call.payload))
    return _delivered(leased[0]) if leased else {"message": None}


def consume_batch(engine: Engine, call: Call) -> Data:
    wait_ms(call.payload)
    limit = _whole(call.payload, "limit", 100, 1, LARGEST_BATCH)
    leased = engine.lease(_text(call.payload, "queue"), _consumer(call), limit, _visibility_ms(call.payload))
    return {"messages": [_delivered(each) for each in leased]}


def ack(engine: Engine, call: Call) -> Data:
    _ack(engine, call.payload, call)
    return {}


def ack_batch(engine: Engine, call: Call) -> Data:
    return {"results": [_outcome_of_ack(engine, each, call) for each in _objects(call.payload, "acks")]}


def nack(engine: Engine, call: Call) -> Data:
    lease_id, consumer = _holder(call.payload, call.client)
    reason, requeue = _text(call.payload, "reason", ""), _flag(call.payload, "requeue")
    engine.nack(_text(call.payload, "messageKey"), lease_id, consumer, reason, requeue)
    return {}


def extend_lease(engine: Engine, call: Call) -> Data:
    lease_id, consumer = _holder(call.payload, call.client)
    key, visibility_ms = _text(call.payload, "messageKey"), _visibility_ms(call.payload)
    return {"leaseUntil": engine.extend(key, lease_id, visibility_ms, consumer)}


# --- queues


def status(engine: Engine, call: Call) -> Data:
    found = engine.status(_text(call.payload, "queue"))
    return {
        "queue": found.queue,
        "metrics": {
            "ready": found.ready,
            "inflight": found.inflight,
            "delayed": found.delayed,
            "dlq": found.dlq,
            "oldestAgeMs": found.oldest_age_ms,
            "ratesPerSec": dict(found.rates),
            "failureRate": found.failure_rate,
            "handlingMeanMs": found.handling_mean_ms,
            "handlingP99Ms": found.handling_p99_ms,
        },
        "paused": found.paused,
        "policy": found.policy.to_json(),
    }


def queues(engine: Engine, call: Call) -> Data:
    found = [engine.status(name) for name in engine.queues.names()]
    return {
        "queues": [
            {
                "queue": each.queue,
                "ready": each.ready,
                "inflight": each.inflight,
                "delayed": each.delayed,
                "dlq": each.dlq,
                "paused": each.paused,
            }
            for each in found
        ]
    }


def peek(engine: Engine, call: Call) -> Data:
    queue = _text(call.payload, "queue")
    seen = engine.peek(queue, _whole(call.payload, "limit", 10, 1, LARGEST_BATCH))
    return {
        "queue": queue,
        "messages": [
            {
                "messageId": each.message_id,
                "messageKey": each.message_key,
                "queue": each.queue,
                "payload": each.payload,
                "attributes": each.attributes,
                "priority": each.priority,
                "attempt": each.attempt,
                "createdAt": each.created_at,
                "availableAt": each.available_at,
                "state": each.state,
            }
            for each in seen
        ],
    }


def pause(engine: Engine, call: Call) -> Data:
    engine.queues.pause(_text(call.payload, "queue"))
    return {}


def resume(engine: Engine, call: Call) -> Data:
    engine.queues.resume(_text(call.payload, "queue"))
    return {}


def purge(engine: Engine, call: Call) -> Data | Unfinished:
    """Away with what waits, or with the dead letters; a bounded part of it, so that nobody waits long for us."""
    queue = _text(call.payload, "queue")
    if _flag(call.payload, "dlq"):
        older, keep = _whole(call.payload, "olderThanMs", 0), _flag(call.payload, "archive")
        purged = engine.dead_letters.purge(queue, older, keep, PURGED_AT_ONCE)
    else:
        purged = engine.purge(queue, PURGED_AT_ONCE)
    return {"queue": queue, "purged": purged} if purged < PURGED_AT_ONCE else Unfinished(purged)


# --- dead letters


def list_dlq(engine: Engine, call: Call) -> Data:
    queue = _text(call.payload, "queue")
    letters = engine.dead_letters.listed(queue, _whole(call.payload, "limit", 100, 1, LARGEST_BATCH))
    return {
        "queue": queue,
        "count": len(letters),
        "messages": [
            {
                "messageKey": each.message_key,
                "queue": each.queue,
                "reason": each.reason,
                "message": each.message,
                "dlqAt": each.dlq_at,
                "attempt": each.attempt,
                "quarantined": each.quarantined,
            }
            for each in letters
        ],
    }


def dlq_stats(engine: Engine, call: Call) -> Data:
    queue = _text(call.payload, "queue")
    return {"queue": queue, "reasons": engine.dead_letters.counts(queue, _whole(call.payload, "sinceMs", 0))}


def reprocess_dlq(engine: Engine, call: Call) -> Data:
    if "messageKey" in call.payload:
        key = _text(call.payload, "messageKey")
        engine.dead_letters.reprocess(key)
        return {"messageKey": key, "reprocessed": True}
    if "queue" not in call.payload:
        raise InvalidRequest(field="messageKey", why="is missing; give it, or a queue whose dead letters are meant")
    queue = _text(call.payload, "queue")
    keys = engine.dead_letters.reprocess_all(
        queue,
        _text(call.payload, "reasonCode", ""),
        _whole(call.payload, "olderThanMs", 0),
        _whole(call.payload, "limit", 0),
    )
    return {"queue": queue, "reprocessed": True, "count": len(keys), "messageKeys": keys}


def quarantine(engine: Engine, call: Call) -> Data:
    key = _text(call.payload, "messageKey")
    on = _flag(call.payload, "quarantined", True)
    engine.dead_letters.quarantine(key, on)
    return {"messageKey": key, "quarantined": on}


CALLS: dict[str, Answering] = {
    "publish": publish,
    "publish_batch": publish_batch,
    "consume_next": consume_next,
    "consume_batch": consume_batch,
    "ack": ack,
    "ack_batch": ack_batch,
    "nack": nack,
    "extend_lease": extend_lease,
    "status": status,
    "queues": queues,
    "peek": peek,
    "pause": pause,
    "resume": resume,
    "purge": purge,
    "list_dlq": list_dlq,
    "dlq_stats": dlq_stats,
    "reprocess_dlq": reprocess_dlq,
    "quarantine": quarantine,
}


# --- parts of answers


def refused(refusal: Refusal) -> Data:
    return {"code": refusal.code, "message": str(refusal)}


def wait_ms(payload: Payload) -> int:
    """How long the caller would wait for a message."""
    return _whole(payload, "waitMs", 0)


def _stored(stored: Stored) -> Data:
    return {"messageId": stored.message_id, "messageKey": stored.message_key}


def _failed(refusal: Refusal) -> Data:
    return {"error": refused(refusal)}


def _delivered(leased: Leased) -> Data:
    return {
        "message": {
            "messageId": leased.message_id,
            "messageKey": leased.message_key,
            "queue": leased.queue,
            "payload": leased.payload,
            "attributes": leased.attributes,
            "priority": leased.priority,
            "attempt": leased.attempt,
            "createdAt": leased.created_at,
        },
        "lease": {
            "leaseId": leased.lease_id,
            "messageKey": leased.message_key,
            "consumerId": leased.consumer,
            "leaseUntil": leased.lease_until,
        },
    }


def _outcome_of_ack(engine: Engine, payload: Payload, call: Call) -> Data:
    try:
        _ack(engine, payload, call)
    except Refusal as refusal:
        return {"messageKey": payload.get("messageKey"), "ok": False, "error": refused(refusal)}
    return {"messageKey": payload["messageKey"], "ok": True}


def _ack(engine: Engine, payload: Payload, call: Call) -> None:
    lease_id, consumer = _holder(payload, call.client)
    try:
        engine.ack(_text(payload, "messageKey"), lease_id, consumer)
    except MessageNotFound:
        if not call.again:
            raise


# --- parts of payloads


def _draft(payload: Payload) -> Draft:
    if "message" not in payload:
        raise InvalidRequest(field="message", why="is missing")
    return Draft(
        payload=_json_text(payload["message"], "message"),
        attributes=_json_text(payload.get("attributes", "{}"), "attributes"),
        priority=_whole(payload, "priority", 0, None),
        delay_ms=_whole(payload, "delayMs", 0),
        ttl_ms=int(_number(payload, "ttlSec", 0) * 1000),
        type=_text(payload, "type", ""),
        trace_id=_text(payload, "traceId", ""),
        dedup_key=_text(payload, "deduplicationKey", ""),
        target=_text(payload, "targetConsumerId", ""),
    )


def _draft_or_refusal(payload: Payload) -> Draft | Refusal:
    try:
        return _draft(payload)
    except Refusal as refusal:
        return refusal


def _json_text(value: object, field: str) -> str:
    if isinstance(value, str):
        return value
    try:
        return _ENCODE(value)
    except RecursionError:
        raise InvalidRequest(field=field, why="is nested too deeply") from None


def _consumer(call: Call) -> str:
    return _text(call.payload, "consumerId", "") or call.client


def _holder(payload: Payload, client: str) -> tuple[str, str]:
    """The lease id says enough; without one the caller must be the consumer that holds the message."""
    lease_id = _text(payload, "leaseId", "")
    return lease_id, _text(payload, "consumerId", "") or ("" if lease_id else client)


def _visibility_ms(payload: Payload) -> int | None:
    if payload.get("visibilityTimeoutSec") is None:
        return None
    seconds = _number(payload, "visibilityTimeoutSec", 0)
    if seconds <= 0:
        raise InvalidRequest(field="visibilityTimeoutSec", why="must be more than 0")
    return max(1, int(seconds * 1000))


def _text(payload: Payload, field: str, default: str | None = None) -> str:
    value = payload.get(field, default)
    if value is None:
        if field in payload and default is not None:
            return default
        raise InvalidRequest(field=field, why="is missing")
    if not isinstance(value, str):
        raise InvalidRequest(field=field, why=f"is a {type(value).__name__}, not a text")
    if not value and default is None:
        raise InvalidRequest(field=field, why="is empty")
    return value


def _number(payload: Payload, field: str, default: float) -> float:
    value = payload.get(field, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidRequest(field=field, why=f"is a {type(value).__name__}, not a number")
    if not 0 <= value < 1e12:
        raise InvalidRequest(field=field, why=f"is {value}, out of range")
    return value


def _whole(payload: Payload, field: str, default: int, lowest: int | None = 0, highest: int = 10**15) -> int:
    value = payload.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(field=field, why=f"is a {type(value).__name__}, not a whole number")
    if (lowest is not None and value < lowest) or abs(value) > highest:
        raise InvalidRequest(field=field, why=f"is {value}, out of range")
    return value


def _flag(payload: Payload, field: str, default: bool = False) -> bool:
    value = payload.get(field, default)
    if not isinstance(value, bool):
        raise InvalidRequest(field=field, why=f"is a {type(value).__name__}, not true or false")
    return value


def _objects(payload: Payload, field: str) -> list[Payload]:
    value = payload.get(field)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InvalidRequest(field=field, why="must be a list of objects")
    if not 0 < len(value) <= LARGEST_BATCH:
        raise InvalidRequest(field=field, why=f"holds {len(value)} items; 1 to {LARGEST_BATCH} are taken at once")
    return value
