"""The stores of the queue beside the same work in raw lines.

Floors do nothing but the system calls or statements: no ids, no validation, no order, no recovery. They are
written anew each round in a fresh folder, interleaved with ours, and nothing is deleted until the end:
ext4 without a journal is slow to create files after many removals, and would punish whoever comes next.
"""

from __future__ import annotations

import heapq
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from bench.figures import Row, interleaved, median, per_second, ratio, row
from bench.homes import folder
from kingdom.base.disk.atomic import Durability
from kingdom.mq.engine import Engine, open_engine
from kingdom.mq.message_format import Draft
from kingdom.mq.policy import Policy
from kingdom.mq.queues import EngineSettings
from kingdom.mq.stores.base import StoreConfig
from kingdom.mq.stores.sqlite import CHECKPOINT_PAGES

PAYLOAD = '{"deviceId": "d-17", "seq": 1, "temp": 25.5, "pad": "' + "x" * 440 + '"}'
BODY = PAYLOAD.encode()
LARGE = '{"pad": "' + "x" * 100_000 + '"}'
ABOUT = (
    "The engine as a library in this process, on each store: one message of 500 bytes at a time, or in groups. "
    "A commit follows every publish, lease and ack, unless the row says otherwise. In the sqlite and hybrid stores the "
    "newest 8,000 changes lie in a log alone: what is acknowledged meanwhile never comes into the tables."
)
QUEUE = "telemetry"
GROUP, BATCH = 16, 100
NEW = os.O_WRONLY | os.O_CREAT
C_FLOOR = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
  char draft[600], name[600], body[4096];
  int count = atoi(argv[2]), size = atoi(argv[3]);
  struct timespec began, ended;
  memset(body, 'x', sizeof body);
  snprintf(draft, sizeof draft, "%s/tmp", argv[1]); mkdir(argv[1], 0700); mkdir(draft, 0700);
  snprintf(name, sizeof name, "%s/ready", argv[1]); mkdir(name, 0700);
  clock_gettime(CLOCK_MONOTONIC, &began);
  for (int i = 0; i < count; i++) {
    snprintf(draft, sizeof draft, "%s/tmp/%09d.json", argv[1], i);
    snprintf(name, sizeof name, "%s/ready/%09d.json", argv[1], i);
    int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(fd, body, size) != size || close(fd) || rename(draft, name)) return 1;
  }
  clock_gettime(CLOCK_MONOTONIC, &ended);
  printf("%.1f\n", count / (ended.tv_sec - began.tv_sec + (ended.tv_nsec - began.tv_nsec) / 1e9));
  return 0;
}
"""

REASONS = {
    "filesystem publish, batches of 100": "each message stays a file of its own; 0.17 to 0.58 over runs",
    "sqlite publish, alone": "within the noise of this disk: other runs met it",
    "hybrid publish": "validation and index in Python beside a file and a row",
    "hybrid publish of 100 kB": "its payload is read once to see that it is JSON; within the noise of this disk",
}
ENGINE = (
    "ids, order, leases and rules take {own:.0f} µs by themselves (the engine alone), what is raw {floor:.0f}: "
    "no more than {most:.2f} can be had"
)
Contest = Callable[[], float]


class Scratch:
    """A folder for everything, and fresh ones in it."""

    def __init__(self) -> None:
        self.root = folder()
        self._numbers = count()

    def fresh(self) -> Path:
        fresh = self.root / f"{next(self._numbers)}"
        fresh.mkdir()
        return fresh


def settled(times: int, work: Callable[[], object]) -> float:
    """As per_second, but what this run left unwritten goes first, or a sync would have to carry it."""
    os.sync()
    return per_second(times, work)


def c_program(scratch: Scratch) -> Path | None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("NO C COMPILER: row 1 is measured against the same calls from Python, a LOWER floor", file=sys.stderr)
        return None
    source, program = scratch.root / "floor.c", scratch.root / "floor"
    source.write_text(C_FLOOR)
    subprocess.run([compiler, "-O2", "-o", program, source], check=True)
    return program


def write_c(scratch: Scratch, program: Path | None, times: int) -> Contest:
    if program is None:
        return lambda: write_raw(scratch, times)
    command = [str(program), "", str(times), str(len(BODY))]
    return lambda: float(subprocess.check_output([command[0], str(scratch.fresh()), *command[2:]]))


def write_raw(scratch: Scratch, times: int, *, power: bool = False) -> float:
    folder = scratch.fresh()
    tmp, ready = f"{folder}/tmp", f"{folder}/ready"
    os.mkdir(tmp)
    os.mkdir(ready)
    there = os.open(ready, os.O_RDONLY)

    def work() -> None:
        for number in range(times):
            draft = f"{tmp}/{number}"
            fd = os.open(draft, NEW, 0o600)
            os.write(fd, BODY)
            if power:
                os.fsync(fd)
            os.close(fd)
            os.rename(draft, f"{ready}/{number:09d}.json")
            if power:
                os.fsync(there)

    speed = (settled if power else per_second)(times, work)
    os.close(there)
    return speed


def take_raw(scratch: Scratch, times: int) -> float:
    """Heap, rename, read, unlink: a queue of files without anything that makes it one."""
    folder = scratch.fresh()
    ready, flying = f"{folder}/ready", f"{folder}/flying"
    os.mkdir(ready)
    os.mkdir(flying)
    heap: list[tuple[int, int]] = []
    for number in range(times):
        fd = os.open(f"{ready}/5-{number:012d}.json", NEW, 0o600)
        os.write(fd, BODY)
        os.close(fd)
        heapq.heappush(heap, (5, number))

    def work() -> None:
        for _ in range(times):
            number = heapq.heappop(heap)[1]
            held = f"{flying}/{number}"
            os.rename(f"{ready}/5-{number:012d}.json", held)
            fd = os.open(held, os.O_RDONLY)
            os.read(fd, 65536)
            os.close(fd)
            os.unlink(held)

    return per_second(times, work)


class RawRows:
    """One table, one partial index, prepared statements."""

    INSERT = "INSERT INTO m (q, state, pri, avail, body) VALUES (?, 0, 0, ?, ?)"
    TAKE = (
        "UPDATE m SET state = 1 WHERE id = (SELECT id FROM m WHERE q = ? AND state = 0 "
        "ORDER BY pri, avail, id LIMIT 1) RETURNING id, body"
    )

    def __init__(self, folder: Path, synchronous: str) -> None:
        self.db = sqlite3.connect(folder / "raw.db", isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {synchronous}")
        self.db.execute("CREATE TABLE m (id INTEGER PRIMARY KEY, q TEXT, state INT, pri INT, avail INT, body BLOB)")
        self.db.execute("CREATE INDEX r ON m (q, pri, avail, id) WHERE state = 0")

    def publish(self, times: int, batch: int = 1, file: str = "", body: bytes = BODY) -> None:
        execute = self.db.execute
        for first in range(0, times, batch):
            if batch > 1:
                execute("BEGIN")
            for number in range(first, min(first + batch, times)):
                if file:
                    fd = os.open(f"{file}/tmp", NEW, 0o600)
                    os.write(fd, body)
                    os.close(fd)
                    os.rename(f"{file}/tmp", f"{file}/{number}")
                execute(self.INSERT, (QUEUE, number, str(number) if file else body))
            if batch > 1:
                execute("COMMIT")

    def take(self, times: int, file: str = "") -> None:
        for _ in range(times):
            number, body = self.db.execute(self.TAKE, (QUEUE,)).fetchall()[0]
            if file:
                fd = os.open(f"{file}/{body}", os.O_RDONLY)
                os.read(fd, 65536)
                os.close(fd)
            self.db.execute("DELETE FROM m WHERE id = ?", (number,))
            if file:
                os.unlink(f"{file}/{body}")


def rows_raw(scratch: Scratch, times: int, synchronous: str, batch: int = 1, body: bytes = BODY) -> float:
    table = RawRows(scratch.fresh(), synchronous)
    rate = settled if synchronous == "FULL" else per_second
    return rate(times, lambda: table.publish(times, batch, body=body))


def take_rows_raw(scratch: Scratch, times: int) -> float:
    table = RawRows(scratch.fresh(), "NORMAL")
    table.publish(times, BATCH)
    return per_second(times, lambda: table.take(times))


class SameTables:
    """The tables and indexes of our sqlite store, filled by prepared statements with rows like its own."""

    def __init__(self, scratch: Scratch) -> None:
        folder = scratch.fresh()
        mq = opened("sqlite", folder)
        mq.queues.declare(QUEUE)
        publish(mq, BATCH, BATCH)
        mq.close()
        database = sqlite3.connect(folder / "yirangmq.db")
        made = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        self._schema = [text for (text,) in database.execute(made)]
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = [row for row in database.execute(f"SELECT * FROM {table}") if any(map(_is_key, row))]
            if len(rows) == BATCH:
                self._rows[table] = rows
        database.close()

    def publish(self, scratch: Scratch, times: int, synchronous: str) -> float:
        """Return messages a second, committed by hundreds."""
        database = sqlite3.connect(scratch.fresh() / "raw.db", isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {synchronous}")
        database.execute("PRAGMA cache_size = -16384")
        database.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        for statement in self._schema:
            database.execute(statement)
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

        rate = settled(times, work) if synchronous == "FULL" else per_second(times, work)
        database.close()
        return rate


def _is_key(cell: object) -> bool:
    return isinstance(cell, str) and cell.startswith("msg:")


def _numbered(cell: object, number: int) -> object:
    """Keys count up, as those of real messages do."""
    return f"{str(cell)[:-12]}{number:012d}" if _is_key(cell) else cell


def file_and_row(scratch: Scratch, times: int) -> tuple[float, float]:
    folder = scratch.fresh()
    table, files = RawRows(folder, "NORMAL"), f"{folder}/files"
    os.mkdir(files)
    publish = per_second(times, lambda: table.publish(times, 1, files))
    return publish, per_second(times, lambda: table.take(times, files))


def opened(backend: str, folder: Path, durability: Durability = "process") -> Engine:
    """Return an engine without rules, on a store below the folder."""
    config = StoreConfig.at(folder, backend=backend, durability=durability)
    return open_engine(config, settings=EngineSettings(Policy.from_json({})))


@contextmanager
def engine(scratch: Scratch, backend: str, durability: Durability) -> Iterator[Engine]:
    mq = opened(backend, scratch.fresh(), durability)
    mq.queues.declare(QUEUE)
    try:
        yield mq
    finally:
        mq.close()


def publish(mq: Engine, times: int, group: int = 1, text: str = PAYLOAD) -> None:
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


def ours_publish(
    scratch: Scratch, backend: str, times: int, durability: Durability = "process", group: int = 1, text: str = PAYLOAD
) -> float:
    with engine(scratch, backend, durability) as mq:
        rate = settled if durability == "power" else per_second
        return rate(times, lambda: publish(mq, times, group, text))


def ours_take(scratch: Scratch, backend: str, times: int) -> float:
    with engine(scratch, backend, "process") as mq:
        publish(mq, times, BATCH)
        return per_second(times, lambda: take(mq, times))


def ours_after_acks(scratch: Scratch, backend: str, times: int, acks: int) -> float:
    """Publish right after many acks."""
    with engine(scratch, backend, "process") as mq:
        publish(mq, acks, BATCH)
        take(mq, acks)
        return per_second(times, lambda: publish(mq, times))


def run(quick: bool) -> dict[str, Any]:
    rounds = 3 if quick else 7
    times = 1_000 if quick else 4_000
    synced = 60 if quick else 250
    place = Scratch()
    rows = [
        *_files(place, rounds, times, synced, 4_000 if quick else 20_000),
        *_sqlite(place, rounds, times, synced),
        *_hybrid(place, rounds, times, 100 if quick else 400),
    ]
    return {"title": "The queue's stores", "about": ABOUT, "rows": [*rows, *_engine(place, rounds, times)]}


def _engine(scratch: Scratch, rounds: int, times: int) -> list[Row]:
    """Return what the engine takes without a disk: the least that ours adds to what is raw."""
    found = interleaved(
        rounds,
        {
            "publish": lambda: ours_publish(scratch, "memory", times),
            "take+ack": lambda: ours_take(scratch, "memory", times),
        },
    )
    return [
        row(f"the engine alone, {what}", goal="", met=None, ours=round(median(rates)), unit="/s")
        for what, rates in found.items()
    ]


def _files(scratch: Scratch, rounds: int, times: int, synced: int, acks: int) -> list[Row]:
    program = c_program(scratch)
    store = "filesystem"
    found = interleaved(
        rounds,
        {
            "c": write_c(scratch, program, times),
            "publish": lambda: ours_publish(scratch, store, times),
            "take raw": lambda: take_raw(scratch, times),
            "take": lambda: ours_take(scratch, store, times),
            "fsync": lambda: write_raw(scratch, synced, power=True),
            "power": lambda: ours_publish(scratch, store, synced, "power"),
            "power 16": lambda: ours_publish(scratch, store, synced * 4, "power", GROUP),
            "power 100": lambda: ours_publish(scratch, store, times, "power", BATCH),
            "unsynced": lambda: write_raw(scratch, times),
        },
    )
    # Last, and not among the others: what it removes makes creating slower for whoever comes next.
    rounds = min(rounds, 3)
    late = {
        "after acks": [ours_after_acks(scratch, store, times, acks) for _ in range(rounds)],
        "unsynced": found["unsynced"][:rounds],
    }
    c = "create+write+rename in C" if program else "create+write+rename in PYTHON, there is no C compiler"
    fsync = "write+fsync+rename+fsync(folder)"
    unsynced = "create+write+rename in Python, no sync"
    return [
        _row("filesystem publish", 0.80, found, "publish", "c", c, "process"),
        _row("filesystem take+ack", 0.65, found, "take", "take raw", "heap, rename, read, unlink", "process"),
        _row("filesystem publish, alone", 0.9, found, "power", "fsync", fsync, "power"),
        _row("filesystem publish, 16 callers", 2, found, "power 16", "fsync", f"{fsync}, one caller", "power"),
        _row("filesystem publish, batches of 100", 0.4, found, "power 100", "unsynced", unsynced, "power"),
        _row(f"filesystem publish after {acks:,} acks", 0.8, late, "after acks", "unsynced", unsynced, "process"),
    ]


def _sqlite(scratch: Scratch, rounds: int, times: int, synced: int) -> list[Row]:
    store, tables = "sqlite", SameTables(scratch)
    found = interleaved(
        rounds,
        {
            "raw": lambda: rows_raw(scratch, times, "NORMAL"),
            "publish": lambda: ours_publish(scratch, store, times),
            "take raw": lambda: take_rows_raw(scratch, times),
            "take": lambda: ours_take(scratch, store, times),
            "engine": lambda: ours_take(scratch, "memory", times),
            "raw 100": lambda: tables.publish(scratch, times * 4, "NORMAL"),
            "publish 100": lambda: ours_publish(scratch, store, times * 4, "process", BATCH),
            "full": lambda: rows_raw(scratch, synced, "FULL"),
            "power": lambda: ours_publish(scratch, store, synced, "power"),
            "power 16": lambda: ours_publish(scratch, store, synced * 4, "power", GROUP),
            "full 100": lambda: tables.publish(scratch, times * 2, "FULL"),
            "power 100": lambda: ours_publish(scratch, store, times * 2, "power", BATCH),
        },
    )
    table = "one table, prepared statements, WAL"
    same = "the same tables and indexes, prepared statements, WAL"
    return [
        _row("sqlite publish", 0.80, found, "publish", "raw", f"{table} NORMAL", "process"),
        _row("sqlite take+ack", 0.80, found, "take", "take raw", f"{table} NORMAL", "process"),
        _row("sqlite publish, batches of 100", 0.6, found, "publish 100", "raw 100", f"{same} NORMAL", "process"),
        _row("sqlite publish, alone", 0.95, found, "power", "full", f"{table} FULL", "power"),
        _row("sqlite publish, 16 callers", 3, found, "power 16", "full", f"{table} FULL, one caller", "power"),
        _row("sqlite publish, batches of 100", None, found, "power 100", "full 100", f"{same} FULL", "power"),
    ]


def _hybrid(scratch: Scratch, rounds: int, times: int, large: int) -> list[Row]:
    both = interleaved(
        rounds,
        {
            "raw": lambda: file_and_row(scratch, times),
            "publish": lambda: ours_publish(scratch, "hybrid", times),
            "take": lambda: ours_take(scratch, "hybrid", times),
            "large": lambda: ours_publish(scratch, "hybrid", large, text=LARGE),
            "large in sqlite": lambda: ours_publish(scratch, "sqlite", large, text=LARGE),
            "engine": lambda: ours_take(scratch, "memory", times),
        },
    )
    found = {**both, "raw": [first for first, _ in both["raw"]], "take raw": [second for _, second in both["raw"]]}
    return [
        _row("hybrid publish", 0.9, found, "publish", "raw", "payload file + one row", "process"),
        _row("hybrid take+ack", 0.9, found, "take", "take raw", "payload file + one row", "process"),
        _row("hybrid publish of 100 kB", 3, found, "large", "large in sqlite", "our sqlite store", "process"),
    ]


def _least(found: Mapping[str, list[float]], floor: str) -> str:
    if floor != "take raw" or "engine" not in found:
        return ""
    own, raw = (1e6 / median(found[name]) for name in ("engine", floor))
    return ENGINE.format(own=own, floor=raw, most=raw / (raw + own))


def _row(
    name: str,
    least: float | None,
    found: Mapping[str, list[float]],
    ours: str,
    floor: str,
    floor_is: str,
    durability: str,
) -> Row:
    reached = ratio(found[ours], found[floor])
    return row(
        name,
        goal="" if least is None else f"≥ {least:g}",
        met=None if least is None else reached >= least,
        ours=round(median(found[ours])),
        unit="/s",
        durability=durability,
        floor=round(median(found[floor])),
        floor_is=floor_is,
        ratio=round(reached, 2),
        reason=REASONS.get(name) or _least(found, floor),
    )
