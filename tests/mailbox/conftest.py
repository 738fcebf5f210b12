from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mailbox.boxes import ByHand, Running


@pytest.fixture
def box(home: Path) -> Iterator[ByHand]:
    box = ByHand(home, backend="memory")
    yield box
    box.engine.close()


@pytest.fixture
def manager(home: Path) -> Iterator[Running]:
    running = Running(home, backend="memory", durability="process")
    yield running
    running.stop()
