"""The engine's own time: set by the wall clock once, at the start; steps of the wall clock do not move it."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_clock(
    wall: Callable[[], float] = time.time, passed: Callable[[int], int] = time.clock_gettime_ns
) -> Callable[[], int]:
    """Return a clock in ms since the epoch: as the wall clock is now, plus the time that passes.

    `wall` is in seconds, `passed` in nanoseconds; the latter goes on also while the machine is suspended.
    """
    kind = time.CLOCK_BOOTTIME
    offset = (int(wall() * 1e9) - passed(kind)) // 1_000_000
    return lambda: passed(kind) // 1_000_000 + offset
