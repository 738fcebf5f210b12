"""What waits in one folder of a queue, in the order of service."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kingdom.atomic import is_there
from kingdom.messages import Waiting
from kingdom.post import Kind, Post

LOOK_AGAIN_SECONDS = 0.5


class Shelf:
    """Every file is read once; bad ones are buried.

    Arrivals are noted by name as they come; a rescan now and then keeps the shelf true to the directory.
    """

    def __init__(
        self,
        post: Post,
        kind: Kind,
        state: str = "pending",
        *,
        mine: Callable[[Any], bool] | None = None,
        buries: bool = True,
    ) -> None:
        self._post = post
        self._kind = kind
        self._state = state
        self._mine = mine
        self._buries = buries
        self._known: dict[str, Waiting | None] = {}
        self._order: list[Waiting] = []
        self._unfinished: set[str] = set()

    @property
    def unsettled(self) -> bool:
        """Something may still be written at this moment: rescan in LOOK_AGAIN_SECONDS."""
        return bool(self._unfinished)

    def rescan(self) -> None:
        self._unfinished.clear()
        there = self._post.names(self._kind, self._state)
        gone = self._known.keys() - set(there)
        if gone:
            self._known = {name: each for name, each in self._known.items() if name not in gone}
            self._order = [each for each in self._order if each.filename not in gone]
        new = [waiting for name in there if name not in self._known and (waiting := self._look(name))]
        if new:
            self._order = sorted([*self._order, *new])

    def note(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._known and (waiting := self._look(name)):
                insort(self._order, waiting)

    def drop(self, filenames: Iterable[str]) -> None:
        """These no longer wait: somebody has moved them."""
        gone = set(filenames)
        for name in gone:
            self._known.pop(name, None)
        self._order = [each for each in self._order if each.filename not in gone]

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def _look(self, filename: str) -> Waiting | None:
        thing = self._post.open(self._kind, self._state, filename, buries=self._buries)
        self._unfinished.discard(filename)
        if thing is None:
            if self._buries and is_there(self._post.places.folder(self._kind, self._state) / filename):
                self._unfinished.add(filename)
            return None
        mine = self._mine is None or self._mine(thing)
        self._known[filename] = thing.waiting() if mine else None
        return self._known[filename]
