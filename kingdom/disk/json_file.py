"""A small JSON object in a file: held in memory, written back by `save` when it has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kingdom.disk.atomic import Disk
from kingdom.disk.codec import read_json, to_json
from kingdom.errors import BadFile

LARGEST = 64 << 20


class JsonFile:
    """Corrupt entries are reported once to `complain` and dropped; an unreadable file starts empty."""

    def __init__(
        self, path: Path, disk: Disk, complain: Callable[[str], None], is_sound: Callable[[str, Any], bool]
    ) -> None:
        self._path = path
        self._disk = disk
        self._changed = False
        self._values = self._read(complain, is_sound)

    def get(self, key: str, default: Any = None) -> Any:
        return self._values.get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def set(self, key: str, value: Any) -> None:
        if key not in self._values or self._values[key] != value:
            self._values[key] = value
            self._changed = True

    def remove(self, key: str) -> None:
        if self._values.pop(key, None) is not None:
            self._changed = True

    def save(self) -> None:
        """Write the file if anything has changed since it was read or saved."""
        if self._changed:
            self._disk.rewrite(self._path, to_json(self._values))
            self._changed = False

    def _read(self, complain: Callable[[str], None], is_sound: Callable[[str, Any], bool]) -> dict[str, Any]:
        try:
            value = read_json(self._path, limit=LARGEST)
        except FileNotFoundError:
            return {}
        except BadFile as error:
            complain(f"{error}; starting with an empty file")
            self._changed = True
            return {}
        corrupt = {key for key, entry in value.items() if not is_sound(key, entry)}
        if corrupt:
            complain(f"{self._path}: dropped corrupt entries: {', '.join(sorted(corrupt))[:300]}")
            self._changed = True
        return {key: entry for key, entry in value.items() if key not in corrupt}
