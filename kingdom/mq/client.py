"""Talk to the queue manager through its mailbox: a call is a file, and so is its answer.

    with Client() as mq:
        mq.publish("telemetry", {"temp": 36.5})
        if delivery := mq.consume("telemetry", wait=5):
            print(delivery.payload)
            mq.ack(delivery)

One client belongs to one thread.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from kingdom.disk.atomic import make_folder
from kingdom.disk.bulk import Relay
from kingdom.disk.codec import read_bytes
from kingdom.disk.lock import is_locked
from kingdom.errors import BadInput, KingdomError, NotRunning, TookTooLong
from kingdom.home.places import Places, find_home
from kingdom.mq.mailbox_folders import MailboxFolders, check_client_id, check_request_id
from kingdom.runtime.wake import Mode, Waker

LARGEST_ANSWER = 256 << 20
POLL_SECONDS = 0.05
LOOK_AGAIN_SECONDS = 1.0
SPARES = 4
MANAGER_LOCK = "manager.lock"
START_IT = "start it with `kingdom start mailbox` or `python -m kingdom.mailbox`"

Answer = dict[str, Any]


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

    @property
    def payload(self) -> Any:
        """Return what was published: the JSON value, or the plain text when it is not JSON."""
        return _value(self.text)

    @property
    def attributes(self) -> Any:
        return _value(self.attributes_text)

    @classmethod
    def from_answer(cls, message: Mapping[str, Any], lease: Mapping[str, Any]) -> Self:
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
        )


class Client:
    """Waits for each answer at most `timeout` seconds. A request without an answer is taken back if it still can be."""

    def __init__(
        self,
        root: MailboxFolders | Path | str | None = None,
        client_id: str | None = None,
        *,
        timeout: float = 30.0,
        wake: Mode = "inotify",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`root` is the mailbox's folder; without it, the one of the home around us."""
        if root is None:
            root = MailboxFolders.of_home(Places(find_home()))
        box = root if isinstance(root, MailboxFolders) else MailboxFolders.at(Path(root))
        self.root = box.root
        self._token = uuid.uuid4().hex
        self.client_id = check_client_id(client_id or f"py-{os.getpid()}-{self._token[:8]}")
        self.timeout = timeout
        self._named_by_caller = client_id is not None
        self._clock = clock
        self._requests = box.requests
        self._processing = box.processing
        self._folder = box.responses / self.client_id
        self._drafts = self._folder / f".{self._token[:16]}"
        if not self._requests.is_dir():
            raise NotRunning(what="the queue manager", hint=f"there is no mailbox at {self.root}; {START_IT}")
        self._wake = wake
        self._sent = 0
        self._open_folder()

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
            priority=priority,
            delayMs=delay_ms,
            ttlSec=ttl_sec,
            targetConsumerId=target,
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
        return [_refused(outcome["error"]) if "error" in outcome else _published(outcome) for outcome in outcomes]

    def consume(
        self,
        queue: str,
        *,
        consumer_id: str | None = None,
        visibility: float | None = None,
        wait: float = 0,
        timeout: float | None = None,
    ) -> Delivery | None:
        """Lease the next message for `visibility` seconds, waiting up to `wait` seconds for one."""
        payload = _given(queue=queue, consumerId=consumer_id, visibilityTimeoutSec=visibility, waitMs=int(wait * 1000))
        answer = self.call("consume_next", payload, timeout=self._timeout(timeout) + wait)
        if answer["message"] is None:
            return None
        return Delivery.from_answer(answer["message"], answer["lease"])

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
            waitMs=int(wait * 1000),
        )
        answer = self.call("consume_batch", payload, timeout=self._timeout(timeout) + wait)
        return [Delivery.from_answer(leased["message"], leased["lease"]) for leased in answer["messages"]]

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

    def peek(self, queue: str, limit: int = 10) -> list[Answer]:
        """Return the next messages without leasing them."""
        seen: list[Answer] = self.call("peek", {"queue": queue, "limit": limit})["messages"]
        return seen

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
    ) -> int:
        """Put one dead letter back by its key, or those of a queue that fit. Returns how many."""
        payload = _given(
            messageKey=message_key, queue=queue, reasonCode=reason_code, olderThanMs=older_than_ms, limit=limit
        )
        return int(self.call("reprocess_dlq", payload).get("count", 1))

    def quarantine(self, message_key: str, *, on: bool = True) -> None:
        """Set a dead letter apart: bulk reprocess and purge leave it alone."""
        self.call("quarantine", {"messageKey": message_key, "quarantined": on})

    def dlq_stats(self, queue: str, since_ms: int | None = None) -> Answer:
        return self.call("dlq_stats", _given(queue=queue, sinceMs=since_ms))

    def health(self) -> Answer:
        return self.call("health", {})

    def metrics(self) -> Answer:
        return self.call("metrics", {})

    def manager_runs(self) -> bool:
        try:
            return is_locked(self.root / MANAGER_LOCK)
        except PermissionError:
            return True

    def call(
        self,
        command: str,
        payload: Mapping[str, Any],
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Send any command by its name and return the data of its answer.

        Refused when the manager says no, TookTooLong or NotRunning when it says nothing.
        """
        seconds = self._timeout(timeout)
        self._sent += 1
        number = check_request_id(request_id) if request_id else f"{self._token}-{self._sent}"
        name, now_ms = f"{number}.json", int(self._clock() * 1000)
        request = {
            "requestId": number,
            "clientId": self.client_id,
            "command": command,
            "timestampMs": now_ms,
            "deadlineMs": now_ms + int(seconds * 1000),
            "payload": payload,
        }
        try:
            written = orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE)
        except TypeError as error:
            raise BadInput(message=f"{command}: what it says cannot be written as JSON: {error}") from None
        self._send(name, written)
        try:
            answer = orjson.loads(self._await(name, seconds))
        except KeyboardInterrupt:
            self._withdraw(name)
            raise
        if not answer["ok"]:
            raise _refused(answer["error"])
        data: Answer = answer["data"]
        return data

    def close(self) -> None:
        """Remove this client's files, unless the caller chose its name and may come back to it."""
        self._waker.close()
        with suppress(OSError):
            self._files.sweep()
            self._drafts.rmdir()
        if self._named_by_caller:
            return
        with suppress(OSError):
            for late in self._folder.iterdir():
                late.unlink()
            self._folder.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _timeout(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else timeout

    def _await(self, name: str, seconds: float) -> bytes:
        path = f"{self._folder}/{name}"
        end = time.monotonic() + seconds
        longest = POLL_SECONDS if self._waker.polls else LOOK_AGAIN_SECONDS
        while True:
            left = end - time.monotonic()
            if self._waker.wait(max(0.0, min(left, longest))) is None:
                self._reopen_folder()
            try:
                data = read_bytes(path, LARGEST_ANSWER)
            except FileNotFoundError:
                if left <= 0:
                    raise self._gave_up(name, seconds) from None
            else:
                self._files.leave(path)
                return data

    def _open_folder(self) -> None:
        make_folder(self._drafts)
        # A manager that is somebody else reads our requests by their mode.
        ours = os.stat(self._requests).st_uid == os.geteuid()
        self._files = Relay(str(self._drafts), most_spares=SPARES, mode=0o600 if ours else 0o644)
        self._files.sweep()
        self._waker = Waker([self._folder], self._wake)

    def _reopen_folder(self) -> None:
        """Our folder was removed while we were idle: what we watch is not what lies at its path now."""
        self._waker.close()
        self._open_folder()

    def _send(self, name: str, request: bytes) -> None:
        try:
            self._files.put(f"{self._requests}/{name}", request)
        except FileNotFoundError:
            self._reopen_folder()
            self._files.put(f"{self._requests}/{name}", request)

    def _withdraw(self, name: str) -> None:
        """A request that waits for a message lies in processing/; without its file the manager forgets it."""
        for folder in (self._requests, self._processing):
            with suppress(OSError):
                os.unlink(folder / name)

    def _gave_up(self, name: str, seconds: float) -> KingdomError:
        self._withdraw(name)
        if not self.manager_runs():
            return NotRunning(what="the queue manager", hint=START_IT)
        return TookTooLong(
            what="answer from the queue manager",
            seconds=seconds,
            hint="it may have done what was asked; look before you repeat it",
        )


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


def _refused(error: Mapping[str, Any]) -> Refused:
    return Refused(code=error["code"], text=error["message"])


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
