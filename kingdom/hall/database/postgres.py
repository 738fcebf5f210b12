"""The chat in PostgreSQL, for more than one machine."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import psycopg
from psycopg.adapt import Loader
from psycopg.rows import dict_row
from psycopg.types.string import TextLoader

from kingdom.base.home.places import Places
from kingdom.hall.database import adopting
from kingdom.hall.database.base import (
    DatabaseRefused,
    Row,
    T,
    Transaction,
    Unavailable,
    choose_identity,
    missing_steps,
    refuse_url,
    statements,
)

CONNECT_SECONDS = 2
STATEMENT_MS = 10_000
_MIGRATING = 0x6B696E67
"""The advisory lock of those who migrate."""
_OF_THE_DATA = ("22", "23")
"""Classes of SQLSTATE that blame what was given, not the server."""


class _Moment(Loader):
    """Reads a time, which is UTC on our connections and in tables without zones, as the chat writes it."""

    def load(self, data: Any) -> str:
        day, _, clock = bytes(data).decode("ascii").partition(" ")
        seconds, _, part = clock.removesuffix("+00").partition(".")
        return f"{day}T{seconds}.{part[:3]:0<3}Z"


class PostgresDatabase:
    is_shared = True

    def __init__(self, url: str, places: Places) -> None:
        try:
            self._settings = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            raise refuse_url(places, "must read postgresql://user:password@host:port/name") from None
        self._own = threading.local()
        self._open: list[psycopg.Connection[Row]] = []

    def migrate(self) -> None:
        """Bring the tables up to date."""
        with self._transaction() as db:
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
            db.execute("CREATE TABLE IF NOT EXISTS hall_migrations (number integer PRIMARY KEY)")
            done = {row["number"] for row in db.execute("SELECT number FROM hall_migrations")}
            if not done:
                _check_tables(db)
            for number, script in missing_steps(done, "postgresql"):
                db.execute(script.encode())
                db.execute("INSERT INTO hall_migrations VALUES (%s)", (number,))
            choose_identity(_PostgresTransaction(db))

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` returns, when its writes are on the server's platter."""
        with self._transaction() as db:
            return work(_PostgresTransaction(db))

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` returns, which only reads."""
        return self.run(work)

    def check(self) -> None:
        """Return if it answers."""
        self.read(lambda db: db.one("ping"))

    def purge(self) -> bool:
        """Return True: the server vacuums its files itself."""
        return True

    def lost(self) -> str:
        """Return "": a server says itself what it does not have."""
        return ""

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._open:
            self._open.pop().close()
        self._own = threading.local()

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Row]]:
        try:
            db = self._connection()
            with db.transaction():
                yield db
        except psycopg.Error as error:
            if (error.sqlstate or "")[:2] in _OF_THE_DATA or isinstance(error, psycopg.DataError):
                raise DatabaseRefused(why=_one_line(error)) from None
            self._drop()
            raise Unavailable(why=_one_line(error)) from None

    def _connection(self) -> psycopg.Connection[Row]:
        db: psycopg.Connection[Row] | None = getattr(self._own, "connection", None)
        if db is None or db.closed:
            self._drop()
            db = self._own.connection = self._connect()
            self._open.append(db)
        return db

    def _connect(self) -> psycopg.Connection[Row]:
        given = {"connect_timeout": CONNECT_SECONDS, "application_name": "kingdom", **self._settings}
        given["options"] = f"{given.get('options') or ''} -c timezone=UTC -c statement_timeout={STATEMENT_MS}".strip()
        address = psycopg.conninfo.make_conninfo("", **given)
        db = psycopg.connect(address, autocommit=True, row_factory=dict_row)
        db.adapters.register_loader("uuid", TextLoader)
        db.adapters.register_loader("timestamptz", _Moment)
        db.adapters.register_loader("timestamp", _Moment)
        return db

    def _drop(self) -> None:
        """Give a broken connection up: the next use makes another."""
        db = getattr(self._own, "connection", None)
        if db is not None:
            self._own.connection = None
            with suppress(ValueError):
                self._open.remove(db)
            db.close()


def _check_tables(db: psycopg.Connection[Row]) -> None:
    """Return if the chat's tables are not there yet, or can be used as another service has made them."""
    found: dict[str, dict[str, adopting.TableColumn]] = {}
    for row in db.execute(_COLUMNS, [list(adopting.COLUMNS)]):
        column = adopting.TableColumn(row["data_type"], row["is_needed"])
        found.setdefault(row["table_name"], {})[row["column_name"]] = column
    for table, columns in found.items():
        unique = {frozenset(row["columns"]) for row in db.execute(_UNIQUE, [table])}
        adopting.check(table, columns, unique)


_COLUMNS = """
    SELECT table_name, column_name, data_type, is_nullable = 'NO' AND column_default IS NULL AS is_needed
    FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = ANY (%s)
"""
_UNIQUE = """
    SELECT array_agg(attname::text) AS columns
    FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
    WHERE indisunique AND indpred IS NULL AND indrelid = %s::regclass GROUP BY indexrelid
"""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


@cache
def _statements() -> dict[str, bytes]:
    """Return the statements with parameters as psycopg writes them."""
    return {
        name: re.sub(r"(?<![:\w]):(\w+)", r"%(\1)s", sql.replace("%", "%%")).encode()
        for name, sql in statements("postgresql").items()
    }


class _PostgresTransaction:
    def __init__(self, db: psycopg.Connection[Row]) -> None:
        self._db = db
        self._sql = _statements()

    def one(self, statement: str, **values: object) -> Row | None:
        return self._db.execute(self._sql[statement], values).fetchone()

    def all(self, statement: str, **values: object) -> list[Row]:
        return self._db.execute(self._sql[statement], values).fetchall()

    def do(self, statement: str, **values: object) -> int:
        return self._db.execute(self._sql[statement], values).rowcount

    def each(self, statement: str, rows: Sequence[Mapping[str, object]]) -> list[Row | None]:
        if len(rows) < 2:
            return [self._db.execute(self._sql[statement], row).fetchone() for row in rows]
        # A pipeline: all go out before the first answer is read.
        with self._db.cursor() as cursor:
            cursor.executemany(self._sql[statement], rows, returning=True)
            found = [cursor.fetchone()]
            while cursor.nextset():
                found.append(cursor.fetchone())
            return found
