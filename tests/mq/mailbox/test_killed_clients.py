"""A client that is killed while it waits gets nothing: the next message goes to somebody who lives."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from tests.mq.mailbox.boxes import ByHand, Running

PUBLISH = {"queue": "q", "message": {"n": 1}}
WAITS = """
import sys
from kingdom.mq import Client
with Client(sys.argv[1], "worker") as client:
    print("ready", flush=True)
    client.take(sys.argv[2], wait=60)
"""


@pytest.mark.parametrize("locked", [True, False])
def test_a_message_goes_only_to_those_who_hold_their_lock(box: ByHand, locked: bool) -> None:
    drafts = box.box.responses / "me" / ".drafts1"
    drafts.mkdir(parents=True)
    held = os.open(drafts, os.O_RDONLY)
    if locked:
        fcntl.flock(held, fcntl.LOCK_EX)
    name = box.post("consume_next", {"queue": "q", "waitMs": 5000}, aliveWhileLocked=".drafts1")
    box.turn()
    box.data("publish", PUBLISH, client="other")
    assert (box.answer(name) is not None) is locked
    assert box.names(box.box.processing) == []
    assert box.data("status", {"queue": "q"}, client="other")["metrics"]["ready"] == int(not locked)
    os.close(held)


@pytest.mark.parametrize("name", [".gone", "../.drafts1", "", 7, None])
def test_a_client_that_names_no_lock_is_served(box: ByHand, name: object) -> None:
    asked = box.post("consume_next", {"queue": "q", "waitMs": 5000}, aliveWhileLocked=name)
    box.turn()
    box.data("publish", PUBLISH, client="other")
    assert box.answer(asked) is not None


def test_the_next_message_of_a_killed_worker_waits_for_no_lease(own_manager: Running) -> None:
    words = [sys.executable, "-c", WAITS, str(own_manager.root), "jobs"]
    with own_manager.client("me") as client, subprocess.Popen(words, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
        processing = own_manager.root / "processing"
        while not list(processing.iterdir()):
            client.health()
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        client.publish("jobs", {"n": 1})
        delivery = client.take("jobs")
        assert delivery is not None
        assert delivery.payload == {"n": 1}
        assert list(processing.iterdir()) == []
