"""The way of a message through the gateway, with the topics as files that can be taken away."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

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


async def test_messages_enter_the_topic_in_the_order_in_which_they_came(alone: Hall) -> None:
    assert await flow_checks.wrong_order(alone) == []


async def test_without_its_topic_nothing_is_accepted_and_health_is_red(alone: Hall) -> None:
    assert await flow_checks.wrong_when_the_topic_is_away(alone) == []


async def test_what_is_published_again_is_told_once(alone: Hall) -> None:
    assert await flow_checks.wrong_redelivery(alone) == []


async def test_who_has_left_hears_nothing(alone: Hall) -> None:
    assert await flow_checks.wrong_after_leaving(alone) == []


async def test_a_session_that_was_ended_is_disconnected_and_its_token_refused(alone: Hall) -> None:
    assert await flow_checks.wrong_after_the_end_of_a_session(alone) == []


async def test_a_client_that_polls_no_more_is_cut(alone: Hall) -> None:
    assert await flow_checks.wrong_poller(alone) == []
