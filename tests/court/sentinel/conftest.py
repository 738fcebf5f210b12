from __future__ import annotations

from collections.abc import Iterator

import pytest

from kingdom.demo.standins.github import GitHub
from kingdom.demo.standins.jira import Jira
from tests.fixtures import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hub(clock: Clock) -> Iterator[GitHub]:
    with GitHub() as service:
        service.clock = clock
        yield service


@pytest.fixture
def tickets(clock: Clock) -> Iterator[Jira]:
    with Jira() as service:
        service.clock = clock
        yield service
