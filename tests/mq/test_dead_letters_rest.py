"""A dead letter that its consumer gives back rests: a program that fails on all of them is no hot loop."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kingdom.mq.budget import Budget
from tests.mq.houses import House

DEAD = "telemetry-dlq"


@pytest.fixture
def house(open_house: Callable[..., House]) -> House:
    return open_house("memory", policy={"retry": {"limit": 3, "initialDelaySec": 4}})


def fail(house: House) -> bool:
    """A worker's turn on the dead letters. Return whether there was one."""
    leased = house.lease(queue=DEAD)
    if leased is not None:
        house.nack(leased, "fails again")
    return leased is not None


def test_a_failing_program_gets_each_once_and_then_none(house: House) -> None:
    for _ in range(3):
        house.die()
    assert [fail(house) for _ in range(4)] == [True, True, True, False]


def test_it_comes_again_when_it_has_rested(house: House) -> None:
    house.die()
    assert fail(house)
    house.sweep(3.9)
    assert not house.mq.has_ready(DEAD, "c")
    house.mq.arrived()
    due = house.mq.next_due()
    assert due is not None
    house.sweep((due - house.clock.now) / 1000)
    assert house.mq.arrived() == {DEAD}
    assert house.mq.has_ready(DEAD, "c")
    assert fail(house)


def test_without_back_off_it_rests_for_a_second(open_house: Callable[..., House]) -> None:
    house = open_house("memory", policy={"retry": {"limit": 1, "initialDelaySec": 0}})
    house.die()
    assert fail(house)
    house.sweep(0.9)
    assert not fail(house)
    house.sweep(0.1)
    assert fail(house)


def test_new_dead_letters_do_not_wait_for_those_that_rest(house: House) -> None:
    house.die()
    assert fail(house)
    key = house.die()
    assert house.lease(queue=DEAD).message_key == key


def test_those_that_rest_are_reprocessed_moved_and_purged_like_others(house: House) -> None:
    for _ in range(3):
        house.die()
    while fail(house):
        pass
    keys = [letter.message_key for letter in house.mq.dead_letters.listed("telemetry")]
    assert house.mq.dead_letters.reprocess(keys[0]) == keys[0]
    moving = house.mq.moving.moving(DEAD, "elsewhere", 1)
    assert house.mq.moving.move_some(moving, Budget(), house.clock.now)
    assert moving.moved == 1
    assert house.mq.dead_letters.purge("telemetry") == 1
    house.sweep(60)
    assert not fail(house)
