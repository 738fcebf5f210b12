"""Brokers and a database for the whole run; tests are skipped in capitals if they are missing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distributed.kafka import Brokers, Missing
from tests.distributed.postgres import Postgres

__all__ = ["brokers", "postgres"]


@pytest.fixture(scope="session")
def brokers() -> Iterator[Brokers]:
    with tempfile.TemporaryDirectory(prefix="kd-kafka-", dir="/tmp") as folder:
        try:
            started = Brokers(Path(folder))
        except Missing as missing:
            pytest.skip(f"no Kafka: {missing}")
        try:
            started.start()
            yield started
        finally:
            started.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix="kd-postgres-", dir="/tmp") as folder:
        try:
            started = Postgres(Path(folder))
        except Missing as missing:
            pytest.skip(f"no PostgreSQL: {missing}")
        try:
            started.start()
            yield started
        finally:
            started.stop()
