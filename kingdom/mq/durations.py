"""Times as people write them: `30s`, `500ms`, `1.5h`. A bare number keeps the unit of its field."""

from __future__ import annotations

import re

MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LONGEST_MS = 10**15
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
