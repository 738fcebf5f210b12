"""Messages in one SQLite database: the statements are in sqlite.sql, the tables in migrations/."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from kingdom.atomic import make_folder
from kingdom.mq import envelopes, names
from kingdom.mq.envelopes import Unfit
from kingdom.mq.refusals import StoreTrouble
from kingdom.mq.stores.base import Finding, Found, Gone, Memo, Plan, State, Stray

HERE = Path(__file__).parent
INDEX_EVERY_S = 0.25
MOST_UNINDEXED = 20_000
MOST_MEMOS = 1_000_000
DAY_MS = 86_400_000
CHECKPOINT_PAGES = 4_000
CACHE_KIB = 16_384
_NAMED = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)

Step = tuple[str, tuple[Any, ...]]


class SqliteStore:
    by_hand = False

    def __init__(self, plan: Plan) -> None:
        self.broken = False
        self._plan = plan
        self._path = plan.database or plan.root / "yirangmq.db"
        self._sql = statements(plan.kv_table, plan.index_table)
        self._steps: list[Step] = []
        self._fresh: dict[str, str] = {}
        self._unindexed: dict[str, tuple[str, State, str]] = {}
        self._indexed_at = 0.0
        self._memos_forgotten_at = 0
        self._now = 0
        self._connection = self._connect()

    # --- messages

    def put(self, queue: str, state: State, name: str, body: str) -> None:
        key = f"msg:{queue}:{name[-36:]}"
        created = int(name[-36:-28] + name[-27:-23], 16)
        expires = int(names.marks_of(name)["e"]) if ".e" in name else None
        self._steps.append((self._insert_body, (key, body, created, created, expires)))
        self._fresh[key] = body
        self._unindexed[key] = (queue, state, name)

    def move(self, queue: str, state: State, name: str, to: State, new: str) -> None:
        key = f"msg:{queue}:{name[-36:]}"
        self._steps.append((self._append_log, (key, queue, to, new)))
        self._unindexed[key] = (queue, to, new)

    def rewrite(self, queue: str, state: State, name: str, to: State, new: str, body: str) -> None:
        key = f"msg:{queue}:{name[-36:]}"
        self._steps.append((self._sql["update_body"], (body, names.due_of(new), key)))
        self._fresh[key] = body
        self.move(queue, state, name, to, new)

    def drop(self, queue: str, state: State, name: str) -> None:
        key = f"msg:{queue}:{name[-36:]}"
        self._steps.append((self._delete_body, (key,)))
        self._fresh.pop(key, None)
        self._unindexed.pop(key, None)

    def read(self, queue: str, state: State, name: str) -> str:
        key = f"msg:{queue}:{name[-36:]}"
        body = self._fresh.get(key)
        if body is not None:
            return body
        try:
            row = self._connection.execute(self._select_body, (key,)).fetchone()
        except sqlite3.Error as trouble:
            raise self._trouble("read a message", trouble) from None
        if row is None:
            raise Gone
        return row[0] if isinstance(row[0], str) else _text(row[0])

    def ripen(self, queue: str, now: int) -> None:
        self._now = now
        self._steps.append((self._sql["ripen"], (now, queue)))

    # --- what is remembered

    def remember(self, memos: Iterable[Memo]) -> None:
        statement = self._sql["append_memo"]
        self._steps += [
            (statement, (memo.kind, memo.at, memo.queue, memo.key, " ".join(each or "-" for each in memo.ids)))
            for memo in memos
        ]

    def recall(self, since: int) -> Iterator[Memo]:
        for kind, at, queue, key, ids in self._query("select_memos", (since,)):
            yield Memo(kind, at, queue, key, tuple("" if each == "-" else each for each in ids.split(" ")))

    # --- the group

    def commit(self) -> None:
        steps = self._steps
        if not steps:
            return
        try:
            if time.monotonic() - self._indexed_at >= INDEX_EVERY_S or len(self._unindexed) >= MOST_UNINDEXED:
                self._write(steps, index=True)
            elif len(steps) == 1:
                self._connection.execute(*steps[0])
            else:
                self._write(steps, index=False)
        except (sqlite3.Error, sqlite3.Warning) as trouble:
            self._break("commit", trouble)
        self._steps = []
        self._fresh.clear()

    def _write(self, steps: Sequence[Step], index: bool) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        if len(steps) < 8:
            for statement, values in steps:
                execute(statement, values)
        else:
            self._write_many(steps)
        if index:
            self._index()
        execute("COMMIT")
        if index:
            self._unindexed.clear()
            self._indexed_at = time.monotonic()

    def _write_many(self, steps: Sequence[Step]) -> None:
        """Neighbours of one kind go down together."""
        start = 0
        while start < len(steps):
            statement = steps[start][0]
            end = start + 1
            while end < len(steps) and steps[end][0] is statement:
                end += 1
            self._connection.executemany(statement, [values for _, values in steps[start:end]])
            start = end

    def _index(self) -> None:
        rows = [self._row(key, *where) for key, where in self._unindexed.items()]
        self._connection.executemany(self._sql["upsert_state"], rows)
        self._connection.execute(self._sql["clear_log"])

    def _row(self, key: str, queue: str, state: State, name: str) -> tuple[Any, ...]:
        due = names.due_of(name)
        if state == "delayed" and due <= self._now:
            state = "ready"
        until = due if state == "inflight" else None
        return (queue, state, names.priority_of(name), due, until, names.attempt_of(name), key, name)

    def abandon(self) -> None:
        self._steps = []
        self._fresh.clear()
        self._unindexed.clear()
        with suppress(sqlite3.Error):
            self._connection.rollback()
        self.broken = False

    def tidy(self, now: int, idle: bool) -> None:
        self._now = now
        try:
            if self._unindexed:
                self._write([], index=True)
            if now - self._memos_forgotten_at >= DAY_MS // 24:
                self._memos_forgotten_at = now
                self._connection.execute(self._sql["forget_memos"], (now - DAY_MS,))
                self._connection.execute(self._sql["forget_many_memos"], (MOST_MEMOS,))
            if idle:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as trouble:
            self._break("tidy up", trouble)

    def close(self) -> None:
        with suppress(sqlite3.Error):
            if self._unindexed and not self.broken:
                self._write([], index=True)
        self._connection.close()

    # --- queues

    def queues(self) -> Mapping[str, str]:
        return dict(self._query("select_policies"))

    def save_queue(self, queue: str, record: str) -> None:
        self._save(f"policy:{queue}", record, "policy")

    def _save(self, key: str, value: str, kind: str) -> None:
        """Right away: it is rare, and must not be lost with a group."""
        now = time.time_ns() // 1_000_000
        try:
            self._connection.execute(self._sql["save_record"], (key, value, kind, now, now))
        except sqlite3.Error as trouble:
            raise self._trouble("keep a queue's policy", trouble) from None

    # --- loading

    def load(self) -> Iterator[Found]:
        self._unindexed.clear()
        self._recover()
        for queue in [queue for (queue,) in self._query("select_queues")]:
            for state, others in (("ready", "delayed"), ("inflight", "inflight"), ("dlq", "dlq")):
                span = (f"msg:{queue}:", f"msg:{queue};", queue, state, others)
                found = [name for (name,) in self._query("select_names", span)]
                if found:
                    yield Found(queue, state, found)  # type: ignore[arg-type]

    def _recover(self) -> None:
        """Bring the index up to date with the log, and with what was published right before a crash."""
        last = {key: (queue, state, name) for key, queue, state, name in self._query("select_log")}
        for (key,) in self._query("select_unindexed"):
            if key not in last and (where := self._where_published(key)) is not None:
                last[key] = where
        alive = {key: where for key, where in last.items() if self._query("select_body", (key,))}
        if not alive and not last:
            return
        try:
            self._unindexed = alive
            self._write([], index=True)
        except sqlite3.Error as trouble:
            self._break("bring the index up to date", trouble)

    def _where_published(self, key: str) -> tuple[str, State, str] | None:
        queue, message_id = key[4:-37], key[-36:]
        name = envelopes.name_of(self._published(key), message_id)
        return (queue, "ready", name) if names.is_name(name) else None

    def _published(self, key: str) -> str:
        """The header as published."""
        rows = self._query("select_body", (key,))
        return str(rows[0][0]) if rows else ""

    # --- nothing can be laid in by hand

    def strays(self, budget: int) -> list[Stray]:
        return []

    def adopt(self, stray: Stray, name: str) -> None:
        raise Gone

    # --- looking it over

    def check(self, repair: bool, now: int) -> list[Finding]:
        findings: list[Finding] = []
        for (said,) in self._run("PRAGMA quick_check(10)"):
            if said != "ok":
                findings.append(Finding("unreadable", "", f"{self._path}: {said}", False))
        self._recover()
        for queue, key in self._query("select_bodiless"):
            self._mend(repair, "delete_state", key)
            findings.append(Finding("missing_payload", queue, key, repair))
        for queue, key, state in self._query("select_misstated"):
            self._mend(repair, "delete_state", key)
            findings.append(Finding("invalid_state", queue, f"{key} is {state!r}", repair))
        for queue, key in self._query("select_archived", (now - self._plan.archive_keep_ms,)):
            self._mend(repair, "delete_body", key)
            findings.append(Finding("stale_archive", queue, key, repair))
        return findings

    def _mend(self, repair: bool, statement: str, key: str) -> None:
        if repair:
            self._query(statement, (key,))

    # --- the connection

    def _connect(self) -> sqlite3.Connection:
        make_folder(self._path.parent)
        try:
            connection = sqlite3.connect(
                self._path, timeout=self._plan.busy_timeout_ms / 1000, isolation_level=None, cached_statements=128
            )
            connection.execute(f"PRAGMA journal_mode = {self._plan.journal_mode}").fetchall()
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._plan.durability == 'power' else 'NORMAL'}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").fetchall()
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            migrate(connection, self._plan)
        except sqlite3.Error as trouble:
            raise self._trouble("open the database", trouble) from None
        self._insert_body = self._sql["insert_body"]
        self._append_log = self._sql["append_log"]
        self._delete_body = self._sql["delete_body"]
        self._select_body = self._sql["select_body"]
        return connection

    def _query(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self._run(self._sql[statement], values)

    def _run(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as trouble:
            raise self._trouble("answer", trouble) from None

    def _trouble(self, action: str, trouble: Exception) -> StoreTrouble:
        return StoreTrouble(backend="sqlite", action=action, why=f"{trouble} ({self._path})")

    def _break(self, action: str, trouble: Exception) -> NoReturn:
        self.broken = True
        raise self._trouble(action, trouble) from None


@cache
def statements(kv_table: str, index_table: str) -> dict[str, str]:
    text = (HERE / "sqlite.sql").read_text("utf-8")
    return {
        name: "\n".join(line for line in _filled(body, kv_table, index_table).splitlines() if line[:2] != "--").strip()
        for name, body in _NAMED.findall(text)
    }


def migrate(connection: sqlite3.Connection, plan: Plan) -> None:
    """Run what this database has not seen yet, each file in a transaction that also notes its number."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for file in sorted((HERE / "migrations").glob("*.sql")):
        number = int(file.name[:4])
        if number > version:
            own = plan.schema if number == 1 and plan.schema is not None else file
            script = _filled(own.read_text("utf-8"), plan.kv_table, plan.index_table)
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")


def _filled(text: str, kv_table: str, index_table: str) -> str:
    return text.replace("{{kv_table}}", kv_table).replace("{{msg_index_table}}", index_table)


def _text(value: object) -> str:
    """A foreign writer may have stored bytes, or a number."""
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError as spoiled:
        raise Unfit(f"not UTF-8 at byte {spoiled.start}", value.decode("utf-8", "replace")) from None
