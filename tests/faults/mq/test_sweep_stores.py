"""Every store, killed or cut off from its disk at every file call of each operation, and under power cuts:
what was promised holds, what was asked once is there once, and every file and row is whole."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from kingdom.mq.stores import STORES
from tests.faults import trees
from tests.faults.mq import acts
from tests.faults.oracle import Figure
from tests.faults.sweep import FAULTS, KILL, QUICK_POINTS, QUICK_STATES, Stand, Step, none_bad, power_cuts, sweep

BACKENDS = sorted(set(STORES) - {"memory"}) if trees.CAMPAIGN else ["hybrid"]
WHOLE_STORY = tuple(acts.OPERATIONS)
ACTS = str(Path(acts.__file__))


def whole(home: Path) -> list[str]:
    """No reader ever sees half a message."""
    wrong = []
    for path in home.glob("mq/*/*/*/*.json"):
        try:
            json.loads(path.read_bytes())
        except ValueError as error:
            wrong.append(f"half visible: {path}: {error}")
    return wrong


def step(backend: str, *operations: str, durability: str = "process") -> Step:
    names = operations or WHOLE_STORY
    return Step(
        f"mq {backend} {operations[0] if len(operations) == 1 else 'story'}",
        (ACTS, "{home}", backend, durability, *names),
        partial(acts.prepare, backend=backend, durability="process", operations=names),
        partial(acts.check, backend=backend, durability=durability, operations=names),
        at_fault=whole,
        steady=backend == "filesystem",
    )


def points_by_operation(story: Step) -> Counter[str]:
    """How many calls each operation makes that a kill can strike; the ledger's line ends it."""
    stand = Stand(story)
    counts: Counter[str] = Counter()
    names = iter(["starting", "opening", *WHOLE_STORY, "closing"])
    now = next(names)
    try:
        for point in stand.trace(KILL):
            if point.call in ("openat promised", "openat lives"):
                now = next(names)
            elif " mq/" in point.call:
                counts[now] += 1
    finally:
        stand.close()
    return counts


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fault_at_any_call_loses_and_doubles_nothing(backend: str, fault: str, figure: Figure) -> None:
    none_bad(sweep(step(backend), fault, budget=QUICK_POINTS), figure)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_operation_has_its_points(backend: str, figure: Figure) -> None:
    counts = points_by_operation(step(backend))
    figure(f"points of mq {backend}: {', '.join(f'{name} {count}' for name, count in counts.items())}")
    assert set(counts) >= set(WHOLE_STORY)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_power_cut_at_any_moment_loses_nothing_that_was_promised(backend: str, figure: Figure) -> None:
    none_bad(power_cuts(step(backend, durability="power"), budget=QUICK_STATES), figure)
