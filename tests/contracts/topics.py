"""Test what every transport of topics must do: on files in this folder, on brokers in tests/distributed."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kingdom.hall.topics import open_topics
from kingdom.hall.topics.base import (
    LARGEST_EVENT,
    Follower,
    GroupReader,
    Producer,
    PublishOutcome,
    TopicRecord,
    Topics,
    TopicsKit,
)
from tests.waiting import SOON, wait_until

ROOM, OTHER = "0b8f1c1e-6a55-4b0e-9d0a-3a8f5ce9a001", "0b8f1c1e-6a55-4b0e-9d0a-3a8f5ce9a002"
ODD_VALUES = {
    "plain": b'{"content":"hello"}',
    "Korean": '{"content":"왕 ⚔"}'.encode(),
    "a NUL": rb'{"content":"\u0000"}',
    "a lone surrogate": rb'{"content":"\ud800"}',
    "a line break": b'{\n"content": 1}',
    "no JSON": b'{"content":',
    "not UTF-8": b"\xff\xfe\x00",
    "empty": b"",
    "as large as may be": b'{"content":"' + b"x" * (LARGEST_EVENT - 14) + b'"}',
}


class World:
    """Open one transport any number of times, each time as another process would."""

    def __init__(
        self, transport: str, home: Path, secrets: Mapping[str, str] = MappingProxyType({}), **settings: Any
    ) -> None:
        self.home = home
        self._transport = transport
        self._secrets = secrets
        self._settings = settings
        self._opened: list[Topics] = []

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        for topics in self._opened:
            topics.close()

    def open(self) -> Topics:
        kit = TopicsKit(
            folder=self.home / "topics",
            scratch=self.home / f"scratch-{len(self._opened)}",
            durability="process",
            guard=lambda: None,
            settings={"retention_files": 20_000, **self._settings},
            secrets=self._secrets,
        )
        self._opened.append(open_topics(self._transport, kit))
        return self._opened[-1]

    def topic(self) -> str:
        """Return the name of a new topic."""
        return f"chat.test-{uuid.uuid4()}.v1"


class TopicsContract:
    """The tests; a subclass provides the fixture `world`."""

    def test_an_event_that_is_stored_is_found_with_key_and_value_as_they_were(self, world: World) -> None:
        topic, topics = world.topic(), world.open()
        reader = topics.group("readers", topic)
        assert published(topics.producer(), topic, ODD_VALUES.values()) == [PublishOutcome.STORED] * len(ODD_VALUES)
        found = taken(reader, len(ODD_VALUES))
        assert [record.value for record in found] == list(ODD_VALUES.values())
        assert {(record.topic, record.key) for record in found} == {(topic, ROOM)}

    def test_what_is_too_large_is_refused_and_sinks_nothing_beside_it(self, world: World) -> None:
        topic, topics = world.topic(), world.open()
        outcomes = published(topics.producer(), topic, [b'{"n":1}', b"x" * (LARGEST_EVENT + 1), b'{"n":2}'])
        assert outcomes == [PublishOutcome.STORED, PublishOutcome.REFUSED, PublishOutcome.STORED]
        assert values(taken(topics.group("readers", topic), 2)) == [b'{"n":1}', b'{"n":2}']

    def test_events_of_a_key_keep_the_order_of_their_publishing(self, world: World) -> None:
        topic, topics = world.topic(), world.open()
        producer = topics.producer()
        told = Told()
        for number in range(1000):
            producer.append(topic, (ROOM, OTHER)[number % 2], b'{"n":%d}' % number, told.of(number))
        assert producer.flush(SOON)
        assert set(told.outcomes().values()) == {PublishOutcome.STORED}
        found = taken(topics.group("readers", topic), 1000)
        for rest, key in enumerate((ROOM, OTHER)):
            assert values(r for r in found if r.key == key) == [b'{"n":%d}' % n for n in range(rest, 1000, 2)]

    def test_writers_that_write_at_once_lose_and_double_nothing(self, world: World) -> None:
        topic, opened = world.topic(), [world.open() for _ in range(3)]

        def write(who: int) -> None:
            producer = opened[who].producer()
            for number in range(100):
                producer.append(topic, f"key-{who}", b'{"n":%d}' % number, lambda *_: None)
            producer.flush(SOON)

        threads = [threading.Thread(target=write, args=(who,)) for who in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = taken(opened[0].group("readers", topic), 300)
        assert len({record.position for record in found}) == 300
        for who in range(3):
            assert values(r for r in found if r.key == f"key-{who}") == [b'{"n":%d}' % n for n in range(100)]

    def test_a_group_begins_at_the_oldest_event(self, world: World) -> None:
        topic, topics = world.topic(), world.open()
        published(topics.producer(), topic, [b'{"n":%d}' % number for number in range(100)])
        assert topics.lag("readers", topic) == 100
        assert len(taken(world.open().group("readers", topic), 100)) == 100

    def test_a_group_goes_on_behind_what_it_has_committed_and_repeats_the_rest_at_the_same_positions(
        self, world: World
    ) -> None:
        topic, topics = world.topic(), world.open()
        published(topics.producer(), topic, [b'{"n":%d}' % number for number in range(10)])
        first = topics.group("readers", topic)
        before = taken(first, 10)
        first.commit(before[:4])
        first.close()
        again = taken(world.open().group("readers", topic), 6)
        assert again == before[4:]
        assert world.open().lag("readers", topic) == 6

    def test_groups_do_not_know_each_other(self, world: World) -> None:
        topic, topics = world.topic(), world.open()
        published(topics.producer(), topic, [b'{"n":1}'])
        one = topics.group("one", topic)
        one.commit(taken(one, 1))
        assert len(taken(topics.group("other", topic), 1)) == 1

    def test_a_partition_has_one_holder_in_a_group_and_another_when_that_one_leaves(self, world: World) -> None:
        topic, topics = world.topic(), world.open()
        first, second = topics.group("readers", topic), world.open().group("readers", topic)
        producer = topics.producer()
        found = until_held([first])
        found += [record for record in second.poll(0.1) if not first.holds]
        published(producer, topic, [b'{"n":%d}' % number for number in range(50)])
        found = taken_by([first, second], 50)
        assert len({record.position for record in found}) == len(found) == 50
        first.commit(found)
        first.close()
        wait_until(lambda: second.poll(0.1) is not None and second.holds, SOON, "the other one holds the partition")

    def test_a_follower_reads_what_is_published_after_it_was_opened_and_nothing_before(self, world: World) -> None:
        topic, topics = world.topic(), world.open()
        producer = topics.producer()
        published(producer, topic, [b'{"n":"before"}'])
        follower = world.open().follow(topic)
        published(producer, topic, [b'{"n":1}', b'{"n":2}'])
        assert values(taken(follower, 2)) == [b'{"n":1}', b'{"n":2}']

    def test_all_followers_read_everything(self, world: World) -> None:
        topic, topics = world.topic(), world.open()
        followers = [world.open().follow(topic) for _ in range(2)]
        published(topics.producer(), topic, [b'{"n":%d}' % number for number in range(20)])
        assert [len(taken(follower, 20)) for follower in followers] == [20, 20]

    def test_a_follower_of_several_topics_reads_each_in_its_order(self, world: World) -> None:
        one, other, topics = world.topic(), world.topic(), world.open()
        follower = topics.follow(one, other)
        producer = topics.producer()
        for number in range(10):
            published(producer, (one, other)[number % 2], [b'{"n":%d}' % number])
        found = taken(follower, 10)
        assert values(r for r in found if r.topic == one) == [b'{"n":%d}' % n for n in range(0, 10, 2)]
        assert values(r for r in found if r.topic == other) == [b'{"n":%d}' % n for n in range(1, 10, 2)]

    def test_closing_ends_a_poll_that_waits(self, world: World) -> None:
        follower = world.open().follow(world.topic())
        ended = threading.Event()

        def wait() -> None:
            follower.poll(60.0)
            ended.set()

        thread = threading.Thread(target=wait)
        thread.start()
        follower.close()
        assert ended.wait(SOON)
        thread.join()

    def test_what_every_group_has_passed_is_removed_and_nothing_else(self, world: World) -> None:
        topic, topics = world.topic(), world.open()
        producer = topics.producer()
        for number in range(10):
            published(producer, topic, [b'{"n":%d}' % number])
        later = time.time() + 3600
        assert topics.trim(topic, ["readers", "envoy"], 60, later) == 0
        reader, envoy = topics.group("readers", topic), topics.group("envoy", topic)
        reader.commit(taken(reader, 10))
        reader.close()
        assert topics.trim(topic, ["readers", "envoy"], 60, later) == 0
        envoy.commit(taken(envoy, 10)[:5])
        envoy.close()
        assert topics.trim(topic, ["readers", "envoy"], 60, later) > 0
        assert values(taken(world.open().group("envoy", topic), 5)) == [b'{"n":%d}' % n for n in range(5, 10)]
        fresh = taken(world.open().group("new", topic), 5)
        assert fresh[-1].value == b'{"n":9}'
        assert len(fresh) < 10

    def test_numbers_go_on_after_everything_was_removed(self, world: World) -> None:
        topic, topics = world.topic(), world.open()
        producer = topics.producer()
        reader = topics.group("readers", topic)
        published(producer, topic, [b'{"n":1}', b'{"n":2}'])
        first = taken(reader, 2)
        reader.commit(first)
        reader.close()
        topics.trim(topic, ["readers"], 0, time.time() + 3600)
        published(world.open().producer(), topic, [b'{"n":3}'])
        again = taken(world.open().group("readers", topic), 1)
        assert again[0].value == b'{"n":3}'
        assert again[0].position not in {record.position for record in first}

    def test_a_topic_without_events_has_no_lag_and_can_be_published_to(self, world: World) -> None:
        topics = world.open()
        topics.check()
        assert topics.lag("readers", world.topic()) == 0


class Told:
    """Collect the outcomes of events."""

    def __init__(self) -> None:
        self._outcomes: dict[int, list[tuple[PublishOutcome, str]]] = {}

    def of(self, number: int) -> Callable[[PublishOutcome, str], None]:
        told = self._outcomes.setdefault(number, [])
        return lambda outcome, why: told.append((outcome, why))

    def outcomes(self) -> dict[int, PublishOutcome]:
        """Return the outcome of each event; each was reported once."""
        assert {len(told) for told in self._outcomes.values()} <= {1}
        return {number: told[0][0] for number, told in self._outcomes.items()}


def published(producer: Producer, topic: str, events: Iterable[bytes], key: str = ROOM) -> list[PublishOutcome]:
    told = Told()
    for number, value in enumerate(events):
        producer.append(topic, key, value, told.of(number))
    assert producer.flush(SOON)
    return list(told.outcomes().values())


def taken(reader: Follower, number: int) -> list[TopicRecord]:
    """Return the next `count` records, in order."""
    return taken_by([reader], number)


def taken_by(readers: Sequence[Follower], number: int) -> list[TopicRecord]:
    found: list[TopicRecord] = []

    def poll() -> bool:
        for reader in readers:
            found.extend(reader.poll(0.05))
        return len(found) >= number

    wait_until(poll, SOON, f"{number} records")
    return found


def until_held(readers: Sequence[GroupReader]) -> list[TopicRecord]:
    found: list[TopicRecord] = []

    def poll() -> bool:
        for reader in readers:
            found.extend(reader.poll(0.05))
        return all(reader.holds for reader in readers)

    wait_until(poll, SOON, "the group has a holder")
    return found


def values(records: Iterable[TopicRecord]) -> list[bytes]:
    return [record.value for record in records]
