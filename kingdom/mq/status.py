"""What can be told of a queue without changing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kingdom.mq import message_format, names
from kingdom.mq.message_format import Unfit
from kingdom.mq.policy import Policy
from kingdom.mq.queue_state import RATE_WINDOW_MS, Line
from kingdom.mq.stores.base import Gone, State, Store


@dataclass(frozen=True, slots=True)
class QueueStatus:
    queue: str
    ready: int
    inflight: int
    delayed: int
    dlq: int
    oldest_age_ms: int
    paused: bool
    rates: Mapping[str, float]
    failure_rate: float
    handling_mean_ms: float
    handling_p99_ms: int
    policy: Policy

    @classmethod
    def of(cls, line: Line, feeds: Sequence[Line], now: int) -> QueueStatus:
        """`feeds` are those whose dead letters can be consumed under the name of this one."""
        lately = line.lately(now)
        ended = lately["acked"] + lately["failed"]
        return cls(
            queue=line.name,
            ready=line.ready_count + sum(len(source.dead) for source in feeds),
            inflight=line.inflight,
            delayed=len(line.delayed),
            dlq=len(line.dead),
            oldest_age_ms=max(0, now - line.oldest()),
            paused=line.paused,
            rates={what: round(count * 1000 / RATE_WINDOW_MS, 3) for what, count in lately.items()},
            failure_rate=round(lately["failed"] / ended, 4) if ended else 0.0,
            handling_mean_ms=round(line.handled_ms / line.acked, 3) if line.acked else 0.0,
            handling_p99_ms=line.p99_ms(),
            policy=line.policy,
        )


class Waiting(NamedTuple):
    message_id: str
    message_key: str
    queue: str
    payload: str
    attributes: str
    priority: int
    attempt: int
    created_at: int
    available_at: int
    state: State

    @classmethod
    def read(cls, store: Store, queue: str, name: str, now: int) -> Waiting | None:
        """None when somebody took it away."""
        due = names.due_of(name)
        state: State = "delayed" if due > now else "ready"
        try:
            content = message_format.content(store.read(queue, state, name), store.by_hand)
        except Gone:
            return None
        except Unfit as spoiled:
            content = message_format.Content(str(spoiled.args[-1]), "{}")
        return cls(
            message_id=name[-36:],
            message_key=names.key_of(queue, name),
            queue=queue,
            payload=content.payload,
            attributes=content.attributes,
            priority=names.priority_of(name),
            attempt=names.attempt_of(name),
            created_at=names.created_of(name),
            available_at=due,
            state=state,
        )
