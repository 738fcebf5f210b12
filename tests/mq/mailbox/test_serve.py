"""How requests are served: in which order, how long, how often, and what becomes of unreadable ones."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.mq.errors import StoreError
from kingdom.mq.mailbox.requests import Unreadable, read
from kingdom.mq.mailbox.serve import LOOK_AGAIN_SECONDS
from tests.mq.mailbox.boxes import ByHand

PUBLISH = {"queue": "q", "message": {"n": 1}}


def ready(box: ByHand) -> int:
    return int(box.data("status", {"queue": "q"})["metrics"]["ready"])


def test_a_draft_in_the_same_folder_is_not_seen_before_it_is_renamed(box: ByHand) -> None:
    request = {"requestId": "a", "clientId": "me", "command": "health", "payload": {}}
    for draft in ("a.json.tmp", ".a.json"):
        (box.box.requests / draft).write_text(json.dumps(request))
        box.turn()
        assert box.answer("a") is None
        os.rename(box.box.requests / draft, box.box.requests / "a.json")
        box.turn()
        assert box.answer("a") is not None
        (box.box.responses / "me" / "a.json").unlink()


def test_a_request_may_be_renamed_in_from_elsewhere(box: ByHand, home: Path) -> None:
    (home / "a.json").write_text('{"requestId": "a", "clientId": "me", "command": "health", "payload": {}}')
    os.rename(home / "a.json", box.box.requests / "a.json")
    box.turn()
    assert box.answer("a") == {"requestId": "a", "ok": True, "data": box.data("health")}


def test_unknown_fields_are_ignored(box: ByHand) -> None:
    assert box.ask("health", colour="green")["ok"]


def test_the_payload_may_be_missing(box: ByHand) -> None:
    box.lay("a.json", b'{"requestId": "a", "clientId": "me", "command": "HEALTH"}')
    box.turn()
    assert (box.answer("a") or {})["ok"]


def test_requests_are_served_in_the_order_in_which_they_came(box: ByHand) -> None:
    for n in range(5):
        name = box.post("publish", {"queue": "q", "message": {"n": n}}, requestId=f"{9 - n}")
        os.utime(box.box.requests / f"{name}.json", (n, n))
    box.turn()
    got = box.data("consume_batch", {"queue": "q", "limit": 9})["messages"]
    assert [json.loads(delivery["message"]["payload"])["n"] for delivery in got] == [0, 1, 2, 3, 4]


def test_a_name_that_arrives_twice_is_served_once(box: ByHand) -> None:
    name = box.post("publish", PUBLISH)
    box.server.serve_arrivals([f"{name}.json", f"{name}.json"])
    box.server.serve_arrivals([f"{name}.json"])
    assert ready(box) == 1


def test_a_request_that_its_client_removed_is_forgotten(box: ByHand) -> None:
    box.server.serve_arrivals(["gone.json"])
    assert box.names(box.box.dead) == []


MANY = [{"message": n} for n in range(600)]


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        ("publish_batch", {"queue": "q", "messages": MANY}),
        (
            "call_batch",
            {"calls": [{"requestId": f"{n}", "command": "publish", "payload": PUBLISH} for n in range(600)]},
        ),
        ("consume_batch", {"queue": "full", "limit": 600}),
        ("move", {"queue": "full", "to": "q"}),
        ("purge", {"queue": "full", "yes": True}),
    ],
)
def test_a_call_of_several_turns_is_refused_when_one_of_them_cannot_be_committed(
    home: Path, command: str, payload: Any
) -> None:
    box = ByHand(home, backend="sqlite", sqlite={"busyTimeoutMs": 1})
    box.data("publish_batch", {"queue": "full", "messages": MANY})
    name = box.post(command, payload)
    box.turn()
    assert box.answer(name) is None
    another = sqlite3.connect(home / "queue" / "mq" / "yirangmq.db", isolation_level=None)
    another.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError):
        box.turn()
    another.close()
    answer = box.answer(name)
    assert answer is not None
    assert (answer["ok"], "may be done or not" in answer["error"]["message"]) == (False, True)
    assert box.names(box.box.requests) == []
    box.engine.close()


def test_requests_that_wait_together_are_committed_together(box: ByHand) -> None:
    commits: list[int] = []
    commit = box.engine.commit
    box.engine.commit = lambda: commits.append(len(box.names(box.box.requests))) or commit()  # type: ignore[method-assign, func-returns-value]
    for _ in range(20):
        box.post("publish", PUBLISH)
    box.turn()
    assert commits == [20]


def test_a_request_past_its_deadline_is_not_carried_out(box: ByHand) -> None:
    late = int(box.now * 1000) - 1
    assert box.code("publish", PUBLISH, deadlineMs=late) == "ERR_TIMEOUT"
    assert box.data("queues") == {"queues": []}


@pytest.mark.parametrize("deadline", [0, None, 4_000_000_000_000])
def test_a_request_without_a_deadline_or_before_it_is_carried_out(box: ByHand, deadline: int | None) -> None:
    assert box.ask("publish", PUBLISH, deadlineMs=deadline)["ok"]


def test_a_repeated_publish_is_the_same_message(box: ByHand) -> None:
    first = box.data("publish", PUBLISH, requestId="once")
    assert box.data("publish", PUBLISH, requestId="once") == first
    assert ready(box) == 1


def test_another_clients_equal_id_publishes_its_own_message(box: ByHand) -> None:
    first = box.data("publish", PUBLISH, requestId="once")
    assert box.data("publish", PUBLISH, client="other", requestId="once") != first
    assert box.data("publish", {"queue": "q", "message": {"n": 2}}, requestId="once") != first
    assert ready(box) == 3


def test_a_repeated_batch_is_the_same_messages(box: ByHand) -> None:
    payload = {"queue": "q", "messages": [{"message": n} for n in range(3)]}
    first = box.data("publish_batch", payload, requestId="once")
    assert box.data("publish_batch", payload, requestId="once") == first
    assert ready(box) == 3


def in_processing(box: ByHand, command: str, payload: Any) -> str:
    name = box.post(command, payload)
    os.rename(box.box.requests / f"{name}.json", box.box.processing / f"{name}.json")
    return name


@pytest.mark.parametrize("backend", ["filesystem", "sqlite", "hybrid"])
def test_a_publish_found_in_processing_at_start_is_done_again_safely(home: Path, backend: str) -> None:
    box = ByHand(home, backend=backend)
    first = box.data("publish", PUBLISH, requestId="a")
    box.post("publish", PUBLISH, requestId="a")
    os.rename(box.box.requests / "a.json", box.box.processing / "a.json")
    (box.box.responses / "me" / "a.json").unlink()
    box.reopen()
    box.turn()
    assert (box.answer("a") or {})["data"] == first
    assert ready(box) == 1
    assert box.names(box.box.processing) == []
    box.engine.close()


@pytest.mark.parametrize(
    ("command", "payload"),
    [("purge", {"queue": "q"}), ("delete_queue", {"queue": "q"}), ("move", {"queue": "q", "to": "r"})],
)
def test_what_must_not_run_twice_is_not_done_again_when_found_at_start(
    home: Path, command: str, payload: dict[str, str]
) -> None:
    box = ByHand(home, backend="filesystem")
    box.data("publish", PUBLISH)
    name = in_processing(box, command, payload)
    box.reopen()
    box.turn()
    answer = box.answer(name)
    assert answer is not None
    assert answer["error"]["code"] == "ERR_INTERNAL_ERROR"
    assert ready(box) == 1
    assert box.names(box.box.processing) == []
    box.engine.close()


def test_a_message_deleted_before_a_kill_is_answered_as_deleted(home: Path) -> None:
    box = ByHand(home, backend="filesystem")
    key = box.data("publish", PUBLISH)["messageKey"]
    box.data("delete_message", {"messageKey": key})
    name = box.post("delete_message", {"messageKey": key})
    box.reopen()
    box.turn()
    assert (box.answer(name) or {})["data"] == {"messageKey": key, "deleted": True}
    assert box.code("delete_message", {"messageKey": key}) == "ERR_MESSAGE_NOT_FOUND"
    box.engine.close()


def test_a_wait_found_in_processing_at_start_goes_on(home: Path) -> None:
    box = ByHand(home, backend="filesystem")
    box.data("publish", PUBLISH)
    held = box.data("consume_next", {"queue": "q"})["lease"]
    name = box.post("consume_next", {"queue": "q", "waitMs": 60_000})
    box.turn()
    assert box.names(box.box.processing) == [f"{name}.json"]
    box.data("ack", {"messageKey": held["messageKey"], "leaseId": held["leaseId"]})
    box.reopen()
    box.turn()
    sent = box.data("publish", PUBLISH)
    answer = box.answer(name)
    assert answer is not None
    assert answer["data"]["message"]["messageId"] == sent["messageId"]
    box.engine.close()


def test_a_wait_found_in_processing_gives_way_to_no_other_client(home: Path) -> None:
    box = ByHand(home, backend="filesystem")
    name = in_processing(box, "consume_next", {"queue": "q", "waitMs": 60_000})
    box.post("consume_next", {"queue": "q", "waitMs": 60_000}, client="other", requestId=name)
    box.reopen()
    box.turn()
    for n in range(2):
        box.data("publish", {"queue": "q", "message": n})
    assert [(box.answer(name, client) or {})["ok"] for client in ("me", "other")] == [True, True]
    box.engine.close()


@pytest.mark.parametrize("requeue", [True, False])
def test_a_nack_that_was_done_before_a_kill_is_no_error_afterwards(home: Path, requeue: bool) -> None:
    box = ByHand(home, backend="filesystem")
    box.data("publish", PUBLISH)
    held = box.data("consume_next", {"queue": "q"})["lease"]
    given = {"messageKey": held["messageKey"], "leaseId": held["leaseId"], "requeue": requeue}
    assert box.data("nack", given) == {}
    again = box.post("nack", given)
    other = box.post("nack", {**given, "messageKey": "msg:q:018bcfe5-6800-8000-8003-0126b2138fe0"})
    box.reopen()
    box.turn()
    assert (box.answer(again) or {})["data"] == {}
    assert (box.answer(other) or {})["error"]["code"] == "ERR_MESSAGE_NOT_FOUND"
    assert box.code("nack", given) in ("ERR_LEASE_EXPIRED", "ERR_LEASE_MISMATCH")
    box.engine.close()


def test_a_reprocess_by_key_that_was_done_before_a_kill_is_no_error_afterwards(home: Path) -> None:
    box = ByHand(home, backend="filesystem")
    box.data("publish", PUBLISH)
    held = box.data("consume_next", {"queue": "q"})["lease"]
    key = held["messageKey"]
    box.data("nack", {"messageKey": key})
    assert box.data("reprocess_dlq", {"messageKey": key})["reprocessed"] is True
    again = box.post("reprocess_dlq", {"messageKey": key})
    apart = in_processing(box, "reprocess_dlq", {"messageKey": key})
    other = box.post("reprocess_dlq", {"messageKey": "msg:q:018bcfe5-6800-8000-8003-0126b2138fe0"})
    box.reopen()
    box.turn()
    for name in (again, apart):
        assert (box.answer(name) or {})["data"] == {"messageKey": key, "reprocessed": True}
    assert (box.answer(other) or {})["error"]["code"] == "ERR_DLQ_NOT_FOUND"
    assert box.code("reprocess_dlq", {"messageKey": key}) == "ERR_DLQ_NOT_FOUND"
    assert ready(box) == 1
    box.engine.close()


def test_an_ack_that_was_done_before_a_kill_is_no_error_afterwards(home: Path) -> None:
    box = ByHand(home, backend="filesystem")
    box.data("publish", PUBLISH)
    held = box.data("consume_next", {"queue": "q"})["lease"]
    given = {"messageKey": held["messageKey"], "leaseId": held["leaseId"]}
    assert box.data("ack", given) == {}
    again = box.post("ack", given)
    batch = box.post("ack_batch", {"acks": [given]})
    box.reopen()
    box.turn()
    assert (box.answer(again) or {})["data"] == {}
    assert (box.answer(batch) or {})["data"]["results"][0]["ok"] is True
    assert box.code("ack", given) == "ERR_MESSAGE_NOT_FOUND"
    box.engine.close()


BAD: dict[str, Callable[[ByHand], Path]] = {
    "empty.json": lambda box: box.lay("empty.json", b""),
    "list.json": lambda box: box.lay("list.json", b"[]"),
    "nan.json": lambda box: box.lay("nan.json", b'{"requestId": NaN}'),
    "notes.txt": lambda box: box.lay("notes.txt", b"hello"),
    "noid.json": lambda box: box.lay("noid.json", b'{"clientId": "me", "command": "health"}'),
    "up.json": lambda box: box.lay("up.json", b'{"requestId": "up", "clientId": "../up", "command": "health"}'),
}


@pytest.mark.parametrize("name", BAD)
def test_an_unreadable_file_goes_to_dead_with_its_reason(box: ByHand, name: str) -> None:
    BAD[name](box)
    after = box.post("health")
    box.turn()
    assert box.answer(after) is not None
    assert box.names(box.box.dead) == [name, f"{name}.reason"]
    reason = json.loads((box.box.dead / f"{name}.reason").read_text())
    assert reason["file"] == name
    assert reason["reason"]
    assert box.names(box.box.requests) == []


ANSWERED: list[tuple[bytes, str]] = [
    (b'{"requestId": "a", "clientId": "me", "command": "health", "command": "ack"}', "ERR_PARSE_ERROR"),
    (b'{"requestId": "a", "clientId": "me", "comma', "ERR_PARSE_ERROR"),
    (b'{"requestId": "a", "clientId": "me", "command": 7}', "ERR_INVALID_REQUEST"),
    (b'{"requestId": "a", "clientId": "me"}', "ERR_INVALID_REQUEST"),
    (b'{"requestId": "a", "clientId": "me", "command": "health", "deadlineMs": "soon"}', "ERR_INVALID_REQUEST"),
]


@pytest.mark.parametrize(("data", "code"), ANSWERED)
def test_the_sender_of_a_bad_request_is_told_when_it_can_be(box: ByHand, data: bytes, code: str) -> None:
    box.lay("a.json", data)
    box.turn()
    answer = box.answer("a")
    assert answer is not None
    assert answer["error"]["code"] == code
    assert "a.json.reason" in box.names(box.box.dead)


def test_a_second_bad_file_of_the_same_name_overwrites_nothing(box: ByHand) -> None:
    for text in (b"one", b"two"):
        box.lay("bad.json", text)
        box.turn()
    assert (box.box.dead / "bad.json").read_bytes() == b"one"
    assert (box.box.dead / "bad.json.2").read_bytes() == b"two"


def test_a_bad_file_that_cannot_be_moved_away_is_told_of_and_stops_nobody(box: ByHand) -> None:
    box.box.dead.rmdir()
    box.box.dead.touch()
    box.lay("bad.json", b"{")
    box.data("health")
    assert any(sentence.startswith("left 'bad.json' in ") for sentence in box.said)
    assert box.names(box.box.requests) == ["bad.json"]


def test_a_client_folder_that_is_a_link_is_not_written_to(box: ByHand, home: Path) -> None:
    (home / "elsewhere").mkdir()
    os.symlink(home / "elsewhere", box.box.responses / "me")
    box.post("publish", PUBLISH)
    box.turn()
    assert os.listdir(home / "elsewhere") == []
    assert len(box.names(box.box.dead)) == 2


def test_an_idle_server_sets_no_timer(box: ByHand) -> None:
    box.turn()
    assert box.server.wait_seconds() > 20


def test_a_draft_that_nobody_finished_is_removed_after_a_day(box: ByHand) -> None:
    draft = box.box.requests / "a.json.tmp"
    draft.write_text("half")
    os.utime(draft, (box.now, box.now))
    box.now += 86_300
    box.turn()
    assert draft.exists()
    box.now += 200
    box.turn()
    assert not draft.exists()


def test_what_a_turn_has_no_time_for_comes_first_in_the_next(box: ByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.mq.mailbox.serve.MOST_SECONDS", 0.0005)
    asked = [box.post("publish", {"queue": "q", "message": number}) for number in range(60)]
    turns = 0
    while any(box.answer(name) is None for name in asked):
        box.turn()
        turns += 1
    assert turns > 1
    texts = [message["message"]["payload"] for message in box.data("consume_batch", {"queue": "q"})["messages"]]
    assert texts == [str(number) for number in range(60)]


def test_a_late_request_that_an_earlier_manager_may_have_read_hears_so(home: Path) -> None:
    box = ByHand(home)
    late = box.post("publish", {"queue": "q", "message": 1}, deadlineMs=int(box.now * 1000))
    box.now += 1
    box.reopen()
    box.turn()
    found = box.answer(late)
    assert found is not None
    assert found["error"]["code"] == "ERR_TIMEOUT"
    assert "one before it may have done it" in found["error"]["message"]
    assert "one before it" not in box.ask("health", deadlineMs=1)["error"]["message"]
    box.engine.close()


def test_between_two_looks_only_what_is_named_is_served(box: ByHand) -> None:
    box.turn()
    unnamed, named = box.post("health"), box.post("health")
    box.server.serve_arrivals([f"{named}.json"])
    assert (box.answer(unnamed), box.answer(named) is not None) == (None, True)
    box.now += LOOK_AGAIN_SECONDS
    box.server.serve_arrivals([])
    assert box.answer(unnamed) is not None


def test_drafts_of_a_killed_life_are_removed_at_a_start(box: ByHand) -> None:
    (box.box.root / ".drafts" / "7.tmp").write_text("half")
    box.reopen()
    assert box.names(box.box.root / ".drafts") == []


def test_a_turn_in_which_no_answer_is_too_old_is_no_work(box: ByHand) -> None:
    fetched = box.post("health")
    box.turn()
    (box.box.responses / "me" / f"{fetched}.json").unlink()
    box.now += box.settings.config["ipc"]["responseTtlSec"]
    assert not box.server.serve_arrivals([])
    assert box.said == []
    unread = box.post("health")
    box.turn()
    os.utime(box.box.responses / "me" / f"{unread}.json", (box.now, box.now))
    box.now += box.settings.config["ipc"]["responseTtlSec"]
    assert box.server.serve_arrivals([])
    assert box.said == ["removed 1 old answers"]


def test_what_expires_now_is_gone_now(box: ByHand) -> None:
    box.data("publish", {"queue": "q", "message": 1, "ttlSec": 5})
    box.server.wait_seconds()
    box.now += 5
    box.server.serve_arrivals([])
    assert box.engine.next_due() is None


def test_a_defect_in_one_request_is_told_and_ends_no_other(box: ByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(box.engine, "status", broken)
    wrong, right = box.post("status", {"queue": "q"}), box.post("health")
    box.turn()
    answer, other = box.answer(wrong), box.answer(right)
    assert answer is not None
    assert other is not None
    assert (answer["error"]["code"], other["ok"]) == ("ERR_INTERNAL_ERROR", True)
    (said,) = box.said
    assert "a defect in status" in said
    assert "boom" in said


def test_an_answer_that_cannot_be_written_waits_and_is_told_of_once(box: ByHand) -> None:
    box.data("health")
    folder = box.box.responses / "me"
    shutil.rmtree(folder)
    folder.write_text("in the way")
    name = box.post("publish", PUBLISH)
    box.turn()
    box.turn()
    (said,) = box.said
    assert said.startswith("cannot answer me yet: ")
    folder.unlink()
    folder.mkdir(0o700)
    box.turn()
    answer = box.answer(name)
    assert answer is not None
    assert answer["ok"]
    assert box.data("status", {"queue": "q"})["metrics"]["ready"] == 1


@pytest.mark.parametrize(
    ("filename", "data", "why", "told"),
    [
        ("a.txt", b'{"requestId": "a", "clientId": "me", "command": "health"}', "does not end in .json", True),
        ("a.json", b"[1]", "a list, not an object", False),
        ("a.json", b'{"clientId": "me", "command": "health"}', "requestId is missing", False),
        ("a.json", b'{"requestId": "a", "command": "health"}', "clientId is missing", False),
        ("a.json", b'{"requestId": "a", "clientId": ".me", "command": "health"}', "clientId", False),
        (
            "a.json",
            b'{"requestId": "a", "clientId": "me", "command": "health", "timestampMs": "x"}',
            "timestampMs",
            True,
        ),
    ],
)
def test_what_is_wrong_with_a_request_stands_beside_it_and_is_counted(
    box: ByHand, filename: str, data: bytes, why: str, told: bool
) -> None:
    box.lay(filename, data)
    box.turn()
    reason = json.loads((box.box.dead / f"{filename}.reason").read_text())
    assert why in reason["reason"]
    assert (box.answer("a") is not None) == told
    assert sum(box.data("metrics")["errors"].values()) == 1
    with pytest.raises(Unreadable) as raised:
        read(str(box.box.dead), filename)
    assert str(raised.value) == reason["reason"]


def test_a_link_to_nothing_among_the_requests_is_set_aside(box: ByHand) -> None:
    os.symlink("nothing", box.box.requests / "a.json")
    box.turn()
    assert box.names(box.box.requests) == []
    assert box.names(box.box.dead) == ["a.json", "a.json.reason"]


def test_a_link_under_the_name_of_a_draft_is_left_alone(box: ByHand, home: Path) -> None:
    (home / "mine").write_text("mine")
    link = box.box.requests / "a.json.tmp"
    link.symlink_to(home / "mine")
    os.utime(link, (box.now, box.now), follow_symlinks=False)
    box.now += 90_000
    box.turn()
    assert link.is_symlink()
