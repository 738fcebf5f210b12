"""People notice nothing of it that the hall runs on Kafka and PostgreSQL: scenarios, sockets, two gateways."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distributed.kafka import Brokers
from tests.distributed.postgres import Postgres
from tests.gateway.conftest import anyio_backend
from tests.gateway.halls import OPEN, Hall
from tests.gateway.test_sockets import *  # noqa: F403
from tests.gateway.test_stock_client import *  # noqa: F403
from tests.gateway.test_stock_client import client
from tests.gateway.test_two_gateways import (  # noqa: F401
    test_clients_of_both_are_served_by_one_login,
    test_what_happens_on_one_is_seen_on_the_other,
)

__all__ = ["anyio_backend", "client"]
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def pair(brokers: Brokers, postgres: Postgres) -> Iterator[tuple[Hall, str]]:
    """A hall with two gateways, and where the second one listens."""
    postgres.empty()
    home = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    servers = {"transport": "kafka", "kafka": {"servers": brokers.servers}, "database": postgres.url}
    opened = Hall(home, {**OPEN, **servers, "instances": {"gateway": {"b": 0}}})
    try:
        opened.start("gateway")
        second = opened.start("gateway-b")
        opened.start("worker")
        yield opened, second
    finally:
        opened.close()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def hall(pair: tuple[Hall, str]) -> Hall:
    return pair[0]
