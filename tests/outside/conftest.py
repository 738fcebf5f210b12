"""The real programs, where npm could install them; what is missing is said in capitals."""

from __future__ import annotations

import os

import pytest

from tests.outside.outside import PROGRAMS


@pytest.fixture(autouse=True)
def _the_program_is_there(request: pytest.FixtureRequest) -> None:
    engine = request.node.callspec.params.get("engine", "claude") if hasattr(request.node, "callspec") else "claude"
    if not os.access(PROGRAMS[engine], os.X_OK):
        pytest.skip(f"NO {engine.upper()} HERE: make test-outside installs it with npm")
