"""Retry, back-off and order, as pure functions. The court, the queue and the council share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Shape = Literal["exponential", "linear", "fixed"]
Jitter = Literal["none", "full"]

URGENCY = {"urgent": 0, "high": 1, "normal": 2, "low": 3}
"""Both a message's urgency and an event's priority. What is not in the table counts as normal."""


def rank(priority: object, created_at: str, name: str) -> tuple[int, str, str]:
    """The order in which a queue is served: priority, then age, then id."""
    return (URGENCY.get(priority, 2) if isinstance(priority, str) else 2, created_at, name)


def backoff(shape: Shape, attempt: int, initial: float, longest: float) -> float:
    """Seconds to wait after the `attempt`-th try (counted from 1) has failed."""
    if shape == "fixed":
        wait = initial
    elif shape == "linear":
        wait = initial * attempt
    else:
        wait = initial * 2.0 ** min(attempt - 1, 60)
    return min(wait, longest)


def jittered(wait: float, jitter: Jitter, dice: Callable[[], float]) -> float:
    """Full jitter spreads the wait over 0 … wait; `dice` yields a number in [0, 1)."""
    return wait * dice() if jitter == "full" else wait


def may_retry(attempt: int, limit: int) -> bool:
    """Whether another try is allowed after `attempt` tries."""
    return attempt < limit
