"""The stores against the same work in raw lines: performance rows 1 and 2.

Floors do nothing but the system calls or statements: no ids, no envelope, no rules, no recovery. They are
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
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from bench.figures import Row, interleaved, median, ratio, row
from kingdom.disk.atomic import Durability
from kingdom.mq.engine import Engine, open_engine
from kingdom.mq.message_format import Draft
from kingdom.mq.policy import Policy
from kingdom.mq.queues import EngineSettings
from kingdom.mq.stores.base import Plan

PAYLOAD = '{"deviceId": "d-17", "seq": 1, "temp": 25.5, "pad": "' + "x" * 440 + '"}'
BODY = PAYLOAD.encode()
LARGE = '{"pad": "' + "x" * 100_000 + '"}'
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

Contest = Callable[[], float]


class Ground:
    """A folder for everything, cleared once at the end."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="kd-bench-", dir=os.environ.get("BENCH_DIR", "/tmp")))
        self._numbers = count()

    def fresh(self) -> Path:
        folder = self.root / f"{next(self._numbers)}"
        folder.mkdir()
        return folder


def per_second(times: int, work: Callable[[], object], *, settled: bool = False) -> float:
    """`settled`: what others of this run left unwritten goes first, or a sync would have to carry it."""
    if settled:
        os.sync()
    began = time.perf_counter()
    work()
    return times / (time.perf_counter() - began)


# --- floors


def c_program(ground: Ground) -> Path | None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("NO C COMPILER: row 1 is measured against the same calls from Python, a LOWER floor", file=sys.stderr)
        return None
    source, program = ground.root / "floor.c", ground.root / "floor"
    source.write_text(C_FLOOR)
    subprocess.run([compiler, "-O2", "-o", program, source], check=True)
    return program


def write_c(ground: Ground, program: Path | None, times: int) -> Contest:
    if program is None:
        return lambda: write_raw(ground, times)
    command = [str(program), "", str(times), str(len(BODY))]
    return lambda: float(subprocess.check_output([command[0], str(ground.fresh()), *command[2:]]))


def write_raw(ground: Ground, times: int, *, power: bool = False) -> float:
    folder = ground.fresh()
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

    speed = per_second(times, work, settled=power)
    os.close(there)
    return speed


def take_raw(ground: Ground, times: int) -> float:
    """Heap, rename, read, unlink: a queue of files without anything that makes it one."""
    folder = ground.fresh()
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

    def publish(self, times: int, batch: int = 1, file: str = "") -> None:
        execute = self.db.execute
        for first in range(0, times, batch):
            if batch > 1:
                execute("BEGIN")
            for number in range(first, min(first + batch, times)):
                if file:
                    fd = os.open(f"{file}/tmp", NEW, 0o600)
                    os.write(fd, BODY)
                    os.close(fd)
                    os.rename(f"{file}/tmp", f"{file}/{number}")
                execute(self.INSERT, (QUEUE, number, str(number) if file else BODY))
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


def rows_raw(ground: Ground, times: int, synchronous: str, batch: int = 1) -> float:
    table = RawRows(ground.fresh(), synchronous)
    return per_second(times, lambda: table.publish(times, batch), settled=synchronous == "FULL")


def take_rows_raw(ground: Ground, times: int) -> float:
    table = RawRows(ground.fresh(), "NORMAL")
    table.publish(times, BATCH)
    return per_second(times, lambda: table.take(times))


def file_and_row(ground: Ground, times: int) -> tuple[float, float]:
    folder = ground.fresh()
    table, files = RawRows(folder, "NORMAL"), f"{folder}/files"
    os.mkdir(files)
    publish = per_second(times, lambda: table.publish(times, 1, files))
    return publish, per_second(times, lambda: table.take(times, files))


# --- ours


@contextmanager
def engine(ground: Ground, backend: str, durability: Durability) -> Iterator[Engine]:
    settings = EngineSettings(Policy.from_json({}))
    mq = open_engine(backend, Plan(root=ground.fresh(), durability=durability), settings=settings)
    mq.queues.declare(QUEUE)
    try:
        yield mq
    finally:
        mq.store.close()
        assert mq._lock is not None
        mq._lock.release()


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
    ground: Ground, backend: str, times: int, durability: Durability = "process", group: int = 1, text: str = PAYLOAD
) -> float:
    with engine(ground, backend, durability) as mq:
        return per_second(times, lambda: publish(mq, times, group, text), settled=durability == "power")


def ours_take(ground: Ground, backend: str, times: int) -> float:
    with engine(ground, backend, "process") as mq:
        publish(mq, times, BATCH)
        return per_second(times, lambda: take(mq, times))


def ours_again(ground: Ground, backend: str, times: int, acks: int) -> tuple[float, float]:
    """Publishing at first, and right after many acks."""
    with engine(ground, backend, "process") as mq:
        fresh = per_second(times, lambda: publish(mq, times))
        publish(mq, acks - times, BATCH)
        take(mq, acks)
        return fresh, per_second(times, lambda: publish(mq, times))


# --- the rows


def run(quick: bool) -> dict[str, Any]:
    rounds = 3 if quick else 7
    times = 1_000 if quick else 4_000
    synced = 60 if quick else 250
    ground = Ground()
    try:
        rows = [
            *_files(ground, rounds, times, synced, 4_000 if quick else 20_000),
            *_sqlite(ground, rounds, times, synced),
            *_hybrid(ground, rounds, times, 100 if quick else 400),
        ]
    finally:
        shutil.rmtree(ground.root, ignore_errors=True)
    return {"title": "MQ stores", "rows": rows, "curves": []}


def _files(ground: Ground, rounds: int, times: int, synced: int, acks: int) -> list[Row]:
    program = c_program(ground)
    store = "filesystem"
    seen = interleaved(
        rounds,
        {
            "c": write_c(ground, program, times),
            "publish": lambda: ours_publish(ground, store, times),
            "take raw": lambda: take_raw(ground, times),
            "take": lambda: ours_take(ground, store, times),
            "fsync": lambda: write_raw(ground, synced, power=True),
            "power": lambda: ours_publish(ground, store, synced, "power"),
            "power 16": lambda: ours_publish(ground, store, synced * 4, "power", GROUP),
            "power 100": lambda: ours_publish(ground, store, times, "power", BATCH),
            "unsynced": lambda: write_raw(ground, times),
        },
    )
    again = [ours_again(ground, store, times, acks) for _ in range(min(rounds, 3))]
    c = "create+write+rename in C" if program else "create+write+rename in PYTHON, there is no C compiler"
    return [
        _row("filesystem publish", "≥ 0.80", 0.80, seen, "publish", "c", c, "process"),
        _row("filesystem take+ack", "≥ 0.65", 0.65, seen, "take", "take raw", "raw heap of files", "process"),
        _row(
            "filesystem publish, alone", "≥ 0.9", 0.9, seen, "power", "fsync", "write+fsync+rename+fsync(dir)", "power"
        ),
        _row(
            "filesystem publish, 16 callers", "≥ 2", 2, seen, "power 16", "fsync", "one of the above at a time", "power"
        ),
        _row(
            "filesystem publish, batches of 100",
            "≥ 0.4",
            0.4,
            seen,
            "power 100",
            "unsynced",
            "unsynced writes",
            "power",
        ),
        _row(
            f"filesystem publish right after {acks:,} acks",
            "≥ 0.8",
            0.8,
            {"again": [after for _, after in again], "fresh": [fresh for fresh, _ in again]},
            "again",
            "fresh",
            "its own fresh rate",
            "process",
        ),
    ]


def _sqlite(ground: Ground, rounds: int, times: int, synced: int) -> list[Row]:
    store = "sqlite"
    seen = interleaved(
        rounds,
        {
            "raw": lambda: rows_raw(ground, times, "NORMAL"),
            "publish": lambda: ours_publish(ground, store, times),
            "take raw": lambda: take_rows_raw(ground, times),
            "take": lambda: ours_take(ground, store, times),
            "raw 100": lambda: rows_raw(ground, times * 4, "NORMAL", BATCH),
            "publish 100": lambda: ours_publish(ground, store, times * 4, "process", BATCH),
            "full": lambda: rows_raw(ground, synced, "FULL"),
            "power": lambda: ours_publish(ground, store, synced, "power"),
            "power 16": lambda: ours_publish(ground, store, synced * 4, "power", GROUP),
            "full 100": lambda: rows_raw(ground, times * 2, "FULL", BATCH),
            "power 100": lambda: ours_publish(ground, store, times * 2, "power", BATCH),
        },
    )
    one = "one table, prepared statements, WAL NORMAL"
    return [
        _row("sqlite publish", "≥ 0.80", 0.80, seen, "publish", "raw", one, "process"),
        _row("sqlite take+ack", "≥ 0.80", 0.80, seen, "take", "take raw", one, "process"),
        _row(
            "sqlite publish, batches of 100", "≥ 0.5", 0.5, seen, "publish 100", "raw 100", "100 per commit", "process"
        ),
        _row("sqlite publish, alone", "≥ 0.95", 0.95, seen, "power", "full", "one FULL commit", "power"),
        _row("sqlite publish, 16 callers", "≥ 3", 3, seen, "power 16", "full", "one FULL commit at a time", "power"),
        _row(
            "sqlite publish, batches of 100",
            "see peers: 20 x beanstalkd -f0",
            None,
            seen,
            "power 100",
            "full 100",
            "100 per FULL commit",
            "power",
        ),
    ]


def _hybrid(ground: Ground, rounds: int, times: int, large: int) -> list[Row]:
    both = interleaved(
        rounds,
        {
            "raw": lambda: file_and_row(ground, times),
            "publish": lambda: ours_publish(ground, "hybrid", times),
            "take": lambda: ours_take(ground, "hybrid", times),
            "large": lambda: ours_publish(ground, "hybrid", large, text=LARGE),
            "large sqlite": lambda: ours_publish(ground, "sqlite", large, text=LARGE),
        },
    )
    seen = {**both, "raw": [first for first, _ in both["raw"]], "take raw": [second for _, second in both["raw"]]}
    return [
        _row("hybrid publish", "≥ 0.9", 0.9, seen, "publish", "raw", "payload file + one row", "process"),
        _row("hybrid take+ack", "≥ 0.9", 0.9, seen, "take", "take raw", "payload file + one row", "process"),
        _row("hybrid publish of 100 kB", "≥ 3", 3, seen, "large", "large sqlite", "our sqlite store", "process"),
    ]


def _row(
    name: str,
    goal: str,
    least: float | None,
    seen: Mapping[str, list[float]],
    ours: str,
    floor: str,
    floor_is: str,
    durability: str,
) -> Row:
    reached = ratio(seen[ours], seen[floor])
    return row(
        name,
        goal=goal,
        met=None if least is None else reached >= least,
        ours=round(median(seen[ours])),
        unit="/s",
        durability=durability,
        floor=round(median(seen[floor])),
        floor_is=floor_is,
        ratio=round(reached, 2),
    )


if __name__ == "__main__":
    for each in run("--quick" in sys.argv)["rows"]:
        mark = "" if each["met"] else "  SHORT"
        print(
            f"{each['name']:44} {each['durability']:8} {each['ours']:>9,}/s  floor {each['floor']:>9,}/s "
            f"{each['ratio']:6.2f}  goal {each['goal']}{mark}"
        )
