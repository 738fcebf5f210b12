"""Times as people write them: `30s`, `500ms`, `1.5h`. A bare number keeps the unit of its field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LONGEST_MS = 10**15
_UNIT_OF_KEY = {"Ms": "ms", "Sec": "s", "Days": "d"}
_TIME = re.compile(r"\s*(-?\d{1,15}(?:\.\d{1,9})?)\s*(ms|s|m|h|d)?\s*\Z", re.ASCII)


def in_ms(given: str | float, unit: str) -> float:
    """Return a time in milliseconds. `unit` is that of a bare number. ValueError says what is wrong."""
    if isinstance(given, str):
        found = _TIME.match(given)
        if found is None:
            raise ValueError(f"{given[:40]!r} is no time: write 500ms, 30s, 5m, 2h or 1d")
        number, unit = float(found[1]), found[2] or unit
    else:
        number = given
    ms = number * MS[unit]
    if not -LONGEST_MS <= ms <= LONGEST_MS:
        raise ValueError(f"{given} is out of range")
    return ms


def in_numbers(value: Any, key: str = "") -> Any:
    """Return a configuration with its times as numbers, each in the unit that its key ends with."""
    if isinstance(value, Mapping):
        return {name: in_numbers(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [in_numbers(part) for part in value]
    unit = next((unit for end, unit in _UNIT_OF_KEY.items() if key.endswith(end)), "")
    if not unit or not isinstance(value, str):
        return value
    number = in_ms(value, unit) / MS[unit]
    return int(number) if number.is_integer() else number
