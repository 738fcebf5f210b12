"""What a person sees and does in the folders of the file store."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kingdom.mq.message_format import Draft
from kingdom.mq.stores.base import DedupEntry
from kingdom.mq.stores.request_journal import RequestJournal
from tests.mq.rigs import PAYLOAD, QUEUE, Rig


@pytest.fixture
def rig(open_rig: Callable[..., Rig]) -> Rig:
    rig = open_rig("filesystem")
    rig.mq.queues.declare(QUEUE)
    return rig


def folder(rig: Rig, name: str, queue: str = QUEUE) -> Path:
    return rig.folder / "fs" / queue / name


def seen(rig: Rig, name: str) -> list[Path]:
    return sorted(path for path in folder(rig, name).iterdir() if not path.name.startswith("."))


def lay(rig: Rig, name: str, data: bytes) -> None:
    """As a person would, or a script that writes beside and renames in."""
    draft = folder(rig, "meta") / "draft"
    draft.write_bytes(data)
    os.replace(draft, folder(rig, "inbox") / name)


def test_a_message_is_one_readable_file_with_the_payload_at_its_end(rig: Rig) -> None:
    key = rig.publish('{"temp": 36.5}', type="sensor.reading", attributes='{"deviceId": "d-1"}', priority=5)
    [file] = seen(rig, "inbox")
    assert file.name.startswith("0999995-1770458400000-")
    assert file.name.endswith(f"-0-{key[-36:]}.json")
    envelope = json.loads(file.read_text())
    assert envelope["payload"] == {"temp": 36.5}
    assert list(envelope)[-1] == "payload"
    assert (envelope["queue"], envelope["type"], envelope["priority"]) == (QUEUE, "sensor.reading", 5)


def test_a_change_of_state_moves_the_file_and_its_content_stays(rig: Rig) -> None:
    rig.publish()
    [before] = seen(rig, "inbox")
    text, inode = before.read_text(), before.stat().st_ino
    leased = rig.lease("consumer-01")
    [file] = seen(rig, "processing")
    assert (file.read_text(), file.stat().st_ino, seen(rig, "inbox")) == (text, inode, [])
    assert f"-1.l{leased.lease_id}.c" in file.name
    assert f"-{leased.lease_until}-" in file.name
    rig.nack(leased, "any reason / at all")
    [file] = seen(rig, "inbox")
    assert (file.read_text(), file.stat().st_ino) == (text, inode)
    assert "any" not in file.name


def test_a_dead_letter_is_a_readable_file_with_its_reason(rig: Rig) -> None:
    rig.die(reason="why not")
    [file] = seen(rig, "dlq")
    record = json.loads(file.read_text())
    assert record["failure"]["reasonMessage"] == "why not"
    assert record["originalMessage"]["payload"] == json.loads(PAYLOAD)
    assert ".rHANDLER_ERROR." in file.name
    assert seen(rig, "processing") == []


def test_a_bare_payload_laid_in_by_hand_becomes_a_message(rig: Rig) -> None:
    lay(rig, "note to the queue.json", b'{"temp": 1}')
    lay(rig, "no-ending", b"[1, 2]")
    rig.sweep(2)
    assert "mq.adopted" in rig.said
    assert sorted(rig.lease_texts()) == ["[1, 2]", '{"temp": 1}']


def test_an_envelope_laid_in_by_hand_keeps_what_it_says(rig: Rig) -> None:
    envelope = {"payload": {"temp": 1}, "attributes": {"a": 1}, "priority": 7, "targetConsumerId": "me", "x": "kept"}
    lay(rig, "e.json", json.dumps(envelope).encode())
    rig.reopen()
    [file] = seen(rig, "inbox")
    assert json.loads(file.read_text()) == envelope
    assert rig.lease("you") is None
    leased = rig.lease("me")
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
def test_what_is_no_message_ends_among_the_dead_with_its_reason(rig: Rig, data: bytes) -> None:
    lay(rig, "bad.json", data)
    rig.publish("good")
    rig.sweep(2)
    assert rig.lease_texts() == ["good"]
    [letter] = rig.mq.dead_letters.listed(QUEUE)
    assert json.loads(letter.record)["failure"]["reasonCode"] == letter.reason == "VALIDATION_ERROR"
    assert letter.message
    assert rig.mq.dead_letters.reprocess_all(QUEUE) in ([], [letter.message_key])
    rig.reopen()
    assert rig.lease() is None


def test_a_message_laid_in_by_hand_must_fit_the_queue(rig: Rig) -> None:
    rig.use({"schema": {"type": "object", "required": ["temp"]}})
    lay(rig, "bad.json", b'{"rpm": 1}')
    rig.sweep(2)
    assert rig.lease() is None
    [letter] = rig.mq.dead_letters.listed(QUEUE)
    assert (letter.reason, "temp" in letter.message) == ("VALIDATION_ERROR", True)


def test_what_cannot_even_be_read_lies_beside_its_reason(rig: Rig) -> None:
    inbox = folder(rig, "inbox")
    os.mkfifo(inbox / "pipe.json")
    (inbox / "link.json").symlink_to("/etc/passwd")
    (inbox / "folder.json").mkdir()
    with (inbox / "huge.json").open("wb") as huge:
        huge.truncate(3 << 30)
    rig.publish("good")
    rig.sweep(2)
    assert rig.lease_texts() == ["good"]
    for name in ("pipe.json", "link.json", "folder.json", "huge.json"):
        assert json.loads((folder(rig, "dlq") / f"{name}.reason").read_text())["file"] == name
        assert not os.path.lexists(inbox / name)
    rig.reopen()
    assert sum(rig.counts()) == 1


def test_unfinished_files_are_left_alone(rig: Rig) -> None:
    lay(rig, ".hidden.json", b"{}")
    lay(rig, "half.json.tmp", b"{")
    rig.sweep(2)
    rig.reopen()
    assert sum(rig.counts()) == 0
    assert (folder(rig, "inbox") / "half.json.tmp").exists()


def test_a_file_that_a_person_takes_away_is_passed_over(rig: Rig) -> None:
    rig.publish("gone")
    [file] = seen(rig, "inbox")
    rig.publish("here")
    file.unlink()
    assert rig.lease_texts() == ["here"]
    assert "mq.vanished" in rig.said


def test_a_message_spoiled_by_an_editor_goes_to_the_dead(rig: Rig) -> None:
    rig.publish('{"temp": 1}')
    [file] = seen(rig, "inbox")
    file.write_text(file.read_text().replace('"temp": 1', '"temp": '))
    assert rig.lease() is None
    assert rig.mq.dead_letters.counts(QUEUE) == {"VALIDATION_ERROR": 1}


@pytest.mark.parametrize("restart", [False, True], ids=["live", "restart"])
@pytest.mark.parametrize("from_", ["processing", "dlq", "archive"])
def test_a_message_that_a_person_moves_back_is_waiting_again(rig: Rig, from_: str, restart: bool) -> None:
    rig.use({"archive": True})
    rig.publish('{"waits": 1}')
    rig.publish('{"temp": 1}', priority=1)
    leased = rig.lease("c")
    if from_ == "dlq":
        rig.nack(leased, "no", requeue=False)
    elif from_ == "archive":
        rig.ack(leased)
    [file] = seen(rig, from_)
    file.replace(folder(rig, "inbox") / file.name)
    if restart:
        rig.reopen()
    rig.sweep(2)
    assert sorted(rig.lease_texts()) == ['{"temp": 1}', '{"waits": 1}']
    assert rig.lease() is None
    assert len(seen(rig, "processing")) == 2
    assert seen(rig, "inbox") == []


@pytest.mark.parametrize("durability", ["process", "power"])
def test_what_the_queue_itself_moves_is_not_taken_for_laid_in(open_rig: Callable[..., Rig], durability: str) -> None:
    rig = open_rig("filesystem", durability=durability)
    for number in range(5):
        rig.publish(str(number), delay_ms=3_000 * number)
        rig.sweep(2)
    rig.mq.publish(QUEUE, Draft("uncommitted"))
    rig.mq.purge(QUEUE, 2)
    rig.sweep(2)
    rig.sweep(2)
    rig.nack(rig.lease(), "again")
    rig.sweep(2)
    assert "mq.adopted" not in rig.said
    assert sum(rig.counts()) == 4


def test_queue_names_never_become_paths(rig: Rig) -> None:
    for queue in ("../../evil", "/etc", "..", "a/b"):
        rig.publish(queue=queue)
    assert {path.name for path in (rig.folder / "fs").iterdir() if not path.name.startswith(".")} == {
        QUEUE,
        "..%2F..%2Fevil".replace("..", "%2E.", 1),
        "%2Fetc",
        "%2E.",
        "a%2Fb",
    }
    assert json.loads((folder(rig, "meta", "a%2Fb") / "queue.json").read_text())["queue"] == "a/b"


def test_a_folder_with_an_inbox_is_a_queue_and_another_is_not(rig: Rig) -> None:
    (rig.folder / "fs" / "stranger").mkdir()
    (rig.folder / "fs" / "한글 큐" / "inbox").mkdir(parents=True)
    (rig.folder / "fs" / "한글 큐" / "inbox" / "by hand.json").write_text('{"n": 1}')
    rig.reopen()
    assert "stranger" not in rig.mq.queues.names()
    assert [finding.kind for finding in rig.mq.check()] == ["invalid_state"]
    assert rig.lease_texts(queue="한글 큐") == ['{"n": 1}']


@pytest.mark.parametrize("queue", [QUEUE, "한글 큐", "x" * 200])
def test_a_lost_record_costs_no_message(rig: Rig, queue: str) -> None:
    rig.publish("kept", queue=queue)
    rig.die(queue)
    rig.publish("waits", queue=queue)
    for record in (rig.folder / "fs").glob("*/meta/queue.json"):
        record.unlink()
    rig.mq.queues.by_name.clear()
    rig.reopen(kill=True)
    assert (rig.lease_texts(queue=queue), rig.counts(queue)[3]) == ([PAYLOAD, "waits"], 1)


def test_acknowledged_files_are_used_again_and_given_back_when_idle(rig: Rig) -> None:
    for _ in range(20):
        rig.publish("x" * 3_000)
    for _ in range(20):
        rig.ack(rig.lease())
    rig.publish("short")
    assert rig.lease_texts() == ["short"]
    for _ in range(3):
        rig.mq.queues.declare("other")
        rig.sweep(2)
    spares = list((rig.folder / "fs").rglob("*.spare.tmp"))
    rig.reopen()
    assert not list((rig.folder / "fs").rglob("*.spare.tmp"))
    assert len(spares) < 20


def test_a_dead_letter_that_is_moved_back_by_hand_is_none_any_more(rig: Rig) -> None:
    rig.die()
    rig.die()
    [first, second] = sorted((rig.folder / "fs" / QUEUE / "dlq").iterdir())
    first.rename(rig.folder / "fs" / QUEUE / "inbox" / first.name)
    rig.sweep(2.1)
    assert rig.counts() == (1, 0, 0, 1)
    second.unlink()
    assert rig.mq.dead_letters.listed(QUEUE) == []
    assert rig.counts() == (1, 0, 0, 0)
    assert rig.lease_texts() == [PAYLOAD]


def test_a_request_that_a_crash_kept_from_the_journal_is_known_after_the_clock_was_set_back(
    open_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_rig("filesystem")
    rig.publish(request="one")
    rig.clock.pass_(-3_600)
    rig.reopen()
    with monkeypatch.context() as crash:
        crash.setattr(rig.mq.store._journal, "write", lambda entries: None)  # type: ignore[attr-defined]
        key = rig.publish(request="two")
    rig.reopen(kill=True)
    assert rig.publish(request="two") == key


@pytest.mark.parametrize(("size", "kept"), [(100, 1), (1 << 15, 0)])
def test_only_the_file_of_a_small_message_laid_in_is_kept_to_be_written_over(rig: Rig, size: int, kept: int) -> None:
    lay(rig, "mine.json", b'"' + b"x" * size + b'"')
    rig.sweep(2)
    rig.ack(rig.lease())
    assert len(list((rig.folder / "fs").rglob("*.spare.tmp"))) == kept


def fill_journal(rig: Rig) -> None:
    """Let the journal of requests have no room."""
    rig.mq.store._journal.sync()  # type: ignore[attr-defined]
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, rig.mq.store._journal._fd)  # type: ignore[attr-defined]
    os.close(full)


@pytest.mark.parametrize("durability", ["process", "power"])
def test_messages_are_consumed_while_there_is_no_room_to_remember_requests(
    open_rig: Callable[..., Rig], durability: str
) -> None:
    rig = open_rig("filesystem", durability=durability)
    rig.publish("one", request="r1")
    fill_journal(rig)
    key = rig.publish("two", request="r2")
    assert rig.mq.store.trouble
    rig.ack(rig.lease())
    rig.mq._opening.load()  # as after a group that failed
    assert rig.publish("two", request="r2") == key
    assert rig.lease_texts() == ["two"]
    rig.mq.ack(key, consumer="c")
    rig.mq.commit()
    rig.mq.store._journal.close()  # type: ignore[attr-defined]
    rig.publish("three")  # there is room again
    rig.reopen(kill=True)
    assert rig.publish("two", request="r2") == key


def test_half_a_line_of_the_journal_does_not_spoil_the_next(home: Path) -> None:
    journal = RequestJournal(str(home))
    journal.write([DedupEntry("dedup", 1, "q", "a", ("",))])
    whole = (home / "00000001.log").read_bytes()
    with limited_to(len(whole) + 5), pytest.raises(OSError, match="large"):
        journal.write([DedupEntry("dedup", 2, "q", "b", ("",))])
    journal.write([DedupEntry("dedup", 3, "q", "c", ("",))])
    assert [entry.key for entry in journal.read(0)] == ["a", "c"]
    journal.close()


@contextmanager
def limited_to(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signals = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, signals)


@pytest.mark.parametrize("message_id", ["5f1c1f0e-7a52-4d3c-9f5e-0d8a3c9f7b11", "sensor-7/42", "이랑 1"])
def test_a_file_that_is_laid_in_keeps_its_message_id(rig: Rig, message_id: str) -> None:
    lay(rig, "mine.json", json.dumps({"messageId": message_id, "queue": QUEUE, "payload": {"n": 1}}).encode())
    rig.sweep(3)
    leased = rig.lease()
    assert (leased.message_id, leased.message_key) == (message_id, f"msg:{QUEUE}:{message_id}")
    rig.reopen(kill=True)
    rig.mq.ack(f"msg:{QUEUE}:{message_id}", leased.lease_id)
    rig.mq.commit()
    assert rig.counts() == (0, 0, 0, 0)


def test_a_copy_of_a_waiting_message_gets_an_id_of_its_own(rig: Rig) -> None:
    key = rig.publish()
    [file] = seen(rig, "inbox")
    lay(rig, "copy.json", file.read_bytes())
    lay(rig, "another copy.json", file.read_bytes())
    rig.sweep(3)
    keys = {message.message_key for message in rig.mq.peek(QUEUE)}
    assert key in keys
    assert len(keys) == 3


def test_a_message_that_is_moved_back_from_its_consumer_keeps_its_id(rig: Rig) -> None:
    key = rig.publish()
    lost = rig.lease()
    [file] = seen(rig, "processing")
    lay(rig, "back.json", file.read_bytes())
    file.unlink()
    rig.sweep(3)
    assert rig.counts() == (1, 0, 0, 0)
    leased = rig.lease()
    assert (leased.message_key, leased.attempt) == (key, 1)
    rig.ack(leased)
    assert lost.lease_id != leased.lease_id
    assert rig.counts() == (0, 0, 0, 0)
