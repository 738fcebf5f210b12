"""Whole queues and single messages are moved and deleted: on every store, in parts, and after a restart as before."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kingdom.mq.budget import Budget
from kingdom.mq.errors import InvalidRequest, MessageNotFound, QueueNotFound
from kingdom.mq.moving import Move
from tests.mq.houses import QUEUE, House

FILES = ("fs", "payloads")
"""Where stores of files keep them."""
LARGE = json.dumps({"pad": "x" * 40_000})


def move(house: House, queue: str, to: str, limit: int = 0, changes: int = 2) -> Move:
    begun = house.mq.moving.moving(queue, to, limit)
    while not house.mq.moving.move_some(begun, Budget(changes), house.clock()):
        house.mq.commit()
    house.mq.commit()
    return begun


def delete_message(house: House, key: str) -> None:
    assert house.mq.removal.delete(house.mq.search(key), Budget())


def delete_queue(house: House, queue: str = QUEUE, changes: int = 2) -> int:
    begun = house.mq.removal.deleting(queue)
    while not house.mq.removal.delete_some(begun, Budget(changes)):
        house.mq.commit()
    house.mq.commit()
    return begun.deleted


def fill(house: House) -> None:
    house.publish("low")
    house.publish(LARGE, priority=5, attributes='{"a":1}', type="t", trace_id="tr")
    house.publish("mine", target="only")
    house.publish("later", delay_ms=60_000)
    house.publish("mortal", ttl_ms=90_000)


@pytest.mark.parametrize("kill", [False, True])
def test_a_move_loses_nothing_that_was_published(house: House, kill: bool) -> None:
    fill(house)
    assert move(house, QUEUE, "there").moved == 5
    house.reopen(kill=kill)
    assert house.counts(QUEUE) == (0, 0, 0, 0)
    assert house.counts("there") == (4, 0, 1, 0)
    first = house.lease(queue="there")
    assert (first.payload, first.priority, first.attributes) == (LARGE, 5, '{"a":1}')
    assert (first.envelope()["type"], first.envelope()["traceId"]) == ("t", "tr")
    house.ack(first)
    assert house.lease_texts(queue="there") == ["low", "mortal"]
    assert house.lease_texts(queue="there", consumer="only") == ["mine"]
    house.sweep(60)
    assert "later" in house.lease_texts(queue="there")


def test_the_time_to_live_goes_on_in_the_other_queue(house: House) -> None:
    house.publish("mortal", ttl_ms=5_000)
    move(house, QUEUE, "there")
    house.sweep(5)
    assert house.counts("there") == (0, 0, 0, 0)


def test_a_move_ends_while_its_queue_is_published_to(house: House) -> None:
    for n in range(4):
        house.publish(str(n))
    begun = house.mq.moving.moving(QUEUE, "there")
    steps = 0
    while not house.mq.moving.move_some(begun, Budget(2, seconds=60), house.clock()):
        house.publish("new")
        house.publish("new")
        house.publish("new")
        steps += 1
    assert (begun.moved, steps) == (4, 1)


def test_a_move_has_a_limit_and_keeps_the_order(house: House) -> None:
    for n in range(5):
        house.publish(str(n))
    assert move(house, QUEUE, "there", limit=3).moved == 3
    assert house.lease_texts(queue="there") == ["0", "1", "2"]
    assert house.lease_texts() == ["3", "4"]


@pytest.mark.parametrize("kill", [False, True])
def test_dead_letters_that_are_moved_are_messages_again(house: House, kill: bool) -> None:
    house.publish("x", attributes='{"a":1}', type="t", trace_id="tr", priority=3)
    house.nack(house.lease(), "bad", requeue=False)
    quarantined = house.die()
    house.mq.dead_letters.quarantine(quarantined)
    assert move(house, f"{QUEUE}-dlq", "there").moved == 1
    house.reopen(kill=kill)
    assert (house.counts(), house.counts("there")) == ((0, 0, 0, 1), (1, 0, 0, 0))
    again = house.lease(queue="there")
    assert (again.payload, again.attributes, again.priority, again.attempt) == ("x", '{"a":1}', 3, 1)
    house.nack(again, "worse", requeue=False)
    (letter,) = house.mq.dead_letters.listed("there")
    assert (letter.message, json.loads(letter.record)["originalMessage"]["traceId"]) == ("worse", "tr")
    assert house.mq.peek("there", dead=True)[0].labels.type == "t"


def test_what_the_other_queue_does_not_take_stays(open_house: Callable[..., House], backend: str) -> None:
    house = open_house(backend, queues={"there": {"schema": {"type": "object"}}})
    house.publish('{"n":1}')
    house.publish("7")
    begun = move(house, QUEUE, "there")
    assert (begun.moved, begun.given_back) == (1, 1)
    assert house.lease_texts() == ["7"]


def test_a_move_needs_two_queues(house: House) -> None:
    with pytest.raises(QueueNotFound):
        house.mq.moving.moving(QUEUE, "there")
    house.publish()
    with pytest.raises(InvalidRequest):
        house.mq.moving.moving(QUEUE, QUEUE)


@pytest.mark.parametrize("kill", [False, True])
def test_a_deleted_queue_is_gone_with_all_that_it_held(
    open_house: Callable[..., House], backend: str, kill: bool
) -> None:
    house = open_house(backend)
    house.use({"archive": True})
    house.publish("archived")
    house.ack(house.lease())
    house.die()
    house.publish("leased")
    leased = house.lease()
    fill(house)
    assert delete_queue(house) == 7
    assert house.mq.queues.names() == []
    with pytest.raises(MessageNotFound):
        house.mq.ack(leased.message_key, "other", "c")
    house.reopen(kill=kill)
    assert house.mq.queues.names() == []
    house.publish("new")
    assert house.mq.status(QUEUE).policy.archive is False
    assert house.lease_texts() == ["new"]
    assert [finding for finding in house.mq.check() if finding.kind != "litter"] == []


def test_what_is_published_while_its_queue_is_deleted_stays(house: House) -> None:
    fill(house)
    begun = house.mq.removal.deleting(QUEUE)
    house.publish("new")
    while not house.mq.removal.delete_some(begun, Budget(2)):
        house.mq.commit()
    house.mq.commit()
    assert begun.deleted == 5
    assert house.lease_texts() == ["new"]


def test_a_policy_is_deleted(house: House) -> None:
    house.use({"visibilityTimeoutSec": 7})
    house.mq.queues.delete_policy(QUEUE)
    house.reopen()
    assert house.mq.status(QUEUE).policy.visibility_ms == 30_000
    with pytest.raises(QueueNotFound):
        house.mq.queues.delete_policy("nowhere")


@pytest.mark.parametrize(
    "more",
    [{}, {"priority": 3}, {"delay_ms": 60_000}, {"ttl_ms": 60_000}, {"target": "only"}],
    ids=lambda more: next(iter(more), "plain"),
)
def test_one_message_is_deleted(house: House, more: dict[str, Any]) -> None:
    keys = [house.publish(str(n), **more) for n in range(9)]
    delete_message(house, keys[4])
    house.mq.commit()
    house.reopen()
    house.sweep(60 if "delay_ms" in more else 0)
    assert house.lease_texts(consumer="only") == [str(n) for n in range(9) if n != 4]
    with pytest.raises(MessageNotFound):
        delete_message(house, keys[4])


def test_a_dead_letter_is_deleted_and_a_leased_message_is_not(house: House) -> None:
    dead = house.die()
    delete_message(house, dead)
    house.mq.commit()
    assert house.counts() == (0, 0, 0, 0)
    key = house.publish()
    house.lease()
    with pytest.raises(InvalidRequest):
        delete_message(house, key)
    house.sweep(31)
    house.sweep(60)
    delete_message(house, key)  # under another name than it was published under
    house.mq.commit()
    assert house.counts() == (0, 0, 0, 0)
    for nonsense in ("", "msg:x:1", f"msg:{QUEUE}:{'g' * 36}"):
        with pytest.raises(MessageNotFound):
            delete_message(house, nonsense)


def test_dead_letters_are_seen_without_being_taken(house: House) -> None:
    house.publish("x", type="t", trace_id="tr", attributes='{"a":1}')
    house.nack(house.lease(), "bad", requeue=False)
    for seen in (
        house.mq.peek(QUEUE, dead=True),
        house.mq.peek(f"{QUEUE}-dlq"),
        house.mq.peek(f"{QUEUE}-dlq", dead=True),
    ):
        (letter,) = seen
        assert (letter.payload, letter.attributes, letter.state) == ("x", '{"a":1}', "dlq")
        assert (letter.labels.type, letter.labels.trace_id) == ("t", "tr")
        assert (letter.failure["reasonMessage"], letter.failure["reasonCode"]) == ("bad", "HANDLER_ERROR")
    assert house.counts() == (0, 0, 0, 1)
    assert house.mq.peek(QUEUE) == []


def test_a_dead_letter_queue_is_purged_and_paused_like_a_queue(house: House) -> None:
    house.die()
    dlq = f"{QUEUE}-dlq"
    house.mq.queues.pause(dlq)
    assert house.lease(queue=dlq) is None
    house.reopen()
    assert house.mq.status(dlq).paused
    house.mq.queues.resume(dlq)
    assert house.lease(queue=dlq) is not None
    house.sweep(31)
    assert house.mq.purge(dlq) == 1
    house.mq.commit()
    assert house.counts() == (0, 0, 0, 0)
    with pytest.raises(QueueNotFound):
        house.mq.purge("nowhere")


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("changes", [2, 500])
@pytest.mark.parametrize("later", [0, 2])
def test_what_is_moved_there_and_back_is_there_once(house: House, times: int, changes: int, later: int) -> None:
    """At once, before a store that lags behind itself has caught up; with many changes in one group."""
    fill(house)
    house.sweep(2)
    here, there = QUEUE, "there"
    for _ in range(times):
        begun = house.mq.moving.moving(here, there)
        while not house.mq.moving.move_some(begun, Budget(changes, seconds=60), house.clock()):
            house.mq.commit()
        here, there = there, here
    house.mq.commit()
    house.sweep(later)
    house.reopen(kill=True)
    house.sweep()
    assert (house.counts(here), house.counts(there)) == ((4, 0, 1, 0), (0, 0, 0, 0))
    assert [finding for finding in house.mq.check() if finding.kind != "litter"] == []
    assert set(house.lease_texts(queue=here)) == {"low", LARGE, "mortal"}


def test_a_queue_that_is_deleted_twice_at_once_is_gone(house: House) -> None:
    fill(house)
    first = house.mq.removal.deleting(QUEUE)
    house.publish("new")
    second = house.mq.removal.deleting(QUEUE)
    for begun in (second, first):
        while not house.mq.removal.delete_some(begun, Budget(2)):
            house.mq.commit()
        house.mq.commit()
    assert house.mq.queues.names() == []
    house.reopen()
    assert house.mq.queues.names() == []
    assert [finding for finding in house.mq.check() if finding.kind != "litter"] == []


def test_files_kept_to_be_written_over_go_with_their_queue_in_parts(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("files", "hybrid"):
        monkeypatch.setattr(f"kingdom.mq.stores.{module}.SPARES_TRIMMED_AT_ONCE", 2)
    for number in range(7):
        house.publish(str(number))
    begun = house.mq.removal.deleting(QUEUE)
    while begun.deleted < 7:
        house.mq.removal.delete_some(begun, Budget(7, seconds=60))
        house.mq.commit()
    left = [hidden_files(house)]
    while not house.mq.removal.delete_some(begun, Budget()):
        house.mq.commit()
        left.append(hidden_files(house))
    assert left == ([7, 5, 3, 1] if left[0] else [0])
    assert (left[0] > 0) == (house.backend in ("filesystem", "hybrid"))
    assert (hidden_files(house), house.mq.queues.names()) == (0, [])


@pytest.mark.parametrize("backend", ["filesystem", "hybrid"])
def test_a_folder_whose_deletion_was_interrupted_goes_at_the_next_start(
    open_house: Callable[..., House], backend: str
) -> None:
    house = open_house(backend)
    house.publish("stays")
    (trash,) = (path / ".deleted" for path in house.folder.iterdir() if path.is_dir() and path.name in FILES)
    (trash / "1" / "inbox").mkdir(parents=True)
    (trash / "1" / "inbox" / "left.json").write_text("{}")
    house.reopen(kill=True)
    assert not trash.exists()
    assert house.lease_texts() == ["stays"]


def test_what_somebody_laid_beside_the_payloads_of_a_deleted_queue_stays(open_house: Callable[..., House]) -> None:
    house = open_house("hybrid")
    house.publish("one")
    (house.folder / "payloads" / QUEUE / "note.txt").write_text("mine")
    delete_queue(house)
    assert (house.folder / "payloads" / QUEUE / "note.txt").read_text() == "mine"


def hidden_files(house: House) -> int:
    return len([path for path in house.folder.rglob(".*") if path.is_file()]) if house.backend != "memory" else 0


def test_a_move_goes_on_when_its_target_is_deleted(house: House) -> None:
    fill(house)
    begun = house.mq.moving.moving(QUEUE, "there")
    assert not house.mq.moving.move_some(begun, Budget(2, seconds=60), house.clock())
    delete_queue(house, "there")
    while not house.mq.moving.move_some(begun, Budget(2, seconds=60), house.clock()):
        house.mq.commit()
    house.mq.commit()
    assert house.counts("there") == (2, 0, 1, 0)
    house.reopen()
    house.sweep()
    assert house.counts("there") == (2, 0, 1, 0)


def test_what_is_held_for_another_store_goes_with_its_queue(house: House) -> None:
    house.publish("held")
    house.die()
    house.publish("waits")
    assert len(house.mq.handover.offer(QUEUE, "h", 10, house.clock())) == 2
    delete_queue(house, QUEUE)
    house.reopen()
    house.sweep(120)
    assert house.counts() == (0, 0, 0, 0)


def test_what_is_handed_over_is_in_its_queue_while_that_is_deleted(house: House) -> None:
    """Neither taken for laid in by hand, nor forgotten with the record of a queue that holds nothing else."""
    house.publish("old")
    begun = house.mq.removal.deleting(QUEUE)
    house.publish("new")
    (offered,) = house.mq.handover.offer(QUEUE, "h", 10, house.clock())
    while not house.mq.removal.delete_some(begun, Budget(2)):
        house.mq.commit()
    house.mq.commit()
    house.sweep(3)
    assert house.counts() == (1, 0, 0, 0)
    assert house.mq.handover.drop("h", offered.message_key, house.clock())
    house.mq.commit()
    house.reopen()
    assert house.counts() == (0, 0, 0, 0)


def test_messages_on_their_way_are_not_taken_for_laid_in_by_hand(
    open_house: Callable[..., House], backend: str
) -> None:
    house = open_house(backend, queues={"there": {"schema": {"type": "object"}}})
    for number in range(6):
        house.publish(str(number))
    house.mq.handover.offer(QUEUE, "h", 2, house.clock())
    begun = house.mq.moving.moving(QUEUE, "there")
    assert not house.mq.moving.move_some(begun, Budget(2, seconds=60), house.clock())
    house.publish("another")  # the inbox changes
    house.sweep(3)
    house.sweep(3)
    assert "mq.adopted" not in house.said
    while not house.mq.moving.move_some(begun, Budget(2, seconds=60), house.clock()):
        house.mq.commit()
    assert house.mq.handover.end("h", house.clock(), Budget())
    assert sorted(house.lease_texts()) == ["0", "1", "2", "3", "4", "5", "another"]


def test_what_is_left_of_a_queue_on_its_way_out_is_not_taken_for_laid_in_by_hand(house: House) -> None:
    fill(house)
    begun = house.mq.removal.deleting(QUEUE)
    assert not house.mq.removal.delete_some(begun, Budget(2))
    house.mq.commit()
    house.sweep(3)
    house.sweep(3)
    assert "mq.adopted" not in house.said
    assert house.counts() == (0, 0, 0, 0)
