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

from kingdom.mq.engine import Published
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
from tests.mq.houses import PAYLOAD, QUEUE, House

Open = Callable[..., House]
PERSISTENT = sorted(set(STORES) - {"memory"})
LIMIT_OF_2 = {"retry": {"limit": 2, "initialDelaySec": 1}}


def test_what_was_published_is_leased_word_for_word(house: House) -> None:
    key = house.publish(' {"b": 1,\n  "a": [1.50, "ü\\u00fc"]} ', attributes='{"deviceId": "d-1"}', priority=3)
    leased = house.lease("consumer-01")
    assert leased.message_key == key == f"msg:{QUEUE}:{leased.message_id}"
    assert leased.payload == ' {"b": 1,\n  "a": [1.50, "ü\\u00fc"]} '
    assert json.loads(leased.attributes) == {"deviceId": "d-1"}
    assert (leased.priority, leased.attempt, leased.consumer) == (3, 1, "consumer-01")
    assert leased.lease_until == house.clock.now + 30_000
    assert leased.created_at == house.clock.now


@pytest.mark.parametrize("text", ["hello", "", "{broken", "NaN", '"quoted', "[" * 3000, "a\n}\n", '"', "null", "12"])
def test_any_text_can_be_sent(house: House, text: str) -> None:
    house.publish(text)
    assert house.lease().payload == text


def test_the_envelope_comes_along(house: House) -> None:
    house.publish(type="sensor.reading", version=2, trace_id="t-1", dedup_key="k", attributes='{"a": "b"}')
    envelope = house.lease().envelope()
    assert (envelope["type"], envelope["version"], envelope["traceId"]) == ("sensor.reading", 2, "t-1")
    assert envelope["deduplicationKey"] == "k"
    assert envelope["createdAt"] == house.clock.now


def test_higher_priority_goes_first_and_equals_in_the_order_of_publishing(house: House) -> None:
    for number, priority in enumerate([0, 5, -3, 5, 0]):
        house.publish(str(number), priority=priority)
    assert house.lease_texts() == ["1", "3", "0", "4", "2"]


def test_the_order_survives_a_restart(house: House) -> None:
    for number in range(20):
        house.publish(str(number), priority=number % 3)
    house.reopen()
    for number in range(20, 30):
        house.publish(str(number), priority=number % 3)
    expected = sorted(range(30), key=lambda number: (-(number % 3), number))
    assert house.lease_texts() == [str(number) for number in expected]


def test_a_delayed_message_waits_for_its_time(house: House) -> None:
    house.publish("later", delay_ms=5_000)
    assert house.lease() is None
    assert house.counts() == (0, 0, 1, 0)
    assert house.sweep() == house.clock.now + 5_000 or house.backend == "filesystem"
    house.sweep(5)
    assert house.counts() == (1, 0, 0, 0)
    assert house.lease().payload == "later"


def test_a_delayed_message_waits_across_a_restart(house: House) -> None:
    house.publish("later", delay_ms=5_000)
    house.reopen()
    assert house.lease() is None
    house.clock.pass_(5)
    assert house.lease().payload == "later"


def test_a_due_message_keeps_its_place_by_priority_then_time_due(house: House) -> None:
    house.publish("delayed", delay_ms=1_000)
    house.clock.pass_(2)
    house.publish("fresh")
    house.publish("urgent", priority=1)
    assert house.lease_texts() == ["urgent", "delayed", "fresh"]


def test_only_the_target_may_lease_what_is_meant_for_it(house: House) -> None:
    house.publish("for a", target="a")
    house.publish("for all")
    house.reopen()
    assert house.lease_texts(consumer="b") == ["for all"]
    assert house.mq.has_ready(QUEUE, "a")
    assert not house.mq.has_ready(QUEUE, "b")
    assert house.counts() == (1, 1, 0, 0)
    assert house.lease_texts(consumer="a") == ["for a"]


def test_a_message_that_outlives_its_ttl_is_purged(house: House) -> None:
    house.publish("short", ttl_ms=1_000)
    house.publish("long", ttl_ms=60_000)
    house.publish("held", ttl_ms=1_000, priority=9)
    held = house.lease()
    house.reopen()
    house.sweep(1)
    assert house.counts() == (1, 1, 0, 0)
    house.ack(held)
    assert house.lease_texts() == ["long"]


def test_a_message_outlives_its_ttl_after_a_retry_as_well(house: House) -> None:
    house.publish("short", ttl_ms=60_000)
    house.nack(house.lease())
    assert sum(house.counts()) == 1
    house.sweep(60)
    assert house.counts() == (0, 0, 0, 0)


def test_an_expired_message_is_never_handed_out_even_before_a_sweep(house: House) -> None:
    house.publish("short", ttl_ms=1_000)
    house.clock.pass_(1)
    assert house.lease() is None
    house.reopen()
    assert house.counts() == (0, 0, 0, 0)


def test_an_acknowledged_message_is_gone_for_good(house: House) -> None:
    house.publish()
    leased = house.lease()
    house.ack(leased)
    assert house.counts() == (0, 0, 0, 0)
    house.reopen()
    house.sweep(3600)
    assert house.lease() is None


def test_the_same_ack_again_is_fine_and_another_is_not(house: House) -> None:
    house.publish()
    leased = house.lease("a")
    house.ack(leased)
    house.mq.ack(leased.message_key, leased.lease_id)
    house.mq.ack(leased.message_key, consumer="a")
    with pytest.raises(LeaseMismatch):
        house.mq.ack(leased.message_key, "0123456789abcdef")
    with pytest.raises(LeaseMismatch):
        house.mq.ack(leased.message_key, consumer="b")


def test_a_lease_can_be_ended_after_a_restart(house: House) -> None:
    house.publish("one")
    house.publish("two")
    one, two = house.lease("a"), house.lease("a")
    house.reopen(kill=True)
    assert house.counts() == (0, 2, 0, 0)
    with pytest.raises(LeaseMismatch):
        house.mq.ack(one.message_key, two.lease_id)
    with pytest.raises(LeaseMismatch):
        house.mq.ack(one.message_key, consumer="b")
    house.mq.ack(one.message_key, consumer="a")
    house.ack(two)
    assert house.counts() == (0, 0, 0, 0)


def test_a_wrong_lease_changes_nothing(house: House) -> None:
    house.publish()
    leased = house.lease("a")
    for call in (house.mq.ack, house.mq.nack, house.mq.extend):
        with pytest.raises(LeaseMismatch):
            call(leased.message_key, "0123456789abcdef")
        with pytest.raises(LeaseMismatch):
            call(leased.message_key, consumer="b")
        with pytest.raises(MessageNotFound):
            call(f"msg:{QUEUE}:0199f2c1-5a2b-7000-802a-3c9d1e5f7a90", leased.lease_id)
        with pytest.raises(MessageNotFound):
            call("nonsense", leased.lease_id)
    assert house.counts() == (0, 1, 0, 0)
    house.ack(leased)


def test_a_message_that_only_waits_cannot_be_acknowledged(house: House) -> None:
    key = house.publish()
    with pytest.raises(LeaseMismatch):
        house.mq.ack(key, "0123456789abcdef")
    assert house.counts() == (1, 0, 0, 0)


def test_an_expired_lease_cannot_be_ended_and_the_message_comes_again(house: House) -> None:
    house.publish()
    first = house.lease("a")
    house.clock.pass_(30)
    with pytest.raises(LeaseExpired):
        house.mq.ack(first.message_key, first.lease_id)
    house.sweep()
    assert house.counts() == (0, 0, 1, 0)
    with pytest.raises(LeaseExpired):
        house.mq.ack(first.message_key, first.lease_id)
    house.sweep(1)
    second = house.lease("b")
    assert (second.attempt, second.message_key) == (2, first.message_key)
    with pytest.raises(LeaseExpired):
        house.mq.ack(first.message_key, first.lease_id)
    house.ack(second)


def test_a_lease_that_ran_out_during_a_stop_is_noticed(house: House) -> None:
    house.publish()
    house.lease()
    house.reopen(kill=True)
    house.sweep(31)
    house.sweep(1)
    assert house.lease().attempt == 2


def test_an_extended_lease_holds_as_long_as_was_said(house: House) -> None:
    house.publish()
    leased = house.lease(visibility_ms=1_000)
    assert house.mq.extend(leased.message_key, leased.lease_id, 60_000) == house.clock.now + 60_000
    house.mq.commit()
    house.reopen(kill=True)
    house.sweep(59)
    assert house.counts() == (0, 1, 0, 0)
    house.ack(leased)


def test_many_are_leased_at_once(house: House) -> None:
    house.mq.publish_batch(QUEUE, [Draft(str(number)) for number in range(10)])
    house.mq.commit()
    leased = house.mq.lease(QUEUE, "c", limit=4)
    assert [message.payload for message in leased] == ["0", "1", "2", "3"]
    assert len({message.lease_id for message in leased}) == 4
    assert house.counts() == (6, 4, 0, 0)


def test_published_and_leased_in_one_group(house: House) -> None:
    """Nothing has been committed yet, and the message is already where it will be."""
    house.mq.publish(QUEUE, Draft("quick"))
    [leased] = house.mq.lease(QUEUE, "c")
    house.mq.commit()
    house.reopen(kill=True)
    assert house.counts() == (0, 1, 0, 0)
    house.ack(leased)
    house.mq.publish(QUEUE, Draft("quicker"))
    [leased] = house.mq.lease(QUEUE, "c")
    house.mq.ack(leased.message_key, leased.lease_id)
    house.mq.commit()
    house.reopen(kill=True)
    assert house.counts() == (0, 0, 0, 0)


def test_a_nack_waits_longer_each_time_and_ends_among_the_dead(house: House) -> None:
    house.use({"retry": {"limit": 3, "initialDelaySec": 2, "maxDelaySec": 3}, "poisonAfter": 0})
    key = house.publish()
    for attempt, wait in ((1, 2), (2, 3)):
        leased = house.lease()
        assert leased.attempt == attempt
        assert house.nack(leased, "no") == "retry"
        house.reopen()
        house.sweep(wait - 0.001)
        assert house.lease() is None
        house.sweep(0.001)
    assert house.nack(house.lease(), "no") == "dlq"
    [letter] = house.mq.dead_letters.listed(QUEUE)
    assert (letter.message_key, letter.reason, letter.message, letter.attempt) == (key, "RETRY_EXCEEDED", "no", 3)


def test_a_nack_without_requeue_goes_to_the_dead_letters_with_its_reason(house: House) -> None:
    key = house.publish('{"temp": 1}', type="t")
    leased = house.lease("consumer-01")
    assert house.nack(leased, 'bad "value"\n\'; DROP TABLE kv; --', requeue=False) == "dlq"
    house.reopen()
    [letter] = house.mq.dead_letters.listed(QUEUE)
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
    assert house.counts() == (0, 0, 0, 1)


def test_a_lease_that_ends_too_often_is_a_timeout(house: House) -> None:
    house.use(LIMIT_OF_2)
    house.publish()
    for _ in range(2):
        house.lease()
        house.sweep(30)
        house.sweep(1)
    [letter] = house.mq.dead_letters.listed(QUEUE)
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
    house: House, on: int, reasons: tuple[str, ...], reason: str
) -> None:
    house.use({"retry": {"limit": 4, "backoff": "fixed", "initialDelaySec": 0}, "poisonAfter": on})
    house.publish("sick")
    for said in reasons[:-1]:
        assert house.nack(house.lease(), said) == "retry"
        house.reopen()
    assert house.nack(house.lease(), reasons[-1]) == "dlq"
    [letter] = house.mq.dead_letters.listed(QUEUE)
    assert (letter.reason, letter.attempt) == (reason, 4)


def test_without_a_word_about_it_no_message_is_poison(house: House) -> None:
    house.use({"retry": {"backoff": "fixed", "initialDelaySec": 0}})
    house.publish("sick")
    assert [house.nack(house.lease(), "exit 1") for _ in range(5)] == ["retry"] * 4 + ["dlq"]
    assert [letter.reason for letter in house.mq.dead_letters.listed(QUEUE)] == ["RETRY_EXCEEDED"]


@pytest.mark.parametrize("size", [7_400, 7_700, 8_000, 8_192, 8_300])
@pytest.mark.parametrize("kill", [True, False])
def test_a_dead_letter_that_is_larger_than_its_message_outlives_a_kill(house: House, size: int, kill: bool) -> None:
    """A store may keep small and large bodies in two places."""
    house.publish("first")
    text = json.dumps("x" * size)
    key = house.publish(text)
    for _ in range(2):
        house.nack(house.lease(), "broken", requeue=False)
    house.reopen(kill=kill)
    letter = house.mq.dead_letters.listed(QUEUE)[1]
    assert (letter.message_key, letter.message) == (key, "broken")
    assert house.mq.dead_letters.reprocess(key) == key
    house.mq.commit()
    house.reopen(kill=kill)
    assert house.lease_texts() == [text]


def test_without_dead_letters_the_exhausted_go_to_the_archive_and_it_is_said(house: House) -> None:
    house.use({"dlq": {"enabled": False}, "retry": {"limit": 1}})
    house.publish()
    assert house.nack(house.lease(), "no") == "archived"
    house.reopen()
    assert house.counts() == (0, 0, 0, 0)
    assert "mq.dropped" in house.said
    assert house.mq.dead_letters.listed(f"{QUEUE}-dlq") == []


def test_jitter_spreads_the_wait(open_house: Open, backend: str) -> None:
    house = open_house(backend, random=lambda: 0.25)
    house.use({"retry": {"backoff": "fixed", "initialDelaySec": 4, "jitter": "full"}})
    house.publish()
    house.nack(house.lease())
    house.sweep(0.999)
    assert house.lease() is None
    house.sweep(0.001)
    assert house.lease() is not None


def test_a_dead_letter_comes_back_as_new(house: House) -> None:
    house.use(LIMIT_OF_2)
    house.publish("again", attributes='{"a": 1}', priority=4, target="c")
    for _ in range(2):
        leased = house.lease()
        house.nack(leased, "no")
        house.sweep(1)
    assert house.mq.dead_letters.reprocess(leased.message_key) == leased.message_key
    house.mq.commit()
    house.reopen()
    again = house.lease()
    assert (again.payload, again.attempt, again.priority, again.message_key) == ("again", 1, 4, leased.message_key)
    assert json.loads(again.attributes) == {"a": 1}
    assert house.counts() == (0, 1, 0, 0)


def test_only_dead_letters_are_reprocessed(house: House) -> None:
    key = house.publish()
    for wrong in (key, "nonsense", f"msg:{QUEUE}:0199f2c1-5a2b-7000-802a-3c9d1e5f7a90"):
        with pytest.raises(DeadLetterNotFound):
            house.mq.dead_letters.reprocess(wrong)
        with pytest.raises(DeadLetterNotFound):
            house.mq.dead_letters.quarantine(wrong)


def test_dead_letters_are_counted_and_reprocessed_by_reason(house: House) -> None:
    house.use({"retry": {"limit": 1}})
    house.die()
    house.clock.pass_(10)
    house.publish()
    house.nack(house.lease(), "no")
    assert house.mq.dead_letters.counts(QUEUE) == {"HANDLER_ERROR": 1, "RETRY_EXCEEDED": 1}
    assert house.mq.dead_letters.counts(QUEUE, since_ms=5_000) == {"RETRY_EXCEEDED": 1}
    assert len(house.mq.dead_letters.reprocess_all(QUEUE, older_than_ms=5_000)) == 1
    assert house.mq.dead_letters.reprocess_all(QUEUE, reason_code="TIMEOUT") == []
    assert len(house.mq.dead_letters.reprocess_all(QUEUE, reason_code="RETRY_EXCEEDED", limit=5)) == 1
    assert house.counts() == (2, 0, 0, 0)


def test_the_quarantined_are_passed_over(house: House) -> None:
    kept = house.die()
    house.die()
    house.mq.dead_letters.quarantine(kept)
    house.mq.commit()
    house.reopen()
    assert [letter.quarantined for letter in house.mq.dead_letters.listed(QUEUE)] == [True, False]
    assert len(house.mq.dead_letters.reprocess_all(QUEUE)) == 1
    assert house.mq.dead_letters.purge(QUEUE) == 0
    assert house.lease(queue=f"{QUEUE}-dlq") is None
    house.mq.dead_letters.quarantine(kept, on=False)
    assert house.mq.dead_letters.purge(QUEUE) == 1
    assert house.counts() == (1, 0, 0, 0)


def test_old_dead_letters_are_archived(house: House) -> None:
    house.use({"dlq": {"retentionDays": 1}})
    house.die()
    house.clock.pass_(86_000)
    house.die()
    house.sweep(1_000)
    house.sweep(3_600)
    assert house.counts() == (0, 0, 0, 1)
    house.reopen()
    assert house.counts() == (0, 0, 0, 1)


def test_the_dead_letter_queue_is_consumed_like_any_queue(house: House) -> None:
    key = house.die(reason="first")
    house.clock.pass_(1)
    house.die(reason="second")
    letter = house.lease(queue=f"{QUEUE}-dlq")
    assert letter.message_key == key
    assert json.loads(letter.payload)["failure"]["reasonMessage"] == "first"
    assert house.counts() == (0, 1, 0, 1)
    house.reopen(kill=True)
    assert house.nack(letter) == "dlq"
    assert house.counts() == (0, 0, 0, 2)
    second = house.lease(queue=f"{QUEUE}-dlq")
    assert second.message_key != key
    house.ack(second)
    house.reopen()
    assert [dead.message for dead in house.mq.dead_letters.listed(f"{QUEUE}-dlq")] == ["first"]
    assert house.mq.status(f"{QUEUE}-dlq").ready == 1


def test_a_leased_dead_letter_returns_when_its_lease_ends(house: House) -> None:
    house.die()
    house.lease(queue=f"{QUEUE}-dlq")
    house.reopen(kill=True)
    house.sweep(30)
    assert house.counts() == (0, 0, 0, 1)
    [letter] = house.mq.dead_letters.listed(QUEUE)
    assert letter.dlq_at == house.clock.now - 30_000


def test_the_same_request_publishes_once(house: House) -> None:
    first = house.mq.publish(QUEUE, Draft("x"), "req-1")
    assert house.mq.publish(QUEUE, Draft("x"), "req-1") == first._replace(duplicate=True)
    house.mq.commit()
    house.reopen(kill=True)
    assert house.mq.publish(QUEUE, Draft("x"), "req-1") == first._replace(duplicate=True)
    house.ack(house.lease())
    house.reopen(kill=True)
    assert house.mq.publish(QUEUE, Draft("x"), "req-1") == first._replace(duplicate=True)
    assert house.counts() == (0, 0, 0, 0)


OTHER_REQUESTS: dict[str, tuple[str, Draft, str, str]] = {
    "client": (QUEUE, Draft("x"), "req-1", "b"),
    "queue": ("elsewhere", Draft("x"), "req-1", "a"),
    "payload": (QUEUE, Draft("y"), "req-1", "a"),
    "priority": (QUEUE, Draft("x", priority=1), "req-1", "a"),
    "id": (QUEUE, Draft("x"), "req-2", "a"),
}


@pytest.mark.parametrize("differs", OTHER_REQUESTS)
def test_a_request_with_the_same_id_that_differs_is_a_new_message(house: House, differs: str) -> None:
    first = house.mq.publish(QUEUE, Draft("x"), "req-1", "a")
    other = house.mq.publish(*OTHER_REQUESTS[differs])
    assert (other.message_id != first.message_id, other.duplicate) == (True, False)
    house.mq.commit()
    house.reopen(kill=True)
    for asked, message in (((QUEUE, Draft("x"), "req-1", "a"), first), (OTHER_REQUESTS[differs], other)):
        assert house.mq.publish(*asked) == message._replace(duplicate=True)


def test_a_batch_with_the_same_id_and_other_content_is_new_messages(house: House) -> None:
    for text in ("x", "y"):
        house.mq.publish_batch(QUEUE, [Draft(text), Draft(text)], "req-1", "a")
    assert house.counts() == (4, 0, 0, 0)


def test_the_same_batch_publishes_once_and_each_of_it_for_itself(house: House) -> None:
    house.use({"schema": {"type": "object"}})
    drafts = [Draft("{}"), Draft("7"), Draft('{"b": 1}')]
    first = house.mq.publish_batch(QUEUE, drafts, "req-2")
    house.mq.commit()
    assert [type(answer) for answer in first] == [Published, ValidationFailed, Published]
    house.reopen(kill=True)
    again = house.mq.publish_batch(QUEUE, drafts, "req-2")
    assert isinstance(again[1], ValidationFailed)
    assert [answer._replace(duplicate=False) for answer in again if isinstance(answer, Published)] == [
        first[0],
        first[2],
    ]
    assert house.counts() == (2, 0, 0, 0)


def test_a_deduplication_key_counts_once_within_its_window(house: House) -> None:
    key = house.publish("first", dedup_key="d")
    assert house.publish("second", dedup_key="d") == key
    assert house.publish("elsewhere", queue="other", dedup_key="d") != key
    house.ack(house.lease())
    house.reopen(kill=True)
    house.clock.pass_(299)
    assert house.publish("third", dedup_key="d") == key
    house.clock.pass_(1)
    assert house.publish("fourth", dedup_key="d") != key
    assert house.lease_texts() == ["fourth"]


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
def test_a_draft_out_of_bounds_is_refused(house: House, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        house.publish(**wrong)  # type: ignore[arg-type]
    house.mq.commit()
    assert house.counts() == (0, 0, 0, 0)


def test_a_lone_surrogate_is_no_message(house: House) -> None:
    with pytest.raises(InvalidRequest):
        house.publish("\ud800")


@pytest.mark.parametrize("queue", ["", "a\nb", "a\0b", "\x7f", "x" * 257, "a\ud800"])
def test_a_name_that_cannot_be_printed_is_no_queue(house: House, queue: str) -> None:
    with pytest.raises(InvalidRequest):
        house.publish(queue=queue)
    assert queue not in house.mq.queues.names()


def test_a_payload_that_does_not_fit_is_refused(house: House) -> None:
    house.use(
        {
            "schema": {"type": "object", "required": ["temp"]},
            "messageSchema": {"rules": [{"field": "temp", "type": "maxValue", "value": 100}]},
        }
    )
    house.reopen()
    with pytest.raises(ValidationFailed, match="temp"):
        house.publish("{}")
    with pytest.raises(ValidationFailed, match=r"payload\.temp"):
        house.publish('{"temp": 101}')
    house.publish('{"temp": 99}')
    assert house.counts() == (1, 0, 0, 0)


def test_unknown_queues_are_named_as_such(house: House) -> None:
    for call in (house.mq.queues.pause, house.mq.peek, house.mq.purge, house.mq.dead_letters.counts):
        with pytest.raises(QueueNotFound):
            call("nowhere")


def test_a_queue_that_nobody_has_published_to_is_empty(house: House) -> None:
    assert house.mq.lease("nowhere", "c") == house.mq.dead_letters.listed("nowhere") == []
    assert house.counts("nowhere") == (0, 0, 0, 0)
    assert house.mq.queues.names() == []
    with pytest.raises(InvalidRequest):
        house.mq.lease("no\nwhere", "c")


def test_strict_settings_take_only_named_queues(open_house: Open, backend: str) -> None:
    house = open_house(backend, strict=True, queues={QUEUE: {}})
    house.publish()
    with pytest.raises(QueueNotFound):
        house.publish(queue="other")
    for call in (house.mq.status, house.mq.dead_letters.listed, lambda queue: house.mq.lease(queue, "c")):
        with pytest.raises(QueueNotFound):
            call("other")
    assert house.mq.queues.names() == [QUEUE]


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
def test_any_printable_text_names_a_queue(house: House, queue: str) -> None:
    key = house.publish(queue=queue)
    house.publish("other", queue=f"{queue[:200]}x")
    house.reopen()
    assert queue in house.mq.queues.names()
    leased = house.lease(queue=queue)
    assert leased.message_key == key == f"msg:{queue}:{leased.message_id}"
    house.nack(leased, "x", requeue=False)
    house.reopen()
    assert house.counts(queue) == (0, 0, 0, 1)
    house.mq.dead_letters.reprocess(key)
    assert house.lease_texts(queue=queue) == [PAYLOAD]


def test_a_paused_queue_takes_but_does_not_give(house: House) -> None:
    house.publish()
    house.mq.queues.pause(QUEUE)
    house.reopen()
    assert house.lease() is None
    assert not house.mq.has_ready(QUEUE, "c")
    assert house.mq.status(QUEUE).paused
    house.publish()
    house.mq.arrived()
    house.mq.queues.resume(QUEUE)
    assert QUEUE in house.mq.arrived()
    assert len(house.lease_texts()) == 2


def test_a_policy_is_kept_with_its_queue(house: House) -> None:
    house.use({"visibilityTimeoutSec": 5, "retry": {"limit": 7}})
    house.reopen()
    policy = house.mq.status(QUEUE).policy
    assert (policy.visibility_ms, policy.retry.limit, policy.retry.longest_s) == (5_000, 7, 60)
    house.publish()
    assert house.lease().lease_until == house.clock.now + 5_000


def test_a_look_at_a_queue_takes_nothing_out(house: House) -> None:
    house.publish("b")
    house.publish("a", priority=1)
    house.publish("c", delay_ms=1_000)
    assert [(message.payload, message.state) for message in house.mq.peek(QUEUE)] == [
        ("a", "ready"),
        ("b", "ready"),
        ("c", "delayed"),
    ]
    assert [message.payload for message in house.mq.peek(QUEUE, limit=1)] == ["a"]
    assert house.counts() == (2, 0, 1, 0)


def test_purge_removes_what_waits_and_nothing_else(house: House) -> None:
    house.publish("held")
    held = house.lease()
    for number in range(7):
        house.publish(str(number), delay_ms=1_000 * (number % 2), target="c" * (number % 3), ttl_ms=number * 1_000)
    assert house.mq.purge(QUEUE, limit=4) == 4
    assert house.mq.purge(QUEUE) == 3
    assert house.mq.purge(QUEUE) == 0
    house.mq.commit()
    house.reopen()
    assert house.counts() == (0, 1, 0, 0)
    house.ack(held)


def test_acknowledged_messages_are_archived_where_wanted(house: House) -> None:
    house.use({"archive": True})
    house.publish()
    house.ack(house.lease())
    house.reopen()
    assert house.counts() == (0, 0, 0, 0)
    house.clock.pass_(15 * 86_400)
    assert [finding.kind for finding in house.mq.check()] == ["stale_archive"]
    assert [finding.repaired for finding in house.mq.check(repair=True)] == [True]
    assert house.mq.check() == []


def test_status_counts_and_rates(house: House) -> None:
    house.publish("old")
    house.clock.pass_(30)
    for _ in range(5):
        house.publish()
    for _ in range(2):
        leased = house.lease()
        house.clock.pass_(0.5)
        house.ack(leased)
    house.nack(house.lease(), "no")
    house.sweep(1)
    status = house.mq.status(QUEUE)
    assert (status.ready, status.delayed, status.inflight) == (4, 0, 0)
    assert status.oldest_age_ms == 2_000
    assert status.rates["published"] == 0.1
    assert status.rates["acked"] == round(2 / 60, 3)
    assert status.failure_rate == round(1 / 3, 4)
    assert (status.handling_mean_ms, status.handling_p99_ms) == (500, 500)


def test_a_clean_store_has_no_findings(house: House) -> None:
    house.publish()
    house.publish(dedup_key="k", request="r")
    house.lease()
    house.die()
    assert house.mq.check() == []
    assert house.mq.check(repair=True) == []
    assert sum(house.counts()) == 3


@pytest.mark.parametrize("backend", PERSISTENT)
def test_it_is_durable_against_power_cuts_too(open_house: Open, backend: str) -> None:
    """What that means is tested by the fault checks; here, that nothing else is different."""
    house = open_house(backend, durability="power")
    house.mq.publish_batch(QUEUE, [Draft(str(number)) for number in range(30)])
    house.mq.commit()
    leased = house.mq.lease(QUEUE, "c", 20)
    house.mq.commit()
    for message in leased[:10]:
        house.mq.ack(message.message_key, message.lease_id)
    house.mq.nack(leased[10].message_key, leased[10].lease_id, requeue=False)
    house.mq.commit()
    house.reopen(kill=True)
    assert house.counts() == (10, 9, 0, 1)
    assert house.mq.check() == []


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
        self.house = House(self.backend, Path(self.folder.name), policy={"retry": {"limit": 3}})
        self.house.mq.queues.declare(QUEUE)

    @rule(priority=st.integers(-2, 2), delay=st.sampled_from([0, 0, 500]), aim=st.sampled_from(["", "", "a", "b"]))
    def publish(self, priority: int, delay: int, aim: str) -> None:
        self.number += 1
        text = json.dumps({"n": self.number})
        self.alive.add(self.house.publish(text, priority=priority, delay_ms=delay, target=aim))

    @rule(consumer=st.sampled_from(["a", "b"]), limit=st.integers(1, 3))
    def lease(self, consumer: str, limit: int) -> None:
        for leased in self.house.mq.lease(QUEUE, consumer, limit):
            assert leased.message_key in self.alive
            self.held[leased.message_key] = leased
        self.house.mq.commit()

    @rule(which=st.integers(0, 5), how=st.sampled_from(["ack", "ack", "nack", "bury", "extend"]))
    def end(self, which: int, how: str) -> None:
        if not self.held:
            return
        key = sorted(self.held)[which % len(self.held)]
        leased = self.held.pop(key)
        try:
            if how == "ack":
                self.house.ack(leased)
                self.alive.discard(key)
            elif how == "extend":
                self.house.mq.extend(key, leased.lease_id, 5_000)  # type: ignore[attr-defined]
                self.house.mq.commit()
                self.held[key] = leased
            else:
                self.house.nack(leased, how, requeue=how == "nack")
        except LeaseExpired:
            pass

    @rule(seconds=st.sampled_from([0.1, 1, 31]))
    def wait(self, seconds: float) -> None:
        self.house.sweep(seconds)

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        self.house.reopen(kill)

    @rule()
    def revive(self) -> None:
        self.house.mq.dead_letters.reprocess_all(QUEUE)
        self.house.mq.commit()

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        if hasattr(self, "house"):
            assert sum(self.house.counts()) == len(self.alive)

    def teardown(self) -> None:
        if hasattr(self, "house"):
            self.house.close()
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
        house = House("filesystem", Path(folder))
        house.publish(text, queue=queue, trace_id=text)
        house.reopen(kill=True)
        leased = house.lease(queue=queue)
        assert leased.payload == text
        assert leased.envelope()["traceId"] == text
        house.nack(leased, text, requeue=False)
        [letter] = house.mq.dead_letters.listed(queue)
        assert letter.message == (text or "refused by its consumer")
        house.close()


# --- policies


LATE = {"visibilityTimeoutSec": 99}
CHECKED = {"schema": {"type": "object", "required": ["id"]}}


def by(house: House, defaults: Any = None, **queues: Any) -> None:
    """Configure the house anew."""
    named = {name: Policy.from_json(policy) for name, policy in queues.items()}
    house.settings = EngineSettings(Policy.from_json(defaults or {}), named)


def visibility_s(house: House, queue: str = QUEUE) -> float:
    return house.mq.status(queue).policy.visibility_ms / 1000


@pytest.mark.parametrize("restart", [True, False])
def test_what_the_configuration_says_now_holds_for_queues_that_exist(house: House, restart: bool) -> None:
    def change(defaults: Any = None, **queues: Any) -> None:
        by(house, defaults, **queues)
        if restart:
            house.reopen()
        else:
            house.mq.queues.configure(house.settings)

    house.publish()
    change(LATE)
    assert visibility_s(house) == 99
    change(LATE, telemetry=CHECKED)
    assert visibility_s(house) == 30
    with pytest.raises(ValidationFailed):
        house.publish("{}")
    change()
    house.publish("{}")
    change(LATE)
    assert (visibility_s(house), house.mq.status(QUEUE).policy.schema) == (99, None)


def test_a_policy_that_a_call_has_given_outlives_restarts_and_other_defaults(house: House) -> None:
    house.use({"visibilityTimeoutSec": 7})
    by(house, LATE)
    house.reopen()
    assert visibility_s(house) == 7
    house.use({"visibilityTimeoutSec": 7}, "other")
    house.mq.queues.delete_policy("other")
    by(house, {"visibilityTimeoutSec": 50})
    house.reopen()
    assert (visibility_s(house), visibility_s(house, "other")) == (7, 50)
    by(house, {}, telemetry={"visibilityTimeoutSec": 8})
    house.reopen()
    assert visibility_s(house) == 8


def test_a_record_of_an_earlier_version_gives_way_to_the_configuration(house: House) -> None:
    house.publish()
    house.mq.store.save_queue(QUEUE, json.dumps({"visibilityTimeoutSec": 55, "paused": True}))
    by(house, LATE)
    house.mq.queues.by_name.clear()
    house.reopen(kill=True)
    assert (visibility_s(house), house.mq.status(QUEUE).paused) == (99, True)


def test_a_deduplication_key_is_remembered_as_long_as_the_policy_says(house: House) -> None:
    house.use({"dedupWindowSec": 5 * 86_400})
    key = house.publish(dedup_key="k")
    for number in range(8):
        house.sweep(12 * 3_600)
        house.publish(dedup_key=f"other-{number}")
    assert house.publish(dedup_key="k") == key
    house.reopen()
    assert house.publish(dedup_key="k") == key
    house.sweep(2 * 86_400)
    assert house.publish(dedup_key="k") != key
