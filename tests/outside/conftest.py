"""Use the real programs, if npm could install them and they start; tests without them are skipped in capitals."""

from __future__ import annotations

import subprocess
from functools import cache

import pytest

from kingdom.court.soldiers.engines import claude, codex, opencode, programs
from kingdom.court.soldiers.engines.base import NeedsSetUp
from tests.outside.outside import PROGRAMS

NATIVES = {"claude": claude.NATIVES, "codex": codex.NATIVES, "opencode": opencode.NATIVES}
START_SECONDS = 120.0


@cache
def missing(engine: str) -> str:
    """Return why an engine's program cannot be tried here, or ""."""
    try:
        program = programs.find(engine, str(PROGRAMS[engine]), NATIVES[engine])
    except NeedsSetUp:
        return f"NO {engine.upper()} HERE: make test-outside installs it with npm"
    try:
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([program, "--version"], check=True, timeout=START_SECONDS, **quiet)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{engine.upper()} DOES NOT START HERE: {type(error).__name__}"
    return ""


@pytest.fixture(autouse=True)
def _its_program_starts(request: pytest.FixtureRequest) -> None:
    engine = request.node.callspec.params.get("engine", "claude") if hasattr(request.node, "callspec") else "claude"
    if why := missing(engine):
        pytest.skip(why)
