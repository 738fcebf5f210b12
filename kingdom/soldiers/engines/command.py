"""The embedded engine: the general's own executable. It reads the prompt and writes its result itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kingdom.disk.codec import read_json
from kingdom.soldiers.engines.base import LARGEST_RESULT, Marching


class Command:
    def argv(self, order: Marching) -> list[str]:
        return [str(order["executable"])]

    def result(self, order: Marching, code: int) -> Mapping[str, Any] | None:
        """Raises BadFile for a result that is no JSON object."""
        try:
            return read_json(order["result_path"], LARGEST_RESULT)
        except FileNotFoundError:
            return None
