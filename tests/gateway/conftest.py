"""Share one hall among the tests of a file that only check its answers."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.halls import Hall


@pytest.fixture(scope="module")
def hall() -> Iterator[Hall]:
    """Return a running gateway and worker."""
    home = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    opened = Hall(home)
    try:
        opened.start("gateway")
        opened.start("worker")
        yield opened
    finally:
        opened.close()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
