"""A broker and a database for the whole run; tests are skipped in capitals if they are missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.distributed.kafka import Brokers, running_brokers
from tests.distributed.postgres import Postgres, running_postgres

__all__ = ["brokers", "postgres"]


@pytest.fixture(scope="session")
def brokers() -> Iterator[Brokers]:
    with running_brokers() as brokers:
        yield brokers


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as postgres:
        yield postgres
