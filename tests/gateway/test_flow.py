"""The way of a message through the gateway, with the topics as files that can be taken away."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.oracle import Figure
from tests.gateway import flow_checks
from tests.gateway.halls import OPEN, Hall

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def alone() -> Iterator[Hall]:
    """A gateway without a worker: these tests say themselves what was stored."""
    home = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    hall = Hall(home, {**OPEN, "limits": {"queued_bytes": 65_536}})
    try:
        hall.start("gateway")
        yield hall
    finally:
        hall.close()
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.parametrize("check", flow_checks.CHECKS, ids=lambda check: check.__name__)
async def test_the_way_of_a_message(check: flow_checks.Check, alone: Hall, figure: Figure) -> None:
    wrong = await check(alone)
    figure(f"row 27 {check.__name__.replace('_', ' ')}: {len(wrong)}")
    assert not wrong, wrong
