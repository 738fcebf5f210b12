"""Who may send to a room: known from the database, and remembered while it is away."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from kingdom.hall.database.base import Unavailable
from kingdom.hall.gateway import store
from kingdom.hall.gateway.store import ChatStore

MOST_REMEMBERED = 200_000
FRESH_SECONDS = 60.0
"""Afterwards the database is asked again: the news of an end may have been lost."""
WAIT_SECONDS = 0.9
Pair = tuple[str, str]


class Membership:
    def __init__(self, database: ChatStore, clock: Callable[[], float]) -> None:
        self._store = database
        self._clock = clock
        self._known: OrderedDict[Pair, float] = OrderedDict()
        self._ends = 0
        self._ended: dict[Pair, int] = {}
        self._asking: dict[Pair, int] = {}

    def knows(self, room: str, user: str) -> bool:
        """Return whether somebody is a member by what was learnt lately."""
        learnt = self._known.get((room, user))
        return learnt is not None and self._clock() - learnt < FRESH_SECONDS

    async def ask(self, room: str, user: str) -> bool:
        """Return whether somebody is a member. While the database is away it is what was last known, if anything.

        Unavailable when that is nothing.
        """
        pair = (room, user)
        self._asking[pair] = self._asking.get(pair, 0) + 1
        try:
            while True:
                ends = self._ends
                found = await self._look(pair)
                if self._ended.get(pair, 0) <= ends:
                    return found
        finally:
            self._asking[pair] -= 1
            if not self._asking[pair]:
                del self._asking[pair]
                self._ended.pop(pair, None)

    def begins(self, room: str, user: str) -> None:
        """Note a new member."""
        self._remember((room, user))

    def ends(self, room: str, user: str) -> None:
        """Note that a membership has ended; an answer that is under way does not revive it."""
        self._ends += 1
        self._known.pop((room, user), None)
        if (room, user) in self._asking:
            self._ended[room, user] = self._ends

    async def _look(self, pair: Pair) -> bool:
        room, user = pair
        try:
            found = await self._store.read(lambda db: store.is_member(db, room, user), WAIT_SECONDS)
        except Unavailable:
            if pair in self._known:
                return True
            raise
        if found:
            self._remember(pair)
        else:
            self._known.pop(pair, None)
        return found

    def _remember(self, pair: Pair) -> None:
        self._known[pair] = self._clock()
        self._known.move_to_end(pair)
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
