"""What an engine must tell: how it is invoked, and what its end means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kingdom.disk.codec import LARGEST

Marching = Mapping[str, Any]
"""The marching orders that a general writes: `order.json` in the soldier's folder."""


LARGEST_RESULT = LARGEST // 2
"""The raw report that it is wrapped in, and the result that comes of it, must pass the same reader."""


class Engine(Protocol):
    def argv(self, order: Marching) -> list[str]:
        """The program and its words. The prompt comes on standard input, never on the command line."""

    def result(self, order: Marching, code: int) -> Mapping[str, Any] | None:
        """What the engine reports after its end; None when there is nothing to go by."""
