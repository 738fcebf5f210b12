"""The files that a role's configuration comes from, and whether they have changed."""

from __future__ import annotations

from kingdom.base.home.places import Places
from kingdom.base.records.refusals import versions

LOOK_SECONDS = 0.25


class ConfigFiles:
    """`system.yaml`, the role's own file, those that it also reads, and `.env`."""

    def __init__(self, places: Places, *own: str) -> None:
        names = ("system", *own)
        self._paths = (*(places.config / f"{name}.yaml" for name in names), places.env_file)
        self.seen = versions(self._paths)
        self._next_look = 0.0

    def changed(self, now: float, at_once: bool = False) -> bool:
        """Return whether a file has changed. Looks every LOOK_SECONDS, or now if `at_once`."""
        if now < self._next_look and not at_once:
            return False
        self._next_look = now + LOOK_SECONDS
        current = versions(self._paths)
        if current == self.seen:
            return False
        self.seen = current
        return True
