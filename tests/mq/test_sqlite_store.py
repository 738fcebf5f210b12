"""What the sqlite store asks of its database, and what the hybrid one leaves beside it."""

from collections.abc import Callable
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("kill", [True, False])
def test_files_that_are_written_over_do_not_outlive_their_life(open_house: Callable[..., House], kill: bool) -> None:
    house = open_house("hybrid")
    for _ in range(5):
        house.publish()
        house.ack(house.lease())
    assert list(house.folder.rglob("*.spare.tmp"))
    house.reopen(kill=kill)
    assert not list(house.folder.rglob("*.spare.tmp"))
