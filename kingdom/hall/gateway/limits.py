"""Rate limits: how many calls one caller may make at once, and per time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

MOST_REMEMBERED = 50_000


class Limit(NamedTuple):
    """At most `most` events per `seconds` seconds."""

    most: int
    seconds: float


class Rate:
    """Counts for each caller. One that has been quiet for a whole period is forgotten."""

    def __init__(self, limit: Limit, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._clock = clock
        self._free_at: dict[Hashable, float] = {}

    def wait_seconds(self, caller: Hashable) -> float:
        """Count one more, and return 0; or return how long the caller has to wait, and count nothing."""
        if wait := self.seconds_left(caller):
            return wait
        now = self._clock()
        self._free_at[caller] = max(self._free_at.get(caller, 0.0), now) + self.limit.seconds / self.limit.most
        if len(self._free_at) > MOST_REMEMBERED:
            self._free_at = {known: at for known, at in self._free_at.items() if at > now}
        return 0.0

    def seconds_left(self, caller: Hashable) -> float:
        """Return how long the caller has to wait, 0 when not at all, and count nothing."""
        # As if each call took its share of the period: a whole period of them may lie ahead.
        share = self.limit.seconds / self.limit.most
        wait = self._free_at.get(caller, 0.0) + share - self._clock() - self.limit.seconds
        return wait if wait > share * 1e-6 else 0.0
