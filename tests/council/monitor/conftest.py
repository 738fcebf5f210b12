from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.council.monitor.councils import Council, council_of, sh

Open = Callable[..., Council]


@pytest.fixture
def council(home: Path) -> Iterator[Open]:
    """Return what opens a council with agents by name: `council(leader=DONE)`, and `settings` of council.yaml."""
    with ExitStack() as stack:

        def opened(settings: dict[str, Any] | None = None, **agents: str) -> Council:
            rows = {name: sh(script) for name, script in agents.items()}
            return stack.enter_context(council_of(home, **{"agents": rows, **(settings or {})}))

        yield opened
