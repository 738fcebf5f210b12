"""Where a mailbox's folders are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

NAMES = {"requestsDir": "requests", "processingDir": "processing", "responsesDir": "responses", "deadDir": "dead"}
"""What clients write when nobody told them otherwise; the schema says the same, and a test compares."""


@dataclass(frozen=True, slots=True)
class Box:
    root: Path
    requests: Path
    processing: Path
    responses: Path
    dead: Path

    @classmethod
    def at(cls, root: Path, ipc: Mapping[str, Any] = NAMES) -> Self:
        """A mailbox at a place of its own, its folders named as the configuration's `ipc` names them."""
        here = root.absolute()
        return cls(here, *(here / str(ipc.get(key, name)) for key, name in NAMES.items()))
