"""Share one hall among the tests of a file that only check its answers."""

from collections.abc import Iterator

import pytest

from tests.hall.gateway.halls import Hall, running


@pytest.fixture(scope="module")
def hall() -> Iterator[Hall]:
    """Return a running gateway and worker."""
    with running("gateway", "worker") as opened:
        yield opened


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
