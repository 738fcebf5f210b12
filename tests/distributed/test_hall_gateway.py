"""People notice nothing of it that the hall runs on Kafka and PostgreSQL: scenarios, sockets, two gateways."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator

import pytest
import requests

from tests.distributed.kafka import Brokers
from tests.distributed.postgres import Postgres
from tests.hall.gateway.conftest import anyio_backend
from tests.hall.gateway.halls import OPEN, SECONDS, Hall, two_gateways
from tests.hall.gateway.test_sockets import *  # noqa: F403
from tests.hall.gateway.test_stock_client import *  # noqa: F403
from tests.hall.gateway.test_stock_client import client
from tests.hall.gateway.test_two_gateways import (  # noqa: F401
    BUSY,
    test_clients_of_both_are_served_by_one_login,
    test_what_happens_on_one_is_seen_on_the_other,
)
from tests.waiting import SOON, wait_until

__all__ = ["anyio_backend", "client"]
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::ResourceWarning")]


PUBLISH_SECONDS = 3
UNDELIVERED = "Message delivery failed"


@pytest.fixture(scope="module")
def pair(brokers: Brokers, postgres: Postgres) -> Iterator[tuple[Hall, str]]:
    """A hall with two gateways, and where the second one listens."""
    postgres.empty()
    kafka = {"servers": brokers.servers, "publish_seconds": PUBLISH_SECONDS}
    with two_gateways({**OPEN, "transport": "kafka", "kafka": kafka, "database": postgres.url}) as opened:
        yield opened


@pytest.fixture(scope="module")
def hall(pair: tuple[Hall, str]) -> Hall:
    return pair[0]


def health(hall: Hall) -> tuple[int, list[str]]:
    answer = requests.get(f"{hall.url}/health", timeout=SECONDS)
    return answer.status_code, list(answer.json()["error"])


def is_well(hall: Hall) -> bool:
    return health(hall) == (200, [])


async def test_without_the_database_known_members_are_heard_and_others_fail_soon(
    pair: tuple[Hall, str], postgres: Postgres
) -> None:
    hall, second = pair
    anna, ben = hall.person(), hall.person()
    room = anna.room(ben)
    async with anna.socket(room) as hers, ben.socket(url=second) as his:
        await hers.send(room, "before")
        postgres.kill()
        try:
            assert (await hers.send(room, "meanwhile"))["status"] == "ACCEPTED"
            began = time.monotonic()
            answer = await his.send(room, "of somebody whom this gateway does not know")
            assert (answer["status"], answer["error"]) == ("FAILED", UNDELIVERED)
            assert time.monotonic() - began < BUSY
            assert health(hall) == (503, ["database"])
        finally:
            postgres.start()
        await hers.wait("newMessage", lambda told: told["content"] == "meanwhile", 2 * SECONDS)
    wait_until(lambda: is_well(hall), SOON, "/health is green again")
    # Each connection to the database that was cut costs one more answer "Service unavailable".

    def read() -> list[str] | None:
        answer = anna.call("GET", f"/rooms/{room}/messages")
        return [row["content"] for row in answer.json()] if answer.status_code == 200 else None

    assert wait_until(read, SOON, "the history can be read") == ["before", "meanwhile"]


async def test_without_the_broker_messages_fail_and_what_is_sent_again_is_there_once(
    pair: tuple[Hall, str], brokers: Brokers
) -> None:
    hall, _ = pair
    anna = hall.person()
    room = anna.room()
    key = str(uuid.uuid4())
    async with anna.socket(room) as hers:
        await hers.send(room, "before")
        with brokers.stopped():
            answer = await hers.send(room, "meanwhile", clientMsgId=key)
            assert (answer["status"], answer["error"]) == ("FAILED", UNDELIVERED)
            assert health(hall) == (503, ["topics"])
        async with asyncio.timeout(2 * SECONDS):
            while (await hers.send(room, "meanwhile", clientMsgId=key))["status"] != "ACCEPTED":
                pass
        await hers.send(room, "after")
        await hers.wait("newMessage", lambda told: told["content"] == "after", 2 * SECONDS)
        told = [message["content"] for message in hers.all("newMessage")]
    assert told == [row["content"] for row in anna.history(room)] == ["before", "meanwhile", "after"]
    wait_until(lambda: is_well(hall), SOON, "/health is green again")
