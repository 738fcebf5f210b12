from collections.abc import Callable

import pytest

from tests.faults.oracle import Figure


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Say a figure that a check has found; it stands in the summary at the end."""

    def say(line: str) -> None:
        print(line)
        record_property("figure", line)

    return say
