"""Timing heartbeats: how long a file has stayed as it is, by the watcher's own clock.

Wall clocks step: an age reckoned from the file's own time would shoot every role, or hide every hang.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from pathlib import Path

from kingdom.disk.codec import read_bytes
from kingdom.errors import BadFile

Face = tuple[object, ...]


class Stopwatch:
    """The time that a watcher has been awake, in seconds.

    When the machine or the watcher alone was asleep, the others' hearts were not looked at: a long
    gap between two looks counts as a short one, and nobody is shot for it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()
        self.seconds = 0.0

    def look(self, longest_gap: float) -> float:
        now = self._clock()
        self.seconds += min(max(0.0, now - self._last), longest_gap)
        self._last = now
        return self.seconds


class Unchanged:
    """For how long each thing has looked the same."""

    def __init__(self) -> None:
        self._faces: dict[str, tuple[Hashable, float]] = {}

    def since(self, name: str, face: Hashable, now: float) -> float:
        """Seconds, 0 at the first look."""
        known = self._faces.get(name)
        if known is None or known[0] != face:
            self._faces[name] = face, now
            return 0.0
        return now - known[1]


def face(heartbeat: Path) -> Face:
    """What changes with every beat: content, or the time of a role that only touches its file."""
    try:
        content = read_bytes(heartbeat, 4096)
        return content, os.stat(heartbeat).st_mtime_ns
    except (OSError, BadFile):
        return ()
