"""Engines that a soldier can run. One more is one file and one row."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kingdom.base import tables

if TYPE_CHECKING:
    from kingdom.court.soldiers.engines.base import Engine

ENGINES = {
    "command": "kingdom.court.soldiers.engines.command:CommandEngine",
    "claude": "kingdom.court.soldiers.engines.claude:ClaudeEngine",
    "codex": "kingdom.court.soldiers.engines.codex:CodexEngine",
    "opencode": "kingdom.court.soldiers.engines.opencode:Opencode",
}


@cache
def load(name: str) -> Engine:
    """Return the engine of this name; KeyError when there is none."""
    engine: Engine = tables.load(ENGINES[name])()
    return engine


def readable(line: str) -> str:
    """Return what a line of any engine's output says to people."""
    if line.startswith("{"):
        for name in ENGINES:
            if (said := load(name).readable(line)) is not None:
                return said
    return line
