"""A small JSON object that one role keeps for itself: whole in memory, written back when it has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kingdom.disk.atomic import Disk
from kingdom.disk.codec import read_json, to_json
from kingdom.errors import BadFile

LARGEST = 64 << 20


class JsonFile:
    """Damage ends nobody: it is told once, and the book goes on without the value that are not sound."""

    def __init__(
        self, path: Path, disk: Disk, complain: Callable[[str], None], is_sound: Callable[[str, Any], bool]
    ) -> None:
        self._path = path
        self._disk = disk
        self._changed = False
        self._pages = self._read(complain, is_sound)

    def get(self, key: str, otherwise: Any = None) -> Any:
        return self._pages.get(key, otherwise)

    def __iter__(self) -> Iterator[str]:
        return iter(self._pages)

    def set(self, key: str, value: Any) -> None:
        if key not in self._pages or self._pages[key] != value:
            self._pages[key] = value
            self._changed = True

    def remove(self, key: str) -> None:
        if self._pages.pop(key, None) is not None:
            self._changed = True

    def save(self) -> None:
        if self._changed:
            self._disk.rewrite(self._path, to_json(self._pages))
            self._changed = False

    def _read(self, complain: Callable[[str], None], is_sound: Callable[[str, Any], bool]) -> dict[str, Any]:
        try:
            value = read_json(self._path, limit=LARGEST)
        except FileNotFoundError:
            return {}
        except BadFile as trouble:
            complain(f"{trouble}; it starts anew")
            self._changed = True
            return {}
        lost = [key for key, value in value.items() if not is_sound(key, value)]
        if lost:
            complain(f"{self._path}: left out what is damaged: {', '.join(lost)[:300]}")
            self._changed = True
        return {key: value for key, value in value.items() if key not in lost}
