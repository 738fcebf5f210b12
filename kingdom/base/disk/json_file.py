"""A small JSON object in a file: held in memory, written back by `save` when it has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import Disk, Item
from kingdom.base.disk.codec import ENCODE, joined, parse_json, read_bytes
from kingdom.base.errors import BadFile, Collision

LARGEST = 64 << 20


class JsonFile:
    """Corrupt entries are reported once to `complain` and dropped.

    A file that cannot be read, or that has another form, is set aside and reported; then it starts empty.
    """

    def __init__(
        self,
        path: Path,
        disk: Disk,
        complain: Callable[[str], None],
        is_sound: Callable[[str, Any], bool],
        translate: Callable[[Any], Any] = lambda value: value,
        brackets: str = "{}",
    ) -> None:
        """`translate` returns a file's content as an object, also where another program wrote another form.

        With the `brackets` of an array the values alone stand in the file.
        """
        self._path = path
        self._disk = disk
        self._changed = False
        self._brackets = brackets
        self._lines: dict[str, str] = {}
        """Values as they stand in the file: most of them do not change from one `save` to the next."""
        self._values = self._read(complain, is_sound, translate)

    def get(self, key: str, default: Any = None) -> Any:
        return self._values.get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def set(self, key: str, value: Any) -> None:
        if key not in self._values or self._values[key] != value:
            self._values[key] = value
            self._has_changed(key)

    def put_last(self, key: str, value: Any, most: int) -> None:
        """Set a value behind all others, and keep only so many of the last."""
        self._values.pop(key, None)
        self._values[key] = value
        self._has_changed(key)
        for oldest in list(self._values)[:-most]:
            self.remove(oldest)

    def remove(self, key: str) -> Any:
        """Delete a value and return it; None if absent."""
        if (value := self._values.pop(key, None)) is not None:
            self._has_changed(key)
        return value

    def save(self) -> None:
        """Write the file, if it has changed."""
        if self._changed:
            self._disk.rewrite(self._path, self._encoded())
            self._changed = False

    def _has_changed(self, key: str) -> None:
        self._lines.pop(key, None)
        self._changed = True

    def _encoded(self) -> bytes:
        for key in self._values.keys() - self._lines.keys():
            self._lines[key] = self._line(key, self._values[key])
        return joined(self._brackets, [self._lines[key] for key in self._values])

    def _line(self, key: str, value: Any) -> str:
        return ENCODE(value) if self._brackets == "[]" else f"{ENCODE(key)}: {ENCODE(value)}"

    def _read(
        self, complain: Callable[[str], None], is_sound: Callable[[str, Any], bool], translate: Callable[[Any], Any]
    ) -> dict[str, Any]:
        try:
            data = read_bytes(self._path, limit=LARGEST)
            written = parse_json(data)
        except FileNotFoundError:
            return {}
        except BadFile as error:
            return self._set_aside(complain, str(error))
        except ValueError as error:
            return self._set_aside(complain, f"{self._path}: {error}")
        value = translate(written)
        if not isinstance(value, dict):
            return self._set_aside(complain, f"{self._path}: it has another form than the one kept here")
        self._lines = {key: self._line(key, entry) for key, entry in value.items()}
        self._changed = value != written and joined(self._brackets, self._lines.values()) != data
        corrupt = {key for key, entry in value.items() if not is_sound(key, entry)}
        if corrupt:
            complain(f"{self._path}: dropped corrupt entries: {', '.join(sorted(corrupt))[:300]}")
            self._changed = True
        return {key: entry for key, entry in value.items() if key not in corrupt}

    def _set_aside(self, complain: Callable[[str], None], why: str) -> dict[str, Any]:
        """Keep the file beside its place under a free name: what it holds may be wanted."""
        for number in count(1):
            aside = self._path.with_name(f"{self._path.name}.set-aside-{number}")
            try:
                self._disk.move(self._path, aside)
            except Collision:
                continue
            break
        complain(f"{why}; it is kept as {aside.name}, starting with an empty file")
        return {}


class JsonFiles:
    """Files of one writer that are written together, in this order, where they have changed."""

    def __init__(self, disk: Disk, *files: JsonFile) -> None:
        self._disk = disk
        self._files = files

    def save(self) -> None:
        """Write those that have changed, durable together."""
        if unsaved := self.unsaved():
            self._disk.rewrite_all(unsaved)
            self.note_saved()

    def unsaved(self) -> list[Item]:
        """Return what `save` would write, for who writes it together with other files."""
        return [(file._path, file._encoded()) for file in self._files if file._changed]

    def note_saved(self) -> None:
        """Note that what was unsaved has been written."""
        for file in self._files:
            file._changed = False
