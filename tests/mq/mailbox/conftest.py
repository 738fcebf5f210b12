import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from shutil import rmtree

import pytest

from tests.mq.mailbox.boxes import ByHand, Running

_numbers = count(1)


@pytest.fixture
def box(home: Path) -> Iterator[ByHand]:
    box = ByHand(home, backend="memory")
    yield box
    box.engine.close()


@pytest.fixture(scope="session")
def shared_manager() -> Iterator[Running]:
    home = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    running = Running(home, backend="memory", durability="process")
    yield running
    running.stop()
    rmtree(home, ignore_errors=True)


@pytest.fixture
def manager(shared_manager: Running) -> Running:
    """Share one manager among tests that only send requests; each test has its own queue."""
    return shared_manager


@pytest.fixture
def own_manager(home: Path) -> Iterator[Running]:
    running = Running(home, backend="memory", durability="process")
    yield running
    running.stop()


@pytest.fixture
def q() -> str:
    return f"q{next(_numbers)}"
