"""What the sqlite store asks of its database, and what the hybrid one leaves beside it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.mq.budget import Budget
from kingdom.mq.message_format import Draft
from kingdom.mq.stores import sqlite
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


MANY, MANY_IN_PART = 2_400, 1_200
"""So many that the tables have taken in all of the first, and that they are just taking in the first."""


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make no pause between two groups a quiet moment, however slow the machine is."""
    monkeypatch.setattr(sqlite, "QUIET_S", 3600.0)


def logged(house: House) -> int:
    """Return how many changes a start would read from the log."""
    ((count,),) = house.mq.store._run("SELECT count(*) FROM msg_log")  # type: ignore[attr-defined]
    return int(count)


def not_taken_in(house: House) -> int:
    """Return of how many messages the tables do not hold the latest."""
    return len(house.mq.store._changes)  # type: ignore[attr-defined]


def publish_many(house: House, many: int) -> list[int]:
    """Publish in groups. Return how many changes the tables took in with each."""
    taken_in = []
    for number in range(many):
        house.mq.publish(QUEUE, Draft(str(number)))
        if number % 100 == 99:
            before = not_taken_in(house)
            house.mq.commit()
            taken_in.append(before - not_taken_in(house))
    return taken_in


@pytest.mark.usefixtures("busy")
def test_the_tables_take_changes_in_by_parts(open_house: Callable[..., House]) -> None:
    house = open_house("sqlite")
    taken_in = publish_many(house, MANY)
    assert 0 < max(taken_in[1:]) < 500
    left = not_taken_in(house)
    assert left == MANY - sum(taken_in) > 500
    while (due := house.mq.sweep()) is not None and due <= house.clock.now:
        assert left - not_taken_in(house) <= 500
        left = not_taken_in(house)
    assert not_taken_in(house) == logged(house) == 0


@pytest.mark.usefixtures("busy")
def test_the_log_does_not_grow_while_groups_are_large(open_house: Callable[..., House]) -> None:
    house = open_house("sqlite")
    longest = 0
    for _ in range(40):
        for number in range(300):
            house.mq.publish(QUEUE, Draft(str(number)))
        house.mq.commit()
        longest = max(longest, logged(house))
    assert longest < 8_000


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("many", [MANY, MANY_IN_PART])
@pytest.mark.parametrize("then", ["acked", "given back", "dead", "moved"])
def test_what_the_tables_took_in_half_is_whole_after_a_kill(
    open_house: Callable[..., House], then: str, many: int
) -> None:
    """Changes of messages that the tables hold already, while older ones still wait in the log."""
    house = open_house("sqlite", policy={"retry": {"initialDelaySec": 0}})
    publish_many(house, many)
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


def test_large_messages_are_held_in_memory_no_longer_than_their_group(open_house: Callable[..., House]) -> None:
    house = open_house("sqlite")
    text = '"' + "x" * (2 * sqlite.LARGE) + '"'
    house.mq.publish(QUEUE, Draft(text))
    held = dict(house.mq.store._large)  # type: ignore[attr-defined]
    house.mq.commit()
    assert [len(body) > len(text) for body in held.values()] == [True]
    assert house.mq.store._large == {}  # type: ignore[attr-defined]
    assert house.lease_texts() == [text]
