"""Clients of the original engine are served as they are: requests and answers in exactly their shapes.

They write indented JSON under a temporary name in requests/, rename it, look for the answer every 50 ms and
delete it. Their ids are five groups of four hex digits and come again; a consumer's id is its clientId.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.mq.mailbox.boxes import Answer, ByHand

AN_ID = "3F2A-09BC-77D1-E004-5A6B"


class OriginalClient:
    """Writes and polls as the original clients do. The test turns the server between the looks."""

    def __init__(self, box: ByHand, client_id: str = "yirang-cli") -> None:
        self.box = box
        self.client_id = client_id

    def ask(
        self, command: str, payload: Any, request_id: str = AN_ID, filename: str | None = None, timeout_ms: int = 30_000
    ) -> Answer:
        now = int(self.box.now * 1000)
        request = {
            "requestId": request_id,
            "clientId": self.client_id,
            "command": command,
            "timestampMs": now,
            "deadlineMs": now + timeout_ms,
            "payload": payload,
        }
        self.write(filename or f"{request_id}.json", request)
        self.box.turn()
        answer = self.box.box.responses / self.client_id / f"{request_id}.json"
        found: Answer = json.loads(answer.read_text("utf-8"))
        answer.unlink()
        return found

    def write(self, filename: str, request: Any) -> None:
        draft = self.box.box.requests / f"{filename}.tmp"
        draft.write_text(json.dumps(request, indent=2, ensure_ascii=False), "utf-8")
        os.rename(draft, self.box.box.requests / filename)

    def data(self, command: str, payload: Any, **more: Any) -> Answer:
        answer = self.ask(command, payload, **more)
        assert answer["ok"], answer
        data: Answer = answer["data"]
        return data


@pytest.fixture
def original(box: ByHand) -> OriginalClient:
    return OriginalClient(box)


NO_OBJECTS = [None, [], "", "text", 7, True]


@pytest.mark.parametrize("payload", NO_OBJECTS)
@pytest.mark.parametrize("command", ["health", "metrics", "queues"])
def test_a_payload_that_is_no_object_counts_as_empty(original: OriginalClient, command: str, payload: Any) -> None:
    assert original.ask(command, payload)["ok"]


def test_a_payload_that_is_no_object_is_refused_by_commands_that_need_one(original: OriginalClient) -> None:
    answer = original.ask("status", None)
    assert answer["error"]["code"] == "ERR_INVALID_REQUEST"
    assert "queue" in answer["error"]["message"]
    assert original.box.names(original.box.box.dead) == []


CLIENT_IDS = ["worker 1", "소비자-1", "a~b!c", "x" * 250, "C:worker", "한글 이름"]


@pytest.mark.parametrize("client_id", CLIENT_IDS)
def test_a_consumer_id_may_be_any_text_that_is_one_path_component(box: ByHand, client_id: str) -> None:
    client = OriginalClient(box, client_id)
    client.data("publish", {"queue": "q", "message": '{"n":1}', "attributes": "{}", "priority": 0, "delayMs": 0})
    got = client.data("consume_next", {"queue": "q", "consumerId": client_id, "visibilityTimeoutSec": 30})
    assert got["lease"]["consumerId"] == client_id
    key = got["message"]["messageKey"]
    assert client.data("ack", {"messageKey": key, "consumerId": client_id}) == {}


@pytest.mark.parametrize("client_id", ["", ".", "..", ".hidden", "a/b", "a\0b", "x" * 251, "한" * 84])
def test_a_client_id_that_is_no_path_component_is_refused(box: ByHand, client_id: str) -> None:
    OriginalClient(box, client_id).write("a.json", {"requestId": "a", "clientId": client_id, "command": "health"})
    box.turn()
    assert box.names(box.box.dead) == ["a.json", "a.json.reason"]
    assert "use up to 250 bytes, no slash" in (box.box.dead / "a.json.reason").read_text()
    assert not box.box.responses.exists() or box.names(box.box.responses) == []


REQUEST_IDS = ["요청 1", "r" * 200, "3F2A-09BC-77D1-E004-5A6B", "a.tmp", "a b"]


@pytest.mark.parametrize("request_id", REQUEST_IDS)
def test_a_request_id_may_be_any_text_that_is_one_path_component(original: OriginalClient, request_id: str) -> None:
    assert original.ask("health", None, request_id=request_id, filename="req.json")["requestId"] == request_id


@pytest.mark.parametrize("filename", ["1700000000-7.json", "요청.json", "other.json"])
def test_the_name_of_the_file_need_not_be_the_request_id(original: OriginalClient, filename: str) -> None:
    assert original.ask("health", None, filename=filename)["ok"]
    assert original.box.names(original.box.box.requests) == []
    assert original.box.names(original.box.box.dead) == []


def test_a_round_of_an_original_client(original: OriginalClient) -> None:
    sent = original.data(
        "publish",
        {"queue": "telemetry", "message": '{"temp": 36.5}', "attributes": '{"unit": "C"}', "priority": 3, "delayMs": 0},
    )
    got = original.data(
        "consume_next",
        {"queue": "telemetry", "consumerId": "yirang-cli", "visibilityTimeoutSec": 30},
        request_id="0000-AAAA-1111-BBBB-2222",
    )
    assert (got["message"]["messageId"], got["message"]["payload"]) == (sent["messageId"], '{"temp": 36.5}')
    assert got["message"]["attributes"] == '{"unit": "C"}'
    nack = {"messageKey": sent["messageKey"], "consumerId": "yirang-cli", "reason": "", "requeue": True}
    assert original.data("nack", nack) == {}
    original.box.now += 2
    again = original.data("CONSUME", {"queue": "telemetry", "consumerId": "yirang-cli", "visibilityTimeoutSec": 30})
    held = {"messageKey": sent["messageKey"], "leaseId": again["lease"]["leaseId"]}
    assert original.data("extend", {**held, "visibilityTimeoutSec": 60})["leaseUntil"] > again["lease"]["leaseUntil"]
    assert original.data("ack", held) == {}


def test_a_consumer_may_start_before_its_publisher(original: OriginalClient) -> None:
    consume = {"queue": "later", "consumerId": "c", "visibilityTimeoutSec": 30}
    assert original.data("consume_next", consume) == {"message": None}
    assert original.data("list_dlq", {"queue": "later", "limit": 100}) == {"queue": "later", "count": 0, "messages": []}
    metrics = original.data("status", {"queue": "later"})["metrics"]
    assert [metrics[key] for key in ("ready", "inflight", "delayed", "dlq")] == [0, 0, 0, 0]
    assert original.data("queues", None) == {"queues": []}
    original.data("publish", {"queue": "later", "message": "1"})
    assert original.data("consume_next", consume)["message"] is not None


def test_a_consumer_may_wait_for_a_queue_that_nobody_has_published_to(box: ByHand) -> None:
    name = box.post("consume", {"queue": "later", "waitMs": 60_000})
    box.turn()
    assert box.answer(name) is None
    box.data("publish", {"queue": "later", "message": "1"})
    assert (box.answer(name) or {})["data"]["message"]["payload"] == "1"


@pytest.mark.parametrize("command", ["consume", "status", "list_dlq", "dlq_stats", "peek", "pause", "purge"])
def test_a_strict_mailbox_knows_only_named_queues(home: Path, command: str) -> None:
    box = ByHand(home, backend="memory", queues={"strict": True, "known": {}})
    assert box.code(command, {"queue": "later"}) == "ERR_QUEUE_NOT_FOUND"
    box.engine.close()


def test_an_id_used_again_right_after_its_answer_is_a_new_request(box: ByHand) -> None:
    """The client sees its answer before the manager has removed the request, and writes the next one at once."""
    client = OriginalClient(box)
    write = box.server._responses.write
    follow_ups = iter(range(3))

    def write_and_ask_again(client_id: str, request_id: str, answer: bytes) -> None:
        write(client_id, request_id, answer)
        for n in follow_ups:
            body = {"queue": "q", "message": f"again {n}"}
            request = {"requestId": AN_ID, "clientId": client_id, "command": "publish", "payload": body}
            client.write(f"{AN_ID}.json", request)
            break

    box.server._responses.write = write_and_ask_again  # type: ignore[method-assign]
    client.write(
        f"{AN_ID}.json",
        {
            "requestId": AN_ID,
            "clientId": client.client_id,
            "command": "publish",
            "payload": {"queue": "q", "message": "1"},
        },
    )
    for _ in range(5):
        box.server.serve_arrivals([f"{AN_ID}.json"])
    assert box.names(box.box.requests) == []
    assert box.data("status", {"queue": "q"})["metrics"]["ready"] == 4


def test_two_clients_wait_under_the_same_id(box: ByHand) -> None:
    wait = {"queue": "q", "waitMs": 60_000}
    for client_id in ("one", "two"):
        client = OriginalClient(box, client_id)
        client.write(
            f"{AN_ID}.json", {"requestId": AN_ID, "clientId": client_id, "command": "consume", "payload": wait}
        )
        box.turn()
    for n in range(2):
        box.data("publish", {"queue": "q", "message": n})
    for client_id in ("one", "two"):
        assert (box.answer(AN_ID, client_id) or {})["data"]["message"] is not None
    assert box.names(box.box.processing) == []


def test_a_client_that_waits_again_under_its_id_takes_one_message(box: ByHand) -> None:
    client = OriginalClient(box)
    for _ in range(2):
        payload = {"queue": "q", "waitMs": 60_000}
        client.write(
            f"{AN_ID}.json",
            {"requestId": AN_ID, "clientId": client.client_id, "command": "consume", "payload": payload},
        )
        box.turn()
    for n in range(2):
        box.data("publish", {"queue": "q", "message": n})
    assert box.data("status", {"queue": "q"})["metrics"]["inflight"] == 1
