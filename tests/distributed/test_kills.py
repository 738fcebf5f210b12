"""Gateway, worker, broker and database are killed again and again while people talk: Kafka and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distributed.kafka import Brokers, running_brokers
from tests.distributed.postgres import Postgres, running_postgres
from tests.faults import trees
from tests.faults.hall import campaign
from tests.faults.oracle import Figure
from tests.hall.gateway.halls import Hall
from tests.ports import free_port

QUICK = campaign.Plan(messages=400, talking=20.0, seconds=240.0, most_kills=6)
PLAN = campaign.Plan(messages=10_000, talking=60.0, seconds=1800.0, most_kills=40) if trees.CAMPAIGN else QUICK


@pytest.fixture
def servers() -> Iterator[tuple[Brokers, Postgres]]:
    """A broker and a database of this test's own: it kills them."""
    with running_brokers() as brokers, running_postgres() as database:
        yield brokers, database


def test_nothing_accepted_is_lost_doubled_or_out_of_order_on_any_screen(
    servers: tuple[Brokers, Postgres], home: Path, figure: Figure
) -> None:
    brokers, database = servers
    hall = Hall(
        home,
        {
            "registration": "open",
            "port": free_port(),
            "transport": "kafka",
            "database": database.url,
            "kafka": {"servers": brokers.servers, "publish_seconds": 5},
        },
    )
    try:
        hall.start("gateway")
        hall.start("worker")

        def role(name: str) -> None:
            hall.kill(name)
            hall.start(name)

        def broker() -> None:
            brokers.kill()
            brokers.start(0)

        def postgres() -> None:
            database.kill()
            database.start()

        kills = {"gateway": lambda: role("gateway"), "worker": lambda: role("worker"), "broker": broker}
        kills["postgres"] = postgres
        found = asyncio.run(campaign.talk(hall, kills, PLAN))
        figure(f"kills of the hall, Kafka + PostgreSQL: {found.line}")
        wrong = [*found.wrong, *campaign.by_fsck(hall)]
        assert not wrong, "\n".join(wrong[:20])
    finally:
        hall.close()
