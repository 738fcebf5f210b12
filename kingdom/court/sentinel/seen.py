"""Which events were made: an empty file for each in state/sentinel/seen, older ones by what lies in the queue."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kingdom.base.disk.atomic import is_there, make_folder
from kingdom.base.home.places import check_name
from kingdom.base.records.messages import Event
from kingdom.base.runtime.role import Services


class SeenEvents:
    def __init__(self, services: Services) -> None:
        self.folder: Path = services.places.own(services.name) / "seen"
        self._queue = services.queues.events
        self._disk = services.disk
        make_folder(self.folder)

    def is_known(self, id: str) -> bool:
        """Return whether an event of this id has been made. BadName for an id that cannot be one."""
        return is_there(self._marker(id)) or self._queue.was_made(id)

    def create(self, events: Iterable[Event]) -> None:
        """Make those events that are new, and then note all of them."""
        unmarked = [event for event in events if not is_there(self._marker(event.id))]
        self._queue.create(event for event in unmarked if not self._queue.was_made(event.id))
        self._disk.create_all([(self._marker(event.id), b"") for event in unmarked])

    def _marker(self, id: str) -> str:
        return f"{self.folder}/{check_name('event', id)}"
