"""The engine's own time: set by the wall clock once, at the start; steps of the wall clock do not move it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

_since_boot = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


def steady_clock(wall: Callable[[], float] = time.time, passed: Callable[[], float] = _since_boot) -> Callable[[], int]:
    """Return a clock in ms since the epoch: as the wall clock is now, plus the time that passes.

    `wall` and `passed` are in seconds; the latter goes on also while the machine is suspended.
    """
    offset = wall() - passed()
    return lambda: int((offset + passed()) * 1000)
