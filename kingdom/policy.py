"""Retry, back-off and order, as pure functions. The court, the queue and the council share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kingdom.times import moment

Shape = Literal["exponential", "linear", "fixed"]
Jitter = Literal["none", "full"]

URGENCY = {"urgent": 0, "high": 1, "normal": 2, "low": 3}
"""Both a message's urgency and an event's priority. What is not in the table counts as normal."""


Rank = tuple[int, str, int, str]


def rank(priority: str, created_at: str, name: str) -> Rank:
    """The order in which a queue is served: priority, then age, then id (by length first, so that 1000 follows 999)."""
    return (URGENCY.get(priority, 2), created_at.removesuffix("Z"), len(name), name)


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


def rests_until(not_before: object, now: float) -> float | None:
    """When something that may not go on before its time goes on; None when it may now."""
    try:
        later = moment(str(not_before))
    except (ValueError, OverflowError):
        return None
    return later if later > now else None
