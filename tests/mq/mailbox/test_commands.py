"""Every command with its payload, its answer and its refusals, as clients of any language see them."""

import json
from typing import Any

import pytest

from kingdom.mq.call_fields import ACKS
from kingdom.mq.mailbox.commands import COMMANDS
from tests.mq.mailbox.boxes import ByHand

HARD_NAMES = ["plain", "it's", 'say "hi"', "a/b", "..", "../../etc", "a b", "큐", "q;drop table kv;--", "%s", "$(id)"]


def published(box: ByHand, queue: str = "q", message: Any = '{"n": 1}', **more: Any) -> str:
    return str(box.data("publish", {"queue": queue, "message": message, **more})["messageKey"])


def leased(box: ByHand, queue: str = "q", **more: Any) -> dict[str, Any]:
    return box.data("consume_next", {"queue": queue, **more})


def test_a_message_is_published_consumed_and_acknowledged(box: ByHand) -> None:
    sent = box.data("publish", {"queue": "telemetry", "message": '{"temp": 36.5}', "attributes": '{"unit": "C"}'})
    got = box.data("consume_next", {"queue": "telemetry", "consumerId": "c1", "visibilityTimeoutSec": 7})
    message, lease = got["message"], got["lease"]
    assert message["messageId"] == sent["messageId"]
    assert message["messageKey"] == sent["messageKey"] == f"msg:telemetry:{sent['messageId']}"
    assert json.loads(message["payload"]) == {"temp": 36.5}
    assert json.loads(message["attributes"]) == {"unit": "C"}
    assert (message["queue"], message["priority"], message["attempt"]) == ("telemetry", 0, 1)
    assert message["createdAt"] == int(box.now * 1000)
    assert lease["consumerId"] == "c1"
    assert lease["messageKey"] == sent["messageKey"]
    assert lease["leaseUntil"] == int(box.now * 1000) + 7000
    assert box.data("ack", {"messageKey": sent["messageKey"], "leaseId": lease["leaseId"]}) == {}
    assert leased(box, "telemetry") == {"message": None}


def test_consume_gives_back_all_that_was_published(box: ByHand) -> None:
    said = {"attributes": '{"unit":"C"}', "priority": 7, "type": "sensor.reading", "traceId": "trace-1"}
    rare = {"deduplicationKey": "once", "targetConsumerId": "c1"}
    box.data("publish", {"queue": "q", "message": "x", "ttlSec": 60, **said, **rare})
    (seen,) = box.data("peek", {"queue": "q"})["messages"]
    message = box.data("consume_next", {"queue": "q", "consumerId": "c1"})["message"]
    for back in (seen, message):
        assert {key: back[key] for key in (*said, *rare)} == {**said, **rare}
        assert back["expiresAt"] == int(box.now * 1000) + 60_000
    box.data("publish", {"queue": "q", "message": "plain"})
    plain = leased(box)["message"]
    assert (plain["type"], plain["traceId"], "expiresAt" in plain) == ("", "", False)


def test_queues_and_messages_are_moved_and_deleted(box: ByHand) -> None:
    keys = [published(box) for _ in range(3)]
    assert box.data("delete_message", {"messageKey": keys[0]}) == {"messageKey": keys[0], "deleted": True}
    assert box.code("delete_message", {"messageKey": keys[0]}) == "ERR_MESSAGE_NOT_FOUND"
    assert box.data("move", {"queue": "q", "to": "r", "limit": 1}) == {
        "queue": "q",
        "to": "r",
        "moved": 1,
        "refused": 0,
    }
    assert box.data("delete_queue", {"queue": "q"}) == {"queue": "q", "deleted": 1}
    assert [queue["queue"] for queue in box.data("queues")["queues"]] == ["r"]
    assert box.data("delete_policy", {"queue": "r"})["policy"]["visibilityTimeoutSec"] == 30
    assert box.code("delete_queue", {"queue": "q"}) == "ERR_QUEUE_NOT_FOUND"


@pytest.mark.parametrize("command", ["delete_queue", "delete_policy", "delete_message", "move"])
def test_what_deletes_or_moves_refuses_fields_that_it_does_not_know(box: ByHand, command: str) -> None:
    key = published(box)
    good = {"queue": "q", "to": "r"} if command == "move" else {"queue": "q"}
    payload = {"messageKey": key} if command == "delete_message" else good
    assert box.code(command, {**payload, "olderThanMs": 5}) == "ERR_INVALID_REQUEST"
    assert box.data("status", {"queue": "q"})["metrics"]["ready"] == 1


def test_a_batch_that_takes_several_turns_is_not_begun_again(box: ByHand) -> None:
    """Its request lies in the folder until it is answered, and the folder is looked at in each of these turns."""
    messages = [{"message": n} for n in range(1200)]
    assert len(box.data("publish_batch", {"queue": "q", "messages": messages})["messages"]) == 1200
    assert box.data("status", {"queue": "q"})["metrics"]["ready"] == 1200
    assert len(box.data("consume_batch", {"queue": "q", "limit": 1000})["messages"]) == 1000
    assert box.data("status", {"queue": "q"})["metrics"]["inflight"] == 1000


def test_a_move_of_many_takes_several_turns_and_others_are_answered_meanwhile(box: ByHand) -> None:
    messages = [{"message": n} for n in range(1200)]
    box.data("publish_batch", {"queue": "q", "messages": messages})
    name = box.post("move", {"queue": "q", "to": "r"})
    turns = 0
    while box.answer(name) is None:
        box.data("health")
        turns += 1
    assert (turns > 2, box.data("status", {"queue": "r"})["metrics"]["ready"]) == (True, 1200)


def test_an_answer_names_its_request(box: ByHand) -> None:
    assert box.ask("health", requestId="abc-1")["requestId"] == "abc-1"
    assert box.names(box.box.requests) == []


@pytest.mark.parametrize("message", ['{"a": [1, 2]}', "plain text", "", "[1]", '"quoted"', "줄\n바꿈", "12"])
def test_a_text_comes_back_as_it_was(box: ByHand, message: str) -> None:
    published(box, message=message)
    back = leased(box)["message"]["payload"]
    assert back == message or json.loads(back) == json.loads(message)


@pytest.mark.parametrize("message", [{"a": {"b": [1, None, True]}}, [1, 2], 7, None, "text"])
def test_an_object_may_be_given_as_it_is(box: ByHand, message: Any) -> None:
    published(box, message=message)
    payload = leased(box)["message"]["payload"]
    assert payload == message if isinstance(message, str) else json.loads(payload) == message


@pytest.mark.parametrize("name", [name for name, row in COMMANDS.items() for name in (name, *row.aliases)])
def test_a_command_answers_to_any_case(box: ByHand, name: str) -> None:
    for spelt in (name, name.upper(), name.title()):
        answer = box.ask(spelt)
        assert answer["ok"] or answer["error"]["code"] == "ERR_INVALID_REQUEST", answer


ALIKE = {
    "consume_next": ["consumenext", "consume", "CONSUME_NEXT", "ConsumeNext"],
    "extend_lease": ["extendlease", "extend"],
    "list_dlq": ["listdlq", "dlq"],
    "reprocess_dlq": ["reprocessdlq", "reprocess"],
}


@pytest.mark.parametrize(("name", "alias"), [(name, alias) for name, many in ALIKE.items() for alias in many])
def test_an_alias_means_its_command(box: ByHand, name: str, alias: str) -> None:
    box.ask(alias)
    assert box.data("metrics")["commands"][name] == 1


def test_the_highest_priority_goes_first(box: ByHand) -> None:
    for priority in (0, 5, -3, 5):
        published(box, message={"p": priority}, priority=priority)
    order = [json.loads(leased(box)["message"]["payload"])["p"] for _ in range(4)]
    assert order == [5, 5, 0, -3]


def test_priorities_of_the_whole_int32_range_are_taken_in_order(box: ByHand) -> None:
    for priority in (-(2**31), 7, 2**31 - 1, -7, 1_000_000.0):
        published(box, message={"p": priority}, priority=priority)
    order = [json.loads(leased(box)["message"]["payload"])["p"] for _ in range(5)]
    assert order == [2**31 - 1, 1_000_000.0, 7, -7, -(2**31)]
    assert box.code("publish", {"queue": "q", "message": 1, "priority": 2**31}) == "ERR_INVALID_REQUEST"


def test_an_absent_message_is_an_empty_object(box: ByHand) -> None:
    box.data("publish", {"queue": "q"})
    assert leased(box)["message"]["payload"] == "{}"


def test_whole_numbers_may_have_a_point_and_a_negative_delay_is_none(box: ByHand) -> None:
    published(box, priority=3.0, delayMs=-5)
    assert leased(box)["message"]["priority"] == 3
    assert box.code("publish", {"queue": "q", "message": 1, "priority": 3.5}) == "ERR_INVALID_REQUEST"


def test_null_says_nothing(box: ByHand) -> None:
    nothing = {"priority": None, "delayMs": None, "ttlSec": None, "type": None, "attributes": None}
    box.data("publish", {"queue": "q", "message": 1, **nothing})
    got = leased(box, visibilityTimeoutSec=None, waitMs=None, consumerId=None)
    assert (got["message"]["priority"], got["message"]["attributes"]) == (0, "{}")
    held = {"messageKey": got["message"]["messageKey"], "leaseId": got["lease"]["leaseId"]}
    assert box.data("nack", {**held, "reason": None, "requeue": None}) == {}


def test_a_delayed_message_waits(box: ByHand) -> None:
    published(box, delayMs=5000)
    assert leased(box) == {"message": None}
    box.now += 5.001
    assert leased(box)["message"] is not None


def test_a_message_for_one_consumer_is_not_given_to_another(box: ByHand) -> None:
    published(box, targetConsumerId="worker-1")
    assert leased(box, consumerId="worker-2") == {"message": None}
    assert leased(box, consumerId="worker-1")["message"] is not None


def test_the_consumer_is_the_client_when_nobody_is_named(box: ByHand) -> None:
    key = published(box)
    assert box.data("consume_next", {"queue": "q"}, client="alice")["lease"]["consumerId"] == "alice"
    assert box.code("ack", {"messageKey": key}, client="bob") == "ERR_LEASE_MISMATCH"
    assert box.data("ack", {"messageKey": key}, client="alice") == {}


def test_acknowledging_twice_is_no_error(box: ByHand) -> None:
    published(box)
    held = leased(box)["lease"]
    given = {"messageKey": held["messageKey"], "leaseId": held["leaseId"]}
    assert box.data("ack", given) == {}
    assert box.data("ack", given) == {}


def test_a_wrong_lease_changes_nothing(box: ByHand) -> None:
    key = published(box)
    leased(box)
    for command in ("ack", "nack", "extend_lease"):
        assert box.code(command, {"messageKey": key, "leaseId": "no"}) == "ERR_LEASE_MISMATCH"
    assert box.data("status", {"queue": "q"})["metrics"]["inflight"] == 1


def test_the_shortest_lease_is_a_millisecond(box: ByHand) -> None:
    box.data("publish", {"queue": "q", "message": 1})
    lease = box.data("consume", {"queue": "q", "visibilityTimeoutSec": 0.001})["lease"]
    assert lease["leaseUntil"] == int(box.now * 1000) + 1


def test_an_expired_lease_is_refused_and_the_message_comes_back(box: ByHand) -> None:
    key = published(box)
    held = leased(box, visibilityTimeoutSec=2)["lease"]
    box.now += 2.5
    code = box.code("ack", {"messageKey": key, "leaseId": held["leaseId"]})
    assert code in ("ERR_LEASE_EXPIRED", "ERR_LEASE_MISMATCH")
    box.now += 2
    assert leased(box)["message"]["attempt"] == 2


def test_a_lease_is_extended(box: ByHand) -> None:
    key = published(box)
    held = leased(box, visibilityTimeoutSec=2)["lease"]
    given = {"messageKey": key, "leaseId": held["leaseId"], "visibilityTimeoutSec": 60}
    assert box.data("extend", given)["leaseUntil"] == int(box.now * 1000) + 60_000
    box.now += 30
    box.turn()
    assert box.data("status", {"queue": "q"})["metrics"]["inflight"] == 1


def test_nack_with_requeue_tries_again_later(box: ByHand) -> None:
    key = published(box)
    held = leased(box)["lease"]
    assert box.data("nack", {"messageKey": key, "leaseId": held["leaseId"], "reason": "busy", "requeue": True}) == {}
    assert leased(box) == {"message": None}
    box.now += 1.1
    assert leased(box)["message"]["attempt"] == 2


def dead(box: ByHand, queue: str = "q", reason: str = "cannot") -> str:
    key = published(box, queue, priority=9)
    held = leased(box, queue)["lease"]
    box.data("nack", {"messageKey": key, "leaseId": held["leaseId"], "reason": reason})
    return key


def test_nack_without_requeue_is_a_dead_letter(box: ByHand) -> None:
    key = dead(box)
    listed = box.data("list_dlq", {"queue": "q"})
    (letter,) = listed["messages"]
    assert (listed["queue"], listed["count"]) == ("q", 1)
    assert (letter["messageKey"], letter["queue"]) == (key, "q")
    assert (letter["reason"], letter["reasonCode"]) == ("cannot", "HANDLER_ERROR")
    assert (letter["attempt"], letter["dlqAt"]) == (1, int(box.now * 1000))
    assert box.data("dlq_stats", {"queue": "q"})["reasons"] == {"HANDLER_ERROR": 1}


def test_a_dead_letter_goes_back_to_work(box: ByHand) -> None:
    key = dead(box)
    assert box.data("reprocess_dlq", {"messageKey": key}) == {"messageKey": key, "reprocessed": True}
    assert leased(box)["message"]["attempt"] == 1
    assert box.code("reprocess_dlq", {"messageKey": key}) == "ERR_DLQ_NOT_FOUND"


def test_dead_letters_of_a_queue_go_back_except_those_in_quarantine(box: ByHand) -> None:
    first, second = dead(box), dead(box)
    box.data("quarantine", {"messageKey": first})
    answer = box.data("reprocess", {"queue": "q", "reasonCode": "HANDLER_ERROR"})
    assert (answer["count"], answer["messageKeys"]) == (1, [second])


def test_a_paused_queue_hands_out_nothing(box: ByHand) -> None:
    published(box)
    box.data("pause", {"queue": "q"})
    assert leased(box) == {"message": None}
    assert box.data("status", {"queue": "q"})["paused"] is True
    box.data("resume", {"queue": "q"})
    assert leased(box)["message"] is not None


def test_purge_deletes_what_waits(box: ByHand) -> None:
    for _ in range(3):
        published(box)
    leased(box)
    assert box.data("purge", {"queue": "q"}) == {"queue": "q", "purged": 2}
    assert box.data("status", {"queue": "q"})["metrics"]["inflight"] == 1


DO_NOT_APPLY: list[tuple[str, Any]] = [
    ("purge", {"queue": "q", "olderThanMs": 604_800_000}),
    ("purge", {"queue": "q", "olderThanMs": 0}),
    ("purge", {"queue": "q", "archive": True}),
    ("purge", {"queue": "q", "olderThanMs": 604_800_000, "archive": True, "dlq": False}),
    ("purge", {"queue": "q", "olderThan": "7d", "dlq": True}),
    ("purge", {"queue": "q", "dlq": True, "limit": 1}),
    ("reprocess_dlq", {"messageKey": "KEY", "reasonCode": "TIMEOUT"}),
    ("reprocess_dlq", {"messageKey": "KEY", "olderThanMs": 5}),
    ("reprocess_dlq", {"messageKey": "KEY", "limit": 1}),
    ("reprocess_dlq", {"messageKey": "KEY", "queue": "other"}),
    ("reprocess_dlq", {"queue": "q", "reasonCode": "NOPE"}),
]


@pytest.mark.parametrize(("command", "payload"), DO_NOT_APPLY)
def test_an_option_that_does_not_apply_is_refused_and_nothing_is_done(box: ByHand, command: str, payload: Any) -> None:
    key = dead(box)
    published(box)
    given = {name: key if value == "KEY" else value for name, value in payload.items()}
    assert box.code(command, given) == "ERR_INVALID_REQUEST"
    metrics = box.data("status", {"queue": "q"})["metrics"]
    assert (metrics["ready"], metrics["dlq"]) == (1, 1)


@pytest.mark.parametrize(
    "payload",
    [{}, {"dlq": False}, {"yes": True}, {"archive": False}, {"olderThanMs": None}, {"dlq": True, "archive": True}],
)
def test_options_that_apply_or_say_nothing_are_taken(box: ByHand, payload: Any) -> None:
    dead(box)
    published(box)
    assert box.data("purge", {"queue": "q", **payload})["purged"] == 1


def test_a_dead_letter_may_be_named_with_its_queue(box: ByHand) -> None:
    key = dead(box)
    assert box.data("reprocess", {"messageKey": key, "queue": "q"})["reprocessed"] is True


TIMES: list[tuple[Any, int]] = [
    ("30s", 30_000),
    ("500ms", 500),
    ("2m", 120_000),
    ("1h", 3_600_000),
    ("1.5s", 1500),
    ("1d", 86_400_000),
    (" 30 s", 30_000),
]


@pytest.mark.parametrize(("text", "ms"), TIMES)
def test_a_time_may_say_its_unit(box: ByHand, text: str, ms: int) -> None:
    published(box)
    until = box.data("consume", {"queue": "q", "visibilityTimeoutSec": text, "waitMs": text})["lease"]["leaseUntil"]
    assert until == int(box.now * 1000) + ms
    published(box, delayMs=text, ttlSec=text)
    box.now += ms / 1000 - 0.01
    assert box.data("status", {"queue": "q"})["metrics"]["delayed"] == 1


def test_a_bare_number_keeps_its_unit(box: ByHand) -> None:
    published(box)
    held = box.data("consume", {"queue": "q", "visibilityTimeoutSec": 7, "waitMs": 7.0})["lease"]
    assert held["leaseUntil"] == int(box.now * 1000) + 7000
    for visibility in ("7", "7.0"):
        published(box)
        held = box.data("consume", {"queue": "q", "visibilityTimeoutSec": visibility})["lease"]
        assert held["leaseUntil"] == int(box.now * 1000) + 7000


@pytest.mark.parametrize("text", ["", "s", "30 parsecs", "-5s", "1e3s", "nan", "inf", "1s2", "9999999999d"])
@pytest.mark.parametrize("field", ["visibilityTimeoutSec", "waitMs"])
def test_what_is_no_time_is_refused(box: ByHand, field: str, text: str) -> None:
    published(box)
    assert box.code("consume", {"queue": "q", field: text}) == "ERR_INVALID_REQUEST"


def test_peek_takes_nothing(box: ByHand) -> None:
    key = published(box, message={"n": 1})
    (seen,) = box.data("peek", {"queue": "q"})["messages"]
    assert (seen["messageKey"], json.loads(seen["payload"]), seen["state"]) == (key, {"n": 1}, "ready")
    assert box.data("status", {"queue": "q"})["metrics"]["ready"] == 1


def test_status_has_counts_and_the_policy(box: ByHand) -> None:
    published(box)
    published(box, delayMs=60_000)
    dead(box)
    answer = box.data("status", {"queue": "q"})
    metrics = answer["metrics"]
    assert answer["queue"] == "q"
    assert {key: metrics[key] for key in ("ready", "inflight", "delayed", "dlq")} == {
        "ready": 1,
        "inflight": 0,
        "delayed": 1,
        "dlq": 1,
    }
    assert answer["policy"]["visibilityTimeoutSec"] == 30
    assert answer["policy"]["retry"]["limit"] == 5


def test_status_says_how_much_is_remembered_and_how_much_may_be(box: ByHand) -> None:
    before = box.data("status", {"queue": "q"})["remembered"]
    published(box, deduplicationKey="k")
    after = box.data("status", {"queue": "q"})["remembered"]
    assert (before["requests"], before["deduplicationKeys"], before["bytes"]) == (0, 0, 0)
    assert (after["requests"], after["deduplicationKeys"]) == (1, 1)
    assert 0 < after["bytes"] < after["mostBytes"] == 96 << 20


def test_queues_lists_all_with_counts(box: ByHand) -> None:
    published(box, "a")
    published(box, "b")
    found = {queue["queue"]: queue["ready"] for queue in box.data("queues")["queues"]}
    assert found["a"] == found["b"] == 1


ALWAYS = dict.fromkeys(("publish", "consume", "ack", "nack", "status", "health", "dlq"), 0)


def test_commands_are_counted_under_the_words_of_original_clients_too(box: ByHand) -> None:
    for command in ("publish", "consumenext", "consume_next", "LIST_DLQ", "evil-1", "evil-2"):
        box.ask(command, {"queue": "q", "message": 1})
    counted = box.data("metrics")["commands"]
    assert counted == {**ALWAYS, "publish": 1, "consume": 2, "consume_next": 2, "dlq": 1, "list_dlq": 1, "unknown": 2}


def test_health_and_metrics(box: ByHand) -> None:
    assert box.data("health")["status"] == "ok"
    box.ask("nonsense")
    box.now += 2
    told = box.data("metrics")
    assert told["timestamp"] == int(box.now * 1000)
    assert told["uptimeMs"] == 2000
    assert told["requests"] == {"total": 2, "success": 1, "error": 1}
    assert told["commands"] == {**ALWAYS, "health": 1, "unknown": 1}
    assert told["errors"] == {"parse": 0, "validation": 1, "timeout": 0, "internal": 0}
    timing = told["timing"]
    assert set(timing) == {"totalProcessingMs", "avgProcessingMs", "lastRequestMs"}
    assert isinstance(timing["totalProcessingMs"], int)
    assert timing["lastRequestMs"] == int((box.now - 2) * 1000)


def test_a_batch_is_published_consumed_and_acknowledged(box: ByHand) -> None:
    messages = [{"message": {"n": n}} for n in range(5)]
    sent = box.data("publish_batch", {"queue": "q", "messages": messages})["messages"]
    got = box.data("consume_batch", {"queue": "q", "limit": 10})["messages"]
    assert [delivery["message"]["messageId"] for delivery in got] == [message["messageId"] for message in sent]
    acks = [
        {"messageKey": delivery["lease"]["messageKey"], "leaseId": delivery["lease"]["leaseId"]} for delivery in got
    ]
    acks.append({"messageKey": "msg:q:none", "leaseId": "x"})
    results = box.data("ack_batch", {"acks": acks})["results"]
    assert [result["ok"] for result in results] == [True] * 5 + [False]
    assert results[-1]["error"]["code"] in ("ERR_MESSAGE_NOT_FOUND", "ERR_LEASE_MISMATCH")


def test_a_batch_of_large_messages_ends_before_it_is_too_large(box: ByHand) -> None:
    megabytes = "x" * (3 << 20)
    for _ in range(12):
        published(box, message=megabytes)
    got = [len(box.data("consume_batch", {"queue": "q", "limit": 100})["messages"]) for _ in range(2)]
    assert got == [6, 6]
    assert box.data("status", {"queue": "q"})["metrics"]["inflight"] == 12


def test_looking_at_large_messages_ends_before_the_answer_is_too_large(box: ByHand) -> None:
    for _ in range(12):
        published(box, message="x" * (3 << 20))
    assert len(box.data("peek", {"queue": "q", "limit": 100})["messages"]) == 6


def test_long_reasons_of_dead_letters_end_a_list_before_it_is_too_large(box: ByHand) -> None:
    for _ in range(8):
        dead(box, reason="x" * (3 << 20))
    assert box.data("list_dlq", {"queue": "q"})["count"] == 6


def test_one_message_is_delivered_however_large_it_is(box: ByHand) -> None:
    published(box, message="x" * (20 << 20))
    assert len(box.data("consume_batch", {"queue": "q", "limit": 100})["messages"]) == 1


def test_a_bad_message_in_a_batch_stops_no_other(box: ByHand) -> None:
    messages = [{"message": 1}, {"ttlSec": []}, {"message": 2, "priority": "high"}, {"message": 3}]
    outcomes = box.data("publish_batch", {"queue": "q", "messages": messages})["messages"]
    assert ["error" in outcome for outcome in outcomes] == [False, True, True, False]
    assert box.data("status", {"queue": "q"})["metrics"]["ready"] == 2


def test_a_batch_holds_ten_thousand_entries_at_most(box: ByHand) -> None:
    acks = [{"messageKey": "msg:q:1"}] * 10_000
    assert len(ACKS.read({"acks": acks})) == 10_000
    assert box.code("ack_batch", {"acks": [*acks, *acks[:1]]}) == "ERR_INVALID_REQUEST"
    assert box.code("peek", {"queue": "q", "limit": 10_001}) == "ERR_INVALID_REQUEST"


def test_a_message_of_a_batch_does_not_go_to_another_queue_than_it_names(box: ByHand) -> None:
    messages = [{"message": 1, "queue": "other"}, {"message": 2, "queue": "q"}, {"message": 3}]
    first, *others = box.data("publish_batch", {"queue": "q", "messages": messages})["messages"]
    assert first["error"]["code"] == "ERR_INVALID_REQUEST"
    assert all("messageKey" in other for other in others)
    assert box.data("status", {"queue": "q"})["metrics"]["ready"] == 2


@pytest.mark.parametrize("field", ["messageKey", "queue", "leaseId"])
def test_a_refusal_repeats_no_more_than_a_line_of_what_was_asked(box: ByHand, field: str) -> None:
    answer = box.ask("ack" if field != "queue" else "pause", {"messageKey": "msg:q:1", field: "x" * 100_000})
    assert (answer["ok"], len(answer["error"]["message"]) < 1000) == (False, True)


@pytest.mark.parametrize("name", HARD_NAMES)
def test_names_may_hold_any_printable_text(box: ByHand, name: str) -> None:
    key = published(box, name, deduplicationKey=name, targetConsumerId=name, type=name, traceId=name)
    held = box.data("consume_next", {"queue": name, "consumerId": name})
    assert held["message"]["messageKey"] == key
    assert held["lease"]["consumerId"] == name
    box.data("nack", {"messageKey": key, "leaseId": held["lease"]["leaseId"], "reason": name})
    assert box.data("list_dlq", {"queue": name})["messages"][0]["message"] == name


UNKNOWN = {"queue": "nowhere"}
REFUSALS: list[tuple[str, Any, str]] = [
    ("no_such", {}, "ERR_UNKNOWN_COMMAND"),
    ("peek", UNKNOWN, "ERR_QUEUE_NOT_FOUND"),
    ("dlq_stats", UNKNOWN, "ERR_QUEUE_NOT_FOUND"),
    ("pause", UNKNOWN, "ERR_QUEUE_NOT_FOUND"),
    ("purge", UNKNOWN, "ERR_QUEUE_NOT_FOUND"),
    ("publish", {}, "ERR_INVALID_REQUEST"),
    ("publish", {"queue": 7, "message": "x"}, "ERR_INVALID_REQUEST"),
    ("publish", {"queue": "", "message": "x"}, "ERR_INVALID_REQUEST"),
    ("publish", {"queue": "q", "message": "x", "priority": "high"}, "ERR_INVALID_REQUEST"),
    ("publish", {"queue": "q", "message": "x", "priority": True}, "ERR_INVALID_REQUEST"),
    ("publish", {"queue": "q", "message": "x", "ttlSec": "soon"}, "ERR_INVALID_REQUEST"),
    ("publish", {"queue": "q", "message": "x", "attributes": "[1]"}, "ERR_INVALID_REQUEST"),
    ("consume_next", {"queue": "q", "visibilityTimeoutSec": 0}, "ERR_INVALID_REQUEST"),
    ("consume_next", {"queue": "q", "waitMs": "long"}, "ERR_INVALID_REQUEST"),
    ("consume_batch", {"queue": "q", "limit": 0}, "ERR_INVALID_REQUEST"),
    ("ack", {}, "ERR_INVALID_REQUEST"),
    ("ack", {"messageKey": "msg:q:none", "leaseId": "x"}, "ERR_MESSAGE_NOT_FOUND"),
    ("ack", {"messageKey": "../../x", "leaseId": "x"}, "ERR_MESSAGE_NOT_FOUND"),
    ("nack", {"messageKey": "msg:q:none", "requeue": "yes"}, "ERR_INVALID_REQUEST"),
    ("extend", {"messageKey": "msg:q:none", "leaseId": "x"}, "ERR_MESSAGE_NOT_FOUND"),
    ("reprocess", {"messageKey": "msg:q:none"}, "ERR_DLQ_NOT_FOUND"),
    ("reprocess", {}, "ERR_INVALID_REQUEST"),
    ("publish_batch", {"queue": "q", "messages": []}, "ERR_INVALID_REQUEST"),
    ("publish_batch", {"queue": "q", "messages": ["x"]}, "ERR_INVALID_REQUEST"),
    ("ack_batch", {"acks": "all"}, "ERR_INVALID_REQUEST"),
]


@pytest.mark.parametrize(("command", "payload", "code"), REFUSALS)
def test_a_refusal_has_its_code(box: ByHand, command: str, payload: Any, code: str) -> None:
    published(box, "q")
    assert box.code(command, payload) == code
    assert box.names(box.box.requests) == box.names(box.box.dead) == []


def test_a_strict_mailbox_takes_no_new_queue(home: Any) -> None:
    box = ByHand(home, backend="memory", queues={"strict": True, "known": {}})
    assert box.code("publish", {"queue": "new", "message": "x"}) == "ERR_QUEUE_NOT_FOUND"
    assert box.data("publish", {"queue": "known", "message": "x"})["messageId"]
    box.engine.close()


def test_a_message_that_breaks_its_schema_is_refused(home: Any) -> None:
    rules = [{"field": "deviceId", "type": "required"}, {"field": "temp", "type": "type", "expectedType": "number"}]
    queues = [{"name": "telemetry", "messageSchema": {"name": "T", "rules": rules}}]
    box = ByHand(home, backend="memory", queues=queues)
    assert box.code("publish", {"queue": "telemetry", "message": {"temp": 1}}) == "ERR_VALIDATION_FAILED"
    assert (
        box.code("publish", {"queue": "telemetry", "message": {"deviceId": "a", "temp": "x"}})
        == "ERR_VALIDATION_FAILED"
    )
    assert box.data("publish", {"queue": "telemetry", "message": {"deviceId": "a", "temp": 1}})["messageId"]
    box.engine.close()
