"""Retry and back-off, as pure functions. The court and the queue share them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

Shape = Literal["exponential", "linear", "fixed"]
Jitter = Literal["none", "full"]


def backoff(shape: Shape, attempt: int, initial: float, longest: float) -> float:
    """Return the seconds to wait after the `attempt`-th try (counted from 1) has failed."""
    if shape == "fixed":
        wait = initial
    elif shape == "linear":
        wait = initial * attempt
    else:
        wait = initial * 2.0 ** min(attempt - 1, 60)
    return min(wait, longest)


def pause(rules: Mapping[str, Any], tries: int) -> float:
    """Return the seconds to wait after so many failed tries, as the part `retry` of a configuration file says."""
    return backoff(rules["backoff"], tries, rules["backoff_seconds"], math.inf)


def jittered(wait: float, jitter: Jitter, random: Callable[[], float]) -> float:
    """Spread a wait over 0 … wait, if the jitter is full; `random` yields a number in [0, 1)."""
    return wait * random() if jitter == "full" else wait


def may_retry(attempt: int, limit: int) -> bool:
    """Return whether another try is allowed after `attempt` tries."""
    return attempt < limit
