from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.mq.stores import STORES
from tests.mq.houses import House


@pytest.fixture(params=sorted(STORES))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_house(home: Path) -> Iterator[Callable[..., House]]:
    opened: list[House] = []

    def make(backend: str, **more: Any) -> House:
        house = House(backend, home / f"mq{len(opened)}", **more)
        opened.append(house)
        return house

    yield make
    for house in opened:
        house.close()


@pytest.fixture
def house(backend: str, open_house: Callable[..., House]) -> House:
    """An engine over each of the stores."""
    return open_house(backend)
