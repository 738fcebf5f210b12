"""Every store keeps the same promises. One more row in STORES is tested without a word here."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kingdom.mq.engine import Stored
from kingdom.mq.errors import (
    DeadLetterNotFound,
    InvalidRequest,
    LeaseExpired,
    LeaseMismatch,
    MessageNotFound,
    QueueNotFound,
    ValidationFailed,
)
from kingdom.mq.message_format import Draft
from kingdom.mq.policy import Policy
from kingdom.mq.queues import EngineSettings
from kingdom.mq.stores import STORES
from tests.mq.rigs import PAYLOAD, QUEUE, Rig

Open = Callable[..., Rig]
PERSISTENT = sorted(set(STORES) - {"memory"})
LIMIT_OF_2 = {"retry": {"limit": 2, "initialDelaySec": 1}}


def test_what_was_published_is_leased_word_for_word(rig: Rig) -> None:
    key = rig.publish(' {"b": 1,\n  "a": [1.50, "ü\\u00fc"]} ', attributes='{"deviceId": "d-1"}', priority=3)
    leased = rig.lease("consumer-01")
    assert leased.message_key == key == f"msg:{QUEUE}:{leased.message_id}"
    assert leased.payload == ' {"b": 1,\n  "a": [1.50, "ü\\u00fc"]} '
    assert json.loads(leased.attributes) == {"deviceId": "d-1"}
    assert (leased.priority, leased.attempt, leased.consumer) == (3, 1, "consumer-01")
    assert leased.lease_until == rig.clock.now + 30_000
    assert leased.created_at == rig.clock.now


@pytest.mark.parametrize("text", ["hello", "", "{broken", "NaN", '"quoted', "[" * 3000, "a\n}\n", '"', "null", "12"])
def test_any_text_can_be_sent(rig: Rig, text: str) -> None:
    rig.publish(text)
    assert rig.lease().payload == text


def test_the_envelope_comes_along(rig: Rig) -> None:
    rig.publish(type="sensor.reading", version=2, trace_id="t-1", dedup_key="k", attributes='{"a": "b"}')
    envelope = rig.lease().envelope()
    assert (envelope["type"], envelope["version"], envelope["traceId"]) == ("sensor.reading", 2, "t-1")
    assert envelope["deduplicationKey"] == "k"
    assert envelope["createdAt"] == rig.clock.now


def test_higher_priority_goes_first_and_equals_in_the_order_of_publishing(rig: Rig) -> None:
    for number, priority in enumerate([0, 5, -3, 5, 0]):
        rig.publish(str(number), priority=priority)
    assert rig.lease_texts() == ["1", "3", "0", "4", "2"]


def test_the_order_survives_a_restart(rig: Rig) -> None:
    for number in range(20):
        rig.publish(str(number), priority=number % 3)
    rig.reopen()
    for number in range(20, 30):
        rig.publish(str(number), priority=number % 3)
    expected = sorted(range(30), key=lambda number: (-(number % 3), number))
    assert rig.lease_texts() == [str(number) for number in expected]


def test_a_delayed_message_waits_for_its_time(rig: Rig) -> None:
    rig.publish("later", delay_ms=5_000)
    assert rig.lease() is None
    assert rig.counts() == (0, 0, 1, 0)
    assert rig.sweep() == rig.clock.now + 5_000 or rig.backend == "filesystem"
    rig.sweep(5)
    assert rig.counts() == (1, 0, 0, 0)
    assert rig.lease().payload == "later"


def test_a_delayed_message_waits_across_a_restart(rig: Rig) -> None:
    rig.publish("later", delay_ms=5_000)
    rig.reopen()
    assert rig.lease() is None
    rig.clock.pass_(5)
    assert rig.lease().payload == "later"


def test_a_due_message_keeps_its_place_by_priority_then_time_due(rig: Rig) -> None:
    rig.publish("delayed", delay_ms=1_000)
    rig.clock.pass_(2)
    rig.publish("fresh")
    rig.publish("urgent", priority=1)
    assert rig.lease_texts() == ["urgent", "delayed", "fresh"]


def test_only_the_target_may_lease_what_is_meant_for_it(rig: Rig) -> None:
    rig.publish("for a", target="a")
    rig.publish("for all")
    rig.reopen()
    assert rig.lease_texts(consumer="b") == ["for all"]
    assert rig.mq.has_ready(QUEUE, "a")
    assert not rig.mq.has_ready(QUEUE, "b")
    assert rig.counts() == (1, 1, 0, 0)
    assert rig.lease_texts(consumer="a") == ["for a"]


def test_a_message_that_outlives_its_ttl_is_purged(rig: Rig) -> None:
    rig.publish("short", ttl_ms=1_000)
    rig.publish("long", ttl_ms=60_000)
    rig.publish("held", ttl_ms=1_000, priority=9)
    held = rig.lease()
    rig.reopen()
    rig.sweep(1)
    assert rig.counts() == (1, 1, 0, 0)
    rig.ack(held)
    assert rig.lease_texts() == ["long"]


def test_a_message_outlives_its_ttl_after_a_retry_as_well(rig: Rig) -> None:
    rig.publish("short", ttl_ms=60_000)
    rig.nack(rig.lease())
    assert sum(rig.counts()) == 1
    rig.sweep(60)
    assert rig.counts() == (0, 0, 0, 0)


def test_an_expired_message_is_never_handed_out_even_before_a_sweep(rig: Rig) -> None:
    rig.publish("short", ttl_ms=1_000)
    rig.clock.pass_(1)
    assert rig.lease() is None
    rig.reopen()
    assert rig.counts() == (0, 0, 0, 0)


def test_an_acknowledged_message_is_gone_for_good(rig: Rig) -> None:
    rig.publish()
    leased = rig.lease()
    rig.ack(leased)
    assert rig.counts() == (0, 0, 0, 0)
    rig.reopen()
    rig.sweep(3600)
    assert rig.lease() is None


def test_the_same_ack_again_is_fine_and_another_is_not(rig: Rig) -> None:
    rig.publish()
    leased = rig.lease("a")
    rig.ack(leased)
    rig.mq.ack(leased.message_key, leased.lease_id)
    rig.mq.ack(leased.message_key, consumer="a")
    with pytest.raises(LeaseMismatch):
        rig.mq.ack(leased.message_key, "0123456789abcdef")
    with pytest.raises(LeaseMismatch):
        rig.mq.ack(leased.message_key, consumer="b")


def test_a_lease_can_be_ended_after_a_restart(rig: Rig) -> None:
    rig.publish("one")
    rig.publish("two")
    one, two = rig.lease("a"), rig.lease("a")
    rig.reopen(kill=True)
    assert rig.counts() == (0, 2, 0, 0)
    with pytest.raises(LeaseMismatch):
        rig.mq.ack(one.message_key, two.lease_id)
    with pytest.raises(LeaseMismatch):
        rig.mq.ack(one.message_key, consumer="b")
    rig.mq.ack(one.message_key, consumer="a")
    rig.ack(two)
    assert rig.counts() == (0, 0, 0, 0)


def test_a_wrong_lease_changes_nothing(rig: Rig) -> None:
    rig.publish()
    leased = rig.lease("a")
    for call in (rig.mq.ack, rig.mq.nack, rig.mq.extend):
        with pytest.raises(LeaseMismatch):
            call(leased.message_key, "0123456789abcdef")
        with pytest.raises(LeaseMismatch):
            call(leased.message_key, consumer="b")
        with pytest.raises(MessageNotFound):
            call(f"msg:{QUEUE}:0199f2c1-5a2b-7000-802a-3c9d1e5f7a90", leased.lease_id)
        with pytest.raises(MessageNotFound):
            call("nonsense", leased.lease_id)
    assert rig.counts() == (0, 1, 0, 0)
    rig.ack(leased)


def test_a_message_that_only_waits_cannot_be_acknowledged(rig: Rig) -> None:
    key = rig.publish()
    with pytest.raises(LeaseMismatch):
        rig.mq.ack(key, "0123456789abcdef")
    assert rig.counts() == (1, 0, 0, 0)


def test_an_expired_lease_cannot_be_ended_and_the_message_comes_again(rig: Rig) -> None:
    rig.publish()
    first = rig.lease("a")
    rig.clock.pass_(30)
    with pytest.raises(LeaseExpired):
        rig.mq.ack(first.message_key, first.lease_id)
    rig.sweep()
    assert rig.counts() == (0, 0, 1, 0)
    with pytest.raises(LeaseExpired):
        rig.mq.ack(first.message_key, first.lease_id)
    rig.sweep(1)
    second = rig.lease("b")
    assert (second.attempt, second.message_key) == (2, first.message_key)
    with pytest.raises(LeaseExpired):
        rig.mq.ack(first.message_key, first.lease_id)
    rig.ack(second)


def test_a_lease_that_ran_out_during_a_stop_is_noticed(rig: Rig) -> None:
    rig.publish()
    rig.lease()
    rig.reopen(kill=True)
    rig.sweep(31)
    rig.sweep(1)
    assert rig.lease().attempt == 2


def test_an_extended_lease_holds_as_long_as_was_said(rig: Rig) -> None:
    rig.publish()
    leased = rig.lease(visibility_ms=1_000)
    assert rig.mq.extend(leased.message_key, leased.lease_id, 60_000) == rig.clock.now + 60_000
    rig.mq.commit()
    rig.reopen(kill=True)
    rig.sweep(59)
    assert rig.counts() == (0, 1, 0, 0)
    rig.ack(leased)


def test_many_are_leased_at_once(rig: Rig) -> None:
    rig.mq.publish_batch(QUEUE, [Draft(str(number)) for number in range(10)])
    rig.mq.commit()
    leased = rig.mq.lease(QUEUE, "c", limit=4)
    assert [message.payload for message in leased] == ["0", "1", "2", "3"]
    assert len({message.lease_id for message in leased}) == 4
    assert rig.counts() == (6, 4, 0, 0)


def test_published_and_leased_in_one_group(rig: Rig) -> None:
    """Nothing has been committed yet, and the message is already where it will be."""
    rig.mq.publish(QUEUE, Draft("quick"))
    [leased] = rig.mq.lease(QUEUE, "c")
    rig.mq.commit()
    rig.reopen(kill=True)
    assert rig.counts() == (0, 1, 0, 0)
    rig.ack(leased)
    rig.mq.publish(QUEUE, Draft("quicker"))
    [leased] = rig.mq.lease(QUEUE, "c")
    rig.mq.ack(leased.message_key, leased.lease_id)
    rig.mq.commit()
    rig.reopen(kill=True)
    assert rig.counts() == (0, 0, 0, 0)


def test_a_nack_waits_longer_each_time_and_ends_among_the_dead(rig: Rig) -> None:
    rig.use({"retry": {"limit": 3, "initialDelaySec": 2, "maxDelaySec": 3}, "poisonAfter": 0})
    key = rig.publish()
    for attempt, wait in ((1, 2), (2, 3)):
        leased = rig.lease()
        assert leased.attempt == attempt
        assert rig.nack(leased, "no") == "retry"
        rig.reopen()
        rig.sweep(wait - 0.001)
        assert rig.lease() is None
        rig.sweep(0.001)
    assert rig.nack(rig.lease(), "no") == "dlq"
    [letter] = rig.mq.dead_letters.listed(QUEUE)
    assert (letter.message_key, letter.reason, letter.message, letter.attempt) == (key, "RETRY_EXCEEDED", "no", 3)


def test_a_nack_without_requeue_goes_to_the_dead_letters_with_its_reason(rig: Rig) -> None:
    key = rig.publish('{"temp": 1}', type="t")
    leased = rig.lease("consumer-01")
    assert rig.nack(leased, 'bad "value"\n\'; DROP TABLE kv; --', requeue=False) == "dlq"
    rig.reopen()
    [letter] = rig.mq.dead_letters.listed(QUEUE)
    record = json.loads(letter.record)
    assert letter.message_key == key
    assert record["originalMessage"]["payload"] == {"temp": 1}
    assert record["originalMessage"]["type"] == "t"
    assert record["failure"] == {
        "reasonCode": "HANDLER_ERROR",
        "reasonMessage": 'bad "value"\n\'; DROP TABLE kv; --',
        "failedAt": "2026-02-07T10:00:00Z",
        "attempt": 1,
        "consumerId": "consumer-01",
    }
    assert record["routing"] == {"sourceQueue": QUEUE, "dlqQueue": f"{QUEUE}-dlq"}
    assert rig.counts() == (0, 0, 0, 1)


def test_a_lease_that_ends_too_often_is_a_timeout(rig: Rig) -> None:
    rig.use(LIMIT_OF_2)
    rig.publish()
    for _ in range(2):
        rig.lease()
        rig.sweep(30)
        rig.sweep(1)
    [letter] = rig.mq.dead_letters.listed(QUEUE)
    assert (letter.reason, letter.attempt) == ("TIMEOUT", 2)


@pytest.mark.parametrize(
    ("on", "reasons", "reason"),
    [
        (0, ("b", "b", "b", "b"), "RETRY_EXCEEDED"),
        (3, ("b", "b", "b", "b"), "POISON"),
        (3, ("a", "b", "b", "b"), "RETRY_EXCEEDED"),
        (3, ("b", "", "b", "b"), "RETRY_EXCEEDED"),
        (5, ("b", "b", "b", "b"), "RETRY_EXCEEDED"),
    ],
)
def test_poison_is_a_message_whose_tries_all_failed_alike(
    rig: Rig, on: int, reasons: tuple[str, ...], reason: str
) -> None:
    rig.use({"retry": {"limit": 4, "backoff": "fixed", "initialDelaySec": 0}, "poisonAfter": on})
    rig.publish("sick")
    for said in reasons[:-1]:
        assert rig.nack(rig.lease(), said) == "retry"
        rig.reopen()
    assert rig.nack(rig.lease(), reasons[-1]) == "dlq"
    [letter] = rig.mq.dead_letters.listed(QUEUE)
    assert (letter.reason, letter.attempt) == (reason, 4)


def test_without_a_word_about_it_no_message_is_poison(rig: Rig) -> None:
    rig.use({"retry": {"backoff": "fixed", "initialDelaySec": 0}})
    rig.publish("sick")
    assert [rig.nack(rig.lease(), "exit 1") for _ in range(5)] == ["retry"] * 4 + ["dlq"]
    assert [letter.reason for letter in rig.mq.dead_letters.listed(QUEUE)] == ["RETRY_EXCEEDED"]


@pytest.mark.parametrize("size", [7_400, 7_700, 8_000, 8_192, 8_300])
@pytest.mark.parametrize("kill", [True, False])
def test_a_dead_letter_that_is_larger_than_its_message_outlives_a_kill(rig: Rig, size: int, kill: bool) -> None:
    """A store may keep small and large bodies in two places."""
    rig.publish("first")
    text = json.dumps("x" * size)
    key = rig.publish(text)
    for _ in range(2):
        rig.nack(rig.lease(), "broken", requeue=False)
    rig.reopen(kill=kill)
    letter = rig.mq.dead_letters.listed(QUEUE)[1]
    assert (letter.message_key, letter.message) == (key, "broken")
    assert rig.mq.dead_letters.reprocess(key) == key
    rig.mq.commit()
    rig.reopen(kill=kill)
    assert rig.lease_texts() == [text]


def test_without_dead_letters_the_exhausted_go_to_the_archive_and_it_is_said(rig: Rig) -> None:
    rig.use({"dlq": {"enabled": False}, "retry": {"limit": 1}})
    rig.publish()
    assert rig.nack(rig.lease(), "no") == "archived"
    rig.reopen()
    assert rig.counts() == (0, 0, 0, 0)
    assert "mq.dropped" in rig.said
    assert rig.mq.dead_letters.listed(f"{QUEUE}-dlq") == []


def test_jitter_spreads_the_wait(open_rig: Open, backend: str) -> None:
    rig = open_rig(backend, random=lambda: 0.25)
    rig.use({"retry": {"backoff": "fixed", "initialDelaySec": 4, "jitter": "full"}})
    rig.publish()
    rig.nack(rig.lease())
    rig.sweep(0.999)
    assert rig.lease() is None
    rig.sweep(0.001)
    assert rig.lease() is not None


def test_a_dead_letter_comes_back_as_new(rig: Rig) -> None:
    rig.use(LIMIT_OF_2)
    rig.publish("again", attributes='{"a": 1}', priority=4, target="c")
    for _ in range(2):
        leased = rig.lease()
        rig.nack(leased, "no")
        rig.sweep(1)
    assert rig.mq.dead_letters.reprocess(leased.message_key) == leased.message_key
    rig.mq.commit()
    rig.reopen()
    again = rig.lease()
    assert (again.payload, again.attempt, again.priority, again.message_key) == ("again", 1, 4, leased.message_key)
    assert json.loads(again.attributes) == {"a": 1}
    assert rig.counts() == (0, 1, 0, 0)


def test_only_dead_letters_are_reprocessed(rig: Rig) -> None:
    key = rig.publish()
    for wrong in (key, "nonsense", f"msg:{QUEUE}:0199f2c1-5a2b-7000-802a-3c9d1e5f7a90"):
        with pytest.raises(DeadLetterNotFound):
            rig.mq.dead_letters.reprocess(wrong)
        with pytest.raises(DeadLetterNotFound):
            rig.mq.dead_letters.quarantine(wrong)


def test_dead_letters_are_counted_and_reprocessed_by_reason(rig: Rig) -> None:
    rig.use({"retry": {"limit": 1}})
    rig.die()
    rig.clock.pass_(10)
    rig.publish()
    rig.nack(rig.lease(), "no")
    assert rig.mq.dead_letters.counts(QUEUE) == {"HANDLER_ERROR": 1, "RETRY_EXCEEDED": 1}
    assert rig.mq.dead_letters.counts(QUEUE, since_ms=5_000) == {"RETRY_EXCEEDED": 1}
    assert len(rig.mq.dead_letters.reprocess_all(QUEUE, older_than_ms=5_000)) == 1
    assert rig.mq.dead_letters.reprocess_all(QUEUE, reason_code="TIMEOUT") == []
    assert len(rig.mq.dead_letters.reprocess_all(QUEUE, reason_code="RETRY_EXCEEDED", limit=5)) == 1
    assert rig.counts() == (2, 0, 0, 0)


def test_the_quarantined_are_passed_over(rig: Rig) -> None:
    kept = rig.die()
    rig.die()
    rig.mq.dead_letters.quarantine(kept)
    rig.mq.commit()
    rig.reopen()
    assert [letter.quarantined for letter in rig.mq.dead_letters.listed(QUEUE)] == [True, False]
    assert len(rig.mq.dead_letters.reprocess_all(QUEUE)) == 1
    assert rig.mq.dead_letters.purge(QUEUE) == 0
    assert rig.lease(queue=f"{QUEUE}-dlq") is None
    rig.mq.dead_letters.quarantine(kept, on=False)
    assert rig.mq.dead_letters.purge(QUEUE) == 1
    assert rig.counts() == (1, 0, 0, 0)


def test_old_dead_letters_are_archived(rig: Rig) -> None:
    rig.use({"dlq": {"retentionDays": 1}})
    rig.die()
    rig.clock.pass_(86_000)
    rig.die()
    rig.sweep(1_000)
    rig.sweep(3_600)
    assert rig.counts() == (0, 0, 0, 1)
    rig.reopen()
    assert rig.counts() == (0, 0, 0, 1)


def test_the_dead_letter_queue_is_consumed_like_any_queue(rig: Rig) -> None:
    key = rig.die(reason="first")
    rig.clock.pass_(1)
    rig.die(reason="second")
    letter = rig.lease(queue=f"{QUEUE}-dlq")
    assert letter.message_key == key
    assert json.loads(letter.payload)["failure"]["reasonMessage"] == "first"
    assert rig.counts() == (0, 1, 0, 1)
    rig.reopen(kill=True)
    assert rig.nack(letter) == "dlq"
    assert rig.counts() == (0, 0, 0, 2)
    second = rig.lease(queue=f"{QUEUE}-dlq")
    assert second.message_key != key
    rig.ack(second)
    rig.reopen()
    assert [dead.message for dead in rig.mq.dead_letters.listed(f"{QUEUE}-dlq")] == ["first"]
    assert rig.mq.status(f"{QUEUE}-dlq").ready == 1


def test_a_leased_dead_letter_returns_when_its_lease_ends(rig: Rig) -> None:
    rig.die()
    rig.lease(queue=f"{QUEUE}-dlq")
    rig.reopen(kill=True)
    rig.sweep(30)
    assert rig.counts() == (0, 0, 0, 1)
    [letter] = rig.mq.dead_letters.listed(QUEUE)
    assert letter.dlq_at == rig.clock.now - 30_000


def test_the_same_request_publishes_once(rig: Rig) -> None:
    first = rig.mq.publish(QUEUE, Draft("x"), "req-1")
    assert rig.mq.publish(QUEUE, Draft("x"), "req-1") == first._replace(duplicate=True)
    rig.mq.commit()
    rig.reopen(kill=True)
    assert rig.mq.publish(QUEUE, Draft("x"), "req-1") == first._replace(duplicate=True)
    rig.ack(rig.lease())
    rig.reopen(kill=True)
    assert rig.mq.publish(QUEUE, Draft("x"), "req-1") == first._replace(duplicate=True)
    assert rig.counts() == (0, 0, 0, 0)


OTHER_REQUESTS: dict[str, tuple[str, Draft, str, str]] = {
    "client": (QUEUE, Draft("x"), "req-1", "b"),
    "queue": ("elsewhere", Draft("x"), "req-1", "a"),
    "payload": (QUEUE, Draft("y"), "req-1", "a"),
    "priority": (QUEUE, Draft("x", priority=1), "req-1", "a"),
    "id": (QUEUE, Draft("x"), "req-2", "a"),
}


@pytest.mark.parametrize("differs", OTHER_REQUESTS)
def test_a_request_with_the_same_id_that_differs_is_a_new_message(rig: Rig, differs: str) -> None:
    first = rig.mq.publish(QUEUE, Draft("x"), "req-1", "a")
    other = rig.mq.publish(*OTHER_REQUESTS[differs])
    assert (other.message_id != first.message_id, other.duplicate) == (True, False)
    rig.mq.commit()
    rig.reopen(kill=True)
    for asked, message in (((QUEUE, Draft("x"), "req-1", "a"), first), (OTHER_REQUESTS[differs], other)):
        assert rig.mq.publish(*asked) == message._replace(duplicate=True)


def test_a_batch_with_the_same_id_and_other_content_is_new_messages(rig: Rig) -> None:
    for text in ("x", "y"):
        rig.mq.publish_batch(QUEUE, [Draft(text), Draft(text)], "req-1", "a")
    assert rig.counts() == (4, 0, 0, 0)


def test_the_same_batch_publishes_once_and_each_of_it_for_itself(rig: Rig) -> None:
    rig.use({"schema": {"type": "object"}})
    drafts = [Draft("{}"), Draft("7"), Draft('{"b": 1}')]
    first = rig.mq.publish_batch(QUEUE, drafts, "req-2")
    rig.mq.commit()
    assert [type(answer) for answer in first] == [Stored, ValidationFailed, Stored]
    rig.reopen(kill=True)
    again = rig.mq.publish_batch(QUEUE, drafts, "req-2")
    assert isinstance(again[1], ValidationFailed)
    assert [answer._replace(duplicate=False) for answer in again if isinstance(answer, Stored)] == [
        first[0],
        first[2],
    ]
    assert rig.counts() == (2, 0, 0, 0)


def test_a_deduplication_key_counts_once_within_its_window(rig: Rig) -> None:
    key = rig.publish("first", dedup_key="d")
    assert rig.publish("second", dedup_key="d") == key
    assert rig.publish("elsewhere", queue="other", dedup_key="d") != key
    rig.ack(rig.lease())
    rig.reopen(kill=True)
    rig.clock.pass_(299)
    assert rig.publish("third", dedup_key="d") == key
    rig.clock.pass_(1)
    assert rig.publish("fourth", dedup_key="d") != key
    assert rig.lease_texts() == ["fourth"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 1_000_001},
        {"delay_ms": -1},
        {"delay_ms": 10**13},
        {"ttl_ms": -5},
        {"attributes": "[1]"},
        {"attributes": "{"},
        {"type": "\ud800"},
        {"dedup_key": "\udfff"},
    ],
)
def test_a_draft_out_of_bounds_is_refused(rig: Rig, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        rig.publish(**wrong)  # type: ignore[arg-type]
    rig.mq.commit()
    assert rig.counts() == (0, 0, 0, 0)


def test_a_lone_surrogate_is_no_message(rig: Rig) -> None:
    with pytest.raises(InvalidRequest):
        rig.publish("\ud800")


@pytest.mark.parametrize("queue", ["", "a\nb", "a\0b", "\x7f", "x" * 257, "a\ud800"])
def test_a_name_that_cannot_be_printed_is_no_queue(rig: Rig, queue: str) -> None:
    with pytest.raises(InvalidRequest):
        rig.publish(queue=queue)
    assert queue not in rig.mq.queues.names()


def test_a_payload_that_does_not_fit_is_refused(rig: Rig) -> None:
    rig.use(
        {
            "schema": {"type": "object", "required": ["temp"]},
            "messageSchema": {"rules": [{"field": "temp", "type": "maxValue", "value": 100}]},
        }
    )
    rig.reopen()
    with pytest.raises(ValidationFailed, match="temp"):
        rig.publish("{}")
    with pytest.raises(ValidationFailed, match=r"payload\.temp"):
        rig.publish('{"temp": 101}')
    rig.publish('{"temp": 99}')
    assert rig.counts() == (1, 0, 0, 0)


def test_unknown_queues_are_named_as_such(rig: Rig) -> None:
    for call in (rig.mq.queues.pause, rig.mq.peek, rig.mq.purge, rig.mq.dead_letters.counts):
        with pytest.raises(QueueNotFound):
            call("nowhere")


def test_a_queue_that_nobody_has_published_to_is_empty(rig: Rig) -> None:
    assert rig.mq.lease("nowhere", "c") == rig.mq.dead_letters.listed("nowhere") == []
    assert rig.counts("nowhere") == (0, 0, 0, 0)
    assert rig.mq.queues.names() == []
    with pytest.raises(InvalidRequest):
        rig.mq.lease("no\nwhere", "c")


def test_strict_settings_take_only_named_queues(open_rig: Open, backend: str) -> None:
    rig = open_rig(backend, strict=True, queues={QUEUE: {}})
    rig.publish()
    with pytest.raises(QueueNotFound):
        rig.publish(queue="other")
    for call in (rig.mq.status, rig.mq.dead_letters.listed, lambda queue: rig.mq.lease(queue, "c")):
        with pytest.raises(QueueNotFound):
            call("other")
    assert rig.mq.queues.names() == [QUEUE]


@pytest.mark.parametrize(
    "queue",
    [
        "a b",
        "../../etc",
        "/",
        ".",
        "..",
        ".hidden",
        "a'b\"c",
        "q%2F",
        "q/",
        "%",
        "~",
        "큐",
        "a:b",
        "-rf",
        "x" * 256,
        "é" * 200,
    ],
)
def test_any_printable_text_names_a_queue(rig: Rig, queue: str) -> None:
    key = rig.publish(queue=queue)
    rig.publish("other", queue=f"{queue[:200]}x")
    rig.reopen()
    assert queue in rig.mq.queues.names()
    leased = rig.lease(queue=queue)
    assert leased.message_key == key == f"msg:{queue}:{leased.message_id}"
    rig.nack(leased, "x", requeue=False)
    rig.reopen()
    assert rig.counts(queue) == (0, 0, 0, 1)
    rig.mq.dead_letters.reprocess(key)
    assert rig.lease_texts(queue=queue) == [PAYLOAD]


def test_a_paused_queue_takes_but_does_not_give(rig: Rig) -> None:
    rig.publish()
    rig.mq.queues.pause(QUEUE)
    rig.reopen()
    assert rig.lease() is None
    assert not rig.mq.has_ready(QUEUE, "c")
    assert rig.mq.status(QUEUE).paused
    rig.publish()
    rig.mq.arrived()
    rig.mq.queues.resume(QUEUE)
    assert QUEUE in rig.mq.arrived()
    assert len(rig.lease_texts()) == 2


def test_a_policy_is_kept_with_its_queue(rig: Rig) -> None:
    rig.use({"visibilityTimeoutSec": 5, "retry": {"limit": 7}})
    rig.reopen()
    policy = rig.mq.status(QUEUE).policy
    assert (policy.visibility_ms, policy.retry.limit, policy.retry.longest_s) == (5_000, 7, 60)
    rig.publish()
    assert rig.lease().lease_until == rig.clock.now + 5_000


def test_a_look_at_a_queue_takes_nothing_out(rig: Rig) -> None:
    rig.publish("b")
    rig.publish("a", priority=1)
    rig.publish("c", delay_ms=1_000)
    assert [(message.payload, message.state) for message in rig.mq.peek(QUEUE)] == [
        ("a", "ready"),
        ("b", "ready"),
        ("c", "delayed"),
    ]
    assert [message.payload for message in rig.mq.peek(QUEUE, limit=1)] == ["a"]
    assert rig.counts() == (2, 0, 1, 0)


def test_purge_removes_what_waits_and_nothing_else(rig: Rig) -> None:
    rig.publish("held")
    held = rig.lease()
    for number in range(7):
        rig.publish(str(number), delay_ms=1_000 * (number % 2), target="c" * (number % 3), ttl_ms=number * 1_000)
    assert rig.mq.purge(QUEUE, limit=4) == 4
    assert rig.mq.purge(QUEUE) == 3
    assert rig.mq.purge(QUEUE) == 0
    rig.mq.commit()
    rig.reopen()
    assert rig.counts() == (0, 1, 0, 0)
    rig.ack(held)


def test_acknowledged_messages_are_archived_where_wanted(rig: Rig) -> None:
    rig.use({"archive": True})
    rig.publish()
    rig.ack(rig.lease())
    rig.reopen()
    assert rig.counts() == (0, 0, 0, 0)
    rig.clock.pass_(15 * 86_400)
    assert [finding.kind for finding in rig.mq.check()] == ["stale_archive"]
    assert [finding.repaired for finding in rig.mq.check(repair=True)] == [True]
    assert rig.mq.check() == []


def test_status_counts_and_rates(rig: Rig) -> None:
    rig.publish("old")
    rig.clock.pass_(30)
    for _ in range(5):
        rig.publish()
    for _ in range(2):
        leased = rig.lease()
        rig.clock.pass_(0.5)
        rig.ack(leased)
    rig.nack(rig.lease(), "no")
    rig.sweep(1)
    status = rig.mq.status(QUEUE)
    assert (status.ready, status.delayed, status.inflight) == (4, 0, 0)
    assert status.oldest_age_ms == 2_000
    assert status.rates["published"] == 0.1
    assert status.rates["acked"] == round(2 / 60, 3)
    assert status.failure_rate == round(1 / 3, 4)
    assert (status.handling_mean_ms, status.handling_p99_ms) == (500, 500)


def test_a_clean_store_has_no_findings(rig: Rig) -> None:
    rig.publish()
    rig.publish(dedup_key="k", request="r")
    rig.lease()
    rig.die()
    assert rig.mq.check() == []
    assert rig.mq.check(repair=True) == []
    assert sum(rig.counts()) == 3


@pytest.mark.parametrize("backend", PERSISTENT)
def test_it_is_durable_against_power_cuts_too(open_rig: Open, backend: str) -> None:
    """What that means is tested by the fault checks; here, that nothing else is different."""
    rig = open_rig(backend, durability="power")
    rig.mq.publish_batch(QUEUE, [Draft(str(number)) for number in range(30)])
    rig.mq.commit()
    leased = rig.mq.lease(QUEUE, "c", 20)
    rig.mq.commit()
    for message in leased[:10]:
        rig.mq.ack(message.message_key, message.lease_id)
    rig.mq.nack(leased[10].message_key, leased[10].lease_id, requeue=False)
    rig.mq.commit()
    rig.reopen(kill=True)
    assert rig.counts() == (10, 9, 0, 1)
    assert rig.mq.check() == []


class AnyLife(RuleBasedStateMachine):
    """Whatever is done in whatever order, over restarts: nothing is lost, nothing is doubled."""

    backend = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.alive: set[str] = set()
        self.held: dict[str, object] = {}
        self.number = 0

    @initialize()
    def begin(self) -> None:
        import tempfile
        from pathlib import Path

        self.folder = tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp")
        self.rig = Rig(self.backend, Path(self.folder.name), policy={"retry": {"limit": 3}})
        self.rig.mq.queues.declare(QUEUE)

    @rule(priority=st.integers(-2, 2), delay=st.sampled_from([0, 0, 500]), aim=st.sampled_from(["", "", "a", "b"]))
    def publish(self, priority: int, delay: int, aim: str) -> None:
        self.number += 1
        text = json.dumps({"n": self.number})
        self.alive.add(self.rig.publish(text, priority=priority, delay_ms=delay, target=aim))

    @rule(consumer=st.sampled_from(["a", "b"]), limit=st.integers(1, 3))
    def lease(self, consumer: str, limit: int) -> None:
        for leased in self.rig.mq.lease(QUEUE, consumer, limit):
            assert leased.message_key in self.alive
            self.held[leased.message_key] = leased
        self.rig.mq.commit()

    @rule(which=st.integers(0, 5), how=st.sampled_from(["ack", "ack", "nack", "bury", "extend"]))
    def end(self, which: int, how: str) -> None:
        if not self.held:
            return
        key = sorted(self.held)[which % len(self.held)]
        leased = self.held.pop(key)
        try:
            if how == "ack":
                self.rig.ack(leased)
                self.alive.discard(key)
            elif how == "extend":
                self.rig.mq.extend(key, leased.lease_id, 5_000)  # type: ignore[attr-defined]
                self.rig.mq.commit()
                self.held[key] = leased
            else:
                self.rig.nack(leased, how, requeue=how == "nack")
        except LeaseExpired:
            pass

    @rule(seconds=st.sampled_from([0.1, 1, 31]))
    def wait(self, seconds: float) -> None:
        self.rig.sweep(seconds)

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        self.rig.reopen(kill)

    @rule()
    def revive(self) -> None:
        self.rig.mq.dead_letters.reprocess_all(QUEUE)
        self.rig.mq.commit()

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        if hasattr(self, "rig"):
            assert sum(self.rig.counts()) == len(self.alive)

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.close()
            self.folder.cleanup()


@pytest.mark.parametrize("backend", sorted(STORES))
def test_nothing_is_lost_or_doubled_whatever_happens(backend: str) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    machine = type("AnyLife", (AnyLife,), {"backend": backend})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@given(
    text=st.text(st.characters(codec="utf-8"), max_size=50),
    queue=st.text(string.printable[:95], min_size=1, max_size=20),
)
@settings(max_examples=30, deadline=None)
def test_any_text_travels_through_files(text: str, queue: str) -> None:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp") as folder:
        rig = Rig("filesystem", Path(folder))
        rig.publish(text, queue=queue, trace_id=text)
        rig.reopen(kill=True)
        leased = rig.lease(queue=queue)
        assert leased.payload == text
        assert leased.envelope()["traceId"] == text
        rig.nack(leased, text, requeue=False)
        [letter] = rig.mq.dead_letters.listed(queue)
        assert letter.message == (text or "refused by its consumer")
        rig.close()


# --- policies


LATE = {"visibilityTimeoutSec": 99}
CHECKED = {"schema": {"type": "object", "required": ["id"]}}


def by(rig: Rig, defaults: Any = None, **queues: Any) -> None:
    """Configure the rig anew."""
    named = {name: Policy.from_json(policy) for name, policy in queues.items()}
    rig.settings = EngineSettings(Policy.from_json(defaults or {}), named)


def visibility_s(rig: Rig, queue: str = QUEUE) -> float:
    return rig.mq.status(queue).policy.visibility_ms / 1000


@pytest.mark.parametrize("restart", [True, False])
def test_what_the_configuration_says_now_holds_for_queues_that_exist(rig: Rig, restart: bool) -> None:
    def change(defaults: Any = None, **queues: Any) -> None:
        by(rig, defaults, **queues)
        if restart:
            rig.reopen()
        else:
            rig.mq.queues.configure(rig.settings)

    rig.publish()
    change(LATE)
    assert visibility_s(rig) == 99
    change(LATE, telemetry=CHECKED)
    assert visibility_s(rig) == 30
    with pytest.raises(ValidationFailed):
        rig.publish("{}")
    change()
    rig.publish("{}")
    change(LATE)
    assert (visibility_s(rig), rig.mq.status(QUEUE).policy.schema) == (99, None)


def test_a_policy_that_a_call_has_given_outlives_restarts_and_other_defaults(rig: Rig) -> None:
    rig.use({"visibilityTimeoutSec": 7})
    by(rig, LATE)
    rig.reopen()
    assert visibility_s(rig) == 7
    rig.use({"visibilityTimeoutSec": 7}, "other")
    rig.mq.queues.delete_policy("other")
    by(rig, {"visibilityTimeoutSec": 50})
    rig.reopen()
    assert (visibility_s(rig), visibility_s(rig, "other")) == (7, 50)
    by(rig, {}, telemetry={"visibilityTimeoutSec": 8})
    rig.reopen()
    assert visibility_s(rig) == 8


def test_a_record_of_an_earlier_version_gives_way_to_the_configuration(rig: Rig) -> None:
    rig.publish()
    rig.mq.store.save_queue(QUEUE, json.dumps({"visibilityTimeoutSec": 55, "paused": True}))
    by(rig, LATE)
    rig.mq.queues.by_name.clear()
    rig.reopen(kill=True)
    assert (visibility_s(rig), rig.mq.status(QUEUE).paused) == (99, True)


def test_a_deduplication_key_is_remembered_as_long_as_the_policy_says(rig: Rig) -> None:
    rig.use({"dedupWindowSec": 5 * 86_400})
    key = rig.publish(dedup_key="k")
    for number in range(8):
        rig.sweep(12 * 3_600)
        rig.publish(dedup_key=f"other-{number}")
    assert rig.publish(dedup_key="k") == key
    rig.reopen()
    assert rig.publish(dedup_key="k") == key
    rig.sweep(2 * 86_400)
    assert rig.publish(dedup_key="k") != key


def test_a_plain_message_makes_nothing_due_before_the_next_tidying(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig("memory")
    rig.publish()
    rig.sweep()
    rig.publish()
    assert (rig.mq.next_due() or 0) > rig.clock()
