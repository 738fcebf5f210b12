"""`yirangmq consume --follow --exec CMD`: lease, run, acknowledge; hold the lease while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from kingdom.errors import Exit, NotRunning, TookTooLong
from kingdom.mq.client import Client, Delivery, Refused
from kingdom.runtime.processes import end_with_parent

POLL_SECONDS = 10.0
LONGEST_VARIABLE = 30_000
"""Characters: Linux refuses to start a command with a variable of more than 128 KiB."""
TRY_AGAIN_SECONDS = 1.0
ENDS_WITHIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    queue: str
    consumer: str
    visibility: float | None
    command: str | None
    limit: int | None
    follow: bool


class Worker:
    """TERM or INT: finish the message in hand, then end. A second one: stop the command and give the message back."""

    def __init__(self, client: Client, options: WorkerOptions, wait: float, show: Callable[[Any], None]) -> None:
        self._client = client
        self._options = options
        self._wait = POLL_SECONDS if options.follow else wait
        self._show = show
        self._stops = 0
        self._idle = False
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        done, good = 0, True
        while not self._stops and (self._options.limit is None or done < self._options.limit):
            delivery = self._consume()
            if delivery is None:
                if not self._options.follow:
                    break
                continue
            good = self._handle(delivery) and good
            done += 1
        return int(Exit.DONE) if good or self._options.follow else int(Exit.FAILED)

    def _consume(self) -> Delivery | None:
        options = self._options
        try:
            self._idle = True
            return self._client.consume(
                options.queue, consumer_id=options.consumer, visibility=options.visibility, wait=self._wait
            )
        except KeyboardInterrupt:
            return None
        except (NotRunning, TookTooLong) as error:
            self._raise_unless_following(error)
        except Refused as refusal:
            if refusal.code != "ERR_QUEUE_NOT_FOUND":
                raise
            self._raise_unless_following(refusal)
        finally:
            self._idle = False
        if not self._stops:
            time.sleep(TRY_AGAIN_SECONDS)
        return None

    def _raise_unless_following(self, error: Exception) -> None:
        """Raise the error of a single consume. A worker that follows waits for its manager and its queue."""
        if not self._options.follow:
            raise error
        self._report(f"{error}; trying again")

    def _handle(self, delivery: Delivery) -> bool:
        command = self._options.command
        if command is None:
            self._show(_as_json(delivery))
            return True
        outcome = self._execute(command, delivery)
        if outcome is None:
            return False
        if outcome == 0:
            self._finish(lambda: self._client.ack(delivery), delivery, "done")
            return True
        reason = f"exit {outcome}" if outcome > 0 else f"killed by {signal.Signals(-outcome).name}"
        self._finish(lambda: self._client.nack(delivery, reason, requeue=True), delivery, f"failed, {reason}")
        return False

    def _execute(self, command: str, delivery: Delivery) -> int | None:
        """Run the command. Return its exit code; None when the lease was lost and somebody else has the message."""
        with subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            env=_environment(delivery),
            start_new_session=True,
            preexec_fn=_end_with_worker,
        ) as child:
            self._child = child
            lost = not self._feed(child, delivery)
            self._child = None
        return None if lost else child.returncode

    def _feed(self, child: subprocess.Popen[bytes], delivery: Delivery) -> bool:
        """Give the command its message and extend the lease until it ends. Return False when the lease was lost."""
        lease_seconds = max(0.1, delivery.lease_until / 1000 - time.time())
        unsent: bytes | None = delivery.text.encode()
        while True:
            try:
                child.communicate(unsent, timeout=lease_seconds / 3)
                return True
            except subprocess.TimeoutExpired:
                unsent = None
            try:
                self._client.extend(delivery, self._options.visibility, timeout=max(0.5, lease_seconds / 3))
            except Refused as refusal:
                self._report(f"{delivery.message_key}: {refusal}; its command is stopped")
                self._end(child)
                return False
            except (NotRunning, TookTooLong) as error:
                self._report(f"{delivery.message_key}: {error}")

    def _finish(self, tell: Callable[[], None], delivery: Delivery, outcome: str) -> None:
        """Tell the manager, again until it answers: one that restarts must still learn of it."""
        while True:
            try:
                tell()
            except Refused as refusal:
                self._report(f"{delivery.message_key}: {outcome}, but {refusal}")
                return
            except (NotRunning, TookTooLong) as error:
                self._report(f"{delivery.message_key}: {outcome}; {error}; trying again to tell the manager")
                if self._stops > 1:
                    return
                time.sleep(TRY_AGAIN_SECONDS)
            else:
                self._report(f"{delivery.message_key}: {outcome}")
                return

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stops += 1
        if self._idle:
            raise KeyboardInterrupt
        if self._child is not None and self._stops > 1:
            _signal_group(self._child, signal.SIGTERM)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        _signal_group(child, signal.SIGTERM)
        try:
            child.wait(ENDS_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            _signal_group(child, signal.SIGKILL)
            child.wait()

    def _report(self, sentence: str) -> None:
        print(f"yirangmq: {sentence}", file=sys.stderr, flush=True)


def _end_with_worker() -> None:
    """End the command with its worker: a killed worker extends no lease, and another one will do the work."""
    end_with_parent(signal.SIGKILL)


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if child.poll() is None:
        os.killpg(child.pid, number)


def _environment(delivery: Delivery) -> dict[str, str]:
    """Return the environment of the command: what it may want to know besides the payload."""
    about = {
        "YIRANGMQ_QUEUE": delivery.queue,
        "YIRANGMQ_MESSAGE_ID": delivery.message_id,
        "YIRANGMQ_MESSAGE_KEY": delivery.message_key,
        "YIRANGMQ_ATTEMPT": str(delivery.attempt),
        "YIRANGMQ_ATTRIBUTES": delivery.attributes_text if len(delivery.attributes_text) <= LONGEST_VARIABLE else "",
    }
    return {**os.environ, **{name: value.replace("\0", "") for name, value in about.items()}}


def _as_json(delivery: Delivery) -> dict[str, Any]:
    return {
        "message": {
            "messageId": delivery.message_id,
            "messageKey": delivery.message_key,
            "queue": delivery.queue,
            "payload": delivery.text,
            "attributes": delivery.attributes_text,
            "priority": delivery.priority,
            "attempt": delivery.attempt,
            "createdAt": delivery.created_at,
        },
        "lease": {
            "leaseId": delivery.lease_id,
            "messageKey": delivery.message_key,
            "consumerId": delivery.consumer_id,
            "leaseUntil": delivery.lease_until,
        },
    }
