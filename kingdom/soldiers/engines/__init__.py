"""Engines that a soldier can run. One more is one file and one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.runtime import tables

if TYPE_CHECKING:
    from kingdom.soldiers.engines.base import Engine

ENGINES = {
    "command": "kingdom.soldiers.engines.command:Command",
}


def load(name: str) -> Engine:
    """Return the engine of this name; KeyError when there is none."""
    engine: Engine = tables.load(ENGINES[name])()
    return engine
