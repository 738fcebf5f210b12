"""Row 35: connections of the hall are held past every timer, idle and busy."""

import asyncio

import pytest

from tests.faults.oracle import Figure
from tests.faults.timers.hall_timers import wrong_timers
from tests.faults.timers.long import LONG
from tests.hall.gateway.halls import running

pytestmark = [LONG, pytest.mark.filterwarnings("ignore::ResourceWarning")]
SECONDS = 630.0
"""Longer than passing events are kept, 600 s, and than all that concerns a connection."""


def test_every_connection_of_the_hall_outlives_its_timers(figure: Figure) -> None:
    with running("gateway", "worker") as hall:
        held = asyncio.run(wrong_timers(hall, SECONDS))
    figure(f"row 35 the hall for {SECONDS:g} s, 10 connections at work and 10 that are to be cut: {held}")
    assert held.wrong == []
