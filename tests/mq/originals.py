"""Databases and folders in exactly the shapes that the original system writes, with a message of every kind."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.mq.clocks import MORNING_MS

KV = """
CREATE TABLE kv (
  key TEXT PRIMARY KEY, value TEXT NOT NULL, value_type TEXT NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, expires_at INTEGER
);
CREATE INDEX idx_kv_type ON kv(value_type);
CREATE INDEX idx_kv_expires ON kv(expires_at) WHERE expires_at IS NOT NULL;
"""
INDEX = """
CREATE TABLE msg_index (
  queue TEXT NOT NULL, state TEXT NOT NULL, priority INTEGER NOT NULL DEFAULT 0, available_at INTEGER NOT NULL,
  lease_until INTEGER, attempt INTEGER NOT NULL DEFAULT 0,
  message_key TEXT NOT NULL REFERENCES kv(key) ON DELETE CASCADE{later},
  PRIMARY KEY (message_key)
);
CREATE INDEX idx_msg_ready ON msg_index(queue, state, available_at, priority DESC);
CREATE INDEX idx_msg_lease ON msg_index(state, lease_until) WHERE state = 'inflight';
CREATE INDEX idx_msg_delayed ON msg_index(state, available_at) WHERE state = 'delayed';
CREATE INDEX idx_msg_dlq ON msg_index(queue, state) WHERE state = 'dlq';
"""
LATER = {"dlq_reason": "TEXT", "dlq_at": "INTEGER", "target_consumer_id": "TEXT", "expired_at": "INTEGER DEFAULT 0"}
AGES = {1: (), 2: ("dlq_reason", "dlq_at"), 3: tuple(LATER)}
SECOND = 1000
QUEUES = ("telemetry", "한글 큐", "it's")
POLICY = {"visibilityTimeoutSec": 45, "retry": {"limit": 2, "backoff": "magic"}, "colour": 5}


@dataclass(frozen=True)
class Message:
    """One message of the original; times are in ms from MORNING_MS on."""

    number: int
    state: str
    queue: str = "telemetry"
    payload: str = '{"temp":36.5}'
    attributes: str = '{"deviceId":"device-001"}'
    priority: int = 0
    attempt: int = 0
    available: int = -60 * SECOND
    lease_until: int | None = None
    target: str = ""
    expires: int | None = None
    reason: str = ""
    dead_at: int = 0
    tail: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def message_id(self) -> str:
        return f"AB{self.number:02X}-0F3C-77E1-9A00-1B2C"

    @property
    def key(self) -> str:
        return f"msg:{self.queue}:{self.tail or self.message_id}"

    @property
    def created(self) -> int:
        return MORNING_MS - 3600 * SECOND + self.number


def messages(age: int = 3) -> Iterator[Message]:
    """Yield one of every kind that a database of this age can hold."""
    yield Message(1, "ready")
    yield Message(2, "ready", payload="plain text", attributes="{}")
    yield Message(3, "ready", priority=5, attempt=2)
    yield Message(4, "ready", queue="한글 큐", payload='"한글"')
    yield Message(5, "ready", queue="it's", tail="9B2F2F2A-6f64-4f8b-a9b5-1e0d6f3a0d71")
    yield Message(6, "ready", queue="it's", tail="9b2f2f2a-6f64-4f8b-a9b5-1e0d6f3a0d72")
    yield Message(7, "delayed", available=30 * SECOND)
    yield Message(8, "inflight", attempt=1, lease_until=20 * SECOND)
    yield Message(9, "inflight", attempt=1, lease_until=-5 * SECOND)
    yield Message(10, "dlq", attempt=5, reason="device broken", dead_at=-9 * SECOND)
    if age == 3:
        yield Message(11, "ready", target="consumer 01")
        yield Message(12, "ready", expires=50 * SECOND)
        yield Message(13, "dlq", reason="message expired", dead_at=-8 * SECOND, expires=-8 * SECOND)


def database(path: Path, age: int, payloads: Path | None = None) -> list[Message]:
    """Write a database of this age, hybrid with `payloads`. Returns what is in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = AGES[age]
    connection = sqlite3.connect(path)
    connection.executescript(KV + INDEX.format(later="".join(f",\n  {name} {LATER[name]}" for name in columns)))
    there = list(messages(age))
    for message in there:
        value: dict[str, Any] = {
            "attempt": 0,
            "createdAt": message.created,
            "messageId": message.message_id,
            "priority": message.priority,
            "queue": message.queue,
        }
        body = {"attributes": message.attributes, "payload": message.payload}
        if payloads is None:
            value |= body
        else:
            value["payloadPath"] = f"{payloads.name}/{message.queue}/active/{message.message_id}.json"
            folder = payloads / message.queue / ("dlq" if message.state == "dlq" else "active")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{message.message_id}.json").write_text(json.dumps(body, indent=4, ensure_ascii=False))
        if message.reason:
            value |= {"dlqAt": MORNING_MS + message.dead_at, "dlqReason": message.reason}
        text = json.dumps(dict(sorted(value.items())), ensure_ascii=False)
        connection.execute(
            "INSERT INTO kv VALUES (?, ?, 'json', ?, ?, NULL)", (message.key, text, message.created, message.created)
        )
        row: dict[str, Any] = {
            "queue": message.queue,
            "state": message.state,
            "priority": message.priority,
            "available_at": MORNING_MS + message.available,
            "lease_until": None if message.lease_until is None else MORNING_MS + message.lease_until,
            "attempt": message.attempt,
            "message_key": message.key,
        }
        if age == 3:
            row |= {"target_consumer_id": message.target or None}
            row |= {"expired_at": 0 if message.expires is None else MORNING_MS + message.expires}
            if message.expires is not None and message.reason and payloads is None:
                row |= {"dlq_reason": message.reason, "dlq_at": MORNING_MS + message.dead_at}
        places = ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO msg_index ({', '.join(row)}) VALUES ({places})", tuple(row.values()))
    policy = json.dumps(POLICY)
    connection.execute("INSERT INTO kv VALUES ('policy:telemetry', ?, 'json', 1, 1, NULL)", (policy,))
    connection.commit()
    connection.close()
    return there


def folders(root: Path) -> list[Message]:
    """Write the folders of a filesystem store. Returns what is in them."""
    there = list(messages())
    for message in there:
        place = {"ready": "inbox", "inflight": "processing"}.get(message.state, message.state)
        if message.number == 9:
            place = "processing"  # without a lease
        envelope: dict[str, Any] = {
            "key": message.key,
            "messageId": message.message_id,
            "queue": message.queue,
            "payload": message.payload,
            "attributes": message.attributes,
            "priority": message.priority,
            "attempt": message.attempt,
            "createdAt": message.created,
            "availableAt": MORNING_MS + message.available,
            "expiredAt": 0 if message.expires is None else MORNING_MS + message.expires,
            "targetConsumerId": message.target,
        }
        if message.reason:
            envelope |= {"dlqReason": message.reason, "dlqAt": MORNING_MS + message.dead_at}
        for folder in ("inbox", "processing", "delayed", "archive", "dlq"):
            (root / message.queue / folder).mkdir(parents=True, exist_ok=True)
        file = root / message.queue / place / f"{message.message_id}.json"
        file.write_text(json.dumps(envelope, indent=2, ensure_ascii=False))
        if message.number == 8:
            lease = {
                "consumerId": "consumer 08",
                "leaseId": "00AA-11BB-22CC-33DD-44EE",
                "leaseUntil": MORNING_MS + (message.lease_until or 0),
                "messageKey": message.key,
            }
            (root / "meta" / "leases").mkdir(parents=True, exist_ok=True)
            (root / "meta" / "leases" / f"{message.message_id}.json").write_text(json.dumps(lease))
    (root / "meta" / "delayed").mkdir(parents=True, exist_ok=True)
    (root / "meta" / "policy_telemetry.json").write_text(json.dumps(POLICY))
    return there
