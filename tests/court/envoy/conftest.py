from __future__ import annotations

from collections.abc import Iterator

import pytest

from kingdom.court.envoy import channels
from kingdom.court.envoy.channels import CHANNELS
from tests.court.envoy import grumpy
from tests.fixtures import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def more_channels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add the test channels' rows: one more channel is one file and one row."""
    monkeypatch.setitem(CHANNELS, "grumpy", "tests.court.envoy.grumpy:Grumpy")
    monkeypatch.setitem(CHANNELS, "pigeon", "tests.court.envoy.pigeon:Pigeon")
    monkeypatch.setattr(channels, "WITHOUT_SETTINGS", {"console", "errand", "grumpy", "pigeon"})
    grumpy.posted.clear()
    grumpy.refusals.clear()
    yield
    grumpy.posted.clear()
