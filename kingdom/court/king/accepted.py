"""The manifests in force, and the king's copies of them: a broken file takes no work from its general."""

from __future__ import annotations

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.lease import is_open_for_writing
from kingdom.base.home import manifests
from kingdom.base.home.manifests import InForce, Versions
from kingdom.base.home.places import Places
from kingdom.base.log import Log

LOOK_AGAIN_SECONDS = 1.0
"""While a manifest cannot be read: its permissions may be mended, which wakes nobody."""


class Accepted:
    def __init__(self, places: Places, disk: Disk, log: Log) -> None:
        self._places = places
        self._disk = disk
        self._log = log
        make_folder(folder := places.accepted("king"))
        self._copies = {path.stem: path.read_text(errors="replace") for path in folder.glob("[!.]*.yaml")}
        self._seen: tuple[Versions, dict[str, bool]] | None = None
        self._told: dict[str, str] = {}
        self.in_force = InForce([], {}, {}, frozenset())

    @property
    def next_look(self) -> float:
        """Return the seconds until the files want to be looked at again, even if nobody has woken the king."""
        return LOOK_AGAIN_SECONDS if self.in_force.broken else float("inf")

    def reread(self) -> bool:
        """Return whether manifests have changed. Copies are kept of all that can be read."""
        seen = manifests.versions(self._places)
        gone = {name: manifests.is_uninstalled(self._places, name) for name in self._copies.keys() - seen.keys()}
        if (seen, gone) == self._seen and not self.in_force.broken:
            return False
        self._forget([name for name, is_uninstalled in gone.items() if is_uninstalled])
        found = manifests.in_force(self._places, is_open_for_writing)
        self._keep(found.texts)
        self._disk.remove_all(manifests.outdated_notes(self._places, found.texts))
        self._tell(found)
        before, self.in_force = self.in_force, found
        if self._seen is None or self._seen[0] != seen:
            manifests.note_in_use(self._places, self._disk, "king", seen)
        self._seen = seen, dict.fromkeys(gone.keys() & self._copies.keys(), False)
        return found.manifests != before.manifests or found.unknown != before.unknown

    def _keep(self, texts: dict[str, str]) -> None:
        new = {name: text for name, text in texts.items() if self._copies.get(name) != text}
        self._disk.rewrite_all((manifests.accepted(self._places, name), text.encode()) for name, text in new.items())
        self._copies.update(new)

    def _forget(self, names: list[str]) -> None:
        self._disk.remove_all([manifests.accepted(self._places, name) for name in names])
        for name in names:
            del self._copies[name]

    def _tell(self, found: InForce) -> None:
        """Log each mistake once."""
        errors = {name: str(error) for name, error in found.broken.items()}
        for name, error in errors.items():
            if self._told.get(name) == error:
                continue
            if name in found.unknown:
                self._log.error(f"skips a manifest, and keeps events that nobody takes until it is mended: {error}")
            elif name in self._copies:
                self._log.error(f"keeps the old manifest of {name}: {error}")
            else:
                self._log.error(f"skips a manifest: {error}")
        self._told = errors
