"""The only way into and through the queues: deliver, claim, annotate, move, bury."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kingdom import schemas
from kingdom.atomic import Disk, is_there
from kingdom.codec import read_json, to_json
from kingdom.errors import BadFile, BadInput
from kingdom.log import Log
from kingdom.messages import Event, Message, Order, Task, must_match_name
from kingdom.places import Places, check_name, is_hidden
from kingdom.states import check_move
from kingdom.times import stamp

Kind = str
NOUNS: Mapping[Kind, type[Event] | type[Task] | type[Message] | type[Order]] = {
    "events": Event,
    "tasks": Task,
    "messages": Message,
    "orders": Order,
}


SETTLING_SECONDS = 2.0
"""So long a file that cannot be read may still be in the making: somebody writes it in place."""


class Post:
    """The queues as one role may use them."""

    def __init__(self, places: Places, disk: Disk, log: Log, clock: Callable[[], float]) -> None:
        self.places = places
        self.disk = disk
        self.log = log
        self._clock = clock

    def deliver(self, kind: Kind, things: Iterable[Any]) -> None:
        """New files in `pending`, whole and durable together. One whose place is taken is left out."""
        letter = self.places.letter_name
        self.disk.create_all((letter(kind, "pending", thing.id), to_json(thing.to_json())) for thing in things)

    def annotate(self, kind: Kind, state: str, things: Iterable[Any]) -> None:
        """Write what we intend or know into files that lie there already."""
        letter = self.places.letter_name
        self.disk.rewrite_all((letter(kind, state, thing.id), to_json(thing.to_json())) for thing in things)

    def move(self, kind: Kind, names: Iterable[str], src: str, dst: str) -> list[str]:
        """Returns the names that did not move: gone from `src`, or already in `dst`."""
        check_move(kind, src, dst)
        letter = self.places.letter_name
        stuck = self.disk.move_all((letter(kind, src, name), letter(kind, dst, name)) for name in names)
        return [os.path.basename(place).removesuffix(".json") for place, _ in stuck]

    def names(self, kind: Kind, state: str) -> list[str]:
        """File names that a reader may see, in no order."""
        with os.scandir(self.places.folder(kind, state)) as entries:
            return [entry.name for entry in entries if not is_hidden(entry.name)]

    def ids(self, kind: Kind, state: str) -> list[str]:
        return [name.removesuffix(".json") for name in self.names(kind, state) if name.endswith(".json")]

    def has(self, kind: Kind, name: str, *states: str) -> bool:
        return any(is_there(self.places.letter_name(kind, state, name)) for state in states)

    def read(self, kind: Kind, state: str, name: str) -> Any:
        """The noun in a file. FileNotFoundError when it is gone; BadInput says what is wrong with it."""
        return self._noun(kind, self.places.letter_name(kind, state, name))

    def open(self, kind: Kind, state: str, filename: str, *, buries: bool = True) -> Any | None:
        """Like read, by file name; what cannot be read is buried (by the queue's one consumer), what is gone is None.

        None as well for what may still be written at this moment, and stays where it is.
        """
        path = f"{self.places.folder(kind, state)}/{filename}"
        try:
            if not filename.endswith(".json"):
                raise BadFile(path=filename, why="its name does not end in .json")
            check_name("file", filename.removesuffix(".json"))
            return self._noun(kind, path)
        except FileNotFoundError:
            return None
        except BadInput as trouble:
            if buries and not self._may_be_unfinished(path):
                self.bury(kind, state, filename, str(trouble))
            return None

    def bury(self, kind: Kind, state: str, filename: str, reason: str) -> None:
        """To dead/, with the reason beside it. The reason is written first: nothing lies there unexplained."""
        check_move(kind, state, "dead")
        src = self.places.folder(kind, state) / filename
        grave = self._free_grave(kind, filename)
        filename, reason = _printable(filename), _printable(reason)
        note = {"file": filename, "from": f"{kind}/{state}", "reason": reason, "buried_at": stamp(self._clock())}
        self.disk.rewrite(grave.with_name(f"{grave.name}.reason"), to_json(note))
        try:
            self.disk.move(src, grave)
        except FileNotFoundError:
            return
        self.log.error(f"buried {kind}/{state}/{filename} as {kind}/dead/{grave.name}: {reason}")
        self.log.event("file.buried", kind=kind, file=grave.name, reason=reason)

    def _may_be_unfinished(self, path: str) -> bool:
        try:
            about = os.lstat(path)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(about.st_mode) and 0 <= self._clock() - about.st_mtime < SETTLING_SECONDS

    def _free_grave(self, kind: Kind, filename: str) -> Path:
        dead = self.places.folder(kind, "dead")
        plain = _printable(filename)
        if len(plain.encode()) > 200:
            plain = f"{plain[:60]}…"
        grave, again = dead / plain, 1
        while is_there(grave):
            again += 1
            grave = dead / f"{plain}.{again}"
        return grave

    def _noun(self, kind: Kind, path: str) -> Any:
        noun = NOUNS[kind]
        envelope = noun.from_json(schemas.check(noun.kind, read_json(path)))
        must_match_name(envelope, os.path.basename(path))
        return envelope


def _printable(text: str) -> str:
    """Names that are not UTF-8, or that break a line, as text that can be written and shown."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\n", "⏎")
