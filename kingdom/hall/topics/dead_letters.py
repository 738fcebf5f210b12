"""Dead letters of events that cannot be processed: enough to find the event, and small enough to store."""

from __future__ import annotations

import base64
import hashlib

import orjson

from kingdom.base.times import stamp
from kingdom.hall.topics.base import TopicRecord

KEPT = 64 * 1024
LONGEST_REASON = 1000


def of(record: TopicRecord, reason: str, now: float) -> bytes:
    """Return the dead letter of a record: where it lies, why, its digest, and the first 64 KB in base64."""
    letter = {
        "topic": record.topic,
        "position": record.position,
        "key": record.key[:LONGEST_REASON],
        "reason": reason[:LONGEST_REASON].encode("utf-8", "replace").decode(),
        "at": stamp(now),
        "size": len(record.value),
        "sha256": hashlib.sha256(record.value).hexdigest(),
        "head": base64.b64encode(record.value[:KEPT]).decode(),
    }
    return orjson.dumps(letter)
