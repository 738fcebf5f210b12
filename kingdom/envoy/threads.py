"""Which task speaks in which thread, and which questions wait for an answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kingdom.atomic import Disk
from kingdom.codec import read_json, to_json
from kingdom.errors import BadFile
from kingdom.log import Log


class Book:
    """A small JSON object on disk, kept whole in memory and written back when it has changed."""

    def __init__(self, path: Path, disk: Disk, log: Log) -> None:
        self._path = path
        self._disk = disk
        self._changed = False
        try:
            self._pages: dict[str, Any] = read_json(path, limit=64 << 20)
        except FileNotFoundError:
            self._pages = {}
        except BadFile as trouble:
            log.error(f"{trouble}; it starts empty")
            self._pages = {}

    def get(self, key: str) -> Mapping[str, Any] | None:
        page = self._pages.get(key)
        return page if isinstance(page, dict) else None

    def set(self, key: str, page: Mapping[str, Any]) -> None:
        if self._pages.get(key) != page:
            self._pages[key] = dict(page)
            self._changed = True

    def strike(self, key: str) -> None:
        if self._pages.pop(key, None) is not None:
            self._changed = True

    def save(self) -> None:
        if self._changed:
            self._disk.rewrite(self._path, to_json(self._pages))
            self._changed = False
