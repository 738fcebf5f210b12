"""What the council says of itself: its counts, and every message that it has taken, by thread."""

from __future__ import annotations

from typing import Any

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import to_json, to_line
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.base.words import one_line
from kingdom.council.bodies import list_of
from kingdom.council.monitor.messages import CouncilMessage

WRITE_SECONDS = 1.0
IDLE_SECONDS = 30.0


class Figures:
    """Counts since the start of the role, and how it is now."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._counts = {"told": 0, "done": 0, "retried": 0, "buried": 0}
        self._now: dict[str, Any] = {}
        self._said: dict[str, Any] = {}
        self._written_at = 0.0

    def count(self, what: str) -> None:
        self._counts[what] += 1

    def note(self, message: CouncilMessage) -> None:
        """Add a message to the list of its thread: it will be deleted. A repetition is recognised by its id."""
        places, now = self._services.places, self._services.clock()
        make_folder(places.council_threads)
        row: dict[str, Any] = {
            "at": stamp(now),
            "agent": message.agent,
            "file": message.path.name,
            "id": message.id,
            "in_reply_to": message.in_reply_to,
            "from": message.sender,
            "to": message.to,
            "type": message.type,
            "about": one_line(message.about, 120),
            **({"task_id": message.task} if message.task else {}),
            **({"outcome": one_line(outcome, 20)} if (outcome := message.outcome) else {}),
        }
        self._services.unsynced.append(list_of(places, message.thread, now), to_line(row))

    def show(self, waiting: int, retrying: int, at_work: dict[str, str]) -> None:
        """Write how it is, at most once a second, and seldom while nothing changes."""
        self._now = {"waiting": waiting, "retrying": retrying, "at_work": at_work, **self._counts}
        age = self._services.monotonic() - self._written_at
        if age >= (WRITE_SECONDS if self._now != self._said else IDLE_SECONDS) or not self._said:
            self.write()

    def write(self) -> None:
        if self._now:
            self._written_at, self._said = self._services.monotonic(), self._now
            at = stamp(self._services.clock())
            self._services.unsynced.rewrite(self._services.places.council_figures, to_json({"at": at, **self._now}))

    @property
    def seconds_to_write(self) -> float:
        """Seconds until the figures should be written again."""
        age = self._services.monotonic() - self._written_at
        return max(0.05, (WRITE_SECONDS if self._now != self._said else IDLE_SECONDS) - age)
