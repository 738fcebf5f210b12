"""Row 35: consumers that wait at the mailbox for longer than any timer, idle and busy."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.mq.client import Client
from tests.faults.oracle import Figure
from tests.faults.timers.long import LONG
from tests.mq.mailbox.boxes import Running
from tests.waiting import SOON, stays

pytestmark = LONG
WAIT_SECONDS = 330.0
"""Longer than answers are kept, 300 s, than a call waits by itself, 30 s, and than a hand-over holds a queue, 60 s."""
LEASE_SECONDS = 30.0


@pytest.fixture
def mailbox(home: Path) -> Iterator[Running]:
    """A mailbox with the configuration as shipped."""
    running = Running(home)
    yield running
    running.stop()


class Waiting:
    """A consumer that waits once for one message."""

    def __init__(self, mailbox: Running, queue: str, seconds: float) -> None:
        self.payload: object = None
        self.took = 0.0
        self._mailbox, self._queue, self._seconds = mailbox, queue, seconds
        self.thread = threading.Thread(target=self._wait)
        self.thread.start()

    def _wait(self) -> None:
        began = time.monotonic()
        with self._mailbox.client() as client:
            delivery = client.take(self._queue, wait=self._seconds)
            self.took = time.monotonic() - began
            if delivery is not None:
                self.payload = delivery.payload
                client.ack(delivery)


class Busy:
    """A consumer that waits again and again, until it has the last message."""

    def __init__(self, mailbox: Running) -> None:
        self.got: list[object] = []
        self._mailbox = mailbox
        self.thread = threading.Thread(target=self._take)
        self.thread.start()

    def _take(self) -> None:
        with self._mailbox.client() as client:
            while not self.got or self.got[-1] != {"n": "last"}:
                if (delivery := client.take("busy", wait=20)) is not None:
                    self.got.append(delivery.payload)
                    client.ack(delivery)


def test_a_consumer_waits_as_long_as_it_asks_for_while_another_is_busy(mailbox: Running, figure: Figure) -> None:
    sent: list[object] = []
    with mailbox.client() as publisher:
        for queue in ("idle", "empty", "busy"):
            publisher.publish(queue, {"n": "first"})
            _empty(publisher, queue)
        idle = Waiting(mailbox, "idle", WAIT_SECONDS + SOON)
        empty, busy = Waiting(mailbox, "empty", WAIT_SECONDS), Busy(mailbox)
        began = time.monotonic()
        while time.monotonic() - began < WAIT_SECONDS:
            sent.append({"n": len(sent)})
            publisher.publish("busy", sent[-1])
            stays(lambda: True, 0.5, "time passes")
        sent.append({"n": "last"})
        publisher.publish("busy", sent[-1])
        publisher.publish("idle", {"n": "at last"})
        for waiting in (idle, empty, busy):
            waiting.thread.join(2 * SOON)
    assert idle.payload == {"n": "at last"}
    assert empty.payload is None
    assert WAIT_SECONDS <= empty.took < WAIT_SECONDS + SOON
    assert busy.got == sent
    figure(f"row 35 consumers that wait {WAIT_SECONDS:g} s: {len(sent)} messages of a busy one, each once, 0 waits cut")


def _empty(client: Client, queue: str) -> None:
    delivery = client.take(queue)
    assert delivery is not None
    client.ack(delivery)


def test_a_lease_that_nobody_renews_ends_after_its_time_and_not_before(mailbox: Running) -> None:
    with mailbox.client() as client:
        client.publish("q", {"n": 1})
        assert client.take("q") is not None
        began = time.monotonic()
        again = client.take("q", wait=LEASE_SECONDS + SOON)
        assert again is not None
        assert LEASE_SECONDS - 1 < time.monotonic() - began < LEASE_SECONDS + 10
        client.ack(again)
