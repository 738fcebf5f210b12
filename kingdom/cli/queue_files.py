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
from kingdom.records.ids import by_day_and_number
from kingdom.words import one_line

REASON = ".reason"
LONGEST_SHOWN = 80
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a queue. Its content is empty when it cannot be read as one."""

    kind: str
    state: str
    path: Path
    content: dict[str, Any]
    #: When its file was changed last; 0 when nobody asked.
    changed: float = 0.0

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
    raise NoSuchThing(what=_called(kinds), name=one_line(bare, LONGEST_SHOWN), hint="")


def find_typed(places: Places, name: str, kinds: Iterable[str] = tuple(MOVES)) -> Found:
    """Return what `find` does, or else the only file whose id begins so: people type as little as they can."""
    kinds = tuple(kinds)
    try:
        return find(places, name, kinds)
    except NoSuchThing:
        bare = Path(name).name
        begun = sorted(id for id in ids_of(places, kinds) if id.startswith(bare)) if bare.strip(".") else []
        if not begun:
            raise
    if len(begun) == 1:
        return find(places, begun[0], kinds)
    shown = ", ".join(one_line(id, LONGEST_SHOWN) for id in begun[:MOST_NAMED])
    more = f" and {len(begun) - MOST_NAMED} more" if len(begun) > MOST_NAMED else ""
    raise NoSuchThing(what=_called(kinds), name=one_line(bare, LONGEST_SHOWN), hint=f"; so begin {shown}{more}")


def _called(kinds: Iterable[str]) -> str:
    singular = [kind.removesuffix("s") for kind in kinds]
    return singular[0] if len(singular) == 1 else "event, task, message or order"


def ids_of(places: Places, kinds: Iterable[str]) -> list[str]:
    """Return the ids in these queues, the highest first, which is the newest of one kind and writer."""
    found: set[str] = set()
    for kind in kinds:
        for state in MOVES[kind]:
            with suppress(FileNotFoundError):
                names = os.listdir(places.folder(kind, state))
                found.update(name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted((id for id in found if not is_hidden(id)), key=by_day_and_number, reverse=True)


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
    for changed, state, path in sorted(dated, reverse=True):
        yield Found(kind, state, path, read_json_or(path, {}), changed)


def reason(found: Found) -> str:
    """Return why a file is in dead/."""
    return str(read_json_or(found.path.with_name(f"{found.path.name}{REASON}"), {}).get("reason", "no reason was kept"))
