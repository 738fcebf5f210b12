"""Find and read single files of the queues, for commands that show them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from kingdom.base.disk.codec import read_json_or
from kingdom.base.errors import NoSuchThing
from kingdom.base.home.places import Places, is_hidden
from kingdom.base.home.states import MOVES
from kingdom.base.records.ids import by_day_and_number
from kingdom.base.records.lookup import LONGEST_SHOWN, Found, called, find
from kingdom.base.words import one_line

REASON = ".reason"
MOST_NAMED = 5


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
    raise NoSuchThing(what=called(kinds), name=one_line(bare, LONGEST_SHOWN), hint=f"; so begin {shown}{more}")


def ids_of(places: Places, kinds: Iterable[str]) -> list[str]:
    """Return the ids in these queues, the highest first, which is the newest of one kind and writer."""
    found: set[str] = set()
    for kind in kinds:
        for state in MOVES[kind]:
            with suppress(FileNotFoundError):
                names = os.listdir(places.folder(kind, state))
                found.update(name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted((id for id in found if not is_hidden(id)), key=by_day_and_number, reverse=True)


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
