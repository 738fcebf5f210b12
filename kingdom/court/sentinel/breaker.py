"""Stop loops: too many events within an hour wait until the hour is over."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from kingdom.base.home.config import Config
from kingdom.base.records.messages import Event

HOUR = 3600.0
SUBJECTS = ("subject_url", "ticket_key", "path")
"""What an event is about, as payloads of the watchers say it."""


class Breaker:
    """Counts the events of one watcher, in all and about each subject. Times are those of the monotonic clock."""

    def __init__(self, config: Config) -> None:
        self._made: deque[tuple[float, str]] = deque()
        self._of_subject: defaultdict[str, int] = defaultdict(int)
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Take over new bounds; what has been made still counts."""
        self._most = int(config["events_per_hour"])
        self._most_of_subject = int(config["events_per_subject_hour"])

    def passing(self, events: Sequence[Event], now: float) -> tuple[list[Event], str]:
        """Return the events that may be made now, which then count, and why the others may not."""
        self._forget(now)
        passing: list[Event] = []
        why = ""
        for event in events:
            about = subject(event)
            if about and self._of_subject[about] >= self._most_of_subject:
                why = f"more than {self._most_of_subject} within an hour about {about}"
            elif len(self._made) >= self._most:
                why = f"more than {self._most} within an hour"
            else:
                self._made.append((now, about))
                self._of_subject[about] += 1
                passing.append(event)
        return passing, why

    def _forget(self, now: float) -> None:
        while self._made and self._made[0][0] <= now - HOUR:
            _, about = self._made.popleft()
            self._of_subject[about] -= 1
            if not self._of_subject[about]:
                del self._of_subject[about]


def subject(event: Event) -> str:
    """Return what an event is about, or ""."""
    return next((str(event.payload[name]) for name in SUBJECTS if event.payload.get(name)), "")
