from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures import Clock, here
from tests.general.rig import SOON, GeneralRig


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def general(home: Path, clock: Clock) -> Iterator[GeneralRig]:
    general = GeneralRig(home, clock)
    yield general
    for path in here(home, "tasks", "in_progress"):
        general.soldier(path).kill()
    for child in general.job._children.values():
        child.wait(SOON)
    # Here and not in somebody else's test: a dead general's soldiers are told of when it is forgotten.
    del general.job
    gc.collect()
