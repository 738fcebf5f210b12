"""The wall clock is wrong when the engine starts, and is set later: what waits is judged anew, and never waits longer
than it was to wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kingdom.mq.budget import Budget
from kingdom.mq.message_format import Draft
from tests.faults.oracle import Figure
from tests.mq.rigs import QUEUE, Rig

HOUR_MS = 3_600_000
YEARS_MS = 50 * 365 * 24 * HOUR_MS
BEHIND = [-HOUR_MS, -YEARS_MS]
behind = pytest.mark.parametrize("step", BEHIND)
steps = pytest.mark.parametrize("step", [*BEHIND, HOUR_MS])


def restart(rig: Rig, step: int) -> None:
    """Restart with the wall clock set by `step` ms."""
    rig.step += step
    rig.reopen(kill=True)


@behind
def test_a_backlog_is_delivered_by_an_engine_whose_clock_is_behind(rig: Rig, step: int, figure: Figure) -> None:
    for text in ("one", "two"):
        rig.publish(text, ttl_ms=0)
    rig.publish("for me", target="c")
    restart(rig, step)
    assert rig.counts() == (3, 0, 0, 0)
    assert rig.lease_texts() == ["one", "two", "for me"]
    figure(f"queue on {rig.backend}: a backlog of 3 is delivered with the clock {-step / HOUR_MS:,.0f} h behind")


@behind
def test_a_delayed_message_waits_no_longer_than_its_delay(rig: Rig, step: int) -> None:
    rig.publish(delay_ms=60_000)
    restart(rig, step)
    assert rig.counts() == (0, 0, 1, 0)
    rig.sweep(59)
    assert rig.counts() == (0, 0, 1, 0)
    assert rig.mq.next_due() <= rig.clock.now + 1_000
    rig.sweep(1)
    assert rig.counts() == (1, 0, 0, 0)


@behind
def test_a_failed_message_waits_no_longer_than_its_pause(rig: Rig, step: int) -> None:
    rig.use({"retry": {"limit": 5, "backoff": "fixed", "initialDelaySec": 20, "maxDelaySec": 60}})
    rig.publish()
    rig.clock.pass_(7200)
    rig.nack(rig.lease())
    restart(rig, step)
    rig.sweep(19)
    assert rig.counts() == (0, 0, 1, 0)
    rig.sweep(1)
    assert rig.counts() == (1, 0, 0, 0)


@behind
def test_a_dead_letter_that_was_put_back_does_not_wait_again(rig: Rig, step: int) -> None:
    key = rig.die()
    rig.clock.pass_(7200)
    rig.mq.dead_letters.reprocess(key)
    rig.mq.commit()
    restart(rig, step)
    assert rig.counts() == (1, 0, 0, 0)


@behind
def test_a_lease_lasts_no_longer_than_it_was_given_for(rig: Rig, step: int) -> None:
    rig.publish()
    rig.clock.pass_(7200)
    leased = rig.lease(visibility_ms=30_000)
    rig.mq.extend(leased.message_key, leased.lease_id, 40_000)
    rig.mq.commit()
    restart(rig, step)
    rig.sweep(39)
    assert rig.counts() == (0, 1, 0, 0)
    rig.sweep(1)
    assert rig.counts() == (0, 0, 1, 0)


@behind
def test_when_the_clock_is_set_right_what_is_due_by_it_is_delivered(rig: Rig, step: int) -> None:
    rig.publish(delay_ms=60_000)
    rig.publish(delay_ms=HOUR_MS)
    restart(rig, step + 61_000)  # it was off for 61 s, and its clock is behind
    assert rig.counts() == (0, 0, 2, 0)
    rig.step = -step
    rig.sweep(2)
    assert rig.counts() == (1, 0, 1, 0)
    assert "mq.clock_set" in rig.said


@behind
def test_when_the_clock_is_set_right_an_old_lease_ends(rig: Rig, step: int) -> None:
    rig.publish()
    rig.lease(visibility_ms=60_000)
    restart(rig, step + 61_000)
    rig.sweep(2)
    assert rig.counts() == (0, 1, 0, 0)
    rig.step = -step
    rig.sweep(2)
    assert rig.counts()[1] == 0


def test_a_clock_that_was_ahead_and_is_set_back_keeps_nothing_longer_than_its_delay(rig: Rig) -> None:
    rig.publish(delay_ms=2 * HOUR_MS)
    rig.publish()
    rig.lease(visibility_ms=2 * HOUR_MS)
    restart(rig, HOUR_MS)
    rig.step = -HOUR_MS
    rig.sweep(3600 + 1)
    assert rig.counts() == (0, 1, 1, 0)
    rig.sweep(3600)
    assert rig.counts() == (1, 0, 1, 0)  # the lease has ended, and its message pauses


@steps
def test_what_this_run_has_begun_is_not_moved_by_a_step(rig: Rig, step: int) -> None:
    rig.publish(delay_ms=10 * HOUR_MS)
    restart(rig, 0)
    rig.publish(delay_ms=60_000)
    rig.publish()
    leased = rig.lease(visibility_ms=60_000)
    rig.step = step
    rig.sweep(59)
    assert rig.counts()[1] == 1
    assert rig.counts() == (0, 1, 2, 0)
    rig.mq.extend(leased.message_key, leased.lease_id, 60_000)
    rig.sweep(1)
    assert rig.counts() == (1, 1, 1, 0)
    rig.sweep(58)
    assert rig.counts()[1] == 1
    rig.sweep(1)
    assert rig.counts()[1] == 0


def test_after_the_jump_nothing_is_looked_at_without_need(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig("memory")
    rig.publish(delay_ms=HOUR_MS)
    due = rig.mq.next_due()
    assert due is not None
    rig.sweep(2)
    rig.sweep(2)
    assert rig.mq.next_due() == rig.clock.now + HOUR_MS - 4_000


@behind
def test_what_is_offered_to_another_store_and_given_back_does_not_wait_again(rig: Rig, step: int) -> None:
    rig.publish("one")
    restart(rig, step)
    assert rig.mq.handover.offer(QUEUE, "drain", 10, rig.clock.now)
    rig.sweep(3600)
    assert rig.counts() == (1, 0, 0, 0)


@behind
def test_messages_of_both_runs_are_found_moved_and_purged(rig: Rig, step: int) -> None:
    rig.publish("old", delay_ms=60_000)
    key = rig.publish("older", delay_ms=50_000)
    restart(rig, step)
    rig.mq.publish(QUEUE, Draft("new", delay_ms=60_000))
    rig.mq.commit()
    assert rig.counts() == (0, 0, 3, 0)
    assert len(rig.mq.peek(QUEUE)) == 3
    search = rig.mq.search(key)
    assert rig.mq.removal.delete(search, Budget())
    assert rig.mq.purge(QUEUE) == 2
    rig.mq.commit()
    assert rig.counts() == (0, 0, 0, 0)


@behind
def test_a_time_to_live_is_no_longer_than_it_was(rig: Rig, step: int) -> None:
    rig.publish(ttl_ms=60_000)
    rig.publish("for me", ttl_ms=60_000, target="c")
    rig.publish("later", ttl_ms=60_000, delay_ms=50_000)
    restart(rig, step)
    rig.sweep(59)
    assert rig.counts() == (3, 0, 0, 0)
    leased = rig.lease()
    rig.mq.give_back(leased.message_key, leased.lease_id)
    rig.sweep(1)
    assert rig.counts() == (0, 0, 0, 0)


@behind
def test_when_the_clock_is_set_right_what_has_lived_by_it_is_gone(rig: Rig, step: int) -> None:
    rig.publish(ttl_ms=60_000)
    rig.publish("longer", ttl_ms=HOUR_MS)
    restart(rig, step + 61_000)  # it was off for 61 s, and its clock is behind
    rig.sweep(2)
    assert rig.counts() == (2, 0, 0, 0)
    rig.step = -step
    rig.sweep(2)
    assert rig.lease_texts() == ["longer"]
    assert rig.lease() is None


def test_a_clock_that_was_ahead_and_is_set_back_ends_no_life_early(rig: Rig) -> None:
    rig.publish(ttl_ms=2 * HOUR_MS)
    restart(rig, HOUR_MS)
    rig.step = -HOUR_MS
    rig.sweep(2 * 3600 - 3)
    assert rig.counts() == (1, 0, 0, 0)
    rig.sweep(4)
    assert rig.counts() == (0, 0, 0, 0)


@steps
def test_a_step_does_not_move_the_life_of_what_this_run_has_published(rig: Rig, step: int) -> None:
    restart(rig, 0)
    rig.publish(ttl_ms=60_000)
    rig.step = step
    rig.sweep(59)
    assert rig.counts() == (1, 0, 0, 0)
    rig.sweep(1)
    assert rig.counts() == (0, 0, 0, 0)


@steps
def test_consumers_hear_by_the_clock_as_it_is_now_when_a_message_was_published(rig: Rig, step: int) -> None:
    rig.publish("before")
    rig.clock.pass_(10)
    restart(rig, 0)
    rig.clock.pass_(10)
    rig.publish("in this run")
    rig.clock.pass_(10)
    rig.step = step
    told = {message.payload: message.created_at for message in rig.mq.peek(QUEUE)}
    assert told == {"before": rig.clock.now - 30_000, "in this run": rig.clock.now + step - 10_000}
    assert {one.payload: one.created_at for one in rig.mq.lease(QUEUE, "c", 2)} == told


def test_what_has_gone_is_not_looked_for_again(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig("sqlite")
    rig.publish(ttl_ms=HOUR_MS)
    rig.reopen()
    rig.ack(rig.lease())
    rig.sweep(2)
    rig.sweep(2)
    rig.sweep(2)
    assert (rig.mq.next_due() or rig.clock.now + HOUR_MS) > rig.clock.now + 60_000
