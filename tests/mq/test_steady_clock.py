"""Steps of the wall clock change nothing for an engine that runs; the next one starts from the wall clock again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kingdom.mq.steady_clock import steady_clock
from tests.mq.rigs import Rig

HOUR = 3600.0


class Times:
    """A wall clock that can be set, and the time that really passes."""

    def __init__(self) -> None:
        self.wall = 1_770_458_400.0
        self.passed = 5.0

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.passed += seconds

    def clock(self) -> Callable[[], int]:
        return steady_clock(lambda: self.wall, lambda _: int(self.passed * 1e9))


@pytest.mark.parametrize("step", [HOUR, -HOUR, 3 * 24 * HOUR])
def test_a_step_of_the_wall_clock_moves_nothing(step: float) -> None:
    times = Times()
    clock = times.clock()
    times.pass_(1)
    before = clock()
    times.wall += step
    assert clock() == before == 1_770_458_401_000
    times.pass_(2)
    assert clock() == before + 2_000


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_no_step_ends_a_lease_or_turns_the_order(open_rig: Callable[..., Rig], step: float) -> None:
    times = Times()
    rig = open_rig("memory")
    rig.mq.clock = times.clock()
    rig.publish("leased")
    assert rig.lease().payload == "leased"
    rig.publish("one")
    times.wall += step
    rig.publish("two")
    rig.mq.sweep()
    assert rig.lease_texts() == ["one", "two"]


def test_the_next_engine_judges_by_the_wall_clock() -> None:
    times = Times()
    times.clock()
    times.wall += HOUR
    assert times.clock()() == round(times.wall * 1000)
