"""The library against a manager in its own process."""

import json
import os
import threading
from pathlib import Path

import pytest

from kingdom.base.errors import BadInput, BadName, NotRunning, TookTooLong
from kingdom.mq import Client
from kingdom.mq.client import Published, Refused
from tests.mq.mailbox.boxes import ByHand, Running
from tests.waiting import SOON, wait_until


def test_the_five_lines_of_the_manual(manager: Running, q: str) -> None:
    with Client(manager.root) as mq:
        mq.publish(q, {"temp": 36.5}, attributes={"unit": "C"})
        delivery = mq.take(q)
        assert delivery is not None
        assert (delivery.payload, delivery.attributes, delivery.attempt) == ({"temp": 36.5}, {"unit": "C"}, 1)
        mq.ack(delivery)
        assert mq.take(q) is None


def test_a_clients_folder_is_closed_to_others_and_its_files_are_written_over(manager: Running, q: str) -> None:
    before = os.umask(0o022)
    try:
        with manager.client() as mq:
            folder = manager.root / "responses" / mq.client_id
            mode = folder.stat().st_mode & 0o777
            kept = set()
            for number in range(6):
                mq.publish(q, number)
                kept |= {file.stat().st_ino for file in folder.glob("*.json")}
    finally:
        os.umask(before)
    assert mode == 0o700
    assert 0 < len(kept) < 6


def test_a_closed_client_says_so(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, 1)
        delivery = mq.take(q)
    assert delivery is not None
    with pytest.raises(BadInput, match="closed"):
        delivery.ack()


def test_text_stays_text(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, "not JSON: 'quoted' \n큐")
        delivery = mq.take(q)
        assert delivery is not None
        assert delivery.payload == delivery.text == "not JSON: 'quoted' \n큐"


def test_every_call_has_its_method(manager: Running, q: str) -> None:
    with manager.client() as mq:
        first = mq.publish(q, {"n": 1}, priority=2, type="t", trace_id="x", ttl_sec=60, dedup_key="k")
        assert mq.publish(q, {"n": 2}, dedup_key="k") == first
        held = mq.take(q, consumer_id="me", visibility=5)
        assert held is not None
        assert mq.extend(held, 60) > held.lease_until
        mq.nack(held, "cannot")
        assert mq.list_dlq(q)[0]["messageKey"] == first.message_key
        assert mq.dlq_stats(q)["reasons"] == {"HANDLER_ERROR": 1}
        mq.quarantine(first.message_key)
        assert mq.reprocess(queue=q) == 0
        mq.quarantine(first.message_key, on=False)
        assert mq.reprocess(first.message_key) == 1
        assert mq.peek(q)[0]["messageKey"] == first.message_key
        mq.pause(q)
        assert mq.take(q) is None
        mq.resume(q)
        assert mq.status(q)["metrics"]["ready"] == 1
        assert q in [queue["queue"] for queue in mq.queues()]
        assert mq.purge(q) == 1
        assert mq.health()["status"] == "ok"
        assert mq.metrics()["commands"]["publish"] >= 2


def test_batches(manager: Running, q: str) -> None:
    with manager.client() as mq:
        sent = mq.publish_batch(q, [{"n": n} for n in range(20)])
        assert all(isinstance(outcome, Published) for outcome in sent)
        got = mq.consume_batch(q, 50)
        assert [delivery.payload["n"] for delivery in got] == list(range(20))
        assert all(result["ok"] for result in mq.ack_batch(got))


def test_a_refusal_says_its_code(manager: Running) -> None:
    with manager.client() as mq, pytest.raises(Refused, match="ERR_QUEUE_NOT_FOUND") as caught:
        mq.peek("nowhere")
    assert caught.value.code == "ERR_QUEUE_NOT_FOUND"


def test_a_waiting_consumer_wakes_when_a_message_comes(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, 0)
        assert mq.purge(q) == 1
        found: list[object] = []

        def consume() -> None:
            with manager.client() as other:
                delivery = other.take(q, wait=20)
                found.append(delivery and delivery.payload)

        thread = threading.Thread(target=consume)
        thread.start()
        wait_until(lambda: os.listdir(manager.root / "processing"), SOON, "the request waits")
        mq.publish(q, {"n": 1})
        thread.join(SOON)
        assert found == [{"n": 1}]


def test_polling_does_without_inotify(manager: Running, q: str) -> None:
    with Client(manager.root, wake="poll") as mq:
        mq.publish(q, 1)
        assert mq.take(q) is not None


def test_the_file_of_a_read_answer_is_reused_unless_it_has_another_name(manager: Running, home: Path) -> None:
    folder = manager.root / "responses" / "sensor-2"
    with manager.client("sensor-2") as mq:
        mq.health()
        [answer] = folder.glob("*.json")
        inode = answer.stat().st_ino
        mq.health()
        [answer] = folder.glob("*.json")
        assert answer.stat().st_ino != inode  # the request it became is the manager's now
        kept = home / "kept"
        os.link(answer, kept)
        before = kept.read_bytes()
        mq.health()
        assert kept.read_bytes() == before
        [answer] = [path for path in folder.glob("*.json") if path.stat().st_nlink == 1]
        answer.unlink()
        answer.symlink_to(kept)
        mq.health()
        assert kept.read_bytes() == before


def test_no_answer_is_kept_whose_name_may_come_again(manager: Running, q: str) -> None:
    """It would be taken for the next answer of that name."""
    with manager.client("sensor-3") as mq:
        for number in range(3):
            mq.call("publish", {"queue": q, "message": number}, request_id="again")
        assert list((manager.root / "responses" / "sensor-3").glob("again*")) == []
        assert mq.status(q)["metrics"]["ready"] == 3


def test_an_unnamed_client_leaves_no_files_behind(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, 1)
        assert mq.client_id in os.listdir(manager.root / "responses")
    assert mq.client_id not in os.listdir(manager.root / "responses")
    assert [name for name in os.listdir(manager.root / "requests") if name.endswith(".json")] == []


def test_a_client_with_a_name_keeps_its_folder(manager: Running, q: str) -> None:
    with manager.client("sensor") as mq:
        mq.publish(q, 1)
    assert os.listdir(manager.root / "responses" / "sensor") == []


def test_a_client_survives_the_loss_of_its_folder(manager: Running, q: str) -> None:
    with manager.client("sensor") as mq:
        mq.publish(q, 1)
        for path in (manager.root / "responses" / "sensor").rglob("*"):
            if path.is_file():
                path.unlink()
        for path in (manager.root / "responses" / "sensor").iterdir():
            path.rmdir()
        (manager.root / "responses" / "sensor").rmdir()
        assert mq.publish(q, 2)


def test_without_a_mailbox_the_manager_is_not_running(home: Path) -> None:
    with pytest.raises(NotRunning, match="no mailbox"):
        Client(home / "queue" / "mailbox")


def test_without_a_manager_a_request_is_taken_back(home: Path) -> None:
    requests = home / "requests"
    requests.mkdir()
    with Client(home, timeout=0.2) as mq, pytest.raises(NotRunning):
        mq.publish("q", 1)
    assert os.listdir(requests) == []


def test_a_manager_that_does_not_answer_is_a_time_out(home: Path) -> None:
    box = ByHand(home, backend="memory")
    from kingdom.base.disk.lock import Lock

    lock = Lock(box.box.root / "manager.lock", "queue manager")
    lock.acquire()
    with Client(box.box.root, timeout=0.2) as mq, pytest.raises(TookTooLong, match=r"0\.2 s"):
        mq.publish("q", 1)
    lock.release()
    box.engine.close()


def test_a_request_waits_for_a_manager_that_restarts(home: Path) -> None:
    running = Running(home, backend="filesystem", durability="process")
    with running.client() as mq:
        running.kill()
        answers: list[object] = []
        thread = threading.Thread(target=lambda: answers.append(mq.publish("q", 1)))
        thread.start()
        wait_until(lambda: os.listdir(running.root / "requests"), SOON, "the request lies there")
        running.start()
        thread.join(SOON)
        assert len(answers) == 1
        assert mq.status("q")["metrics"]["ready"] == 1
    running.stop()


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "", "x" * 251, "a\0b", "\ud800"])
def test_a_client_name_that_is_no_file_name_is_refused(manager: Running, name: str) -> None:
    if name:
        with pytest.raises(BadName):
            manager.client(name)


def test_a_request_names_its_client_and_its_deadline(home: Path) -> None:
    (home / "requests").mkdir()
    client = Client(home, "me", timeout=0.1, clock=lambda: 1000.0)
    seen: list[dict[str, object]] = []
    give_up = client._gave_up  # what lies there when the client stops waiting
    client._gave_up = lambda name, seconds: (  # type: ignore[method-assign]
        seen.append(json.loads((home / "requests" / name).read_text())) or give_up(name, seconds)  # type: ignore[func-returns-value]
    )
    with pytest.raises(NotRunning):
        client.call("ack", {"messageKey": "k"})
    client.close()
    (request,) = seen
    assert request["clientId"] == "me"
    assert request["command"] == "ack"
    assert request["timestampMs"] == 1_000_000
    assert request["deadlineMs"] == 1_000_100


@pytest.mark.parametrize(("seconds", "deadline"), [(60.0, 1_060_000), (0.25, 1_000_250), (0.0, 0)])
def test_a_deadline_is_so_many_seconds_from_now_or_none(home: Path, seconds: float, deadline: int) -> None:
    (home / "requests").mkdir()
    with Client(home, "me", clock=lambda: 1000.0) as client:
        assert json.loads(client._written("1", "ack", {}, seconds))["deadlineMs"] == deadline


def test_what_is_too_large_for_a_manager_is_refused_at_once(manager: Running, q: str) -> None:
    """It would be set aside unread, and nobody would hear of it."""
    with manager.client() as mq:
        with pytest.raises(Refused) as refused:
            mq.publish(q, "x" * (64 << 20))
        assert refused.value.code == "ERR_INVALID_REQUEST"
    assert not list(manager.root.glob("dead/*"))
