"""How an agent is told of a message: by its path alone, never by any word of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Engine = Callable[[Mapping[str, Any], str], list[str]]


def command(agent: Mapping[str, Any], path: str) -> list[str]:
    """Return the call of a program that takes the path as its last argument."""
    return [*agent["command"], path]


ENGINES: dict[str, Engine] = {"command": command}
"""By `engine` in council.yaml: what returns the call, given the agent's row there and the path."""
