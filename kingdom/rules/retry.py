"""Retry and back-off, as pure functions. The court and the queue share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Shape = Literal["exponential", "linear", "fixed"]
Jitter = Literal["none", "full"]


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
