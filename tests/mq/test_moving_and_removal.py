"""Whole queues and single messages are moved and deleted: on every store, in parts, and after a restart as before."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kingdom.mq.budget import Budget, step
from kingdom.mq.errors import InvalidRequest, MessageNotFound, QueueNotFound
from tests.mq.rigs import QUEUE, Rig

FILES = ("fs", "payloads")
"""Where stores of files keep them."""
LARGE = json.dumps({"pad": "x" * 40_000})


def move(rig: Rig, queue: str, to: str, limit: int = 0, changes: int = 2) -> int:
    """Return how many were moved."""
    moved, _ = rig.finish(rig.mq.moving.move(queue, to, limit, Budget(changes)))
    return moved


def delete_message(rig: Rig, key: str) -> None:
    assert rig.mq.removal.delete(rig.mq.search(key), Budget())


def delete_queue(rig: Rig, queue: str = QUEUE, changes: int = 2) -> int:
    return rig.finish(rig.mq.removal.delete_queue(queue, Budget(changes)))


def fill(rig: Rig) -> None:
    rig.publish("low")
    rig.publish(LARGE, priority=5, attributes='{"a":1}', type="t", trace_id="tr")
    rig.publish("mine", target="only")
    rig.publish("later", delay_ms=60_000)
    rig.publish("mortal", ttl_ms=90_000)


@pytest.mark.parametrize("kill", [False, True])
def test_a_move_loses_nothing_that_was_published(rig: Rig, kill: bool) -> None:
    fill(rig)
    assert move(rig, QUEUE, "there") == 5
    rig.reopen(kill=kill)
    assert rig.counts(QUEUE) == (0, 0, 0, 0)
    assert rig.counts("there") == (4, 0, 1, 0)
    first = rig.lease(queue="there")
    assert (first.payload, first.priority, first.attributes) == (LARGE, 5, '{"a":1}')
    assert (first.envelope()["type"], first.envelope()["traceId"]) == ("t", "tr")
    rig.ack(first)
    assert rig.lease_texts(queue="there") == ["low", "mortal"]
    assert rig.lease_texts(queue="there", consumer="only") == ["mine"]
    rig.sweep(60)
    assert "later" in rig.lease_texts(queue="there")


def test_the_time_to_live_goes_on_in_the_other_queue(rig: Rig) -> None:
    rig.publish("mortal", ttl_ms=5_000)
    move(rig, QUEUE, "there")
    rig.sweep(5)
    assert rig.counts("there") == (0, 0, 0, 0)


def test_a_move_ends_while_its_queue_is_published_to(rig: Rig) -> None:
    for n in range(4):
        rig.publish(str(n))
    moving = rig.mq.moving.move(QUEUE, "there", 0, Budget(2, seconds=60))
    steps = 0
    while (done := step(moving)) is None:
        rig.publish("new")
        rig.publish("new")
        rig.publish("new")
        steps += 1
    assert (done, steps) == ((4, 0), 1)


def test_a_move_has_a_limit_and_keeps_the_order(rig: Rig) -> None:
    for n in range(5):
        rig.publish(str(n))
    assert move(rig, QUEUE, "there", limit=3) == 3
    assert rig.lease_texts(queue="there") == ["0", "1", "2"]
    assert rig.lease_texts() == ["3", "4"]


@pytest.mark.parametrize("kill", [False, True])
def test_dead_letters_that_are_moved_are_messages_again(rig: Rig, kill: bool) -> None:
    rig.publish("x", attributes='{"a":1}', type="t", trace_id="tr", priority=3)
    rig.nack(rig.lease(), "bad", requeue=False)
    quarantined = rig.die()
    rig.mq.dead_letters.quarantine(quarantined)
    assert move(rig, f"{QUEUE}-dlq", "there") == 1
    rig.reopen(kill=kill)
    assert (rig.counts(), rig.counts("there")) == ((0, 0, 0, 1), (1, 0, 0, 0))
    again = rig.lease(queue="there")
    assert (again.payload, again.attributes, again.priority, again.attempt) == ("x", '{"a":1}', 3, 1)
    rig.nack(again, "worse", requeue=False)
    (letter,) = rig.mq.dead_letters.listed("there")
    assert (letter.message, json.loads(letter.record)["originalMessage"]["traceId"]) == ("worse", "tr")
    assert rig.mq.peek("there", dead=True)[0].labels.type == "t"


def test_what_the_other_queue_does_not_take_stays(open_rig: Callable[..., Rig], backend: str) -> None:
    rig = open_rig(backend, queues={"there": {"schema": {"type": "object"}}})
    rig.publish('{"n":1}')
    rig.publish("7")
    assert rig.finish(rig.mq.moving.move(QUEUE, "there")) == (1, 1)
    assert rig.lease_texts() == ["7"]


def test_a_move_needs_two_queues(rig: Rig) -> None:
    with pytest.raises(QueueNotFound):
        move(rig, QUEUE, "there")
    rig.publish()
    with pytest.raises(InvalidRequest):
        move(rig, QUEUE, QUEUE)


@pytest.mark.parametrize("kill", [False, True])
def test_a_deleted_queue_is_gone_with_all_that_it_held(open_rig: Callable[..., Rig], backend: str, kill: bool) -> None:
    rig = open_rig(backend)
    rig.use({"archive": True})
    rig.publish("archived")
    rig.ack(rig.lease())
    rig.die()
    rig.publish("leased")
    leased = rig.lease()
    fill(rig)
    assert delete_queue(rig) == 7
    assert rig.mq.queues.names() == []
    with pytest.raises(MessageNotFound):
        rig.mq.ack(leased.message_key, "other", "c")
    rig.reopen(kill=kill)
    assert rig.mq.queues.names() == []
    rig.publish("new")
    assert rig.mq.status(QUEUE).policy.archive is False
    assert rig.lease_texts() == ["new"]
    assert [finding for finding in rig.mq.check() if finding.kind != "litter"] == []


def test_what_is_published_while_its_queue_is_deleted_stays(rig: Rig) -> None:
    fill(rig)
    deleting = rig.mq.removal.delete_queue(QUEUE, Budget(2))
    assert step(deleting) is None
    rig.publish("new")
    assert rig.finish(deleting) == 5
    assert rig.lease_texts() == ["new"]


def test_a_policy_is_deleted(rig: Rig) -> None:
    rig.use({"visibilityTimeoutSec": 7})
    rig.mq.queues.delete_policy(QUEUE)
    rig.reopen()
    assert rig.mq.status(QUEUE).policy.visibility_ms == 30_000
    with pytest.raises(QueueNotFound):
        rig.mq.queues.delete_policy("nowhere")


@pytest.mark.parametrize(
    "more",
    [{}, {"priority": 3}, {"delay_ms": 60_000}, {"ttl_ms": 60_000}, {"target": "only"}],
    ids=lambda more: next(iter(more), "plain"),
)
def test_one_message_is_deleted(rig: Rig, more: dict[str, Any]) -> None:
    keys = [rig.publish(str(n), **more) for n in range(9)]
    delete_message(rig, keys[4])
    rig.mq.commit()
    rig.reopen()
    rig.sweep(60 if "delay_ms" in more else 0)
    assert rig.lease_texts(consumer="only") == [str(n) for n in range(9) if n != 4]
    with pytest.raises(MessageNotFound):
        delete_message(rig, keys[4])


def test_a_dead_letter_is_deleted_and_a_leased_message_is_not(rig: Rig) -> None:
    dead = rig.die()
    delete_message(rig, dead)
    rig.mq.commit()
    assert rig.counts() == (0, 0, 0, 0)
    key = rig.publish()
    rig.lease()
    with pytest.raises(InvalidRequest):
        delete_message(rig, key)
    rig.sweep(31)
    rig.sweep(60)
    delete_message(rig, key)  # under another name than it was published under
    rig.mq.commit()
    assert rig.counts() == (0, 0, 0, 0)
    for nonsense in ("", "msg:x:1", f"msg:{QUEUE}:{'g' * 36}"):
        with pytest.raises(MessageNotFound):
            delete_message(rig, nonsense)


def test_dead_letters_are_seen_without_being_taken(rig: Rig) -> None:
    rig.publish("x", type="t", trace_id="tr", attributes='{"a":1}')
    rig.nack(rig.lease(), "bad", requeue=False)
    for seen in (
        rig.mq.peek(QUEUE, dead=True),
        rig.mq.peek(f"{QUEUE}-dlq"),
        rig.mq.peek(f"{QUEUE}-dlq", dead=True),
    ):
        (letter,) = seen
        assert (letter.payload, letter.attributes, letter.state) == ("x", '{"a":1}', "dlq")
        assert (letter.labels.type, letter.labels.trace_id) == ("t", "tr")
        assert (letter.failure["reasonMessage"], letter.failure["reasonCode"]) == ("bad", "HANDLER_ERROR")
    assert rig.counts() == (0, 0, 0, 1)
    assert rig.mq.peek(QUEUE) == []


def test_a_dead_letter_queue_is_purged_and_paused_like_a_queue(rig: Rig) -> None:
    rig.die()
    dlq = f"{QUEUE}-dlq"
    rig.mq.queues.pause(dlq)
    assert rig.lease(queue=dlq) is None
    rig.reopen()
    assert rig.mq.status(dlq).paused
    rig.mq.queues.resume(dlq)
    assert rig.lease(queue=dlq) is not None
    rig.sweep(31)
    assert rig.mq.purge(dlq) == 1
    rig.mq.commit()
    assert rig.counts() == (0, 0, 0, 0)
    with pytest.raises(QueueNotFound):
        rig.mq.purge("nowhere")


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("changes", [2, 500])
@pytest.mark.parametrize("later", [0, 2])
def test_what_is_moved_there_and_back_is_there_once(rig: Rig, times: int, changes: int, later: int) -> None:
    """At once, before a store that lags behind itself has caught up; with many changes in one group."""
    fill(rig)
    rig.sweep(2)
    here, there = QUEUE, "there"
    for _ in range(times):
        moving = rig.mq.moving.move(here, there, 0, Budget(changes, seconds=60))
        while step(moving) is None:
            rig.mq.commit()
        here, there = there, here
    rig.mq.commit()
    rig.sweep(later)
    rig.reopen(kill=True)
    rig.sweep()
    assert (rig.counts(here), rig.counts(there)) == ((4, 0, 1, 0), (0, 0, 0, 0))
    assert [finding for finding in rig.mq.check() if finding.kind != "litter"] == []
    assert set(rig.lease_texts(queue=here)) == {"low", LARGE, "mortal"}


def test_a_queue_that_is_deleted_twice_at_once_is_gone(rig: Rig) -> None:
    fill(rig)
    first = rig.mq.removal.delete_queue(QUEUE, Budget(2))
    assert step(first) is None
    rig.publish("new")
    rig.finish(rig.mq.removal.delete_queue(QUEUE, Budget(2)))
    rig.finish(first)
    assert rig.mq.queues.names() == []
    rig.reopen()
    assert rig.mq.queues.names() == []
    assert [finding for finding in rig.mq.check() if finding.kind != "litter"] == []


def test_files_kept_to_be_written_over_go_with_their_queue_in_parts(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("files", "hybrid"):
        monkeypatch.setattr(f"kingdom.mq.stores.{module}.SPARES_TRIMMED_AT_ONCE", 2)
    for number in range(7):
        rig.publish(str(number))
    deleting = rig.mq.removal.delete_queue(QUEUE, Budget(7, seconds=60))
    assert step(deleting) is None
    rig.mq.commit()
    left = [hidden_files(rig)]
    while step(deleting) is None:
        rig.mq.commit()
        left.append(hidden_files(rig))
    assert left == ([7, 5, 3, 1] if left[0] else [0])
    assert (left[0] > 0) == (rig.backend in ("filesystem", "hybrid"))
    assert (hidden_files(rig), rig.mq.queues.names()) == (0, [])


@pytest.mark.parametrize("backend", ["filesystem", "hybrid"])
def test_a_folder_whose_deletion_was_interrupted_goes_at_the_next_start(
    open_rig: Callable[..., Rig], backend: str
) -> None:
    rig = open_rig(backend)
    rig.publish("stays")
    (trash,) = (path / ".deleted" for path in rig.folder.iterdir() if path.is_dir() and path.name in FILES)
    (trash / "1" / "inbox").mkdir(parents=True)
    (trash / "1" / "inbox" / "left.json").write_text("{}")
    rig.reopen(kill=True)
    assert not trash.exists()
    assert rig.lease_texts() == ["stays"]


def test_what_somebody_laid_beside_the_payloads_of_a_deleted_queue_stays(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig("hybrid")
    rig.publish("one")
    (rig.folder / "payloads" / QUEUE / "note.txt").write_text("mine")
    delete_queue(rig)
    assert (rig.folder / "payloads" / QUEUE / "note.txt").read_text() == "mine"


def hidden_files(rig: Rig) -> int:
    return len([path for path in rig.folder.rglob(".*") if path.is_file()]) if rig.backend != "memory" else 0


def test_a_move_goes_on_when_its_target_is_deleted(rig: Rig) -> None:
    fill(rig)
    moving = rig.mq.moving.move(QUEUE, "there", 0, Budget(2, seconds=60))
    assert step(moving) is None
    delete_queue(rig, "there")
    rig.finish(moving)
    assert rig.counts("there") == (2, 0, 1, 0)
    rig.reopen()
    rig.sweep()
    assert rig.counts("there") == (2, 0, 1, 0)


def test_what_is_held_for_another_store_goes_with_its_queue(rig: Rig) -> None:
    rig.publish("held")
    rig.die()
    rig.publish("waits")
    assert len(rig.mq.handover.offer(QUEUE, "h", 10, rig.clock())) == 2
    delete_queue(rig, QUEUE)
    rig.reopen()
    rig.sweep(120)
    assert rig.counts() == (0, 0, 0, 0)


def test_what_is_handed_over_is_in_its_queue_while_that_is_deleted(rig: Rig) -> None:
    """Neither taken for laid in by hand, nor forgotten with the record of a queue that holds nothing else."""
    for _ in range(3):
        rig.publish("old")
    deleting = rig.mq.removal.delete_queue(QUEUE, Budget(2))
    assert step(deleting) is None
    rig.publish("new")
    (offered,) = rig.mq.handover.offer(QUEUE, "h", 10, rig.clock())
    rig.finish(deleting)
    rig.sweep(3)
    assert rig.counts() == (1, 0, 0, 0)
    assert rig.mq.handover.drop("h", offered.message_key, rig.clock())
    rig.mq.commit()
    rig.reopen()
    assert rig.counts() == (0, 0, 0, 0)


def test_messages_on_their_way_are_not_taken_for_laid_in_by_hand(open_rig: Callable[..., Rig], backend: str) -> None:
    rig = open_rig(backend, queues={"there": {"schema": {"type": "object"}}})
    for number in range(6):
        rig.publish(str(number))
    rig.mq.handover.offer(QUEUE, "h", 2, rig.clock())
    moving = rig.mq.moving.move(QUEUE, "there", 0, Budget(2, seconds=60))
    assert step(moving) is None
    rig.publish("another")  # the inbox changes
    rig.sweep(3)
    rig.sweep(3)
    assert "mq.adopted" not in rig.said
    rig.finish(moving)
    assert rig.mq.handover.end("h", rig.clock(), Budget())
    assert sorted(rig.lease_texts()) == ["0", "1", "2", "3", "4", "5", "another"]


def test_what_is_left_of_a_queue_on_its_way_out_is_not_taken_for_laid_in_by_hand(rig: Rig) -> None:
    fill(rig)
    assert step(rig.mq.removal.delete_queue(QUEUE, Budget(2))) is None
    rig.mq.commit()
    rig.sweep(3)
    rig.sweep(3)
    assert "mq.adopted" not in rig.said
    assert rig.counts() == (0, 0, 0, 0)
