"""What every database of the chat does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kingdom.base.errors import BadConfig, BadInput, KingdomError
from kingdom.base.home.places import Places
from kingdom.hall.database.ids import new_uuid

T = TypeVar("T")
Row = dict[str, Any]
_HERE = Path(__file__).parent
_STATEMENT = re.compile(r"^-- name: (\w+)(?:@(\w+))?\n(.*?);\s*(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


class Unavailable(KingdomError):
    """the database cannot be used now: {why}"""


class NewerTables(Unavailable):
    """a newer Kingdom has made the tables of this database (step {found}, this one knows {known}); use that one"""


class ForeignTable(Unavailable):
    """the database has a table {table} that the chat cannot use: {why}; name a database of its own in hall.yaml"""


class Lost(Unavailable):
    """{path} {why}: put the chat's database back, or restore a backup; for an empty one delete {mark} and restart"""


class Replaced(Lost):
    """{path} has just been replaced: it is used again in a few seconds"""


class DatabaseRefused(BadInput):
    """the database refuses this: {why}"""


class Transaction(Protocol):
    """What can be done within one transaction. Ids and times are texts; a time reads 2026-11-19T01:02:03.123Z."""

    def one(self, statement: str, **values: object) -> Row | None:
        """Return the first row of a named statement, or None."""

    def all(self, statement: str, **values: object) -> list[Row]:
        """Return every row of a named statement."""

    def do(self, statement: str, **values: object) -> int:
        """Carry a named statement out and return how many rows it changed."""

    def each(self, statement: str, rows: Sequence[Mapping[str, object]]) -> list[Row | None]:
        """Carry a named statement out once for every row of values; return the row that each returned, or None.

        Where a name stands for several statements, those behind the first follow for rows for which it returned one.
        """


class Database(Protocol):
    """A database of the chat. Every thread gets a connection of its own, which is made anew when it breaks."""

    #: Whether other homes may use it, too.
    is_shared: bool

    def __init__(self, url: str, places: Places) -> None: ...

    def migrate(self) -> None:
        """Bring the tables up to date; nothing happens when they are. Two processes may do so at once."""

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` returns, after its writes are durable; none of them are when this raises DatabaseRefused.

        After Unavailable nobody knows: the transaction may be there whole or not at all.
        """

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` returns, which only reads."""

    def check(self) -> None:
        """Return if it can be read and written now. Unavailable, with the reason, if not."""

    def purge(self) -> bool:
        """Remove from the database's files what was overwritten; False if somebody reads them now: try again later.

        A server does that by itself, in its own time.
        """

    def lost(self) -> str:
        """Return why what was stored is not there any more, "" when it is, or when that cannot be known now."""

    def close(self) -> None:
        """Close the connections of all threads."""


@cache
def statements(dialect: str) -> dict[str, str]:
    """Return the statements of `statements/`. One that ends in `@dialect` stands for that database alone.

    SQLite has no ILIKE: its LIKE does not mind the case.
    """
    found: dict[str, str] = {}
    for path in sorted((_HERE / "statements").glob("*.sql")):
        for name, only, sql in _STATEMENT.findall(path.read_text("utf-8")):
            if only in ("", dialect):
                found[name] = sql.replace("ILIKE", "LIKE") if dialect == "sqlite" else sql
    return found


def migrations(dialect: str) -> list[tuple[int, str]]:
    """Return the numbered steps by which the tables came to be what they are.

    One whose name ends in `@dialect` is empty for other databases.
    """
    found = []
    for path in sorted((_HERE / "migrations").glob("*.sql")):
        only = path.stem.partition("@")[2]
        found.append((int(path.name[:4]), path.read_text("utf-8") if only in ("", dialect) else ""))
    return found


def missing_steps(done: set[int], dialect: str) -> list[tuple[int, str]]:
    """Return the steps that a database still needs. NewerTables when it has made some that are not known here."""
    known = migrations(dialect)
    if done and (newest := max(done)) > known[-1][0]:
        raise NewerTables(found=newest, known=known[-1][0])
    return [(number, script) for number, script in known if number not in done]


def choose_identity(db: Transaction) -> str:
    """Return what no other database of a chat is called, which is chosen once."""
    db.do("choose_fact", name="database", value=new_uuid())
    return identity(db)


def identity(db: Transaction) -> str:
    """Return what no other database of a chat is called."""
    row = db.one("fact", name="database")
    assert row is not None
    return str(row["value"])


def refuse_url(places: Places, why: str) -> BadConfig:
    """Return the error about the `database` of hall.yaml. The address itself may hold a password."""
    return BadConfig(path=places.config / "hall.yaml", line="", key="database", why=why)
