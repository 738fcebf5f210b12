"""A queue is drained into another store or to another manager: nothing is lost, and nothing is there twice."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kingdom.mq
from kingdom.mq import Session, draining
from kingdom.mq.cli.yirangmq import cli
from kingdom.mq.handover import HOLD_MS
from kingdom.mq.local import Local
from kingdom.mq.stores import STORES
from tests.mq.mailbox.boxes import ByHand, Ended, Running

KEPT = sorted(set(STORES) - {"memory"})
LARGE = json.dumps({"pad": "x" * 3_000_000})
SAID = ("payload", "attributes", "priority", "type", "traceId", "deduplicationKey", "targetConsumerId", "expiresAt")


def fill(q: Session) -> None:
    q.publish("q", "plain text", request_id="r1")
    q.publish("q", {"n": 1}, priority=5, attributes={"a": 1}, type="t", trace_id="tr", dedup_key="k", ttl_sec=900)
    q.publish("q", LARGE)
    q.publish("q", "mine", target="only")
    q.publish("q", "later", delay_ms=600_000)


def said(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        ({key: message[key] for key in SAID if key in message} for message in messages),
        key=lambda message: message["payload"],
    )


def drain(home: Path, *words: str) -> Ended:
    ended = CliRunner().invoke(cli, ["drain", "--queue", "q", *words], env={"KINGDOM_HOME": str(home)})
    return Ended(ended.exit_code, ended.stdout, ended.stderr)


def config(home: Path, backend: str) -> Path:
    (home / "config").mkdir(mode=0o700, exist_ok=True)
    (home / "config" / "mq.yaml").write_text(f"backend: {backend}\ndurability: process\n")
    return home / "queue" / "mq"


@pytest.mark.parametrize("target", KEPT)
@pytest.mark.parametrize("source", KEPT)
def test_from_any_store_to_any_other_nothing_is_lost(home: Path, source: str, target: str) -> None:
    with kingdom.mq.open(config(home, source), backend=source) as q:
        fill(q)
        before = said(q.peek("q"))
    with kingdom.mq.open(home / "there", backend=target, durability="process"):
        pass
    ended = drain(home, "--to", f"{home}/there", "--direct", "--as", "r")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {"queue": "q", "to": "r", "moved": 5, "refused": 0, "errors": []}
    with kingdom.mq.open(config(home, source)) as q:
        assert q.status("q")["metrics"]["ready"] == 0
    with kingdom.mq.open(home / "there") as q:
        after = said(q.peek("r"))
        assert are_alike(after, before)
        metrics = q.status("r")["metrics"]
        assert (metrics["ready"], metrics["delayed"]) == (4, 1)
        first = q.take("r")
        assert first is not None
        assert (first.payload, first.priority) == ({"n": 1}, 5)


def are_alike(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    """A time to live goes on but for the time of the handing over."""
    ends = [[message.get("expiresAt") or 0 for message in messages] for messages in (some, others)]
    rest = [[{**message, "expiresAt": 0} for message in messages] for messages in (some, others)]
    return rest[0] == rest[1] and all(
        abs(some_end - other_end) < 60_000 for some_end, other_end in zip(*ends, strict=True)
    )


def test_a_home_that_is_nothing_but_its_configuration_gets_them_where_its_manager_looks(home: Path) -> None:
    with kingdom.mq.open(config(home, "sqlite"), backend="sqlite") as q:
        q.publish("q", 1)
    new = home / "new"
    new.mkdir()
    where = config(new, "filesystem")
    assert drain(home, "--to", f"{new}/config/mq.yaml", "--direct").returncode == 0
    with kingdom.mq.open(where) as q:
        assert [message.payload for message in q.consume("q")] == [1]


def test_between_two_managers_while_they_run(manager: Running, home: Path) -> None:
    source = Running(home, backend="filesystem", durability="process")
    with kingdom.mq.connect(source.root) as q:
        q.publish_batch("q", list(range(1200)))
        held = q.take("q")
        assert held is not None
        waiting = q.status("q")["metrics"]["ready"]
    ended = drain(home, "--to", str(manager.root), "--as", "drained")
    assert (ended.returncode, json.loads(ended.stdout)["moved"]) == (0, waiting), ended.stderr
    with kingdom.mq.connect(source.root) as q:
        q.ack(held)
        metrics = q.status("q")["metrics"]
        assert (metrics["ready"], metrics["inflight"]) == (0, 0)
    with kingdom.mq.connect(manager.root) as q:
        assert q.purge("drained") == waiting
    source.stop()


def test_to_another_queue_it_is_a_move(manager: Running, q: str) -> None:
    with manager.client() as mq:
        mq.publish(q, 1, type="t")
    assert json.loads(manager.cli("drain", "--queue", q, "--to", f"{q}-there").stdout)["moved"] == 1
    assert manager.cli("drain", "--queue", q, "--to", f"{q}-there", "--as", "x").returncode == 2


def test_the_manager_that_has_the_queue_is_no_other_one(manager: Running, q: str, home: Path) -> None:
    """It would hand the messages over to itself for ever."""
    with manager.client() as mq:
        mq.publish(q, 1)
    (home / "same").symlink_to(manager.root)
    for way in (f"{manager.root}", f"{home}/same"):
        ended = manager.cli("drain", "--queue", q, "--to", way)
        assert (ended.returncode, "--to and a queue's name" in ended.stderr) == (2, True)
    with manager.client() as mq:
        assert mq.status(q)["metrics"]["ready"] == 1


def test_what_the_target_refuses_stays(home: Path) -> None:
    with kingdom.mq.open(config(home, "sqlite")) as q:
        q.publish_batch("q", [{"n": 1}, 7])
    (home / "there.yaml").write_text("paths: {dataRoot: there}\nqueues: {q: {schema: {type: object}}}\n")
    ended = drain(home, "--to", f"{home}/there.yaml", "--direct")
    answer = json.loads(ended.stdout)
    assert (ended.returncode, answer["moved"], answer["refused"]) == (1, 1, 1)
    assert answer["errors"][0]["code"] == "ERR_VALIDATION_FAILED"
    with kingdom.mq.open(config(home, "sqlite")) as q:
        assert [message["payload"] for message in q.peek("q")] == ["7"]


def drain_here(here: Path, there: Path) -> None:
    with draining.opened(here) as source, draining.opened(there) as target:
        draining.drain(source, "q", target, "q")


def drain_until_killed(moment: str, here: Path, there: Path) -> int:
    """Drain in a fork that kills itself at a moment; return how it ended."""
    when, moment_of = moment.split()
    call = Local.call

    def killed(self: Local, command: str, payload: Any, **more: Any) -> Any:
        answer = None if command == moment_of and when == "before" else call(self, command, payload, **more)
        if command == moment_of:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    if not (child := os.fork()):
        Local.call = killed  # type: ignore[method-assign]
        drain_here(here, there)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("backend", KEPT)
@pytest.mark.parametrize("moment", ["after hand_over", "after take_over", "before handed_over", "after handed_over"])
def test_killed_in_between_and_done_again_nothing_is_lost_or_doubled(home: Path, backend: str, moment: str) -> None:
    here, there = home / "here", home / "there"
    for folder in (here, there):
        with kingdom.mq.open(folder, backend=backend, durability="process") as q:
            if folder == here:
                fill(q)
                before = said(q.peek("q"))
    assert drain_until_killed(moment, here, there) == -signal.SIGKILL
    drain_here(here, there)
    with kingdom.mq.open(here) as source, kingdom.mq.open(there) as target:
        assert source.peek("q") == []
        assert are_alike(said(target.peek("q")), before)


def test_what_a_holder_is_not_heard_of_again_comes_back(box: ByHand) -> None:
    box.data("publish", {"queue": "q", "message": "a", "ttlSec": 3600})
    box.data("publish", {"queue": "q", "message": "b", "delayMs": 10_000})
    offered = box.data("hand_over", {"queue": "q", "holder": "h"})["messages"]
    assert [message["payload"] for message in offered] == ["a", "b"]
    assert box.data("consume_next", {"queue": "q"}) == {"message": None}
    assert box.data("hand_over", {"queue": "q", "holder": "other"})["heldByOthers"] == 2
    assert box.data("status", {"queue": "q"})["metrics"]["ready"] == 2
    box.now += HOLD_MS / 1000
    box.turn()
    first = box.data("consume_next", {"queue": "q"})["message"]
    assert (first["payload"], first["attempt"], "expiresAt" in first) == ("a", 1, True)
    assert box.data("handed_over", {"holder": "h", "messageKeys": [offered[1]["messageKey"]]}) == {"dropped": 1}
    assert box.data("status", {"queue": "q"})["metrics"]["ready"] == 0


def test_dead_letters_are_handed_over_as_messages_and_given_back_as_dead_letters(box: ByHand) -> None:
    box.data("publish", {"queue": "q", "message": "a", "type": "t"})
    box.data("nack", {"messageKey": box.data("consume_next", {"queue": "q"})["message"]["messageKey"]})
    (offered,) = box.data("hand_over", {"queue": "q-dlq", "holder": "h"})["messages"]
    assert (offered["payload"], offered["type"]) == ("a", "t")
    box.data("handed_over", {"holder": "h", "end": True})
    assert box.data("status", {"queue": "q"})["metrics"]["dlq"] == 1
    (offered,) = box.data("hand_over", {"queue": "q-dlq", "holder": "h"})["messages"]
    (taken,) = box.data("take_over", {"queue": "r", "messages": [offered]})["messages"]
    assert box.data("take_over", {"queue": "r", "messages": [offered]})["messages"] == [taken]
    box.data("handed_over", {"holder": "h", "messageKeys": [offered["messageKey"]], "end": True})
    assert box.data("status", {"queue": "q"})["metrics"]["dlq"] == 0
    assert box.data("status", {"queue": "r"})["metrics"]["ready"] == 1


def test_a_queue_that_is_handed_over_can_be_deleted(box: ByHand) -> None:
    box.data("publish", {"queue": "q", "message": "a"})
    box.data("hand_over", {"queue": "q", "holder": "h"})
    assert box.data("delete_queue", {"queue": "q"})["deleted"] == 1
    box.data("handed_over", {"holder": "h", "end": True})
    assert box.data("queues")["queues"] == []


def test_messages_with_one_deduplication_key_all_arrive(box: ByHand) -> None:
    entries = [{"messageId": f"m{n}", "payload": str(n), "attributes": "{}", "deduplicationKey": "k"} for n in range(3)]
    box.data("take_over", {"queue": "q", "messages": entries})
    assert box.data("status", {"queue": "q"})["metrics"]["ready"] == 3
