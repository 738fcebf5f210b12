"""Whether a file is finished: nobody has it open for writing, or nothing has changed for a while."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kingdom.base.disk.lease import is_open_for_writing

STILL_SECONDS = 1.0
Mark = tuple[int, int, int]


class Writers:
    """Remembers since when files have not changed, by the monotonic clock."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._unchanged: dict[Path, tuple[Mark, float]] = {}

    def are_done(self, path: Path, mark: Mark) -> bool:
        """Return whether nobody writes this file any more; `mark` changes with each write."""
        if is_open_for_writing(path) is False:
            self._unchanged.pop(path, None)
            return True
        now = self._monotonic()
        known, since = self._unchanged.get(path, (None, now))
        if known != mark:
            self._unchanged[path] = mark, now
            return False
        if now - since < STILL_SECONDS:
            return False
        del self._unchanged[path]
        return True

    @property
    def seconds_left(self) -> float:
        """Seconds until the first of the files that have been seen unfinished may be taken for finished."""
        now = self._monotonic()
        for path in [path for path, (_, since) in self._unchanged.items() if now - since > 2 * STILL_SECONDS]:
            del self._unchanged[path]  # it has gone
        return min((max(0.02, since + STILL_SECONDS - now) for _, since in self._unchanged.values()), default=3600.0)
