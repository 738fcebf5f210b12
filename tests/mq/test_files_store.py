"""What a person sees and does in the folders of the file store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.mq.message_format import Draft
from tests.mq.houses import PAYLOAD, QUEUE, House


@pytest.fixture
def house(open_house: Callable[..., House]) -> House:
    house = open_house("filesystem")
    house.mq.queues.declare(QUEUE)
    return house


def folder(house: House, name: str, queue: str = QUEUE) -> Path:
    return house.folder / "fs" / queue / name


def seen(house: House, name: str) -> list[Path]:
    return sorted(path for path in folder(house, name).iterdir() if not path.name.startswith("."))


def lay(house: House, name: str, data: bytes) -> None:
    """As a person would, or a script that writes beside and renames in."""
    draft = folder(house, "meta") / "draft"
    draft.write_bytes(data)
    os.replace(draft, folder(house, "inbox") / name)


def test_a_message_is_one_readable_file_with_the_payload_at_its_end(house: House) -> None:
    key = house.publish('{"temp": 36.5}', type="sensor.reading", attributes='{"deviceId": "d-1"}', priority=5)
    [file] = seen(house, "inbox")
    assert file.name.startswith("0999995-1770458400000-")
    assert file.name.endswith(f"-0-{key[-36:]}.json")
    envelope = json.loads(file.read_text())
    assert envelope["payload"] == {"temp": 36.5}
    assert list(envelope)[-1] == "payload"
    assert (envelope["queue"], envelope["type"], envelope["priority"]) == (QUEUE, "sensor.reading", 5)


def test_a_change_of_state_moves_the_file_and_its_content_stays(house: House) -> None:
    house.publish()
    [before] = seen(house, "inbox")
    text, inode = before.read_text(), before.stat().st_ino
    leased = house.lease("consumer-01")
    [file] = seen(house, "processing")
    assert (file.read_text(), file.stat().st_ino, seen(house, "inbox")) == (text, inode, [])
    assert f"-1.l{leased.lease_id}.c" in file.name
    assert f"-{leased.lease_until}-" in file.name
    house.nack(leased, "any reason / at all")
    [file] = seen(house, "inbox")
    assert (file.read_text(), file.stat().st_ino) == (text, inode)
    assert "any" not in file.name


def test_a_dead_letter_is_a_readable_file_with_its_reason(house: House) -> None:
    house.die(reason="why not")
    [file] = seen(house, "dlq")
    record = json.loads(file.read_text())
    assert record["failure"]["reasonMessage"] == "why not"
    assert record["originalMessage"]["payload"] == json.loads(PAYLOAD)
    assert ".rHANDLER_ERROR." in file.name
    assert seen(house, "processing") == []


def test_a_bare_payload_laid_in_by_hand_becomes_a_message(house: House) -> None:
    lay(house, "note to the queue.json", b'{"temp": 1}')
    lay(house, "no-ending", b"[1, 2]")
    house.sweep(2)
    assert "mq.adopted" in house.said
    assert sorted(house.lease_texts()) == ["[1, 2]", '{"temp": 1}']


def test_an_envelope_laid_in_by_hand_keeps_what_it_says(house: House) -> None:
    envelope = {"payload": {"temp": 1}, "attributes": {"a": 1}, "priority": 7, "targetConsumerId": "me", "x": "kept"}
    lay(house, "e.json", json.dumps(envelope).encode())
    house.reopen()
    [file] = seen(house, "inbox")
    assert json.loads(file.read_text()) == envelope
    assert house.lease("you") is None
    leased = house.lease("me")
    assert (json.loads(leased.payload), json.loads(leased.attributes), leased.priority) == ({"temp": 1}, {"a": 1}, 7)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xef\xbb\xbf{}",
        b"\xff\xfe",
        b'{"a": NaN}',
        b'{"a": 1, "a": 2}',
        b"[" * 200_000,
        b'{"payload": 1, "attributes": 7}',
    ],
    ids=["empty", "truncated", "BOM", "no UTF-8", "NaN", "twice", "deep", "odd attributes"],
)
def test_what_is_no_message_ends_among_the_dead_with_its_reason(house: House, data: bytes) -> None:
    lay(house, "bad.json", data)
    house.publish("good")
    house.sweep(2)
    assert house.lease_texts() == ["good"]
    [letter] = house.mq.dead_letters.listed(QUEUE)
    assert json.loads(letter.record)["failure"]["reasonCode"] == letter.reason == "VALIDATION_ERROR"
    assert letter.message
    assert house.mq.dead_letters.reprocess_all(QUEUE) in ([], [letter.message_key])
    house.reopen()
    assert house.lease() is None


def test_a_message_laid_in_by_hand_must_fit_the_queue(house: House) -> None:
    house.use({"schema": {"type": "object", "required": ["temp"]}})
    lay(house, "bad.json", b'{"rpm": 1}')
    house.sweep(2)
    assert house.lease() is None
    [letter] = house.mq.dead_letters.listed(QUEUE)
    assert (letter.reason, "temp" in letter.message) == ("VALIDATION_ERROR", True)


def test_what_cannot_even_be_read_lies_beside_its_reason(house: House) -> None:
    inbox = folder(house, "inbox")
    os.mkfifo(inbox / "pipe.json")
    (inbox / "link.json").symlink_to("/etc/passwd")
    (inbox / "folder.json").mkdir()
    with (inbox / "huge.json").open("wb") as huge:
        huge.truncate(3 << 30)
    house.publish("good")
    house.sweep(2)
    assert house.lease_texts() == ["good"]
    for name in ("pipe.json", "link.json", "folder.json", "huge.json"):
        assert json.loads((folder(house, "dlq") / f"{name}.reason").read_text())["file"] == name
        assert not os.path.lexists(inbox / name)
    house.reopen()
    assert sum(house.counts()) == 1


def test_unfinished_files_are_left_alone(house: House) -> None:
    lay(house, ".hidden.json", b"{}")
    lay(house, "half.json.tmp", b"{")
    house.sweep(2)
    house.reopen()
    assert sum(house.counts()) == 0
    assert (folder(house, "inbox") / "half.json.tmp").exists()


def test_a_file_that_a_person_takes_away_is_passed_over(house: House) -> None:
    house.publish("gone")
    [file] = seen(house, "inbox")
    house.publish("here")
    file.unlink()
    assert house.lease_texts() == ["here"]
    assert "mq.vanished" in house.said


def test_a_message_spoiled_by_an_editor_goes_to_the_dead(house: House) -> None:
    house.publish('{"temp": 1}')
    [file] = seen(house, "inbox")
    file.write_text(file.read_text().replace('"temp": 1', '"temp": '))
    assert house.lease() is None
    assert house.mq.dead_letters.counts(QUEUE) == {"VALIDATION_ERROR": 1}


@pytest.mark.parametrize("restart", [False, True], ids=["live", "restart"])
@pytest.mark.parametrize("from_", ["processing", "dlq", "archive"])
def test_a_message_that_a_person_moves_back_is_waiting_again(house: House, from_: str, restart: bool) -> None:
    house.use({"archive": True})
    house.publish('{"waits": 1}')
    house.publish('{"temp": 1}', priority=1)
    leased = house.lease("c")
    if from_ == "dlq":
        house.nack(leased, "no", requeue=False)
    elif from_ == "archive":
        house.ack(leased)
    [file] = seen(house, from_)
    file.replace(folder(house, "inbox") / file.name)
    if restart:
        house.reopen()
    house.sweep(2)
    assert sorted(house.lease_texts()) == ['{"temp": 1}', '{"waits": 1}']
    assert house.lease() is None
    assert len(seen(house, "processing")) == 2
    assert seen(house, "inbox") == []


@pytest.mark.parametrize("durability", ["process", "power"])
def test_what_the_queue_itself_moves_is_not_taken_for_laid_in(
    open_house: Callable[..., House], durability: str
) -> None:
    house = open_house("filesystem", durability=durability)
    for number in range(5):
        house.publish(str(number), delay_ms=3_000 * number)
        house.sweep(2)
    house.mq.publish(QUEUE, Draft("uncommitted"))
    house.mq.purge(QUEUE, 2)
    house.sweep(2)
    house.sweep(2)
    house.nack(house.lease(), "again")
    house.sweep(2)
    assert "mq.adopted" not in house.said
    assert sum(house.counts()) == 4


def test_queue_names_never_become_paths(house: House) -> None:
    for queue in ("../../evil", "/etc", "..", "a/b"):
        house.publish(queue=queue)
    assert {path.name for path in (house.folder / "fs").iterdir() if not path.name.startswith(".")} == {
        QUEUE,
        "..%2F..%2Fevil".replace("..", "%2E.", 1),
        "%2Fetc",
        "%2E.",
        "a%2Fb",
    }
    assert json.loads((folder(house, "meta", "a%2Fb") / "queue.json").read_text())["queue"] == "a/b"


def test_a_folder_with_an_inbox_is_a_queue_and_another_is_not(house: House) -> None:
    (house.folder / "fs" / "stranger").mkdir()
    (house.folder / "fs" / "한글 큐" / "inbox").mkdir(parents=True)
    (house.folder / "fs" / "한글 큐" / "inbox" / "by hand.json").write_text('{"n": 1}')
    house.reopen()
    assert "stranger" not in house.mq.queues.names()
    assert [finding.kind for finding in house.mq.check()] == ["invalid_state"]
    assert house.lease_texts(queue="한글 큐") == ['{"n": 1}']


@pytest.mark.parametrize("queue", [QUEUE, "한글 큐", "x" * 200])
def test_a_lost_record_costs_no_message(house: House, queue: str) -> None:
    house.publish("kept", queue=queue)
    house.die(queue)
    house.publish("waits", queue=queue)
    for record in (house.folder / "fs").glob("*/meta/queue.json"):
        record.unlink()
    house.mq.queues.by_name.clear()
    house.reopen(kill=True)
    assert (house.lease_texts(queue=queue), house.counts(queue)[3]) == ([PAYLOAD, "waits"], 1)


def test_acknowledged_files_are_used_again_and_given_back_when_idle(house: House) -> None:
    for _ in range(20):
        house.publish("x" * 3_000)
    for _ in range(20):
        house.ack(house.lease())
    house.publish("short")
    assert house.lease_texts() == ["short"]
    for _ in range(3):
        house.mq.queues.declare("other")
        house.sweep(2)
    spares = list((house.folder / "fs").rglob("*.spare.tmp"))
    house.reopen()
    assert not list((house.folder / "fs").rglob("*.spare.tmp"))
    assert len(spares) < 20


def test_a_dead_letter_that_is_moved_back_by_hand_is_none_any_more(house: House) -> None:
    house.die()
    house.die()
    [first, second] = sorted((house.folder / "fs" / QUEUE / "dlq").iterdir())
    first.rename(house.folder / "fs" / QUEUE / "inbox" / first.name)
    house.sweep(2.1)
    assert house.counts() == (1, 0, 0, 1)
    second.unlink()
    assert house.mq.dead_letters.listed(QUEUE) == []
    assert house.counts() == (1, 0, 0, 0)
    assert house.lease_texts() == [PAYLOAD]


def test_a_request_that_a_crash_kept_from_the_journal_is_known_after_the_clock_was_set_back(
    open_house: Callable[..., House], monkeypatch: pytest.MonkeyPatch
) -> None:
    house = open_house("filesystem")
    house.publish(request="one")
    house.clock.pass_(-3_600)
    house.reopen()
    with monkeypatch.context() as crash:
        crash.setattr(house.mq.store._journal, "write", lambda entries: None)  # type: ignore[attr-defined]
        key = house.publish(request="two")
    house.reopen(kill=True)
    assert house.publish(request="two") == key


@pytest.mark.parametrize(("size", "kept"), [(100, 1), (1 << 15, 0)])
def test_only_the_file_of_a_small_message_laid_in_is_kept_to_be_written_over(
    house: House, size: int, kept: int
) -> None:
    lay(house, "mine.json", b'"' + b"x" * size + b'"')
    house.sweep(2)
    house.ack(house.lease())
    assert len(list((house.folder / "fs").rglob("*.spare.tmp"))) == kept
