"""Take messages, let a function work on each, acknowledge it or give it back; hold the leases meanwhile."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, Event, Lock, Thread, current_thread, main_thread
from types import FrameType

from kingdom.base.errors import NotRunning, TookTooLong
from kingdom.mq.errors import QueueNotFound, StoreError
from kingdom.mq.typed_calls import Calls, Delivery, Refused

POLL_SECONDS = 2.0
"""How long one call waits for a message, and so how long an idle worker takes to stop."""
TRY_AGAIN_SECONDS = 1.0
LONGEST_REASON = 1000
DONE = "done"
FAILURES = (Refused, NotRunning, TookTooLong, StoreError, OSError)
"""How a call fails."""


def may_pass(failure: Exception) -> bool:
    """Return whether the same call may succeed later: the manager restarts, or the disk is full."""
    return failure.code == StoreError.code if isinstance(failure, Refused) else isinstance(failure, FAILURES)


class Failed(Exception):
    """The work on a message failed, for a reason that says enough."""


@dataclass(frozen=True, slots=True)
class QueueWork:
    queue: str
    #: Works on one message: its return acknowledges it, whatever it raises gives it back.
    function: Callable[[Delivery], object]
    concurrency: int = 1
    consumer_id: str | None = None
    visibility: float | None = None
    #: Whether the function's end ends the lease; else the function only looks.
    acknowledges: bool = True


def to_stderr(sentence: str) -> None:
    sys.stderr.write(f"yirangmq: {sentence}\n")
    sys.stderr.flush()


def to_nobody(sentence: str) -> None:
    """Do nothing: the default callback for each message."""


@dataclass(slots=True)
class _Held:
    delivery: Delivery
    visibility: float | None
    #: Seconds between two extensions.
    every: float
    extend_at: float
    #: Whether its lease is lost: somebody else has the message.
    is_lost: bool = False


class LeaseExtender(Thread):
    """Extends the leases of the messages in work, well before they end."""

    def __init__(self, calls: Calls, on_lost: Callable[[Delivery], None], report: Callable[[str], None]) -> None:
        super().__init__(name="yirangmq-keeper", daemon=True)
        self._calls = calls
        self._on_lost = on_lost
        self._report = report
        self._held: dict[str, _Held] = {}
        self._changed = Condition()
        self._ended = False

    @contextmanager
    def hold(self, delivery: Delivery, visibility: float | None) -> Iterator[_Held]:
        every = max(0.1, delivery.lease_until / 1000 - time.time()) / 3
        held = _Held(delivery, visibility, every, time.monotonic() + every)
        with self._changed:
            self._held[delivery.lease_id] = held
            self._changed.notify()
        try:
            yield held
        finally:
            with self._changed:
                self._held.pop(delivery.lease_id, None)

    def in_work(self) -> list[Delivery]:
        with self._changed:
            return [held.delivery for held in self._held.values() if not held.is_lost]

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def run(self) -> None:
        while (held := self._next()) is not None:
            try:
                self._calls.extend(held.delivery, held.visibility, timeout=max(0.5, held.every))
            except Exception as error:  # noqa: BLE001
                # The edge of one extension: the leases of the other messages in work are still to be extended.
                if held.delivery.lease_id not in self._held:  # it has just ended well
                    continue
                if isinstance(error, Refused) and not may_pass(error):
                    held.is_lost = True
                    self._report(f"{held.delivery.message_key}: {error}; its work is stopped")
                    self._on_lost(held.delivery)
                else:
                    held.extend_at = time.monotonic() + min(held.every, TRY_AGAIN_SECONDS)
                    self._report(f"{held.delivery.message_key}: its lease is not extended: {error}; trying again")

    def _next(self) -> _Held | None:
        """Wait until a lease is to be extended. None: nothing more is held."""
        with self._changed:
            while not self._ended:
                live = [held for held in self._held.values() if not held.is_lost]
                first = min(live, key=lambda held: held.extend_at, default=None)
                wait = None if first is None else first.extend_at - time.monotonic()
                if first is not None and wait is not None and wait <= 0:
                    first.extend_at = time.monotonic() + first.every
                    return first
                self._changed.wait(wait)
            return None


class Runner:
    """TERM or INT: take nothing more, finish what is in work, then end. A second one: give it back and end."""

    def __init__(
        self,
        calls: Calls,
        jobs: Sequence[QueueWork],
        *,
        follow: bool = True,
        limit: int | None = None,
        wait: float = 0.0,
        report: Callable[[str], None] = to_stderr,
        report_done: Callable[[str], None] = to_nobody,
        on_lost: Callable[[Delivery], None] = lambda delivery: None,
        on_second_signal: Callable[[], None] | None = None,
    ) -> None:
        """`limit` is how many messages all take together. Without `follow` they end when none has come for `wait`
        seconds. `on_second_signal` ends the work instead of giving it back."""
        self._calls = calls
        self._jobs = jobs
        self._follow = follow
        self._limit = limit
        self._wait = POLL_SECONDS if follow else wait
        self._report = report
        self._report_done = report_done
        self._on_second_signal = on_second_signal
        self._extender = LeaseExtender(calls, on_lost, report)
        self._lock = Lock()
        self._stopping = Event()
        self._stops = 0
        self._taken = 0
        self._all_good = True
        self._error: BaseException | None = None
        self._moved = Condition(self._lock)
        self._running = 0
        self._idle = 0

    def run(self) -> bool:
        """Work until the end. Return whether all messages were done. What a call raises that cannot be waited for is
        raised here, after the others have ended."""
        with self._signals():
            self._extender.start()
            self._running = sum(job.concurrency for job in self._jobs)
            for job in self._jobs:
                for number in range(job.concurrency):
                    name = f"yirangmq-{job.queue}-{number + 1}"
                    Thread(target=self._work, args=(job,), name=name, daemon=True).start()
            self._wait_for_the_end()
            self._extender.end()
        if self._error is not None:
            raise self._error
        return self._all_good

    def stop(self) -> None:
        """Take nothing more; what is in work is finished."""
        self._stopping.set()

    def _wait_for_the_end(self) -> None:
        """Wait for the threads to end; for those that wait for a message without a manager, no longer than a poll."""
        until: float | None = None
        said = False
        while self._running:
            if self._stops and not said:
                said = True
                self._report("taking nothing more; a second signal stops what is in work")
            if self._stops > 1 and self._on_second_signal is None:
                self._give_back()
                return
            if self._stopping.is_set():
                until = until or time.monotonic() + POLL_SECONDS + 1.0
                if self._idle == self._running and time.monotonic() > until:
                    return
            with self._moved:
                if self._running:
                    self._moved.wait(0.1)

    def _give_back(self) -> None:
        for delivery in self._extender.in_work():
            try:
                self._calls.nack(delivery, "its worker was stopped", requeue=True, timeout=2.0)
            except FAILURES as error:
                self._report(f"{delivery.message_key}: {error}")

    def _work(self, job: QueueWork) -> None:
        try:
            while not self._stopping.is_set() and self._reserve():
                delivery = self._take(job)
                if delivery is None:
                    with self._lock:
                        self._taken -= 1
                    if not self._follow:
                        return
                elif not self._handle(job, delivery):
                    self._all_good = False
        except BaseException as error:  # noqa: BLE001
            # The edge of one thread: what it cannot go on from ends all, and is raised where run() was called.
            self._error = self._error or error
            self._stopping.set()
        finally:
            with self._moved:
                self._running -= 1
                self._moved.notify()

    def _reserve(self) -> bool:
        """Return whether one more message may be taken."""
        with self._lock:
            if self._limit is not None and self._taken >= self._limit:
                return False
            self._taken += 1
            return True

    def _take(self, job: QueueWork) -> Delivery | None:
        try:
            with self._lock:
                self._idle += 1
            return self._calls.take(job.queue, consumer_id=job.consumer_id, visibility=job.visibility, wait=self._wait)
        except FAILURES as error:
            is_missing = isinstance(error, Refused) and error.code == QueueNotFound.code
            if not (self._follow and (is_missing or may_pass(error))):
                raise
            self._report(f"{error}; trying again")
        finally:
            with self._lock:
                self._idle -= 1
        self._stopping.wait(TRY_AGAIN_SECONDS)
        return None

    def _handle(self, job: QueueWork, delivery: Delivery) -> bool:
        """Work on one message. Return whether it is done."""
        if not job.acknowledges:
            job.function(delivery)
            return True
        with self._extender.hold(delivery, job.visibility) as held:
            reason: str | None = None
            try:
                job.function(delivery)
            except Failed as failed:
                reason = str(failed)
            except Exception as error:  # noqa: BLE001
                # The edge of one message: whatever its function raises, it is tried again, and others are worked on.
                reason = f"{type(error).__name__}: {error}"[:LONGEST_REASON]
            if held.is_lost:
                return False
            if reason is None:
                self._finish(lambda: self._calls.ack(delivery), delivery, DONE)
            else:
                tell = reason
                self._finish(lambda: self._calls.nack(delivery, tell, requeue=True), delivery, f"failed, {reason}")
        return reason is None

    def _finish(self, tell: Callable[[], None], delivery: Delivery, outcome: str) -> None:
        """Tell the manager the outcome, again and again while it restarts or has no room on its disk."""
        while True:
            try:
                tell()
            except FAILURES as error:
                if not may_pass(error):
                    self._report(f"{delivery.message_key}: {outcome}, but {error}")
                    return
                self._report(f"{delivery.message_key}: {outcome}; {error}; trying again to tell the manager")
                if self._stops > 1:
                    return
                time.sleep(TRY_AGAIN_SECONDS)
            else:
                report = self._report_done if outcome == DONE else self._report
                report(f"{delivery.message_key}: {outcome}")
                return

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop on TERM and INT. Elsewhere than in the main thread there are no signals: call `stop`."""
        if current_thread() is not main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stops += 1
        self._stopping.set()
        if self._stops > 1 and self._on_second_signal is not None:
            self._on_second_signal()
