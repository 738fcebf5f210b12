"""Which sessions were ended before their time: learnt from signals, and again from the database, which has them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kingdom.hall.database.ids import iso
from kingdom.hall.gateway.store import Store
from kingdom.hall.gateway.tokens import LIFETIME_SECONDS, Caller

LOOK_SECONDS = 5.0
"""How often the database is asked for what a lost signal would have told."""
WAIT_SECONDS = 0.9
SKEW_SECONDS = 60.0
"""How far the clocks of two machines may be apart."""


class Sessions:
    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        #: When each may be forgotten, because its token is over by then anyway.
        self._ended: dict[str, float] = {}
        self._looked_at = 0.0

    def has_ended(self, caller: Caller) -> bool:
        """Return whether the session of a token was ended before its time."""
        return caller.session in self._ended

    def note_ended(self, sessions: Iterable[object]) -> None:
        """Note that sessions have ended."""
        until = self._clock() + LIFETIME_SECONDS
        self._ended.update({session: until for session in sessions if isinstance(session, str)})

    async def look(self) -> bool:
        """Learn which were ended since the last look. Return whether any of them is news.

        Unavailable when the database is away: then those that were not told of go on until it is back.
        """
        now = self._clock()
        # The clock may have been set back since the last look.
        since = iso(max(min(self._looked_at, now) - SKEW_SECONDS, now - LIFETIME_SECONDS))
        rows = await self._store.read(lambda db: db.all("sessions_ended_since", since=since), WAIT_SECONDS)
        new = {str(row["id"]) for row in rows} - self._ended.keys()
        self.note_ended(new)
        self._looked_at = now
        self._ended = {session: until for session, until in self._ended.items() if until > now}
        return bool(new)
