"""What the sqlite store asks of its database, and what the hybrid one leaves beside it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.mq.budget import Budget
from kingdom.mq.message_format import Draft
from kingdom.mq.stores.base import StoreConfig
from kingdom.mq.stores.sqlite import SqliteStore, Tables, statements
from tests.mq.houses import QUEUE, House

AT_START = {"select_policies": 0, "select_queues": 0, "select_inflight": 1, "select_dead": 1, "select_log": 0}
"""With how many values."""


@pytest.mark.parametrize("name", AT_START)
def test_a_start_reads_no_table_from_end_to_end(name: str, home: Path) -> None:
    """A million messages wait there; their names are read once, by select_names, and their bodies never."""
    store = SqliteStore(StoreConfig.at(home))
    plan = store._run(f"EXPLAIN QUERY PLAN {statements(Tables('kv', 'msg_index'))[name]}", ("q",) * AT_START[name])
    steps = [str(row[3]) for row in plan]
    store.close()
    assert not [step for step in steps if step.startswith(("SCAN kv", "SCAN msg_index"))], steps


def test_every_queue_is_found_again(open_house: Callable[..., House]) -> None:
    house = open_house("sqlite")
    queues = [QUEUE, "a", "z", "큐", "it's"]
    for queue in queues:
        house.publish(queue=queue)
    house.mq.sweep()
    house.reopen()
    assert [house.counts(queue)[0] for queue in queues] == [1] * len(queues)
    assert sorted(queue for (queue,) in house.mq.store._query("select_queues")) == sorted(queues)  # type: ignore[attr-defined]


MANY = 2_000


def logged(house: House) -> int:
    """Return how many changes the tables have not taken in."""
    ((count,),) = house.mq.store._run("SELECT count(*) FROM msg_log")  # type: ignore[attr-defined]
    return int(count)


def publish_many(house: House) -> list[int]:
    """Publish in groups. Return how many changes the tables took in with each."""
    taken_in = []
    for number in range(MANY):
        house.mq.publish(QUEUE, Draft(str(number)))
        if number % 100 == 99:
            before = logged(house)
            house.mq.commit()
            taken_in.append(before + 100 - logged(house))
    return taken_in


def test_the_tables_take_changes_in_by_parts(open_house: Callable[..., House]) -> None:
    house = open_house("sqlite")
    taken_in = publish_many(house)
    assert 0 < max(taken_in[1:]) < 500
    left = logged(house)
    assert left == MANY - sum(taken_in) > 500
    while (due := house.mq.sweep()) is not None and due <= house.clock.now:
        assert left - logged(house) <= 500
        left = logged(house)
    assert logged(house) == 0


@pytest.mark.parametrize("then", ["acked", "given back", "dead", "moved"])
def test_what_the_tables_took_in_half_is_whole_after_a_kill(open_house: Callable[..., House], then: str) -> None:
    """Changes of messages that the tables hold already, while older ones still wait in the log."""
    house = open_house("sqlite", policy={"retry": {"initialDelaySec": 0}})
    publish_many(house)
    early = house.mq.lease(QUEUE, "c", 100)
    house.mq.commit()
    for leased in early:
        if then == "acked":
            house.mq.ack(leased.message_key, leased.lease_id)
        elif then != "moved":
            house.mq.nack(leased.message_key, leased.lease_id, requeue=then == "given back")
    if then == "moved":
        begun = house.mq.moving.moving(QUEUE, "there", 100)
        house.mq.moving.move_some(begun, Budget(1_000, seconds=60), house.clock.now)
    house.mq.commit()
    assert logged(house) > 100
    expected = (house.counts(), house.counts("there"))
    house.reopen(kill=True)
    assert (house.counts(), house.counts("there")) == expected
    assert logged(house) == 0
    assert house.mq.check() == []


@pytest.mark.parametrize("kill", [True, False])
def test_files_that_are_written_over_do_not_outlive_their_life(open_house: Callable[..., House], kill: bool) -> None:
    house = open_house("hybrid")
    for _ in range(5):
        house.publish()
        house.ack(house.lease())
    assert list(house.folder.rglob("*.spare.tmp"))
    house.reopen(kill=kill)
    assert not list(house.folder.rglob("*.spare.tmp"))
