"""The stores of the queue beside the same work in raw lines.

Floors do nothing but the system calls or statements: no ids, no validation, no order, no recovery. Ours and they get
a fresh folder each round, and nothing is deleted until the end: ext4 without a journal is slow to create files after
many removals, and would punish the next measure.
"""

from __future__ import annotations

import heapq
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from bench.figures import Found, interleaved, per_second
from bench.floors import BODY, NEW, open_database, read_file, sync_folder, write_file
from bench.homes import HOUSE, folder
from kingdom.base.disk.atomic import Durability
from kingdom.mq.engine import Engine, open_engine
from kingdom.mq.message_format import Draft
from kingdom.mq.policy import Policy
from kingdom.mq.queues import EngineSettings
from kingdom.mq.stores.base import StoreConfig
from kingdom.mq.stores.sqlite import CHECKPOINT_PAGES

LARGE = '{"pad": "' + "x" * 100_000 + '"}'
QUEUE, GROUP, BATCH = "telemetry", 16, 100
INSERT = "INSERT INTO m (q, state, pri, avail, body) VALUES (?, 0, 0, ?, ?)"
TAKE = (
    "UPDATE m SET state = 1 WHERE id = (SELECT id FROM m WHERE q = ? AND state = 0 "
    "ORDER BY pri, avail, id LIMIT 1) RETURNING id, body"
)
TABLE = "CREATE TABLE m (id INTEGER PRIMARY KEY, q TEXT, state INT, pri INT, avail INT, body BLOB)"
INDEX = "CREATE INDEX r ON m (q, pri, avail, id) WHERE state = 0"


class Scratch:
    """A folder for everything, and fresh ones in it."""

    def __init__(self) -> None:
        self.root = folder()
        self._numbers = count()

    def fresh(self, *folders: str) -> Path:
        fresh = self.root / f"{next(self._numbers)}"
        for name in ("", *folders):
            (fresh / name).mkdir()
        return fresh


def run(quick: bool) -> Found:
    found, place = Found(), Scratch()
    rounds, times, synced = (3, 1_000, 60) if quick else (7, 4_000, 250)
    for measure in (files, sqlite, hybrid):
        measure(found, place, rounds, times, synced)
    alone = {"publish": lambda: ours(place, "memory", times), "take+ack": lambda: ours_taken(place, "memory", times)}
    for what, rates in interleaved(rounds, alone).items():
        found.add("the engine alone", what, rates)
    return found


def files(found: Found, place: Scratch, rounds: int, times: int, synced: int) -> None:
    c, store = c_program(place), "filesystem"
    contests = {
        "publish": lambda: ours(place, store, times),
        "the raw publish": lambda: write_c(place, c, times),
        "take+ack": lambda: ours_taken(place, store, times),
        "take raw": lambda: take_raw(place, times),
        "alone, synced": lambda: ours(place, store, synced, "power"),
        "16 callers, synced": lambda: ours(place, store, synced * 4, "power", GROUP),
        "one raw write, synced": lambda: write_raw(place, synced, power=True),
        "batches of 100, synced": lambda: ours(place, store, times, "power", BATCH),
        "raw batches, synced": lambda: write_raw(place, times),
    }
    add(found, store, interleaved(rounds, contests))
    # Last, and not among the others: what it removes makes creating slower for the next measure.
    found.add("raw batches", "filesystem, process", found.samples["raw batches", "filesystem, power"])
    late = {"publish after acks": lambda: ours_after_acks(place, store, times, times * 5)}
    add(found, store, interleaved(min(rounds, 3), late))


def sqlite(found: Found, place: Scratch, rounds: int, times: int, synced: int) -> None:
    store, tables = "sqlite", SameTables(place)
    contests = {
        "publish": lambda: ours(place, store, times),
        "the raw publish": lambda: rows_raw(place, times, "NORMAL"),
        "take+ack": lambda: ours_taken(place, store, times),
        "take raw": lambda: take_rows_raw(place, times)[1],
        "batches of 100": lambda: ours(place, store, times * 4, "process", BATCH),
        "raw batches": lambda: tables.publish(place, times * 4, "NORMAL"),
        "alone, synced": lambda: ours(place, store, synced, "power"),
        "16 callers, synced": lambda: ours(place, store, synced * 4, "power", GROUP),
        "one raw write, synced": lambda: rows_raw(place, synced, "FULL"),
        "batches of 100, synced": lambda: ours(place, store, times * 2, "power", BATCH),
        "raw batches, synced": lambda: tables.publish(place, times * 2, "FULL"),
    }
    add(found, store, interleaved(rounds, contests))


def hybrid(found: Found, place: Scratch, rounds: int, times: int, synced: int) -> None:
    large = synced + synced // 2
    contests = {
        "publish": lambda: ours(place, "hybrid", times),
        "take+ack": lambda: ours_taken(place, "hybrid", times),
        "raw": lambda: take_rows_raw(place, times, in_files=True),
        "publish of 100 kB": lambda: ours(place, "hybrid", large, text=LARGE),
        "the same in our sqlite store": lambda: ours(place, "sqlite", large, text=LARGE),
    }
    both = interleaved(rounds, contests)
    raw = both.pop("raw")
    add(found, "hybrid", {**both, "the raw publish": [one for one, _ in raw], "take raw": [one for _, one in raw]})


def add(found: Found, store: str, rates: dict[str, list[float]]) -> None:
    for what, rounds in rates.items():
        found.add(what.removesuffix(", synced"), f"{store}, {'power' if 'sync' in what else 'process'}", rounds)


def settled(times: int, work: Callable[[], object], durability: str = "power") -> float:
    """As per_second; where syncs are measured, everything unwritten goes first, or they would have to carry it."""
    if durability == "power":
        os.sync()
    return per_second(times, work)


def c_program(scratch: Scratch) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("NO C COMPILER: files are measured against the same calls from Python, a LOWER floor", file=sys.stderr)
        return ""
    program = str(scratch.root / "floor")
    subprocess.run([compiler, "-O2", "-o", program, str(HOUSE / "bench" / "floor.c")], check=True)
    return program


def write_c(scratch: Scratch, program: str, times: int) -> float:
    if not program:
        return write_raw(scratch, times)
    return float(subprocess.check_output([program, str(scratch.fresh()), str(times), str(len(BODY))]))


def write_raw(scratch: Scratch, times: int, *, power: bool = False) -> float:
    place = scratch.fresh("tmp", "ready")
    tmp, ready = f"{place}/tmp", f"{place}/ready"

    def work() -> None:
        for number in range(times):
            write_file(ready, f"{number:09d}.json", power=power, tmp=tmp)
            if power:
                sync_folder(ready)

    return settled(times, work, "power" if power else "")


def take_raw(scratch: Scratch, times: int) -> float:
    """Heap, rename, read, unlink: a queue of files without anything that makes it one."""
    place = scratch.fresh("ready", "flying")
    heap: list[tuple[int, int]] = []
    for number in range(times):
        write_file(f"{place}/ready", f"5-{number:012d}.json")
        heapq.heappush(heap, (5, number))

    def work() -> None:
        for _ in range(times):
            number = heapq.heappop(heap)[1]
            held = f"{place}/flying/{number}"
            os.rename(f"{place}/ready/5-{number:012d}.json", held)
            read_file(held)
            os.unlink(held)

    return per_second(times, work)


def rows_raw(scratch: Scratch, times: int, synchronous: str) -> float:
    """One table, one partial index, prepared statements."""
    execute = open_database(scratch.fresh() / "raw.db", synchronous, TABLE, INDEX).execute

    def work() -> None:
        for number in range(times):
            execute(INSERT, (QUEUE, number, BODY))

    return settled(times, work, "power" if synchronous == "FULL" else "")


def take_rows_raw(scratch: Scratch, times: int, *, in_files: bool = False) -> tuple[float, float]:
    """Return rows a second published and taken; with `in_files` their payloads have a file each."""
    place = scratch.fresh("files")
    execute, files = open_database(place / "raw.db", "NORMAL", TABLE, INDEX).execute, f"{place}/files"

    def publish() -> None:
        for number in range(times):
            if in_files:
                fd = os.open(f"{files}/tmp", NEW, 0o600)
                os.write(fd, BODY.encode())
                os.close(fd)
                os.rename(f"{files}/tmp", f"{files}/{number}")
            execute(INSERT, (QUEUE, number, str(number) if in_files else BODY))

    def take() -> None:
        for _ in range(times):
            number, body = execute(TAKE, (QUEUE,)).fetchall()[0]
            if in_files:
                read_file(f"{files}/{body}")
            execute("DELETE FROM m WHERE id = ?", (number,))
            if in_files:
                os.unlink(f"{files}/{body}")

    return per_second(times, publish), per_second(times, take)


class SameTables:
    """The tables and indexes of our sqlite store, filled by prepared statements with rows like its own."""

    def __init__(self, scratch: Scratch) -> None:
        place = scratch.fresh()
        mq = opened("sqlite", place)
        publish(mq, BATCH, BATCH)
        mq.close()
        database = sqlite3.connect(place / "yirangmq.db")
        made = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        things = database.execute(made).fetchall()
        self._schema = [text for _, _, text in things]
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        for table in [name for kind, name, _ in things if kind == "table"]:
            rows = [row for row in database.execute(f"SELECT * FROM {table}") if any(map(_is_key, row))]
            if len(rows) == BATCH:
                self._rows[table] = rows
        database.close()

    def publish(self, scratch: Scratch, times: int, synchronous: str) -> float:
        """Return messages a second, committed by hundreds."""
        pragmas = ("PRAGMA cache_size = -16384", f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        database = open_database(scratch.fresh() / "raw.db", synchronous, *pragmas, *self._schema)
        inserts = {
            table: f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})" for table, rows in self._rows.items()
        }
        steps = [
            (inserts[table], [_numbered(cell, number) for cell in rows[number % BATCH]])
            for number in range(times)
            for table, rows in self._rows.items()
        ]
        group = BATCH * len(self._rows)

        def work() -> None:
            for first in range(0, len(steps), group):
                database.execute("BEGIN")
                for statement, cells in steps[first : first + group]:
                    database.execute(statement, cells)
                database.execute("COMMIT")

        rate = settled(times, work, "power" if synchronous == "FULL" else "")
        database.close()
        return rate


def _is_key(cell: object) -> bool:
    return isinstance(cell, str) and cell.startswith("msg:")


def _numbered(cell: object, number: int) -> object:
    """Keys count up, as those of real messages do."""
    return f"{str(cell)[:-12]}{number:012d}" if _is_key(cell) else cell


def opened(backend: str, place: Path, durability: Durability = "process", **more: Any) -> Engine:
    """Return an engine without rules, on a store below the folder, with one queue."""
    config = StoreConfig.at(place, backend=backend, durability=durability)
    mq = open_engine(config, settings=EngineSettings(Policy.from_json({})), **more)
    mq.queues.declare(QUEUE)
    return mq


@contextmanager
def engine(scratch: Scratch, backend: str, durability: Durability = "process") -> Iterator[Engine]:
    mq = opened(backend, scratch.fresh(), durability)
    try:
        yield mq
    finally:
        mq.close()


def publish(mq: Engine, times: int, group: int = 1, text: str = BODY) -> None:
    """`group` callers wait together for one commit."""
    draft = Draft(text)
    for first in range(0, times, group):
        for _ in range(first, min(first + group, times)):
            mq.publish(QUEUE, draft)
        mq.commit()


def take(mq: Engine, times: int) -> None:
    for _ in range(times):
        [leased] = mq.lease(QUEUE, "bench")
        mq.commit()
        mq.ack(leased.message_key, leased.lease_id)
        mq.commit()


def ours(
    scratch: Scratch, backend: str, times: int, durability: Durability = "process", group: int = 1, text: str = BODY
) -> float:
    with engine(scratch, backend, durability) as mq:
        return settled(times, lambda: publish(mq, times, group, text), durability)


def ours_taken(scratch: Scratch, backend: str, times: int) -> float:
    with engine(scratch, backend) as mq:
        publish(mq, times, BATCH)
        return per_second(times, lambda: take(mq, times))


def ours_after_acks(scratch: Scratch, backend: str, times: int, acks: int) -> float:
    with engine(scratch, backend) as mq:
        publish(mq, acks, BATCH)
        take(mq, acks)
        return per_second(times, lambda: publish(mq, times))
