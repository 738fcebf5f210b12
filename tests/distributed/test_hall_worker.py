"""The worker does on Kafka and PostgreSQL what it does on files and SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distributed.kafka import Brokers
from tests.distributed.postgres import Postgres
from tests.fixtures import Clock
from tests.hall.worker.hall import Hall

# The first of them is the first to read on behalf of the group.
from tests.hall.worker.test_job import (  # noqa: F401
    test_a_message_is_stored_told_and_passed,
    test_a_worker_that_starts_first_after_a_hundred_messages_stores_them_all_in_order,
    test_bad_events_become_dead_letters_and_those_behind_them_are_stored,
    test_ids_grow_within_a_room_also_when_the_clock_goes_back,
    test_what_a_client_sends_again_is_stored_and_told_once,
    test_what_a_killed_worker_had_stored_is_told_again_by_the_next_under_the_same_id,
)


@pytest.fixture
def hall(brokers: Brokers, postgres: Postgres, home: Path) -> Iterator[Hall]:
    postgres.empty()
    kafka = {"servers": brokers.servers}
    opened = Hall(home, Clock(), transport="kafka", database=postgres.url, kafka=kafka)
    yield opened
    opened.close()
