"""Which sessions are good: those that the database knows, and that were not ended before their time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import read_json_or, to_json
from kingdom.hall.database import accounts
from kingdom.hall.database.base import Transaction, Unavailable, identity
from kingdom.hall.database.ids import iso
from kingdom.hall.gateway.store import LONGEST_WAIT, ChatStore
from kingdom.hall.gateway.tokens import LIFETIME_SECONDS, Caller

LOOK_SECONDS = 5.0
"""How often the database is asked for what a lost signal would have told."""
WAIT_SECONDS = 0.9
SKEW_SECONDS = 60.0
"""How far the clocks of two machines may be apart."""


class ChatSessions:
    """Remembers what the database says, and asks again for what other gateways may have ended.

    A restored database has sessions again that had been ended. It is recognised by a lower count of ended sessions than
    this home remembers; then all its sessions are ended.
    """

    def __init__(
        self, store: ChatStore, memory: Path, disk: Disk, warn: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        """`memory` is a file that no backup holds: how many sessions were ended, by database."""
        self._store = store
        self._memory = memory
        self._disk = disk
        self._warn = warn
        self._clock = clock
        #: When each may be forgotten, because its token is over by then anyway.
        self._good: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._has_looked = False
        self._looked_at = 0.0

    def has_ended(self, caller: Caller) -> bool:
        """Return whether the session of a token is known to have been ended before its time."""
        return caller.session in self._ended

    async def is_good(self, caller: Caller) -> bool:
        """Return whether the session of a token goes on. Unavailable when that is not known, nor can be asked now."""
        await self.look_once()
        session, now = caller.session, iso(self._clock())
        if session not in self._good and session not in self._ended:
            who = {"id": session, "user_id": caller.user}
            if await self._store.read(lambda db: db.one("session", **who, now=now)) is None:
                return False
            self._good[session] = caller.until
        return session not in self._ended

    def note_ended(self, sessions: Iterable[object]) -> None:
        """Note that sessions have ended."""
        until = self._clock() + LIFETIME_SECONDS
        self._ended.update({session: until for session in sessions if isinstance(session, str)})

    async def end(self, sessions: Iterable[object]) -> None:
        """Note that sessions have ended, and remember it outside the database before that could be restored."""
        self.note_ended(sessions)
        with suppress(Unavailable):
            await self.look()

    async def look_once(self) -> None:
        """Look if nobody has yet. Before a session begins: the first look may end all that there are."""
        if not self._has_looked:
            await self.look(LONGEST_WAIT)

    async def look(self, seconds: float = WAIT_SECONDS) -> bool:
        """Learn which were ended since the last look. Return whether any of them is news.

        Unavailable when the database is away: then those that were not told of go on until it is back.
        """
        now = self._clock()
        # The clock may have been set back since the last look.
        since = iso(max(min(self._looked_at, now) - SKEW_SECONDS, now - LIFETIME_SECONDS))

        def work(db: Transaction) -> tuple[set[str], str, int]:
            rows = db.all("sessions_ended_since", since=since)
            return {str(row["id"]) for row in rows}, identity(db), accounts.count_of_ended(db)

        # Before the database is asked: what is remembered was counted there first, so it is never more by then.
        memory = read_json_or(self._memory, {})
        ended, database, count = await self._store.read(work, seconds)
        new = (ended | await self._ended_by_restoring(memory, database, count)) - self._ended.keys()
        self.note_ended(new)
        self._has_looked, self._looked_at = True, now
        for known in (self._ended, self._good):
            for session in [session for session, until in known.items() if until <= now]:
                del known[session]
        return bool(new)

    async def _ended_by_restoring(self, memory: Mapping[str, object], database: str, count: int) -> set[str]:
        """End all sessions if the database was restored, and remember how many it says were ended. Return those."""
        remembered = memory.get(database)
        if remembered == count:
            return set()
        ended: set[str] = set()
        # A file that is not remembered here came from a backup; a server may just be new to this home.
        if count < remembered if isinstance(remembered, int) else not self._store.is_shared:
            now, count = self._clock(), max(count, remembered if isinstance(remembered, int) else 0) + 1
            revived = await self._store.run(lambda db: accounts.end_all_sessions(db, now, count))
            if revived:
                why = "the chat's database was restored or is new to this home"
                self._warn(f"{why}: its sessions end, and everybody signs in again")
            ended = {*revived, *self._good}
            self._good.clear()
        with suppress(OSError):  # on a full disk: the next look writes it
            self._disk.rewrite(self._memory, to_json({**memory, database: count}))
        return ended
