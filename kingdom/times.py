"""Moments as our files write them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def stamp(moment: float) -> str:
    """Return seconds since the epoch as our files write them: UTC, to the second."""
    return _stamp(int(moment // 1))


@lru_cache(maxsize=16)
def _stamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(stamped: str) -> float:
    """Return the seconds since the epoch; ValueError when the text is not a moment."""
    return datetime.fromisoformat(stamped).timestamp()


def rests_until(not_before: object, now: float) -> float | None:
    """Return when something that may not go on before its time goes on; None when it may now."""
    try:
        later = moment(str(not_before))
    except (ValueError, OverflowError):
        return None
    return later if later > now else None
