"""Brokers that are reached by TLS with a password: what is wrong is said in one sentence, without the password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.hall.topics.base import PublishOutcome, Topics, TopicsAway
from tests.certificates import certified
from tests.contracts.topics import Told, World
from tests.distributed.kafka import Brokers, running_brokers
from tests.waiting import SOON, wait_until

PASSWORD = "a-password-of-nobody"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Brokers, Path]]:
    """Yield a broker with TLS and passwords, and the authority that it is certified by."""
    made = certified(tmp_path_factory.mktemp("authority"))
    with running_brokers(tls=(made, PASSWORD)) as brokers:
        yield brokers, made.authority


def world(brokers: Brokers, home: Path, authority: Path, password: str = PASSWORD) -> World:
    options: dict[str, Any] = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "hall",
        "sasl.password": "$KAFKA_PASSWORD",
    }
    kafka = {"servers": brokers.guarded_servers, "publish_seconds": 10, "options": options}
    return World("kafka", home, kafka=kafka, secrets={"KAFKA_PASSWORD": password})


def test_the_right_certificate_and_password_are_taken(guarded: tuple[Brokers, Path], home: Path) -> None:
    brokers, authority = guarded
    with world(brokers, home, authority) as opened:
        topics, told = opened.open(), Told()
        wait_until(lambda: _takes_us(topics), SOON, "the broker takes us")
        producer = topics.producer()
        producer.append(topic := opened.topic(), "key", b'{"content":"hello"}', told.of(0))
        assert producer.flush(SOON)
        assert told.outcomes() == {0: PublishOutcome.STORED}
        reader = topics.group("readers", topic)
        [record] = wait_until(lambda: reader.poll(0.2), SOON, "the event")
        assert record.value == b'{"content":"hello"}'


@pytest.mark.parametrize(
    ("why", "is_known", "password"),
    [("certificate verify failed", False, PASSWORD), ("Authentication failed", True, "wrong")],
    ids=["certificate", "password"],
)
def test_what_is_wrong_is_said_in_one_sentence(
    why: str, is_known: bool, password: str, guarded: tuple[Brokers, Path], home: Path
) -> None:
    brokers, authority = guarded
    trusted = authority if is_known else certified(home / "other").authority
    with world(brokers, home, trusted, password) as opened:
        topics = opened.open()

        def said() -> str:
            try:
                topics.check()
            except TopicsAway as error:
                return str(error) if why in str(error) else ""
            return ""

        line = wait_until(said, SOON, why)
        assert line.startswith("the topics cannot be reached: ")
        assert "\n" not in line
        assert len(line) < 400
        assert PASSWORD not in line
        print(line)


def _takes_us(topics: Topics) -> bool:
    """Return whether the broker answers in time, which a busy one may not do at once."""
    try:
        topics.check()
    except TopicsAway:
        return False
    return True
