from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.mq.stores import STORES
from tests.mq.rigs import Rig


@pytest.fixture(params=sorted(STORES))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_rig(home: Path) -> Iterator[Callable[..., Rig]]:
    opened: list[Rig] = []

    def make(backend: str, **more: Any) -> Rig:
        rig = Rig(backend, home / f"mq{len(opened)}", **more)
        opened.append(rig)
        return rig

    yield make
    for rig in opened:
        rig.close()


@pytest.fixture
def rig(backend: str, open_rig: Callable[..., Rig]) -> Rig:
    """An engine over each of the stores."""
    return open_rig(backend)
