"""What every database of the chat does, on a real PostgreSQL."""

from __future__ import annotations

import pytest

from tests.contracts.test_hall_databases import *  # noqa: F403
from tests.distributed.postgres import Postgres


@pytest.fixture
def url(postgres: Postgres) -> str:
    """A database without tables, as each test expects it."""
    postgres.empty()
    return postgres.url
