"""Three brokers, of which two must have an event: one may be killed, and without two nothing counts as stored."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kingdom.hall.topics.base import Follower, PublishOutcome
from tests.contracts.topics import Told, World, published
from tests.distributed.kafka import Brokers, running_brokers
from tests.waiting import wait_until

EVENTS = 600
ROOMS = 5
PATIENCE = 180.0
PUBLISH_SECONDS = 8.0


@pytest.fixture(scope="module")
def three() -> Iterator[Brokers]:
    with running_brokers(nodes=3) as brokers:
        yield brokers


@pytest.fixture
def world(three: Brokers, home: Path) -> Iterator[World]:
    with World(
        "kafka", home, kafka={"servers": three.servers, "publish_seconds": PUBLISH_SECONDS, "options": {}}
    ) as world:
        yield world


def leader(brokers: Brokers, topic: str, partition: int) -> int:
    """The node that leads a partition, counted from 0."""
    about = AdminClient({"bootstrap.servers": brokers.servers}).list_topics(topic, timeout=PATIENCE).topics[topic]
    return about.partitions[partition].leader - 1


def all_read(follower: Follower, wanted: set[int]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []

    def read() -> bool:
        found.extend((record.key, json.loads(record.value)["n"]) for record in follower.poll(0.2))
        return wanted <= {number for _, number in found}

    wait_until(read, PATIENCE, "every event that was stored is read")
    return found


def test_a_leader_that_is_killed_costs_no_stored_event_doubles_none_and_keeps_the_order(
    world: World, three: Brokers
) -> None:
    topic, topics = world.topic(), world.open()
    follower, producer, told = topics.follow(topic), topics.producer(patient=True), Told()
    for number in range(EVENTS):
        if number == EVENTS // 2:
            producer.flush(0.05)
            killed = leader(three, topic, 0)
            three.kill(killed)
        producer.append(topic, f"room {number % ROOMS}", b'{"n":%d}' % number, told.of(number))
    try:
        assert producer.flush(PATIENCE)
        outcomes = told.outcomes()
        assert set(outcomes.values()) == {PublishOutcome.STORED}
        found = all_read(follower, set(outcomes))
    finally:
        three.start(killed)
    assert Counter(number for _, number in found) == Counter(range(EVENTS))
    for room in range(ROOMS):
        numbers = [number for key, number in found if key == f"room {room}"]
        assert numbers == sorted(numbers)


def test_with_one_of_three_nothing_counts_as_stored_until_another_is_back(world: World, three: Brokers) -> None:
    topic, topics = world.topic(), world.open()
    follower, producer = topics.follow(topic), topics.producer()
    wait_until(
        lambda: published(producer, topic, [b'{"n":0}']) == [PublishOutcome.STORED], PATIENCE, "all three take part"
    )
    for node in (1, 2):
        three.kill(node)
    told = Told()
    try:
        for number in range(1, 4):
            producer.append(topic, "a", b'{"n":%d}' % number, told.of(number))
        assert producer.flush(PATIENCE)
        assert set(told.outcomes().values()) <= {PublishOutcome.UNKNOWN, PublishOutcome.REFUSED}
    finally:
        three.start(1, 2)
    wait_until(
        lambda: published(producer, topic, [b'{"n":9}']) == [PublishOutcome.STORED], PATIENCE, "it goes on by itself"
    )
    counts = Counter(number for _, number in all_read(follower, {0, 9}))
    assert all(counts[number] <= 1 for number in (1, 2, 3)), "no fate that was unknown became two events"
