"""The chat in one SQLite file: the embedded database, without a server."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.space import check_room
from kingdom.base.home.places import Places
from kingdom.hall.database import adopting
from kingdom.hall.database.base import (
    DatabaseRefused,
    Lost,
    Replaced,
    Row,
    T,
    Transaction,
    Unavailable,
    choose_identity,
    missing_steps,
    refuse_url,
    statements,
)

BUSY_SECONDS = 5.0
"""How long one writer waits for another."""
SETTLED_SECONDS = 5.0
"""How long a file that has taken the database's place is left alone: by then no process has the former one open.

SQLite finds log and index by name, and would mix those of two files.
"""
About = tuple[int, int]
NOWHERE: About = (0, 0)
_OF_THE_DATA = (sqlite3.IntegrityError, sqlite3.DataError)


class SqliteDatabase:
    is_shared = False

    def __init__(self, url: str, places: Places) -> None:
        path = url.removeprefix("sqlite:///")
        if path == url or not path:
            raise refuse_url(places, "must read sqlite:///state/hall/hall.db or sqlite:////an/absolute/path.db")
        self._path = places.home / path
        self._mark = mark_of(self._path)
        self._own = threading.local()
        self._open: list[_SqliteConnection] = []
        self._changing = threading.Lock()
        #: The file as it was seen last, and when another one, or none, was found in its place.
        self._about: About | None = None
        self._changed_at = -SETTLED_SECONDS

    def migrate(self) -> None:
        """Bring the tables up to date, and mark that the file holds a chat."""
        with self._transaction("BEGIN IMMEDIATE") as db:
            db.execute("CREATE TABLE IF NOT EXISTS hall_migrations (number integer PRIMARY KEY)")
            done = {number for (number,) in db.execute("SELECT number FROM hall_migrations")}
            if not done:
                _check_tables(db)
            for number, script in missing_steps(done, "sqlite"):
                for statement in _split(script):
                    db.execute(statement)
                db.execute("INSERT INTO hall_migrations VALUES (?)", (number,))
            own = choose_identity(_SqliteTransaction(db))
        if self._marked() != own:
            Disk(self._path.parent).rewrite(self._mark, f"{own}\n".encode())

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` returns, when its writes are on the platter."""
        return self._in_transaction("BEGIN IMMEDIATE", work)

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` returns, which sees one state of the database."""
        return self._in_transaction("BEGIN", work)

    def check(self) -> None:
        """Return if it can be read, and there is room for more."""
        with self._transaction("BEGIN") as db:
            db.execute("SELECT count(*) FROM hall_migrations")
            check_room(self._path.parent)

    def purge(self) -> bool:
        """Move the log into the file, which overwrites what was deleted there, and empty the log."""
        with self._used() as db:
            is_busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not is_busy

    def lost(self) -> str:
        """Return why what was stored is not there any more, "" when it is."""
        try:
            with self._transaction("BEGIN"):
                return ""
        except Lost as error:
            return str(error)
        except Unavailable:
            return ""

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._open:
            self._open.pop().db.close()
        self._own = threading.local()

    def _in_transaction(self, begin: str, work: Callable[[Transaction], T]) -> T:
        with self._transaction(begin) as db:
            return work(_SqliteTransaction(db))

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._used() as db:
            db.execute(begin)
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        """Yield this thread's connection; nobody closes it meanwhile."""
        with _errors():
            self._look()
            connection = self._connection()
            with connection.lock:
                yield connection.db

    def _connection(self) -> _SqliteConnection:
        found: _SqliteConnection | None = getattr(self._own, "connection", None)
        if found is None or found.is_closed:
            found = self._own.connection = _SqliteConnection(self._connect())
            self._open.append(found)
        return found

    def _connect(self) -> sqlite3.Connection:
        make_folder(self._path.parent)
        # Only those who hold its lock touch a connection from another thread than its own.
        db = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._check_identity(db)
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
                db.execute(f"PRAGMA {pragma}")
        except BaseException:
            db.close()
            raise
        return db

    def _look(self) -> None:
        """Raise Lost while the file is gone, or another one has its place: SQLite itself would go on with it unseen."""
        with self._changing:
            before, self._about = self._about, _about(self._path)
            if before is not None and before != self._about:
                self._let_go()
                self._changed_at = time.monotonic()
            if self._about == NOWHERE and (before is not None or self._marked()):
                raise Lost(path=self._path, why="is gone", mark=self._mark)
            if time.monotonic() - self._changed_at < SETTLED_SECONDS:
                raise Replaced(path=self._path)
            if self._about == NOWHERE:
                self._connect().close()
                self._about = _about(self._path)

    def _let_go(self) -> None:
        """Close all connections, after the transactions that run.

        What is only in the log goes into the file that is open: the log would be taken for that of the next file.
        """
        for connection in list(self._open):
            with connection.lock, suppress(sqlite3.Error):
                if connection is self._open[0]:
                    connection.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        while self._open:
            connection = self._open.pop()
            with connection.lock:
                connection.is_closed = True
                connection.db.close()

    def _check_identity(self, db: sqlite3.Connection) -> None:
        """Raise Lost when this is not the database that the mark is for."""
        if marked := self._marked():
            has_facts = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'hall_facts'").fetchone()
            own = db.execute("SELECT value FROM hall_facts WHERE name = 'database'").fetchone() if has_facts else None
            if own is None or own[0] != marked:
                raise Lost(path=self._path, why="is another database than before", mark=self._mark)

    def _marked(self) -> str:
        try:
            return self._mark.read_text().strip()
        except FileNotFoundError:
            return ""


class _SqliteConnection:
    """A connection of one thread. Whoever closes it from another one waits until it is not used."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.lock = threading.Lock()
        self.is_closed = False


def _check_tables(db: sqlite3.Connection) -> None:
    """Return if the chat's tables are not there yet, or can be used as somebody has copied them."""
    for table in adopting.COLUMNS:
        rows = db.execute(
            'SELECT name, "notnull" AND dflt_value IS NULL FROM pragma_table_info(?)', (table,)
        ).fetchall()
        indexes = db.execute(
            'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial', (table,)
        ).fetchall()
        named = [db.execute("SELECT name FROM pragma_index_info(?)", index).fetchall() for index in indexes]
        if rows:
            columns = {name: adopting.TableColumn("", bool(is_needed)) for name, is_needed in rows}
            adopting.check(table, columns, {frozenset(name for (name,) in names) for names in named})


def mark_of(path: Path) -> Path:
    """Return the file that says which database belongs beside it."""
    return path.with_name(f"{path.name}.id")


def _about(path: Path) -> About:
    try:
        about = os.stat(path)
    except FileNotFoundError:
        return NOWHERE
    return about.st_dev, about.st_ino


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
        raise DatabaseRefused(why=error) from None
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(why=error) from None


class _SqliteTransaction:
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
