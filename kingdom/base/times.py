"""Moments as our files write them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
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


def clock_of(times: Iterable[float | None]) -> Callable[[float | None], str]:
    """Return how to show times so that they stand in one column: with dates unless all are of today.

    Years stand there only when one is not of this year.
    """
    today, seen = time.localtime(), [_local(at) for at in times if at is not None]
    if all(at[:3] == today[:3] for at in seen):
        shape = "%H:%M:%S"
    elif all(at[0] == today[0] for at in seen):
        shape = "%m-%d %H:%M:%S"
    else:
        shape = "%Y-%m-%d %H:%M:%S"
    unknown = time.strftime(shape, time.localtime(0)).translate(dict.fromkeys(map(ord, "0123456789"), "-"))
    return lambda at: unknown if at is None else time.strftime(shape, _local(at))


def _local(at: float) -> time.struct_time:
    try:
        return time.localtime(at)
    except (OverflowError, OSError, ValueError):
        return time.localtime(0)
