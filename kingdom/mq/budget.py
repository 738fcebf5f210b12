"""How much one turn may do for messages to which something happens together; the rest waits for the next turn."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that may take several turns: it yields where one may end, and returns what came of it."""

MOST_CHANGES = 125
"""Also because the commit of so many, which no budget measures, takes 35 ms in a store of files and tables."""
MOST_SECONDS = 0.005
LEAST_CHANGES = 8


class Budget:
    """A number of changes, and a time: where a change costs much, the time is used up first. A few are always made, so
    that all is done at last also where the machine is busy with other things."""

    def __init__(self, changes: int = MOST_CHANGES, seconds: float = MOST_SECONDS) -> None:
        self._all = changes
        self._at_any_time = changes - LEAST_CHANGES
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Begin another turn."""
        self._changes = self._all
        self._ends_at = time.perf_counter() + self._seconds

    def spend(self, changes: int = 1) -> None:
        self._changes -= changes

    def is_left(self) -> bool:
        """Return whether one more change may be made."""
        return self._changes > 0 and (self._changes > self._at_any_time or time.perf_counter() < self._ends_at)


def step(work: Steps[T]) -> T | None:
    """Go on with work until a turn may end. Return what came of it; None: there is more to do."""
    try:
        next(work)
    except StopIteration as end:
        result: T = end.value
        return result
    return None


def all_at_once(work: Steps[T]) -> T:
    """Do all of it in one turn."""
    while (result := step(work)) is None:
        pass
    return result
