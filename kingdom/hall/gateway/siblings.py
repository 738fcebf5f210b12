"""Other gateways of the same database: a token is good at each of them only if all sign with one secret."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from kingdom.hall.database.base import Row, Transaction
from kingdom.hall.database.ids import iso
from kingdom.hall.gateway.store import ChatStore
from kingdom.hall.gateway.tokens import SECRET

LOOK_SECONDS = 30.0
FRESH_SECONDS = 90.0
"""A gateway that has not been seen for this time does not run any more."""
FORGET_SECONDS = 86_400.0
WAIT_SECONDS = 0.9


class Siblings:
    def __init__(self, store: ChatStore, name: str, secret: bytes, clock: Callable[[], float]) -> None:
        """`name` is what no other gateway of this database is called, and says where it runs."""
        self._store = store
        self._name = name[:300]
        # Secrets are random and long: a digest gives nothing away.
        self._digest = hmac.digest(secret, b"kingdom-hall", "sha256").hex()
        self._clock = clock
        self._looked_at = -LOOK_SECONDS
        #: Why tokens of one are refused by another, or "".
        self.differ = ""

    async def look(self, now: float) -> bool:
        """Compare, if it is time; return whether what was found has changed. Unavailable when it cannot be known."""
        if now - self._looked_at < LOOK_SECONDS:
            return False
        at = self._clock()

        def work(db: Transaction) -> list[Row]:
            db.do("forget_gateways", before=iso(at - FORGET_SECONDS))
            db.do("note_gateway", name=self._name, secret=self._digest, now=iso(at))
            return db.all("gateways_with_other_secrets", secret=self._digest, since=iso(at - FRESH_SECONDS))

        others = [str(row["name"]) for row in await self._store.run(work, WAIT_SECONDS)]
        self._looked_at, before = now, self.differ
        self.differ = _sentence(others) if others else ""
        return self.differ != before


def _sentence(others: list[str]) -> str:
    return (
        f"tokens are signed with another secret by {', '.join(others)}, so that each refuses those of the other:"
        f" write the same {SECRET} into .env of every home, and restart the gateways"
    )
