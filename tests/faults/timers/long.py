"""What waits for timers at their shipped values runs in `make faults-slow` alone."""

import os

import pytest

LONG = pytest.mark.skipif(
    "KINGDOM_TIMERS" not in os.environ, reason="too long for the quick suite: in make faults-slow"
)
