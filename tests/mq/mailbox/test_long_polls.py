"""Consumers that wait for a message."""

from typing import Any

import pytest

from tests.mq.mailbox.boxes import ByHand

PUBLISH = {"queue": "q", "message": {"n": 1}}


def ready(box: ByHand) -> int:
    return int(box.data("status", {"queue": "q"})["metrics"]["ready"])


def wait_for(box: ByHand, **more: Any) -> str:
    name = box.post("consume_next", {"queue": "q", "waitMs": 5000, **more})
    box.turn()
    assert box.answer(name) is None
    return name


@pytest.fixture
def empty(box: ByHand) -> ByHand:
    box.data("publish", PUBLISH)
    box.data("purge", {"queue": "q"})
    return box


def test_a_consumer_that_waits_gets_the_next_message(empty: ByHand) -> None:
    name = wait_for(empty)
    sent = empty.data("publish", PUBLISH)
    answer = empty.answer(name)
    assert answer is not None
    assert answer["data"]["message"]["messageId"] == sent["messageId"]
    assert empty.names(empty.box.processing) == []


def test_the_consumer_that_waits_longest_is_served_first(empty: ByHand) -> None:
    first, second = wait_for(empty), wait_for(empty)
    empty.data("publish", PUBLISH)
    assert empty.answer(first) is not None
    assert empty.answer(second) is None


def test_a_message_for_one_consumer_is_not_given_to_another(empty: ByHand) -> None:
    other, mine = wait_for(empty, consumerId="other"), wait_for(empty, consumerId="mine")
    empty.data("publish", {**PUBLISH, "targetConsumerId": "mine"})
    assert empty.answer(other) is None
    assert empty.answer(mine) is not None


def test_a_wait_ends_without_a_message(empty: ByHand) -> None:
    name = wait_for(empty)
    empty.now += 5.001
    empty.turn()
    assert (empty.answer(name) or {})["data"] == {"message": None}


def test_a_wait_ends_at_its_deadline(empty: ByHand) -> None:
    name = empty.post("consume_batch", {"queue": "q", "waitMs": 60_000}, deadlineMs=int(empty.now * 1000) + 1000)
    empty.turn()
    assert empty.server.wait_seconds() == pytest.approx(1, abs=0.01)
    empty.now += 1.001
    empty.turn()
    assert (empty.answer(name) or {})["data"] == {"messages": []}


def test_a_waiting_consumer_gets_a_delayed_message_when_it_is_due(empty: ByHand) -> None:
    name = wait_for(empty)
    empty.data("publish", {**PUBLISH, "delayMs": 2000})
    assert empty.server.wait_seconds() <= 2.001
    empty.now += 1.9
    empty.turn()
    assert empty.server.wait_seconds() == pytest.approx(0.1, abs=0.01)
    empty.now += 0.101
    empty.turn()
    assert (empty.answer(name) or {})["data"]["message"] is not None


def test_a_waiting_client_that_removed_its_request_gets_no_message(empty: ByHand) -> None:
    name = wait_for(empty)
    (empty.box.processing / f"{name}.json").unlink()
    empty.data("publish", PUBLISH)
    assert empty.answer(name) is None
    assert ready(empty) == 1


def test_of_a_large_batch_that_arrives_while_one_waits_what_is_there_is_handed_out_in_order(empty: ByHand) -> None:
    name = empty.post("consume_batch", {"queue": "q", "waitMs": 5000, "limit": 600})
    empty.turn()
    empty.data("publish_batch", {"queue": "q", "messages": [{"message": number} for number in range(700)]})
    answer = empty.answer(name)
    while answer is None:
        empty.turn()
        answer = empty.answer(name)
    handed_out = [message["message"]["payload"] for message in answer["data"]["messages"]]
    assert handed_out == [str(number) for number in range(len(handed_out))]
    assert 0 < len(handed_out) <= 600
    assert ready(empty) == 700 - len(handed_out)
