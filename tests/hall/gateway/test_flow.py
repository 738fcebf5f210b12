"""The way of a message through the gateway, with the topics as files that can be taken away."""

from collections.abc import Iterator

import pytest

from tests.faults.oracle import Figure
from tests.hall.gateway import flow_checks
from tests.hall.gateway.halls import OPEN, Hall, running

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def alone() -> Iterator[Hall]:
    """A gateway without a worker: these tests say themselves what was stored."""
    with running("gateway", config={**OPEN, "limits": {"queued_bytes": 65_536}}) as hall:
        yield hall


@pytest.mark.parametrize("check", flow_checks.CHECKS, ids=lambda check: check.__name__)
async def test_the_way_of_a_message(check: flow_checks.Check, alone: Hall, figure: Figure) -> None:
    wrong = await check(alone)
    figure(f"row 27 {check.__name__.replace('_', ' ')}: {len(wrong)}")
    assert not wrong, wrong
