"""The figures of a queue and its waiting messages, read without changing anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kingdom.mq import message_format, names
from kingdom.mq.message_format import MalformedBody
from kingdom.mq.policy import Policy
from kingdom.mq.queue_state import RATE_WINDOW_MS, QueueState
from kingdom.mq.stores.base import MessageGone, MessageStore, State


@dataclass(frozen=True, slots=True)
class QueueStatus:
    queue: str
    #: How many could be handed out now, dead letters that are consumed under this name among them.
    ready: int
    #: How many are out on a lease.
    inflight: int
    #: How many wait until they are due.
    delayed: int
    #: How many of its messages are dead letters.
    dlq: int
    #: How long the oldest waiting message has been there.
    oldest_age_ms: int
    #: Whether nothing is handed out.
    paused: bool
    #: What happened in the last minute, per second.
    rates: Mapping[str, float]
    #: The part of the leases that failed in the last minute.
    failure_rate: float
    #: The mean time from lease to ack.
    handling_mean_ms: float
    #: 99 of 100 of the latest of these times were at most as long.
    handling_p99_ms: int
    policy: Policy

    @classmethod
    def of(cls, queue: QueueState, dead_letter_sources: Sequence[QueueState], now: int) -> QueueStatus:
        """Sum a queue up. The dead letters of `dead_letter_sources` can be consumed under its name."""
        counts = queue.last_minute(now)
        ended = counts["acked"] + counts["failed"]
        return cls(
            queue=queue.name,
            ready=queue.ready_count + sum(len(source.dead) for source in dead_letter_sources),
            inflight=queue.inflight,
            delayed=queue.delayed_count,
            dlq=len(queue.dead),
            oldest_age_ms=max(0, now - queue.oldest()),
            paused=queue.paused,
            rates={what: round(count * 1000 / RATE_WINDOW_MS, 3) for what, count in counts.items()},
            failure_rate=round(counts["failed"] / ended, 4) if ended else 0.0,
            handling_mean_ms=round(queue.handled_ms / queue.acked, 3) if queue.acked else 0.0,
            handling_p99_ms=queue.p99_ms(),
            policy=queue.policy,
        )


class WaitingMessage(NamedTuple):
    """A waiting message, as `peek` shows it."""

    message_id: str
    message_key: str
    queue: str
    payload: str
    #: A JSON object.
    attributes: str
    priority: int
    #: How often it has been handed out.
    attempt: int
    #: When it was published, in ms since the epoch.
    created_at: int
    #: When it can be handed out, in ms since the epoch.
    available_at: int
    #: ready, delayed or dlq.
    state: State
    labels: message_format.Labels
    #: Of a dead letter, why it is one; else empty.
    failure: Mapping[str, Any]

    @classmethod
    def read(cls, store: MessageStore, queue: str, name: str, now: int) -> WaitingMessage | None:
        """Read a message, or the message in a dead letter. None when somebody took it away."""
        due = names.due_of(name)
        dead = names.is_dead_letter(name)
        state: State = "dlq" if dead else "delayed" if due > now else "ready"
        body = ""
        try:
            body = store.read(queue, state, name)
            content = message_format.content(
                message_format.original(body) if dead else body, store.by_hand or dead or names.is_foreign(name)
            )
        except MessageGone:
            return None
        except MalformedBody as error:
            content = message_format.Content(error.text or body or error.why, "{}")
        return cls(
            message_id=message_format.shown_id(name, body),
            message_key=names.key_of(queue, name),
            queue=queue,
            payload=content.payload,
            attributes=content.attributes,
            priority=names.priority_of(name),
            attempt=names.attempt_of(name),
            created_at=names.created_of(name),
            available_at=due,
            state=state,
            labels=message_format.labels(body),
            failure={**message_format.failure_of(body), "reasonCode": names.reason_of(name)} if dead else {},
        )
