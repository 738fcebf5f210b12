"""Every call of the queue with its types, whoever answers it: a manager through its mailbox, or a store of our own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import orjson

from kingdom.base.errors import BadInput, KingdomError

Answer = dict[str, Any]

TOGETHER = ("publish", "consume_next", "ack", "nack", "extend_lease")
"""What may be asked for together with other calls, in a call_batch."""
PARTS_PER_SECOND = 10
"""In how many parts a second dead letters are put back, where there is a rate."""


class Refused(KingdomError):
    """{code}: {text}"""

    @property
    def code(self) -> str:
        return str(self.facts["code"])


@dataclass(frozen=True, slots=True)
class Published:
    message_id: str
    message_key: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message and the lease under which we hold it."""

    message_id: str
    message_key: str
    queue: str
    #: The payload word for word.
    text: str
    #: The attributes word for word: a JSON object.
    attributes_text: str
    priority: int
    #: How often the message has been handed out, with this time.
    attempt: int
    #: When it was published, in ms since the epoch.
    created_at: int
    lease_id: str
    consumer_id: str
    #: When the lease ends, in ms since the epoch.
    lease_until: int
    #: What kind of message its publisher said it is.
    type: str = ""
    trace_id: str = ""
    #: Who answers for it.
    calls: Calls | None = field(default=None, compare=False, repr=False)

    @property
    def payload(self) -> Any:
        """Return what was published: the JSON value, or the plain text when it is not JSON."""
        return _value(self.text)

    @property
    def attributes(self) -> Any:
        return _value(self.attributes_text)

    def ack(self) -> None:
        """Delete a message that is done. Acknowledging twice is no error."""
        self._calls.ack(self)

    def nack(self, reason: str = "", *, requeue: bool = True) -> None:
        """Report a failure: it is tried again by the queue's retry rule, or without `requeue` a dead letter."""
        self._calls.nack(self, reason, requeue=requeue)

    def extend(self, visibility: float | None = None) -> int:
        """Extend the lease. Returns its new end in ms since the epoch."""
        return self._calls.extend(self, visibility)

    @property
    def _calls(self) -> Calls:
        if self.calls is None:
            raise BadInput(message=f"{self.message_key} was not consumed: nobody can be told what became of it")
        return self.calls

    @classmethod
    def from_answer(cls, message: Mapping[str, Any], lease: Mapping[str, Any], calls: Calls | None = None) -> Self:
        return cls(
            message["messageId"],
            message["messageKey"],
            message["queue"],
            message["payload"],
            message["attributes"],
            message["priority"],
            message["attempt"],
            message["createdAt"],
            lease["leaseId"],
            lease["consumerId"],
            lease["leaseUntil"],
            message.get("type", ""),
            message.get("traceId", ""),
            calls,
        )

    def to_answer(self) -> Answer:
        """Return it as it was answered, without what was said only of some messages."""
        message = {
            "messageId": self.message_id,
            "messageKey": self.message_key,
            "queue": self.queue,
            "payload": self.text,
            "attributes": self.attributes_text,
            "priority": self.priority,
            "attempt": self.attempt,
            "createdAt": self.created_at,
            "type": self.type,
            "traceId": self.trace_id,
        }
        lease = {
            "leaseId": self.lease_id,
            "messageKey": self.message_key,
            "consumerId": self.consumer_id,
            "leaseUntil": self.lease_until,
        }
        return {"message": message, "lease": lease}


class Calls:
    """The calls. Threads may share one of these."""

    #: Seconds that an answer may take, beyond those that were asked to wait for a message.
    timeout = 30.0

    def call(
        self, command: str, payload: Mapping[str, Any], *, request_id: str | None = None, timeout: float | None = None
    ) -> Answer:
        """Make any call by its name and return the data of its answer. Refused when it cannot be done."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def publish(
        self,
        queue: str,
        message: Any,
        *,
        priority: int = 0,
        delay_ms: int = 0,
        ttl_sec: float | None = None,
        target: str = "",
        dedup_key: str | None = None,
        type: str | None = None,
        trace_id: str | None = None,
        attributes: Mapping[str, Any] | str | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Published:
        """Publish a message, durable when it returns. Again under the same `request_id` it changes nothing."""
        payload = _given(
            queue=queue,
            message=message,
            priority=priority or None,
            delayMs=delay_ms or None,
            ttlSec=ttl_sec,
            targetConsumerId=target or None,
            deduplicationKey=dedup_key,
            type=type,
            traceId=trace_id,
            attributes=attributes,
        )
        return _published(self.call("publish", payload, request_id=request_id, timeout=timeout))

    def publish_batch(
        self, queue: str, messages: Sequence[Any], *, request_id: str | None = None, timeout: float | None = None
    ) -> list[Published | Refused]:
        """Publish bare payloads; returns one outcome each, in order. For priorities use `call("publish_batch", …)`."""
        payload = {"queue": queue, "messages": [{"message": message} for message in messages]}
        answer = self.call("publish_batch", payload, request_id=request_id, timeout=timeout)
        outcomes = answer["messages"]
        return [refused_by(outcome["error"]) if "error" in outcome else _published(outcome) for outcome in outcomes]

    def take(
        self,
        queue: str,
        *,
        consumer_id: str | None = None,
        visibility: float | None = None,
        wait: float = 0,
        timeout: float | None = None,
    ) -> Delivery | None:
        """Lease the next message for `visibility` seconds, waiting up to `wait` seconds for one."""
        payload = _given(
            queue=queue, consumerId=consumer_id, visibilityTimeoutSec=visibility, waitMs=int(wait * 1000) or None
        )
        answer = self.call("consume_next", payload, timeout=self._timeout(timeout) + wait)
        if answer["message"] is None:
            return None
        return Delivery.from_answer(answer["message"], answer["lease"], self)

    def consume_batch(
        self,
        queue: str,
        limit: int,
        *,
        consumer_id: str | None = None,
        visibility: float | None = None,
        wait: float = 0,
        timeout: float | None = None,
    ) -> list[Delivery]:
        """Lease up to `limit` messages; waits only for the first."""
        payload = _given(
            queue=queue,
            limit=limit,
            consumerId=consumer_id,
            visibilityTimeoutSec=visibility,
            waitMs=int(wait * 1000) or None,
        )
        answer = self.call("consume_batch", payload, timeout=self._timeout(timeout) + wait)
        return [Delivery.from_answer(leased["message"], leased["lease"], self) for leased in answer["messages"]]

    def ack(self, delivery: Delivery | str, *, timeout: float | None = None) -> None:
        """End a lease: the message is done and deleted. Acknowledging twice is no error."""
        self.call("ack", _lease_of(delivery), timeout=timeout)

    def ack_batch(self, deliveries: Iterable[Delivery], *, timeout: float | None = None) -> list[Answer]:
        """Acknowledge each; returns one outcome each, in order: `{"messageKey", "ok", "error"?}`."""
        acks = [_lease_of(delivery) for delivery in deliveries]
        outcomes: list[Answer] = self.call("ack_batch", {"acks": acks}, timeout=timeout)["results"]
        return outcomes

    def nack(
        self, delivery: Delivery | str, reason: str = "", *, requeue: bool = False, timeout: float | None = None
    ) -> None:
        """End a lease: the message failed. With `requeue` the retry rule applies, else it becomes a dead letter."""
        self.call("nack", {**_lease_of(delivery), "reason": reason, "requeue": requeue}, timeout=timeout)

    def extend(self, delivery: Delivery | str, visibility: float | None = None, *, timeout: float | None = None) -> int:
        """Extend a lease. Returns its new end in ms since the epoch."""
        payload = _given(**_lease_of(delivery), visibilityTimeoutSec=visibility)
        return int(self.call("extend_lease", payload, timeout=timeout)["leaseUntil"])

    def status(self, queue: str) -> Answer:
        return self.call("status", {"queue": queue})

    def queues(self) -> list[Answer]:
        found: list[Answer] = self.call("queues", {})["queues"]
        return found

    def peek(self, queue: str, limit: int = 10, *, dlq: bool = False) -> list[Answer]:
        """Return the next messages, or the dead letters, without leasing them."""
        seen: list[Answer] = self.call("peek", {"queue": queue, "limit": limit, "dlq": dlq})["messages"]
        return seen

    def move(self, queue: str, to: str, limit: int = 0) -> int:
        """Move what waits in a queue to another one; of a dead-letter queue the dead letters. Returns how many."""
        return int(self.call("move", {"queue": queue, "to": to, "limit": limit})["moved"])

    def delete_queue(self, queue: str) -> int:
        """Delete a queue with all that it holds. Returns how many messages and dead letters that were."""
        return int(self.call("delete_queue", {"queue": queue})["deleted"])

    def delete_policy(self, queue: str) -> Answer:
        """Let a queue have the policy that the configuration says. Returns that."""
        policy: Answer = self.call("delete_policy", {"queue": queue})["policy"]
        return policy

    def delete_message(self, message_key: str) -> None:
        """Delete one message that waits, or one dead letter."""
        self.call("delete_message", {"messageKey": message_key})

    def pause(self, queue: str) -> None:
        self.call("pause", {"queue": queue})

    def resume(self, queue: str) -> None:
        self.call("resume", {"queue": queue})

    def purge(self, queue: str, *, dlq: bool = False, older_than_ms: int | None = None) -> int:
        """Delete what waits (or the dead letters). Returns how many."""
        payload = _given(queue=queue, dlq=dlq, olderThanMs=older_than_ms, yes=True)
        return int(self.call("purge", payload)["purged"])

    def list_dlq(self, queue: str, limit: int = 100) -> list[Answer]:
        letters: list[Answer] = self.call("list_dlq", {"queue": queue, "limit": limit})["messages"]
        return letters

    def reprocess(
        self,
        message_key: str | None = None,
        *,
        queue: str | None = None,
        reason_code: str | None = None,
        older_than_ms: int | None = None,
        limit: int | None = None,
        rate: float | None = None,
    ) -> int:
        """Put one dead letter back by its key, or those of a queue that fit. Returns how many.

        With a `rate` so many are put back in a second; those that die again meanwhile stay.
        """
        fit = _given(queue=queue, reasonCode=reason_code)
        if rate is None:
            payload = _given(messageKey=message_key, olderThanMs=older_than_ms, limit=limit, **fit)
            return int(self.call("reprocess_dlq", payload).get("count", 1))
        if queue is None or rate <= 0:
            raise BadInput(message="a rate is more than 0, and for the dead letters of a queue")
        began, back = time.monotonic(), 0
        while limit is None or back < limit:
            most = max(1, int(rate / PARTS_PER_SECOND))
            part = most if limit is None else min(most, limit - back)
            answer = self.call("reprocess_dlq", {**fit, "olderThanMs": older_than_ms or 0, "limit": part})
            back += answer["count"]
            if answer["count"] < part:
                break
            fit["until"] = answer["until"]  # what dies again from here on stays
            time.sleep(max(0.0, began + back / rate - time.monotonic()))
        return back

    def quarantine(self, message_key: str, *, on: bool = True) -> None:
        """Set a dead letter apart: bulk reprocess and purge leave it alone."""
        self.call("quarantine", {"messageKey": message_key, "quarantined": on})

    def dlq_stats(self, queue: str, since_ms: int | None = None) -> Answer:
        return self.call("dlq_stats", _given(queue=queue, sinceMs=since_ms))

    def health(self) -> Answer:
        return self.call("health", {})

    def _timeout(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else timeout


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _lease_of(delivery: Delivery | str) -> dict[str, Any]:
    if isinstance(delivery, str):
        return {"messageKey": delivery}
    return {
        "messageKey": delivery.message_key,
        "leaseId": delivery.lease_id,
        "consumerId": delivery.consumer_id,
    }


def _published(data: Mapping[str, Any]) -> Published:
    return Published(data["messageId"], data["messageKey"])


def refused_by(error: Mapping[str, Any]) -> Refused:
    return Refused(code=error["code"], text=error["message"])


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
