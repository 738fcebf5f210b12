"""Kafka does what every transport does; and what is particular about it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic, TopicPartition

from kingdom.hall.topics.base import PositionGone, PublishOutcome, TopicsAway
from kingdom.hall.topics.kafka import QUIET
from tests.contracts.topics import Told, TopicsContract, World, published, taken, values
from tests.distributed.kafka import Brokers
from tests.waiting import SOON, wait_until

PLACES = {"21": -973932308, "foobar": -790332482, "abc": 479470107, "a-little-bit-long-string": -985981536}
"""The 32-bit murmur2 of a few keys, as clients in other languages compute it."""


def remote(brokers: Brokers, home: Path, publish_seconds: float = 10) -> World:
    options = {"debug": "cgrp,topic"}
    kafka = {"servers": brokers.servers, "publish_seconds": publish_seconds, "options": options}
    return World("kafka", home, kafka=kafka)


@pytest.fixture(autouse=True)
def library_log() -> Iterator[None]:
    """What the library says: pytest prints it under a test that failed."""
    QUIET.setLevel(logging.DEBUG)
    yield
    QUIET.setLevel(logging.NOTSET)


@pytest.fixture
def world(brokers: Brokers, home: Path) -> Iterator[World]:
    with remote(brokers, home) as world:
        yield world


@pytest.fixture
def impatient(brokers: Brokers, home: Path) -> Iterator[World]:
    with remote(brokers, home, publish_seconds=1.5) as world:
        yield world


@pytest.fixture
def admin(brokers: Brokers) -> AdminClient:
    return AdminClient({"bootstrap.servers": brokers.servers})


class TestKafka(TopicsContract):
    pass


def test_a_key_lies_where_clients_in_other_languages_would_put_it(world: World) -> None:
    topic, topics = world.topic(), world.open()
    reader = topics.group("readers", topic)
    for key in PLACES:
        published(topics.producer(), topic, [b"{}"], key)
    found = {record.key: int(record.position.partition(":")[0]) for record in taken(reader, len(PLACES))}
    assert found == {key: (number & 0x7FFFFFFF) % 3 for key, number in PLACES.items()}


def test_a_topic_that_is_there_keeps_its_settings_and_is_never_shortened(world: World, admin: AdminClient) -> None:
    topic, topics = world.topic(), world.open()
    admin.create_topics([NewTopic(topic, 5, config={"retention.ms": "86400000"})])[topic].result(SOON)
    reader = topics.group("readers", topic)
    published(topics.producer(), topic, [b"{}"] * 5)
    reader.commit(taken(reader, 5))
    reader.close()
    assert topics.trim(topic, ["readers"], 0, 4e9) == 0
    assert len(admin.list_topics(topic).topics[topic].partitions) == 5
    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result(SOON)["retention.ms"].value == "86400000"


def test_a_topic_of_ours_has_three_partitions_and_keeps_everything(world: World, admin: AdminClient) -> None:
    topic, topics = world.topic(), world.open()
    topics.follow(topic)
    assert len(admin.list_topics(topic).topics[topic].partitions) == 3
    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result(SOON)["retention.ms"].value == "-1"


def test_a_position_that_somebody_else_removed_is_told_once_and_the_rest_is_read(
    world: World, admin: AdminClient
) -> None:
    topic, topics = world.topic(), world.open()
    producer, reader = topics.producer(), topics.group("readers", topic)
    published(producer, topic, [b'{"n":%d}' % number for number in range(10)])
    first = taken(reader, 10)
    reader.commit(first[:3])
    reader.close()
    partition = int(first[0].position.partition(":")[0])
    for removed in admin.delete_records([TopicPartition(topic, partition, 7)]).values():
        removed.result(SOON)
    again = world.open().group("readers", topic)
    with pytest.raises(PositionGone):
        wait_until(lambda: again.poll(0.1), SOON, "the loss is seen")
    assert values(taken(again, 3)) == [b'{"n":%d}' % number for number in range(7, 10)]


def test_a_broker_that_answers_no_more_leaves_the_fate_unknown_and_is_waited_for(
    impatient: World, brokers: Brokers
) -> None:
    topic, topics = impatient.topic(), impatient.open()
    quick, patient = topics.producer(), topics.producer(patient=True)
    follower = topics.follow(topic)
    assert published(patient, topic, [b'{"n":1}']) == [PublishOutcome.STORED]
    wait_until(
        lambda: published(quick, topic, [b'{"n":2}']) == [PublishOutcome.STORED], SOON, "it reaches the broker in time"
    )
    told = Told()
    with brokers.stopped():
        quick.append(topic, "a", b'{"n":3}', told.of(3))
        patient.append(topic, "a", b'{"n":4}', told.of(4))
        assert quick.flush(SOON)
        assert not patient.flush(0.1)
        with pytest.raises(TopicsAway):
            topics.check()
    assert patient.flush(SOON)
    assert told.outcomes() == {3: PublishOutcome.UNKNOWN, 4: PublishOutcome.STORED}
    seen: set[bytes] = set()

    def all_that_were_stored() -> bool:
        seen.update(values(follower.poll(0.1)))
        return {b'{"n":1}', b'{"n":2}', b'{"n":4}'} <= seen

    wait_until(all_that_were_stored, SOON, "every event that was stored is read")
