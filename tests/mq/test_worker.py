"""A worker whose calls fail for a while: it goes on, and tells what became of each message."""

import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from kingdom.base.errors import BadInput, NotRunning, TookTooLong
from kingdom.mq import worker
from kingdom.mq.errors import StoreError
from kingdom.mq.typed_calls import Answer, Calls, Delivery, Refused
from kingdom.mq.worker import LeaseExtender, QueueWork, Runner
from tests.waiting import SOON

PASSING = [
    Refused(code="ERR_INTERNAL_ERROR", text="the sqlite store cannot commit; it may be done or not"),
    StoreError(backend="sqlite", action="commit", why="database or disk is full"),
    OSError(28, "No space left on device"),
    NotRunning(what="the queue manager", hint="start it"),
    TookTooLong(what="answer", seconds=1, hint="look"),
]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TRY_AGAIN_SECONDS", 0.01)


class Failing(Calls):
    """Answers with one message; the first calls of one command fail."""

    def __init__(self, command: str, failures: list[Exception]) -> None:
        self._command = command
        self._failures = failures
        self._left = [1]
        self.said: list[str] = []
        self.lease_seconds = 0.3
        self.extended = threading.Event()

    def call(
        self, command: str, payload: Mapping[str, Any], *, request_id: str | None = None, timeout: float | None = None
    ) -> Answer:
        if command == self._command and self._failures:
            raise self._failures.pop(0)
        self.said.append(command)
        if command == "extend_lease":
            self.extended.set()
            return {"leaseUntil": 0}
        if command == "consume_next":
            return self._next() if self._left else {"message": None}
        return {}

    def close(self) -> None:
        pass

    def _next(self) -> Answer:
        self._left.pop()
        now = int(time.time() * 1000)
        delivery = Delivery(
            "1", "msg:q:1", "q", "1", "{}", 0, 1, now, "lease", "c", now + int(self.lease_seconds * 1000)
        )
        return delivery.to_answer()


def worked(calls: Failing, job: QueueWork) -> list[str]:
    """Return what a worker says until its message is done."""
    said: list[str] = []
    runner = Runner(calls, [job], report=said.append, report_done=lambda sentence: runner.stop())
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive()
    return said


@pytest.mark.parametrize("command", ["consume_next", "ack"])
@pytest.mark.parametrize("failure", PASSING, ids=lambda failure: type(failure).__name__)
def test_what_may_pass_is_tried_again(command: str, failure: Exception) -> None:
    calls = Failing(command, [failure])
    said = worked(calls, QueueWork("q", lambda delivery: None))
    assert "ack" in calls.said
    assert [(str(failure) in sentence, "trying again" in sentence) for sentence in said] == [(True, True)]


@pytest.mark.parametrize("failure", [*PASSING, BadInput(message="closed")], ids=lambda failure: type(failure).__name__)
def test_a_lease_that_could_not_be_extended_is_not_lost(failure: Exception) -> None:
    calls = Failing("extend_lease", [failure])
    lost: list[Delivery] = []
    said: list[str] = []
    work = QueueWork("q", lambda delivery: calls.extended.wait(SOON))
    runner = Runner(calls, [work], report=said.append, report_done=lambda sentence: runner.stop(), on_lost=lost.append)
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive()
    assert (calls.extended.is_set(), lost, calls.said[-1]) == (True, [], "ack")
    assert said == [f"msg:q:1: its lease is not extended: {failure}; trying again"]


def test_a_lease_of_somebody_else_is_lost() -> None:
    calls = Failing("extend_lease", [Refused(code="ERR_LEASE_MISMATCH", text="not leased to you")])
    lost = threading.Event()
    runner = Runner(
        calls,
        [QueueWork("q", lambda delivery: lost.wait(SOON))],
        report=lambda sentence: runner.stop(),
        on_lost=lambda delivery: lost.set(),
    )
    assert not runner.run()
    assert "ack" not in calls.said


class Closing(Failing):
    """An extension that is under way when the message is done, and fails as it does after a close."""

    def __init__(self) -> None:
        super().__init__("", [])
        self.under_way = threading.Event()
        self.done = threading.Event()

    def extend(self, delivery: Delivery | str, visibility: float | None = None, *, timeout: float | None = None) -> int:
        self.under_way.set()
        assert self.done.wait(SOON)
        raise BadInput(message="this client is closed: open another one")


def test_an_extension_that_comes_too_late_is_not_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    died = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda args: died.set())
    calls = Closing()
    said = worked(calls, QueueWork("q", lambda delivery: calls.under_way.wait(SOON)))
    extenders = [thread for thread in threading.enumerate() if isinstance(thread, LeaseExtender)]
    assert extenders
    calls.done.set()
    for thread in extenders:
        thread.join(SOON)
    assert (said, died.is_set()) == ([], False)
