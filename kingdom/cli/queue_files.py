"""Find and read single files of the queues, for commands that show them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kingdom.disk.atomic import is_there
from kingdom.disk.codec import read_json_or
from kingdom.errors import NoSuchThing
from kingdom.home.places import Places, is_hidden
from kingdom.home.states import MOVES
from kingdom.words import one_line

REASON = ".reason"
LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a queue. Its content is empty when it cannot be read as one."""

    kind: str
    state: str
    path: Path
    content: dict[str, Any]

    @property
    def id(self) -> str:
        return self.path.name.removesuffix(".json")

    @property
    def where(self) -> str:
        return f"queue/{self.kind}/{self.state}"

    def get(self, key: str) -> Any:
        return self.content.get(key)


def find(places: Places, name: str, kinds: Iterable[str] = tuple(MOVES)) -> Found:
    """Return the file of that id, name or path in the first queue that has one; NoSuchThing when none does."""
    bare = Path(name).name
    for kind in kinds if bare.strip(".") else ():
        for state in MOVES[kind]:
            for file in (bare, f"{bare}.json"):
                path = places.folder(kind, state) / file
                if not is_hidden(file) and _exists(path):
                    return Found(kind, state, path, read_json_or(path, {}))
    kind = next(iter(kinds)).removesuffix("s") if len(tuple(kinds)) == 1 else "event, task, message or order"
    raise NoSuchThing(what=kind, name=one_line(bare, LONGEST_SHOWN), hint="")


def _exists(path: Path) -> bool:
    try:
        return is_there(path)
    except (OSError, ValueError):  # a name too long for any file, or one with a NUL
        return False


def newest(places: Places, kind: str, states: Iterable[str]) -> Iterator[Found]:
    """Yield the files of these states, the newest first; a file is read when it is its turn."""
    dated: list[tuple[float, str, Path]] = []
    for state in states:
        with suppress(FileNotFoundError), os.scandir(places.folder(kind, state)) as entries:
            for entry in entries:
                if not is_hidden(entry.name) and not entry.name.endswith(REASON):
                    with suppress(FileNotFoundError):
                        dated.append((entry.stat(follow_symlinks=False).st_mtime, state, Path(entry.path)))
    for _, state, path in sorted(dated, reverse=True):
        yield Found(kind, state, path, read_json_or(path, {}))


def reason(found: Found) -> str:
    """Return why a file lies in dead/."""
    return str(read_json_or(found.path.with_name(f"{found.path.name}{REASON}"), {}).get("reason", "no reason was kept"))
