"""What the sqlite store asks of its database, and what the hybrid one leaves beside it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.mq.budget import Budget, step
from kingdom.mq.message_format import Draft
from kingdom.mq.stores import sqlite
from kingdom.mq.stores.base import MessageGone, StoreConfig
from kingdom.mq.stores.sqlite import LARGE, SqliteStore, Tables, statements
from tests.mq.rigs import QUEUE, Rig

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


def test_every_queue_is_found_again(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig("sqlite")
    queues = [QUEUE, "a", "z", "큐", "it's"]
    for queue in queues:
        rig.publish(queue=queue)
    rig.mq.sweep()
    rig.reopen()
    assert [rig.counts(queue)[0] for queue in queues] == [1] * len(queues)
    assert sorted(queue for (queue,) in rig.mq.store._query("select_queues")) == sorted(queues)  # type: ignore[attr-defined]


def test_a_large_message_that_is_dropped_before_the_commit_is_gone(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig("sqlite")
    rig.mq.publish(QUEUE, Draft(f'"{"x" * 2 * LARGE}"'))
    (name,) = rig.mq.queues.by_name[QUEUE]
    assert len(rig.mq.store.read(QUEUE, "ready", name)) > 2 * LARGE
    rig.mq.store.drop(QUEUE, "ready", name)
    with pytest.raises(MessageGone):
        rig.mq.store.read(QUEUE, "ready", name)


MANY, MANY_IN_PART = 2_400, 1_200
"""So many that the tables have taken in all of the first, and that they are just taking in the first."""


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make no pause between two groups a quiet moment, however slow the machine is; fewer changes are many."""
    monkeypatch.setattr(sqlite, "QUIET_S", 3600.0)
    monkeypatch.setattr(sqlite, "MOST_UNSETTLED", 1_000)


def logged(rig: Rig) -> int:
    """Return how many changes a start would read from the log."""
    ((count,),) = rig.mq.store._run("SELECT count(*) FROM msg_log")  # type: ignore[attr-defined]
    return int(count)


def not_taken_in(rig: Rig) -> int:
    """Return of how many messages the tables do not hold the latest."""
    return len(rig.mq.store._changes)  # type: ignore[attr-defined]


def spent(rig: Rig) -> int:
    """Return up to which line the log may be emptied, as long as it is not."""
    return int(rig.mq.store._spent)  # type: ignore[attr-defined]


def tidy(rig: Rig) -> None:
    while (due := rig.mq.sweep()) is not None and due <= rig.clock.now:
        pass


def publish_many(rig: Rig, many: int) -> list[int]:
    """Publish in groups. Return how many changes the tables took in with each."""
    taken_in = []
    for number in range(many):
        rig.mq.publish(QUEUE, Draft(str(number)))
        if number % 100 == 99:
            before = not_taken_in(rig)
            rig.mq.commit()
            taken_in.append(before - not_taken_in(rig))
    return taken_in


@pytest.mark.usefixtures("busy")
def test_the_tables_take_changes_in_by_parts(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig("sqlite")
    taken_in = publish_many(rig, MANY)
    assert 0 < max(taken_in[1:]) < 500
    left = not_taken_in(rig)
    assert left == MANY - sum(taken_in) > 500
    while (due := rig.mq.sweep()) is not None and due <= rig.clock.now:
        assert left - not_taken_in(rig) <= 500
        left = not_taken_in(rig)
    assert not_taken_in(rig) == logged(rig) == 0


@pytest.mark.usefixtures("busy")
def test_the_log_does_not_grow_while_groups_are_large(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig("sqlite")
    longest = 0
    for _ in range(40):
        for number in range(300):
            rig.mq.publish(QUEUE, Draft(str(number)))
        rig.mq.commit()
        longest = max(longest, logged(rig))
    assert longest < 8_000


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("many", [MANY, MANY_IN_PART])
@pytest.mark.parametrize("then", ["acked", "given back", "dead", "moved"])
def test_what_the_tables_took_in_half_is_whole_after_a_kill(open_rig: Callable[..., Rig], then: str, many: int) -> None:
    """Changes of messages that the tables hold already, while older ones still wait in the log."""
    rig = open_rig("sqlite", policy={"retry": {"initialDelaySec": 0}})
    publish_many(rig, many)
    early = rig.mq.lease(QUEUE, "c", 100)
    rig.mq.commit()
    for leased in early:
        if then == "acked":
            rig.mq.ack(leased.message_key, leased.lease_id)
        elif then != "moved":
            rig.mq.nack(leased.message_key, leased.lease_id, requeue=then == "given back")
    if then == "moved":
        assert step(rig.mq.moving.move(QUEUE, "there", 100, Budget(1_000, seconds=60))) == (100, 0)
    rig.mq.commit()
    assert logged(rig) > 100
    expected = (rig.counts(), rig.counts("there"))
    rig.reopen(kill=True)
    assert (rig.counts(), rig.counts("there")) == expected
    assert logged(rig) == 0
    assert rig.mq.check() == []


@pytest.mark.usefixtures("busy")
def test_a_log_that_is_emptied_in_parts_is_whole_after_a_kill_at_any_of_them(
    open_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first lines are gone; those behind say what the tables hold already, and the last ones what they do not."""
    monkeypatch.setattr(sqlite, "LINES_TRIMMED_AT_ONCE", 50)
    rig = open_rig("sqlite", policy={"retry": {"initialDelaySec": 0}})
    lengths = []
    for _ in range(3):
        tidy(rig)
        while logged(rig) < 1_000 or not spent(rig):
            publish_many(rig, 100)
        taken = rig.mq.lease(QUEUE, "c", 20)
        rig.mq.commit()
        for at, leased in enumerate(taken):
            if at % 2:
                rig.mq.ack(leased.message_key, leased.lease_id)
            else:
                rig.mq.nack(leased.message_key, leased.lease_id, requeue=True)
        rig.mq.commit()
        expected = rig.counts()
        lengths.append(logged(rig))
        rig.reopen(kill=True)
        assert rig.counts() == expected
    assert min(lengths) > 1_000
    tidy(rig)
    assert (spent(rig), logged(rig), rig.mq.check()) == (0, 0, [])


@pytest.mark.parametrize("kill", [True, False])
def test_files_that_are_written_over_do_not_outlive_their_life(open_rig: Callable[..., Rig], kill: bool) -> None:
    rig = open_rig("hybrid")
    for _ in range(5):
        rig.publish()
        rig.ack(rig.lease())
    assert list(rig.folder.rglob("*.spare.tmp"))
    rig.reopen(kill=kill)
    assert not list(rig.folder.rglob("*.spare.tmp"))


def test_large_messages_are_held_in_memory_no_longer_than_their_group(open_rig: Callable[..., Rig]) -> None:
    rig = open_rig("sqlite")
    text = '"' + "x" * (2 * sqlite.LARGE) + '"'
    rig.mq.publish(QUEUE, Draft(text))
    held = dict(rig.mq.store._large)  # type: ignore[attr-defined]
    rig.mq.commit()
    assert [len(body) > len(text) for body in held.values()] == [True]
    assert rig.mq.store._large == {}  # type: ignore[attr-defined]
    assert rig.lease_texts() == [text]
