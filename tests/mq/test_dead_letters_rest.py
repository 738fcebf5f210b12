"""A dead letter that its consumer gives back rests: a program that fails on all of them is no hot loop."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.mq.rigs import Rig

DEAD = "telemetry-dlq"


@pytest.fixture
def rig(open_rig: Callable[..., Rig]) -> Rig:
    return open_rig("memory", policy={"retry": {"limit": 3, "initialDelaySec": 4}})


def fail(rig: Rig) -> bool:
    """A worker's turn on the dead letters. Return whether there was one."""
    leased = rig.lease(queue=DEAD)
    if leased is not None:
        rig.nack(leased, "fails again")
    return leased is not None


def test_a_failing_program_gets_each_once_and_then_none(rig: Rig) -> None:
    for _ in range(3):
        rig.die()
    assert [fail(rig) for _ in range(4)] == [True, True, True, False]


def test_it_comes_again_when_it_has_rested(rig: Rig) -> None:
    rig.die()
    assert fail(rig)
    rig.sweep(3.9)
    assert not rig.mq.has_ready(DEAD, "c")
    rig.mq.arrived()
    due = rig.mq.next_due()
    assert due is not None
    rig.sweep((due - rig.clock.now) / 1000)
    assert rig.mq.arrived() == {DEAD}
    assert rig.mq.has_ready(DEAD, "c")
    assert fail(rig)


def test_without_back_off_it_rests_for_a_second(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig("memory", policy={"retry": {"limit": 1, "initialDelaySec": 0}})
    rig.die()
    assert fail(rig)
    rig.sweep(0.9)
    assert not fail(rig)
    rig.sweep(0.1)
    assert fail(rig)


def test_new_dead_letters_do_not_wait_for_those_that_rest(rig: Rig) -> None:
    rig.die()
    assert fail(rig)
    key = rig.die()
    assert rig.lease(queue=DEAD).message_key == key


def test_those_that_rest_are_reprocessed_moved_and_purged_like_others(rig: Rig) -> None:
    for _ in range(3):
        rig.die()
    while fail(rig):
        pass
    keys = [letter.message_key for letter in rig.mq.dead_letters.listed("telemetry")]
    assert rig.mq.dead_letters.reprocess(keys[0]) == keys[0]
    assert rig.finish(rig.mq.moving.move(DEAD, "elsewhere", 1)) == (1, 0)
    assert rig.mq.dead_letters.purge("telemetry") == 1
    rig.sweep(60)
    assert not fail(rig)
