from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.court.general.rig import GeneralRig
from tests.fixtures import Clock, here


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def general(home: Path, clock: Clock) -> Iterator[GeneralRig]:
    general = GeneralRig(home, clock)
    yield general
    for path in here(home, "tasks", "in_progress"):
        general.soldier(path).kill()
    general.end()
