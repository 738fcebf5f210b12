"""Messages in one SQLite database: the statements are in sqlite.sql, the tables in migrations/."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from kingdom.base.disk.atomic import make_folder
from kingdom.mq import message_format, names
from kingdom.mq.errors import NoRoom, StoreError
from kingdom.mq.message_format import MalformedBody
from kingdom.mq.stores import damage, original_messages, original_rows
from kingdom.mq.stores.base import (
    DAY_MS,
    DedupEntry,
    FoundMessages,
    MessageGone,
    State,
    StoreConfig,
    StoreFinding,
    Stray,
    is_take,
)
from kingdom.mq.stores.original_messages import Original
from kingdom.mq.stores.reserve import Reserve
from kingdom.mq.stores.write_ahead_log import WriteAheadLog

HERE = Path(__file__).parent
QUIET_S = 0.05
MOST_UNSETTLED = 8_000
SETTLED_AT_ONCE = 250
LINES_TRIMMED_AT_ONCE = 2_000
MOST_UNSETTLED_BYTES = 8 << 20
LARGE = 8 << 10
MOST_REMEMBERED = 1_000_000
FORGOTTEN_AT_ONCE = 1_000
CHECKPOINT_PAGES = 3_000
LEAST_FREE = 32 << 10
BYTES_OF_A_STATE = 400
CACHE_KIB = 16_384
NO_ROOM_TO_WRITE = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_TRUNCATE)
GONE = "gone"
IN_TABLE = ""
"""Instead of a body: the latest one stands in the table of messages already."""
_NAMED = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)

Step = tuple[str, tuple[Any, ...]]


class Tables(NamedTuple):
    """The names that the configuration gives to the two tables."""

    #: Of messages, policies and settings.
    messages: str
    #: Of the states of messages.
    states: str

    def fill(self, sql: str) -> str:
        """Write the names into a statement."""
        return sql.replace("{{kv_table}}", self.messages).replace("{{msg_index_table}}", self.states)


@dataclass(slots=True)
class UnsettledChange:
    """The latest of a message that the tables do not hold yet."""

    queue: str
    state: str
    name: str
    body: str | None
    #: Whether the tables have never held it.
    born: bool


class SqliteStore:
    by_hand = False

    def __init__(self, config: StoreConfig, database: str = "") -> None:
        """Open the `database`, or the one that the configuration's `sqlite` names."""
        own = config.part("sqlite")
        self.broken = False
        self.kept_ms = DAY_MS
        self._config = config
        self._path = config.path(database or own["dbPath"], "yirangmq.db")
        self._tables = Tables(own["kvTable"], own["messageIndexTable"])
        self._sql = statements(self._tables)
        self._append_log = self._sql["append_log"]
        self._steps: list[Step] = []
        #: Whether a power cut may undo all of these steps: they are takes.
        self._only_takes = True
        #: By key, in the order of their first lines in the log.
        self._changes: dict[str, UnsettledChange] = {}
        #: Up to which line the log says nothing that the tables do not hold, while they are being deleted; else 0.
        self._spent = 0
        #: Whether changes go into the tables with every commit, until there are none.
        self._settling = False
        self._large: dict[str, str] = {}
        self._bytes = 0
        self._committed_at = 0.0
        self._forgot_at = 0
        self._now = 0
        #: What was wrong and is mended since the last check.
        self._mended: list[StoreFinding] = []
        #: Whether a name was met that is none.
        self._skipped = False
        #: Whether there were rows of the original at the start: it keeps no policy for most queues.
        self._originals = False
        #: What is synced when a commit must survive a power cut; None: SQLite decides.
        self._wal: WriteAheadLog | None = None
        self._connection = self._connect()
        self._reserve = Reserve(self._path.with_name(f"{self._path.name}.reserve"), config.part("sqlite")["reserveMiB"])

    @property
    def trouble(self) -> str:
        return str(NoRoom()) if self._reserve.spent else ""

    def put(self, queue: str, state: State, name: str, body: str) -> None:
        if self._reserve.spent and not self._reserve.restored():
            raise NoRoom
        self._put(queue, state, name, body)

    def _put(self, queue: str, state: State, name: str, body: str) -> None:
        key = names.key_of(queue, name)
        before = self._changes.get(key)  # moved to another queue, and back
        self._log(key, queue, state, name, body, before is None or before.born)

    def move(self, queue: str, state: State, name: str, to: State, new: str) -> None:
        key = names.key_of(queue, name)
        self._steps.append((self._append_log, (key, queue, to, new, None)))
        self._only_takes = self._only_takes and is_take(state, to)
        change = self._changes.get(key)
        if change is None:
            self._changes[key] = UnsettledChange(queue, to, new, None, False)
        else:
            change.queue, change.state, change.name = queue, to, new

    def rewrite(self, queue: str, state: State, name: str, to: State, new: str, body: str) -> None:
        key = names.key_of(queue, name)
        before = self._changes.get(key)
        self._log(key, queue, to, new, body, before is not None and before.born)

    def drop(self, queue: str, state: State, name: str) -> None:
        key = names.key_of(queue, name)
        self._steps.append((self._append_log, (key, queue, GONE, name, None)))
        self._only_takes = False
        change = self._changes.get(key)
        if change is None:
            self._changes[key] = UnsettledChange(queue, GONE, name, None, False)
        else:
            change.queue, change.state, change.name, change.body = queue, GONE, name, None
        if self._large:
            self._large.pop(key, None)

    def transfer(self, queue: str, state: State, name: str, to: str, new: str, body: str) -> None:
        self._put(to, "delayed" if names.due_of(new) > self._now else "ready", new, body)
        self.drop(queue, state, name)

    def archived(self, queue: str, most: int) -> list[str]:
        """Return names: those archived in the log alone, then those in the tables that the log does not change."""
        changes = self._changes
        archived = [change.name for change in changes.values() if (change.queue, change.state) == (queue, "archived")]
        listed = self._query("select_some_archived", (queue, most + len(changes)))
        archived += [name for (name,) in listed if names.key_of(queue, name) not in changes]
        return archived[:most]

    def remove_queue(self, queue: str) -> bool:
        self._run_synced("delete a queue", self._sql["delete_body"], (f"policy:{queue}",))
        return True

    def _settle_all(self, action: str) -> None:
        try:
            self._write([], settle=len(self._changes))
        except sqlite3.Error as error:
            self._break(action, error)

    def _log(self, key: str, queue: str, state: State, name: str, body: str, born: bool) -> None:
        small = body
        if len(body) > LARGE:
            self._steps.append((self._sql["upsert_body"], _row_of_body(key, name, body)))
            self._large[key] = body
            small, born = IN_TABLE, False
        else:
            self._bytes += len(body)
        self._steps.append((self._append_log, (key, queue, state, name, small)))
        self._only_takes = False
        self._changes[key] = UnsettledChange(queue, state, name, small, born)

    def read(self, queue: str, state: State, name: str) -> str:
        key = names.key_of(queue, name)
        change = self._changes.get(key)
        if change is not None:
            body = change.body or self._large.get(key)
            if body is not None:
                return body
        try:
            row = self._connection.execute(self._sql["select_body"], (key,)).fetchone()
        except sqlite3.Error as error:
            raise self._failure("read a message", error) from None
        if row is None:
            raise MessageGone
        return row[0] if isinstance(row[0], str) else _text(row[0])

    def release_due(self, queue: str, now: int, count: int) -> None:
        self._now = now
        self._steps.append((self._sql["release_due"], (queue, now, count)))

    def remember(self, entries: Iterable[DedupEntry]) -> None:
        statement = self._sql["append_entry"]
        self._steps += [
            (statement, (entry.kind, entry.at, entry.queue, entry.key, " ".join(id or "-" for id in entry.ids)))
            for entry in entries
        ]
        self._only_takes = False

    def recall(self, since: int) -> Iterator[DedupEntry]:
        for kind, at, queue, key, ids in self._query("select_entries", (since,)):
            yield DedupEntry(kind, at, queue, key, tuple("" if id == "-" else id for id in ids.split(" ")))

    def commit(self) -> None:
        steps = self._steps
        if not steps:
            return
        try:
            now, before = time.monotonic(), self._committed_at
            self._committed_at = now
            if self._reserve.spent:
                self._write(steps)
                self._settle_if_there_is_room()
            elif self._settling or now - before >= QUIET_S or self._is_much_unsettled():
                self._write(steps, settle=max(len(steps) + len(steps) // 2, SETTLED_AT_ONCE))
            elif len(steps) == 1 and not self._spent:
                self._connection.execute(*steps[0])
            else:
                self._write(steps)
            if not self._only_takes:
                self._sync()
        except (sqlite3.Error, sqlite3.Warning, OSError) as error:
            self._break("commit", error)
        self._steps, self._only_takes = [], True
        if self._large:
            self._large.clear()

    def _sync(self) -> None:
        """Make durable all that was committed so far, takes too: it is in one file, in this order."""
        if self._wal is not None:
            self._wal.sync()

    def _write(self, steps: Sequence[Step], settle: int = 0) -> None:
        """Log the steps, bring the oldest changes into the tables, and trim the log."""
        settled = self._oldest(settle) if settle else {}
        if not steps and not settled and not self._spent:
            return
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        if len(steps) < 8:
            for statement, values in steps:
                execute(statement, values)
        else:
            self._write_many(steps)
        spent = self._settle(settled) if settled else self._spent
        left = self._trim_log(spent) if spent else 0
        execute("COMMIT")
        self._spent = left
        if settled:
            for key in settled:
                del self._changes[key]
            self._bytes = sum(len(change.body) for change in self._changes.values() if change.body)
            self._settling = bool(self._changes)

    def _oldest(self, most: int) -> dict[str, UnsettledChange]:
        """Return so many changes that the tables have to take in, and those before them that ended in the log."""
        found: dict[str, UnsettledChange] = {}
        for key, change in self._changes.items():
            if not (change.born and change.state == GONE):
                if most == 0:
                    break
                most -= 1
            found[key] = change
        return found

    def _is_much_unsettled(self) -> bool:
        return len(self._changes) >= MOST_UNSETTLED or self._bytes >= MOST_UNSETTLED_BYTES

    def _settle_if_there_is_room(self) -> None:
        """Bring the tables up to date unless the disk is full: what is in the log is safe meanwhile."""
        self._empty_wal()
        bodies = sum(len(change.body) for change in self._changes.values() if change.body and change.state != GONE)
        if self._reserve.free() >= 3 * (bodies + BYTES_OF_A_STATE * len(self._changes)) + LEAST_FREE:
            try:
                self._write([], settle=len(self._changes))
            except sqlite3.Error:
                self._connection.rollback()
            self._empty_wal()

    def _empty_wal(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _write_many(self, steps: Sequence[Step]) -> None:
        """Write changes, neighbours of one kind in one statement."""
        start = 0
        while start < len(steps):
            statement = steps[start][0]
            end = start + 1
            while end < len(steps) and steps[end][0] is statement:
                end += 1
            self._connection.executemany(statement, [values for _, values in steps[start:end]])
            start = end

    def _settle(self, changes: Mapping[str, UnsettledChange]) -> int:
        """Bring the oldest changes into the two tables. Return the last line of the log that is spent: with the last
        change all of them are. Until they are deleted they tell a start more than is needed, and come to the same."""
        bodies, states, ended = [], [], []
        for key, change in changes.items():
            if change.state == GONE:
                if not change.born:
                    ended.append((key,))
                continue
            if change.body:
                bodies.append(_row_of_body(key, change.name, change.body))
            states.append(self._row_of_state(key, change))
        many = self._connection.executemany
        many(self._sql["upsert_body"], bodies)
        many(self._sql["upsert_state"], states)
        many(self._sql["delete_state"], ended)
        many(self._sql["delete_body"], ended)
        return self._place_in_log("max") if len(changes) == len(self._changes) else self._spent

    def _trim_log(self, spent: int) -> int:
        """Delete some of the lines that are spent, up to this one. Return it again as long as any are left, else 0."""
        end = min(spent, self._place_in_log("min") + LINES_TRIMMED_AT_ONCE)
        self._connection.execute(self._sql["trim_log"], (end,))
        return spent if end < spent else 0

    def _place_in_log(self, which: Literal["min", "max"]) -> int:
        ((place,),) = self._connection.execute(self._sql[f"select_{which}_of_log"])
        return place or 0

    def _row_of_state(self, key: str, change: UnsettledChange) -> tuple[Any, ...]:
        name, state = change.name, change.state
        due = names.due_of(name)
        if state == "delayed" and due <= self._now:
            state = "ready"
        if len(name) == names.PLAIN_LENGTH:
            return (change.queue, state, names.priority_of(name), due, None, 0, key, name)
        until = due if state == "inflight" else None
        return (change.queue, state, names.priority_of(name), due, until, names.attempt_of(name), key, name)

    def abandon(self) -> None:
        self._forget()
        with suppress(sqlite3.Error):
            self._connection.rollback()
        # Also because what a failed sync has left unwritten would hide what is written behind it.
        self._empty_wal()
        self.broken = False

    def _forget(self) -> None:
        self._steps, self._only_takes = [], True
        self._large.clear()
        self._changes.clear()
        self._settling = False
        self._spent = 0
        self._bytes = 0

    def tidy(self, now: int, idle: bool) -> bool:
        self._now = now
        try:
            if self._reserve.spent and not self._reserve.restored():
                self._settle_if_there_is_room()
                return False
            self._write([], settle=2 * SETTLED_AT_ONCE)
            if self._changes or self._spent:
                return True
            if now - self._forgot_at >= DAY_MS // 24 and not self._forget_some(now):
                self._forgot_at = now
            if idle:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            self._break("tidy up", error)
        return False

    def _forget_some(self, now: int) -> bool:
        """Delete a part of what was remembered too long ago, or is too much. Return whether more may be left."""
        old = self._connection.execute(self._sql["forget_entries"], (FORGOTTEN_AT_ONCE, now - self.kept_ms)).rowcount
        much = self._connection.execute(self._sql["forget_many_entries"], (MOST_REMEMBERED, FORGOTTEN_AT_ONCE)).rowcount
        return max(old, much) == FORGOTTEN_AT_ONCE

    def close(self) -> None:
        with suppress(sqlite3.Error):
            if not self.broken and not self._steps:
                self._write([], settle=len(self._changes))
        if self._wal is not None:
            self._wal.close()
        self._connection.close()

    def queues(self) -> Mapping[str, str]:
        return dict(self._query("select_policies"))

    def save_queue(self, queue: str, record: str) -> None:
        self._save(f"policy:{queue}", record, "policy")

    def _save(self, key: str, value: str, kind: str) -> None:
        """Write it right away: it is rare, and must not be lost with a group."""
        now = time.time_ns() // 1_000_000
        self._run_synced("keep a queue's policy", self._sql["save_record"], (key, value, kind, now, now))

    def load(self) -> Iterator[FoundMessages]:
        self._forget()
        self._recover()
        queues = {queue for (queue,) in self._query("select_queues")}
        lost = set() if self._originals else queues - dict(self._query("select_policies")).keys()
        for queue in lost:
            self._mended.append(StoreFinding("lost_policy", queue, f"policy:{queue} was not there", True))
        for queue in sorted(queues | {change.queue for change in self._changes.values()}):
            waiting = self._query("select_names", (*names.key_range(queue), queue))
            others = self._query("select_others", (queue,))
            yield self._newest(queue, "ready", self._split(waiting) + self._split(others))
            yield self._newest(queue, "inflight", self._split(self._query("select_inflight", (queue,))))
            yield self._newest(queue, "dlq", self._split(self._query("select_dead", (queue,))))

    def _split(self, rows: list[Any]) -> list[str]:
        """Return the names in a text, without those that are none: the check names them."""
        (text,) = rows[0]
        listed = text.split("\n") if text else []
        if len(text or "") == len(listed) * (names.PLAIN_LENGTH + 1) - 1:
            return listed
        good = [name for name in listed if len(name) == names.PLAIN_LENGTH or names.is_name(name)]
        self._skipped = self._skipped or len(good) < len(listed)
        return good

    def _newest(self, queue: str, state: Literal["ready", "inflight", "dlq"], listed: list[str]) -> FoundMessages:
        """Return what the tables list, and what the log says that they have not taken in: only on a full disk is there
        such a thing."""
        if self._changes:
            states = ("ready", "delayed") if state == "ready" else (state,)
            listed = [name for name in listed if names.key_of(queue, name) not in self._changes]
            changes = self._changes.values()
            listed += [change.name for change in changes if change.queue == queue and change.state in states]
        return FoundMessages(queue, state, listed)

    def _recover(self) -> None:
        """Bring the tables up to date with what was logged before the start."""
        for key, queue, state, name, body in self._query("select_log"):
            before = self._changes.get(key)
            text = body if body is not None or before is None else before.body
            self._changes[key] = UnsettledChange(queue, state, name, text, False)
        if self._changes:
            try:
                self._write([], settle=len(self._changes))
                while self._spent:
                    self._write([])
            except sqlite3.Error as error:
                if not _is_full(error):
                    self._break("bring the tables up to date", error)
                self._connection.rollback()
                self._reserve.spend()
                self._settle_if_there_is_room()

    # Nothing can be laid in by hand.

    def strays(self, budget: int, waiting: Callable[[str], Iterable[str]]) -> list[Stray]:
        return []

    def adopt(self, stray: Stray, name: str) -> None:
        raise MessageGone

    def check(self, repair: bool, now: int) -> list[StoreFinding]:
        findings: list[StoreFinding] = []
        for (said,) in self._run("PRAGMA quick_check(10)"):
            if said != "ok":
                findings.append(StoreFinding("unreadable", "", f"{self._path}: {said}", False))
        self._now = now
        self._settle_all("look it over")
        for (key,) in self._query("select_stateless"):
            if repair:
                self._state(key)
            findings.append(StoreFinding("invalid_state", names.queue_of_key(key), f"{key} has no state", repair))
        for queue, key in self._query("select_bodiless"):
            self._mend(repair, key)
            findings.append(StoreFinding("missing_payload", queue, key, repair))
        findings += self._check_names(repair)
        for queue, key, name, state in self._query("select_misstated"):
            if repair:
                self._query("set_state", (_state_of(name), key))
            findings.append(StoreFinding("invalid_state", queue, f"{key} is {state!r}", repair))
        findings += self._mended + self._check_bodies(repair, now)
        self._mended = []
        for queue, key in self._query("select_archived", (now - self._config.archive_keep_ms,)):
            self._mend(repair, key)
            findings.append(StoreFinding("stale_archive", queue, key, repair))
        return findings

    def _check_names(self, repair: bool) -> list[StoreFinding]:
        """Find rows of the original, and rows whose name is none or another message's: they get their names anew."""
        findings = [StoreFinding("foreign", queue, key, repair) for queue, key in self._query("select_foreign")]
        for queue, key, name in self._query("select_states"):
            if name is not None and (not names.is_name(name) or names.key_of(queue, name) != key):
                findings.append(StoreFinding("bad_name", queue, f"{key} has the name {name[:200]!r}", repair))
                if repair:
                    if names.is_ours(names.id_of_key(key)):
                        self._query("set_queue", (names.queue_of_key(key), key))
                    self._query("forget_name", (key,))
        if repair and findings:
            self._take_over(self._connection)
        return findings

    def _check_bodies(self, repair: bool, now: int) -> list[StoreFinding]:
        findings: list[StoreFinding] = []
        for found in list(SqliteStore.load(self)):
            for name in found.names:
                if (finding := damage.finding_of(self, found.queue, found.state, name, repair, now)) is not None:
                    findings.append(finding)
        self.commit()
        self._settle_all("look it over")
        return [finding for finding in findings if finding.kind != "missing_payload"]

    def _state(self, key: str) -> None:
        """Return `ready` for a body without a state. One that cannot be read is buried by the check of the bodies."""
        queue, message_id = names.queue_of_key(key), names.id_of_key(key)
        (row,) = self._query("select_body", (key,))
        about = original_messages.envelope(row[0])
        created = about.get("createdAt")
        try:
            if key == names.key(queue, message_id):
                name = message_format.name_of(self.read(queue, "ready", message_id), message_id)
            else:
                found = Original(queue, "ready", key, 0, about.get("priority"), created, about.get("attempt"), created)
                name = original_messages.name_of(found)
        except MessageGone:
            self._query("delete_body", (key,))
            return
        except (MalformedBody, ValueError):
            name = names.compose(0, self._now, names.tie_of(message_id), names.first_fields(0, ""), message_id)
        self._query("upsert_state", self._row_of_state(key, UnsettledChange(queue, "ready", name, None, False)))

    def _mend(self, repair: bool, key: str) -> None:
        if repair:
            self._query("delete_state", (key,))
            self._query("delete_body", (key,))

    def _connect(self) -> sqlite3.Connection:
        own = self._config.part("sqlite")
        make_folder(self._path.parent)
        try:
            connection = sqlite3.connect(
                self._path,
                timeout=own["busyTimeoutMs"] / 1000,
                isolation_level=None,
                cached_statements=128,
                check_same_thread=False,  # threads that share a store take turns: kingdom.mq.local
            )
            with ExitStack() as if_it_fails:
                if_it_fails.callback(connection.close)
                self._set_up(connection)
                if_it_fails.pop_all()
        except sqlite3.Error as error:
            raise self._failure("open the database", error) from None
        return connection

    def _set_up(self, connection: sqlite3.Connection) -> None:
        own = self._config.part("sqlite")
        (journal,) = connection.execute(f"PRAGMA journal_mode = {own['journalMode']}").fetchone()
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._config.durability == 'power' else 'NORMAL'}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").fetchall()
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        migrate(connection, self._tables, self._config.base / own["schemaPath"] if own["schemaPath"] else None)
        self._take_over(connection)
        if self._config.durability == "power" and journal == "wal":
            self._wal = WriteAheadLog(self._path)
            connection.execute("PRAGMA synchronous = NORMAL")

    def _take_over(self, connection: sqlite3.Connection) -> None:
        """Let rows of the original be served."""
        self._originals = original_rows.take_over(connection, self._sql, self._tables.states) > 0

    def _query(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self._run(self._sql[statement], values)

    def _run(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._failure("answer", error) from None

    def _run_synced(self, action: str, sql: str, values: tuple[Any, ...]) -> None:
        try:
            self._connection.execute(sql, values)
            self._sync()
        except (sqlite3.Error, OSError) as error:
            raise self._failure(action, error) from None

    def _failure(self, action: str, error: Exception) -> StoreError:
        return StoreError(backend="sqlite", action=action, why=f"{error} ({self._path})")

    def _break(self, action: str, error: Exception) -> NoReturn:
        self.broken = True
        if _is_full(error):
            self._reserve.spend()
        raise self._failure(action, error) from None


def _is_full(error: Exception) -> bool:
    """Return whether the disk has no room: also a file in shared memory that cannot grow says so."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code == sqlite3.SQLITE_FULL or code in NO_ROOM_TO_WRITE


@cache
def statements(tables: Tables) -> dict[str, str]:
    """Return the statements of sqlite.sql by name, for these tables."""
    text = (HERE / "sqlite.sql").read_text("utf-8")
    return {
        name: "\n".join(line for line in tables.fill(body).splitlines() if not line.startswith("--")).strip()
        for name, body in _NAMED.findall(text)
    }


def migrate(connection: sqlite3.Connection, tables: Tables, template: Path | None) -> None:
    """Run what this database has not seen yet, each file in a transaction that also notes its number.

    A `template` of the user's own is run instead of the first file.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for file in sorted((HERE / "migrations").glob("*.sql")):
        number = int(file.name.partition("_")[0])
        if number > version:
            script = tables.fill((template if number == 1 and template is not None else file).read_text("utf-8"))
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")


def _state_of(name: str) -> State:
    """Return the state that a name tells."""
    fields = names.fields_of(name)
    return "inflight" if names.LEASE in fields else "dlq" if names.REASON in fields else "ready"


def _row_of_body(key: str, name: str, body: str) -> tuple[Any, ...]:
    created = names.created_of(name)
    return (key, body, created, created, names.expires_of(name) or None)


def _text(value: object) -> str:
    """Return a stored value as text: a foreign writer may have stored bytes, or a number."""
    return message_format.decoded(value) if isinstance(value, bytes) else str(value)
