"""Several calls in one file: each is answered as if it had come alone."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kingdom.mq import Client
from kingdom.mq.mailbox import commands
from tests.mq.mailbox.boxes import ByHand, Running
from tests.waiting import SOON, wait_until


def one(number: str, command: str, **payload: Any) -> dict[str, Any]:
    return {"requestId": number, "command": command, "payload": payload}


def test_each_call_has_its_own_answer(box: ByHand) -> None:
    calls = [
        one("a", "publish", queue="q", message={"n": 1}),
        one("b", "publish", queue="q", message="x", priority="high"),
        one("c", "Consume", queue="q"),
        one("d", "consume_next", queue="q"),
        one("e", "ack", messageKey="msg:q:none"),
    ]
    answers = box.data("call_batch", {"calls": calls})["answers"]
    assert [answer["requestId"] for answer in answers] == ["a", "b", "c", "d", "e"]
    assert [answer["ok"] for answer in answers] == [True, False, True, True, False]
    assert answers[2]["data"]["message"]["messageId"] == answers[0]["data"]["messageId"]
    assert answers[2]["data"]["lease"]["consumerId"] == "me"
    assert answers[3]["data"] == {"message": None}
    assert [answers[i]["error"]["code"] for i in (1, 4)] == ["ERR_INVALID_REQUEST", "ERR_MESSAGE_NOT_FOUND"]
    counted = box.data("metrics")["commands"]
    assert (counted["publish"], counted["consume_next"], counted["ack"], counted["call_batch"]) == (2, 2, 1, 1)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (one("a", "purge", queue="q", yes=True), "ERR_INVALID_REQUEST"),
        (one("a", "call_batch", calls=[]), "ERR_INVALID_REQUEST"),
        (one("a", "publish_batch", queue="q", messages=[{"message": 1}]), "ERR_INVALID_REQUEST"),
        (one("../a", "publish", queue="q", message=1), "ERR_INVALID_REQUEST"),
        ({"command": "publish"}, "ERR_INVALID_REQUEST"),
        ({"requestId": "a"}, "ERR_INVALID_REQUEST"),
        ({**one("a", "publish", queue="q", message=1), "deadlineMs": 1}, "ERR_TIMEOUT"),
        ({**one("a", "publish", queue="q", message=1), "deadlineMs": "soon"}, "ERR_INVALID_REQUEST"),
    ],
)
def test_what_does_not_belong_in_it_is_refused_in_its_place(box: ByHand, call: dict[str, Any], code: str) -> None:
    good = one("z", "publish", queue="q", message="good")
    first, second = box.data("call_batch", {"calls": [call, good]})["answers"]
    assert (first["error"]["code"], second["ok"]) == (code, True)
    assert box.data("status", {"queue": "q"})["metrics"]["ready"] == 1


def test_found_again_after_a_kill_it_changes_nothing(home: Path) -> None:
    """The same calls under the same ids: published messages are those of the first time."""
    box = ByHand(home, backend="sqlite")
    calls = [one(f"r{n}", "publish", queue="q", message={"n": n}) for n in range(3)]
    first = box.data("call_batch", {"calls": calls}, requestId="b1")
    box.reopen()
    again = box.post("call_batch", {"calls": calls}, requestId="b1")
    box.turn()
    answer = box.answer(again)
    assert answer is not None
    assert answer["data"] == first
    assert box.data("status", {"queue": "q"})["metrics"]["ready"] == 3
    box.engine.close()


def test_what_no_answer_has_room_for_was_not_begun(box: ByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MOST_AT_ONCE", 150)
    for _ in range(4):
        box.data("publish", {"queue": "q", "message": "x" * 98})
    calls = [one(f"c{n}", "consume_next", queue="q") for n in range(4)]
    answers = box.data("call_batch", {"calls": calls})["answers"]
    assert [answer["requestId"] for answer in answers] == ["c0", "c1"]
    metrics = box.data("status", {"queue": "q"})["metrics"]
    assert (metrics["ready"], metrics["inflight"]) == (2, 2)


def ask_from_threads(client: Client, q: str, count: int) -> list[str]:
    """Publish from as many threads, all at once. Return the ids of the messages."""
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(client.publish(q, {"n": n}).message_id)) for n in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    return found


def test_threads_of_a_client_share_files(manager: Running, q: str) -> None:
    with manager.client() as client:
        before = client.metrics()["commands"].get("call_batch", 0)
        client._together._free = False  # as if somebody were asking
        threads = threading.Thread(target=lambda: found.extend(ask_from_threads(client, q, 8)))
        found: list[str] = []
        threads.start()
        wait_until(lambda: len(client._together._waiting) == 8, SOON, "it happened")
        client._together._pass_on(0)
        threads.join(SOON)
        assert len(set(found)) == 8
        assert client.metrics()["commands"]["call_batch"] == before + 1
        assert client.status(q)["metrics"]["ready"] == 8


def test_a_file_with_several_calls_is_written_as_the_fast_reader_knows_it(box: ByHand) -> None:
    """Byte for byte what orjson would write."""
    import orjson

    client = Client(box.box.root, "me", timeout=0.05)
    whole = client._written("b", "call_batch", {"calls": [orjson.Fragment(client._written("a", "ack", {}, 1))]}, 0)
    assert orjson.dumps(orjson.loads(whole)) == whole
    assert json.loads(whole)["deadlineMs"] == 0
    client.close()
