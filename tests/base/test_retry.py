"""Order, back-off and retries."""

from __future__ import annotations

import random

import pytest

from kingdom.base.home import schemas
from kingdom.base.records.messages import rank
from kingdom.base.retry import Jitter, Shape, backoff, jittered, may_retry, pause

SERVED_IN_THIS_ORDER = [
    ("urgent", "2026-02-07T12:00:00Z", "msg-9"),
    ("high", "2026-02-07T10:00:00Z", "evt-1"),
    ("high", "2026-02-07T10:00:00.5Z", "evt-0"),
    ("high", "2026-02-07T10:00:01Z", "evt-0"),
    ("normal", "2026-02-07T09:00:00Z", "task-20260207-999"),
    ("normal", "2026-02-07T09:00:00Z", "task-20260207-1000"),
    ("unheard of", "2026-02-07T09:00:01Z", "evt-3"),
    ("low", "2020-01-01T00:00:00Z", "evt-1"),
]


def test_a_queue_is_served_by_priority_then_age_then_id() -> None:
    mixed = random.Random(1).sample(SERVED_IN_THIS_ORDER, len(SERVED_IN_THIS_ORDER))
    assert sorted(mixed, key=lambda row: rank(*row)) == SERVED_IN_THIS_ORDER


@pytest.mark.parametrize(("name", "waits"), [("king", [60, 60, 60]), ("envoy", [5, 10, 15])])
def test_how_long_to_wait_stands_in_the_configuration_alone(name: str, waits: list[float]) -> None:
    rules = schemas.with_defaults(schemas.load(f"config/{name}"), {})["retry"]
    assert [pause(rules, tries) for tries in (1, 2, 3)] == waits
    assert pause({**rules, "backoff": "exponential"}, 3) == 4 * waits[0]


@pytest.mark.parametrize(
    ("shape", "waits"),
    [
        ("exponential", [1, 2, 4, 8, 10, 10]),
        ("linear", [1, 2, 3, 4, 5, 6]),
        ("fixed", [1, 1, 1, 1, 1, 1]),
    ],
)
def test_waits_grow_by_their_shape_up_to_the_longest(shape: Shape, waits: list[float]) -> None:
    assert [backoff(shape, attempt, 1, 10) for attempt in range(1, 7)] == waits
    assert backoff(shape, 100_000, 1, 10) in (1, 10)


@pytest.mark.parametrize(("jitter", "wait"), [("none", 8.0), ("full", 2.0)])
def test_full_jitter_spreads_a_wait(jitter: Jitter, wait: float) -> None:
    assert jittered(8.0, jitter, lambda: 0.25) == wait


@pytest.mark.parametrize(("attempt", "limit", "again"), [(0, 2, True), (1, 2, True), (2, 2, False), (1, 1, False)])
def test_the_limit_counts_tries_in_all(attempt: int, limit: int, again: bool) -> None:
    assert may_retry(attempt, limit) is again
