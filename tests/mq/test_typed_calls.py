"""What each method asks for, with its defaults, and what it makes of the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kingdom.base.errors import BadInput
from kingdom.mq.typed_calls import Calls, Delivery, Published, Refused

KEY = "msg:jobs:1"
LEASED = {
    "message": {
        "messageId": "1",
        "messageKey": KEY,
        "queue": "jobs",
        "payload": "{}",
        "attributes": "{}",
        "priority": 0,
    }
    | {"attempt": 1, "createdAt": 1, "type": "", "traceId": ""},
    "lease": {"leaseId": "a" * 16, "messageKey": KEY, "consumerId": "me", "leaseUntil": 2},
}
LEASE = {"messageKey": KEY, "leaseId": "a" * 16, "consumerId": "me"}
NOTHING: dict[str, Any] = {"message": None, "lease": None}


class Heard(Calls):
    """Answers each call with what it was given, and keeps what was asked."""

    def __init__(self, *answers: Mapping[str, Any]) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any], float | None]] = []

    def call(
        self, command: str, payload: Mapping[str, Any], *, request_id: str | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        self.asked.append((command, dict(payload), timeout))
        return dict(self._answers.pop(0))

    def close(self) -> None:
        self.asked.append(("closed", {}, None))


def delivery(calls: Calls) -> Delivery:
    return Delivery.from_answer(LEASED["message"], LEASED["lease"], calls)


Ask = Callable[[Calls], Any]
ROWS: list[tuple[str, Ask, Mapping[str, Any], tuple[str, dict[str, Any], float | None], Any]] = [
    (
        "publish",
        lambda q: q.publish("jobs", 1),
        {"messageId": "1", "messageKey": KEY},
        ("publish", {"queue": "jobs", "message": 1}, None),
        Published("1", KEY),
    ),
    (
        "take",
        lambda q: q.take("jobs"),
        NOTHING,
        ("consume_next", {"queue": "jobs"}, 30.0),
        None,
    ),
    (
        "take, waiting",
        lambda q: q.take("jobs", wait=2.5, visibility=9, consumer_id="me", timeout=1),
        NOTHING,
        ("consume_next", {"queue": "jobs", "consumerId": "me", "visibilityTimeoutSec": 9, "waitMs": 2500}, 3.5),
        None,
    ),
    (
        "many",
        lambda q: q.consume_batch("jobs", 7),
        {"messages": []},
        ("consume_batch", {"queue": "jobs", "limit": 7}, 30.0),
        [],
    ),
    (
        "many, waiting",
        lambda q: [message.message_key for message in q.consume_batch("jobs", 7, wait=2, timeout=0)],
        {"messages": [LEASED]},
        ("consume_batch", {"queue": "jobs", "limit": 7, "waitMs": 2000}, 2),
        [KEY],
    ),
    ("ack", lambda q: q.ack(KEY), {}, ("ack", {"messageKey": KEY}, None), None),
    (
        "nack",
        lambda q: q.nack(delivery(q)),
        {},
        ("nack", {**LEASE, "reason": "", "requeue": False}, None),
        None,
    ),
    (
        "nack of the message",
        lambda q: delivery(q).nack("full"),
        {},
        ("nack", {**LEASE, "reason": "full", "requeue": True}, None),
        None,
    ),
    ("extend", lambda q: q.extend(KEY), {"leaseUntil": 5}, ("extend_lease", {"messageKey": KEY}, None), 5),
    (
        "peek",
        lambda q: q.peek("jobs"),
        {"messages": []},
        ("peek", {"queue": "jobs", "limit": 10, "dlq": False}, None),
        [],
    ),
    (
        "move",
        lambda q: q.move("jobs", "other"),
        {"moved": 3},
        ("move", {"queue": "jobs", "to": "other", "limit": 0}, None),
        3,
    ),
    (
        "purge",
        lambda q: q.purge("jobs"),
        {"purged": 3},
        ("purge", {"queue": "jobs", "dlq": False, "yes": True}, None),
        3,
    ),
    (
        "dead letters",
        lambda q: q.list_dlq("jobs"),
        {"messages": []},
        ("list_dlq", {"queue": "jobs", "limit": 100}, None),
        [],
    ),
    ("one goes back", lambda q: q.reprocess(KEY), {}, ("reprocess_dlq", {"messageKey": KEY}, None), 1),
    (
        "those that fit go back",
        lambda q: q.reprocess(queue="jobs", reason_code="TIMEOUT", older_than_ms=9, limit=4),
        {"count": 0},
        ("reprocess_dlq", {"queue": "jobs", "reasonCode": "TIMEOUT", "olderThanMs": 9, "limit": 4}, None),
        0,
    ),
    (
        "quarantine",
        lambda q: q.quarantine(KEY),
        {},
        ("quarantine", {"messageKey": KEY, "quarantined": True}, None),
        None,
    ),
    (
        "statistics",
        lambda q: q.dlq_stats("jobs", 7),
        {"a": 1},
        ("dlq_stats", {"queue": "jobs", "sinceMs": 7}, None),
        {"a": 1},
    ),
    ("queues", lambda q: q.queues(), {"queues": [1]}, ("queues", {}, None), [1]),
    ("delete a queue", lambda q: q.delete_queue("jobs"), {"deleted": 2}, ("delete_queue", {"queue": "jobs"}, None), 2),
    (
        "delete a policy",
        lambda q: q.delete_policy("jobs"),
        {"policy": {}},
        ("delete_policy", {"queue": "jobs"}, None),
        {},
    ),
]


@pytest.mark.parametrize(("ask", "answer", "asked", "made"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_method_asks_for_what_its_call_takes(
    ask: Ask, answer: Mapping[str, Any], asked: tuple[str, dict[str, Any], float | None], made: Any
) -> None:
    calls = Heard(answer)
    assert ask(calls) == made
    assert calls.asked == [asked]


def test_of_a_batch_each_has_its_outcome() -> None:
    refused = {"error": {"code": "ERR_VALIDATION", "message": "no"}}
    calls = Heard({"messages": [{"messageId": "1", "messageKey": KEY}, refused]})
    one, other = calls.publish_batch("jobs", [1, 2])
    assert one == Published("1", KEY)
    assert isinstance(other, Refused)
    assert other.code == "ERR_VALIDATION"
    assert calls.asked == [("publish_batch", {"queue": "jobs", "messages": [{"message": 1}, {"message": 2}]}, None)]


def test_with_a_rate_dead_letters_go_back_in_parts_until_fewer_fit() -> None:
    calls = Heard({"count": 100, "until": 7}, {"count": 100, "until": 8}, {"count": 3, "until": 9})
    assert calls.reprocess(queue="jobs", rate=1000, older_than_ms=5) == 203
    part = {"queue": "jobs", "olderThanMs": 5, "limit": 100}
    assert [asked for _, asked, _ in calls.asked] == [part, {**part, "until": 7}, {**part, "until": 8}]


@pytest.mark.parametrize(("limit", "parts"), [(2, [1, 1]), (1, [1]), (0, [])])
def test_a_slow_rate_goes_one_by_one_and_no_further_than_its_limit(limit: int, parts: list[int]) -> None:
    calls = Heard(*[{"count": 1, "until": 7}] * limit)
    assert calls.reprocess(queue="jobs", rate=9, limit=limit, reason_code="TIMEOUT") == limit
    assert [asked["limit"] for _, asked, _ in calls.asked] == parts
    assert {asked["reasonCode"] for _, asked, _ in calls.asked} <= {"TIMEOUT"}


@pytest.mark.parametrize("wrong", [{"queue": "jobs", "rate": 0}, {"rate": 5}])
def test_a_rate_is_above_nothing_and_for_a_queue(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Heard().reprocess(**wrong)
