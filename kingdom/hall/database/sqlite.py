"""The chat in one SQLite file: the embedded database, without a server."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from kingdom.base.disk.atomic import make_folder
from kingdom.base.home.places import Places
from kingdom.hall.database.base import Refused, Row, T, Transaction, Unavailable, missing_steps, refuse_url, statements

BUSY_SECONDS = 5.0
"""How long one writer waits for another."""
_OF_THE_DATA = (sqlite3.IntegrityError, sqlite3.DataError)


class SqliteDatabase:
    def __init__(self, url: str, places: Places) -> None:
        path = url.removeprefix("sqlite:///")
        if path == url or not path:
            raise refuse_url(places, "must read sqlite:///state/hall/hall.db or sqlite:////an/absolute/path.db")
        self._path = places.home / path
        self._own = threading.local()
        self._open: list[sqlite3.Connection] = []

    def migrate(self) -> None:
        """Bring the tables up to date."""
        with _errors():
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            try:
                db.execute("CREATE TABLE IF NOT EXISTS hall_migrations (number integer PRIMARY KEY)")
                done = {number for (number,) in db.execute("SELECT number FROM hall_migrations")}
                for number, script in missing_steps(done):
                    for statement in _split(script):
                        db.execute(statement)
                    db.execute("INSERT INTO hall_migrations VALUES (?)", (number,))
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` returns, when its writes are on the platter."""
        return self._in_transaction("BEGIN IMMEDIATE", work)

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` returns, which sees one state of the database."""
        return self._in_transaction("BEGIN", work)

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._open:
            self._open.pop().close()
        self._own = threading.local()

    def _in_transaction(self, begin: str, work: Callable[[Transaction], T]) -> T:
        with _errors():
            db = self._connection()
            db.execute(begin)
            try:
                result = work(_Transaction(db))
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return result

    def _connection(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if db is None:
            db = self._own.connection = _connect(self._path)
            self._open.append(db)
        return db


def _connect(path: Path) -> sqlite3.Connection:
    make_folder(path.parent)
    # Only `close` touches a connection from another thread than its own.
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    with ExitStack() as if_it_fails:
        if_it_fails.callback(db.close)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            db.execute(f"PRAGMA {pragma}")
        if_it_fails.pop_all()
    return db


def _split(script: str) -> Iterator[str]:
    whole = ""
    for line in script.splitlines(keepends=True):
        whole += line
        if sqlite3.complete_statement(whole):
            yield whole
            whole = ""


@contextmanager
def _errors() -> Iterator[None]:
    """Say in our own errors what SQLite says."""
    try:
        yield
    except _OF_THE_DATA as error:
        raise Refused(why=error) from None
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(why=error) from None


class _Transaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._sql = statements("sqlite")

    def one(self, statement: str, **values: object) -> Row | None:
        return self._first(self._sql[statement], values)

    def all(self, statement: str, **values: object) -> list[Row]:
        with closing(self._db.execute(self._sql[statement], values)) as cursor:
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def do(self, statement: str, **values: object) -> int:
        with closing(self._db.execute(self._sql[statement], values)) as cursor:
            return cursor.rowcount

    def each(self, statement: str, rows: Sequence[Mapping[str, object]]) -> list[Row | None]:
        first, *further = _split(self._sql[statement] + ";")
        found = []
        for row in rows:
            found.append(self._first(first, row))
            for sql in further if found[-1] is not None else ():
                self._db.execute(sql, row)
        return found

    def _first(self, sql: str, values: Mapping[str, object]) -> Row | None:
        with closing(self._db.execute(sql, values)) as cursor:
            row = cursor.fetchone()
            if row is None:
                return None
            cursor.fetchall()  # a statement that is not run to its end keeps the transaction from committing
            return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}
