"""Find a file of the queues by its id and read it as it is, for those who only look."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import is_there
from kingdom.base.disk.codec import read_json_or
from kingdom.base.errors import NoSuchThing
from kingdom.base.home.places import Places, is_hidden
from kingdom.base.home.states import MOVES
from kingdom.base.words import one_line

LONGEST_SHOWN = 80
MOST_SEARCHED = 512
"""How many files of a folder are read when one has to be found by its content."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a queue. Its content is empty when it cannot be read as one."""

    #: Its queue: events, tasks, messages or orders.
    kind: str
    #: The folder of that queue which it lies in.
    state: str
    #: Where it lies.
    path: Path
    #: The JSON object in it.
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
    raise NoSuchThing(what=called(kinds), name=one_line(bare, LONGEST_SHOWN), hint="")


def task_id_of(places: Places, event: Found) -> str:
    """Return the task that an event has become; "" when there is none. Another program's king notes none."""
    if event.get("task_id"):
        return str(event.get("task_id"))
    tasks = () if event.state == "pending" else leading_back(places, "tasks", "event_id", event.id)
    return next((task.id for task in tasks), "")


def leading_back(places: Places, kind: str, key: str, to: str) -> Iterator[Found]:
    """Yield the files that name something under this key. Of many in a folder the newest are read."""
    for state in MOVES[kind]:
        with suppress(FileNotFoundError):
            names = (name for name in os.listdir(places.folder(kind, state)) if name.endswith(".json"))
            for name in nlargest(MOST_SEARCHED, (name for name in names if not is_hidden(name))):
                path = places.folder(kind, state) / name
                if (content := read_json_or(path, {})).get(key) == to:
                    yield Found(kind, state, path, content)


def called(kinds: Iterable[str]) -> str:
    """Return what people call a file of one of these kinds."""
    singular = [kind.removesuffix("s") for kind in kinds]
    return singular[0] if len(singular) == 1 else "event, task, message or order"


def _exists(path: Path) -> bool:
    try:
        return is_there(path)
    except (OSError, ValueError):  # a name too long for any file, or one with a NUL
        return False
