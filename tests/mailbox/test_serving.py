"""How requests are served: in which order, how long, how often, and what becomes of those that are none."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.errors import BadConfig
from tests.mailbox.boxes import ByHand

PUBLISH = {"queue": "q", "message": {"n": 1}}


def ready(box: ByHand) -> int:
    return int(box.data("status", {"queue": "q"})["metrics"]["ready"])


# --- how requests arrive


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


def test_fields_nobody_knows_are_no_reason_to_refuse(box: ByHand) -> None:
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
    assert [json.loads(each["message"]["payload"])["n"] for each in got] == [0, 1, 2, 3, 4]


def test_a_name_that_is_told_twice_is_served_once(box: ByHand) -> None:
    name = box.post("publish", PUBLISH)
    box.server.serve_arrivals([f"{name}.json", f"{name}.json"])
    box.server.serve_arrivals([f"{name}.json"])
    assert ready(box) == 1


def test_a_request_that_was_taken_back_is_forgotten(box: ByHand) -> None:
    box.server.serve_arrivals(["gone.json"])
    assert box.names(box.box.dead) == []


def test_requests_that_wait_together_are_committed_together(box: ByHand) -> None:
    commits: list[int] = []
    commit = box.engine.commit
    box.engine.commit = lambda: commits.append(len(box.names(box.box.requests))) or commit()  # type: ignore[method-assign, func-returns-value]
    for _ in range(20):
        box.post("publish", PUBLISH)
    box.turn()
    assert commits == [20]


# --- deadlines


def test_past_its_deadline_nothing_is_done(box: ByHand) -> None:
    late = int(box.now * 1000) - 1
    assert box.code("publish", PUBLISH, deadlineMs=late) == "ERR_TIMEOUT"
    assert box.code("status", {"queue": "q"}) == "ERR_QUEUE_NOT_FOUND"


@pytest.mark.parametrize("deadline", [0, None, 4_000_000_000_000])
def test_without_a_deadline_or_before_it_all_is_done(box: ByHand, deadline: int | None) -> None:
    assert box.ask("publish", PUBLISH, deadlineMs=deadline)["ok"]


# --- once


def test_the_same_publish_again_is_the_same_message(box: ByHand) -> None:
    first = box.data("publish", PUBLISH, requestId="once")
    assert box.data("publish", PUBLISH, requestId="once") == first
    assert ready(box) == 1


def test_a_batch_again_is_the_same_messages(box: ByHand) -> None:
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


def test_a_purge_found_in_processing_at_start_is_not_done_again(home: Path) -> None:
    box = ByHand(home, backend="filesystem")
    box.data("publish", PUBLISH)
    name = in_processing(box, "purge", {"queue": "q"})
    box.reopen()
    box.turn()
    answer = box.answer(name)
    assert answer is not None
    assert answer["error"]["code"] == "ERR_INTERNAL_ERROR"
    assert ready(box) == 1
    assert box.names(box.box.processing) == []
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


# --- long polls


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


def test_who_waits_longest_is_served_first(empty: ByHand) -> None:
    first, second = wait_for(empty), wait_for(empty)
    empty.data("publish", PUBLISH)
    assert empty.answer(first) is not None
    assert empty.answer(second) is None


def test_a_message_for_one_consumer_passes_the_others_by(empty: ByHand) -> None:
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


def test_a_delayed_message_reaches_who_waits_when_it_is_due(empty: ByHand) -> None:
    name = wait_for(empty)
    empty.data("publish", {**PUBLISH, "delayMs": 2000})
    assert empty.server.wait_seconds() <= 2.001
    empty.now += 1.9
    empty.turn()
    assert empty.server.wait_seconds() == pytest.approx(0.1, abs=0.01)
    empty.now += 0.101
    empty.turn()
    assert (empty.answer(name) or {})["data"]["message"] is not None


def test_a_waiting_client_that_took_its_request_back_gets_no_message(empty: ByHand) -> None:
    name = wait_for(empty)
    (empty.box.processing / f"{name}.json").unlink()
    empty.data("publish", PUBLISH)
    assert empty.answer(name) is None
    assert ready(empty) == 1


# --- what is no request


BAD: dict[str, Callable[[ByHand], Path]] = {
    "empty.json": lambda box: box.lay("empty.json", b""),
    "list.json": lambda box: box.lay("list.json", b"[]"),
    "nan.json": lambda box: box.lay("nan.json", b'{"requestId": NaN}'),
    "notes.txt": lambda box: box.lay("notes.txt", b"hello"),
    "noid.json": lambda box: box.lay("noid.json", b'{"clientId": "me", "command": "health"}'),
    "up.json": lambda box: box.lay("up.json", b'{"requestId": "up", "clientId": "../up", "command": "health"}'),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_parked_with_its_reason(box: ByHand, name: str) -> None:
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
    (b'{"requestId": "a", "clientId": "me", "command": "health", "payload": []}', "ERR_INVALID_REQUEST"),
    (b'{"requestId": "a", "clientId": "me", "command": "health", "deadlineMs": "soon"}', "ERR_INVALID_REQUEST"),
]


@pytest.mark.parametrize(("data", "code"), ANSWERED)
def test_a_sender_that_can_be_told_is_told(box: ByHand, data: bytes, code: str) -> None:
    box.lay("a.json", data)
    box.turn()
    answer = box.answer("a")
    assert answer is not None
    assert answer["error"]["code"] == code
    assert "a.json.reason" in box.names(box.box.dead)


def test_a_file_named_otherwise_than_its_request_is_parked_and_told(box: ByHand) -> None:
    box.lay("b.json", b'{"requestId": "a", "clientId": "me", "command": "health"}')
    box.turn()
    assert (box.answer("a") or {})["error"]["code"] == "ERR_INVALID_REQUEST"
    assert box.names(box.box.dead) == ["b.json", "b.json.reason"]


def test_the_same_bad_name_twice_overwrites_nothing(box: ByHand) -> None:
    for text in (b"one", b"two"):
        box.lay("bad.json", text)
        box.turn()
    assert (box.box.dead / "bad.json").read_bytes() == b"one"
    assert (box.box.dead / "bad.json.2").read_bytes() == b"two"


def test_a_client_folder_that_is_no_folder_is_not_written_to(box: ByHand, home: Path) -> None:
    (home / "elsewhere").mkdir()
    os.symlink(home / "elsewhere", box.box.responses / "me")
    box.post("publish", PUBLISH)
    box.turn()
    assert os.listdir(home / "elsewhere") == []
    assert len(box.names(box.box.dead)) == 2


# --- answers


def test_an_answer_that_nobody_fetches_is_removed_after_five_minutes(box: ByHand) -> None:
    name = box.post("health")
    box.turn()
    path = box.box.responses / "me" / f"{name}.json"
    os.utime(path, (box.now, box.now))
    box.now += 299
    box.turn()
    assert path.exists()
    box.now += 32
    box.turn()
    assert not path.exists()
    os.utime(path.parent, (box.now - 400, box.now - 400))
    box.now += 600
    box.post("health", client="other")
    box.turn()
    box.now += 600
    box.turn()
    assert not path.parent.exists()


def test_answers_that_a_power_cut_left_torn_are_removed_at_start(box: ByHand) -> None:
    whole = box.post("health")
    box.turn()
    folder = box.box.responses / "me"
    (folder / "empty.json").touch()
    (folder / "half.json").write_bytes(b'{"requestId":"half","ok":true,"da')
    (folder / "other.json").write_bytes(b'{"requestId":"of-an-older-file","ok":true,"data":{}}')
    (folder / ".drafts").mkdir()
    (folder / "link.json").symlink_to("nowhere")
    box.reopen()
    assert box.names(folder) == [".drafts", "link.json", f"{whole}.json"]


def test_a_client_that_deletes_its_folder_is_answered_all_the_same(box: ByHand) -> None:
    box.ask("health")
    for path in (box.box.responses / "me").iterdir():
        path.unlink()
    (box.box.responses / "me").rmdir()
    assert box.ask("health")["ok"]


def test_nothing_to_do_means_no_timer(box: ByHand) -> None:
    box.turn()
    assert box.server.wait_seconds() > 20


def test_a_draft_that_nobody_finished_is_removed_after_an_hour(box: ByHand) -> None:
    draft = box.box.requests / "a.json.tmp"
    draft.write_text("half")
    os.utime(draft, (box.now, box.now))
    box.now += 3500
    box.turn()
    assert draft.exists()
    box.now += 200
    box.turn()
    assert not draft.exists()


# --- who may do what


def test_folders_are_for_their_owner_alone(box: ByHand) -> None:
    box.ask("health")
    own = (
        box.box.root,
        box.box.requests,
        box.box.processing,
        box.box.dead,
        box.box.responses,
        box.box.responses / "me",
    )
    assert {stat.S_IMODE(path.stat().st_mode) for path in own} == {0o700}


def as_root(test: Any) -> Any:
    return pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give folders to other users")(test)


@as_root
def test_a_client_of_another_user_has_its_own_folder(home: Path) -> None:
    ipc = {"requestsMode": "1733", "clients": {"sensor": {"owner": 65534, "mode": "0700"}}}
    box = ByHand(home, backend="memory", ipc=ipc)
    folder = box.box.responses / "sensor"
    about = folder.stat()
    assert (about.st_uid, stat.S_IMODE(about.st_mode)) == (65534, 0o700)
    assert stat.S_IMODE(box.box.requests.stat().st_mode) == 0o1733
    assert stat.S_IMODE(box.box.responses.stat().st_mode) == 0o711
    box.engine.close()


@as_root
def test_only_its_user_speaks_for_a_client(home: Path) -> None:
    box = ByHand(home, backend="memory", ipc={"clients": {"sensor": {"owner": 65534}}})
    forged = box.post("publish", PUBLISH, client="sensor")
    box.turn()
    assert box.answer(forged, "sensor") is None
    assert f"{forged}.json.reason" in box.names(box.box.dead)
    own = box.post("publish", PUBLISH, client="sensor")
    os.chown(box.box.requests / f"{own}.json", 65534, -1)
    box.turn()
    answer = box.box.responses / "sensor" / f"{own}.json"
    assert json.loads(answer.read_text())["ok"]
    assert answer.stat().st_mode & 0o004
    box.engine.close()


@as_root
def test_an_owner_that_is_not_there_is_a_config_error(home: Path) -> None:
    with pytest.raises(BadConfig, match=r"ipc\.clients\.sensor\.owner"):
        ByHand(home, backend="memory", ipc={"clients": {"sensor": {"owner": "nobody-of-that-name"}}})


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
