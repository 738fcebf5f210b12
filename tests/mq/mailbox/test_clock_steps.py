"""Somebody sets the wall clock while the manager runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.mq.mailbox.boxes import ByHand

HOUR = 3600.0
PUBLISH = {"queue": "q", "message": {"n": 1}}
steps = pytest.mark.parametrize("step", [HOUR, -HOUR, 3 * 24 * HOUR, -50 * 365 * 24 * HOUR])


@steps
def test_a_step_ends_no_lease_and_keeps_none_longer(box: ByHand, step: float) -> None:
    box.data("publish", PUBLISH)
    lease = box.data("consume_next", {"queue": "q", "visibilityTimeoutSec": 30})["lease"]
    box.step += step
    box.now += 29
    assert box.data("consume_next", {"queue": "q"})["message"] is None
    box.data("extend_lease", {**lease, "visibilityTimeoutSec": 30})
    box.now += 31
    assert box.code("ack", lease) == "ERR_LEASE_EXPIRED"


@steps
def test_consumers_hear_by_their_own_clock_when_a_lease_ends(box: ByHand, step: float) -> None:
    box.data("publish", PUBLISH)
    box.step += step
    lease = box.data("consume_next", {"queue": "q", "visibilityTimeoutSec": 30})["lease"]
    assert lease["leaseUntil"] == int((box.now + step + 30) * 1000)
    until = box.data("extend_lease", {**lease, "visibilityTimeoutSec": 60})["leaseUntil"]
    assert until == int((box.now + step + 60) * 1000)


@steps
def test_who_waits_for_a_message_waits_as_long_as_it_said(box: ByHand, step: float) -> None:
    box.data("publish", PUBLISH)
    box.data("purge", {"queue": "q"})
    deadline = int((box.now + 30) * 1000)
    name = box.post("consume_next", {"queue": "q", "waitMs": 5000}, deadlineMs=deadline)
    box.turn()
    box.step += step
    box.now += 4
    box.turn()
    assert box.answer(name) is None
    assert box.server.wait_seconds() <= 1
    box.now += 1
    box.turn()
    assert (box.answer(name) or {})["data"] == {"message": None}


@steps
def test_answers_lie_for_five_minutes_all_the_same(box: ByHand, step: float) -> None:
    name = box.post("health")
    box.turn()
    path = box.box.responses / "me" / f"{name}.json"
    os.utime(path, (box.now, box.now))
    box.step += step
    box.now += 299
    box.turn()
    assert path.exists()
    if step > 0:
        for _ in range(3):
            box.now += 299
            box.turn()
        assert not path.exists()


@steps
def test_a_draft_of_a_client_stays_for_a_day(box: ByHand, step: float) -> None:
    draft = box.box.requests / "r.json.tmp"
    draft.write_text("{}")
    os.utime(draft, (box.now, box.now))
    box.step += step
    box.now += 60
    box.turn()
    assert draft.exists()


def test_delayed_messages_are_judged_by_the_wall_clock_after_a_restart(home: Path) -> None:
    box = ByHand(home)
    box.data("publish", {**PUBLISH, "delayMs": 60_000})
    box.step += HOUR
    assert box.data("consume_next", {"queue": "q"})["message"] is None
    box.reopen()
    assert box.data("consume_next", {"queue": "q"})["message"] is not None
    box.engine.close()
