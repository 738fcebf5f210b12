"""What the machine can do at best: the same system calls in a few raw lines, without validation, order or recovery.

`python -m bench.floors INBOX OUTBOX process|power` is the echo.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
BODY = b"x" * 600
IN_MOVED_TO = 0x80
BATCH = 128
_libc = ctypes.CDLL(None, use_errno=True)


def write_file(folder: str, name: str, *, power: bool) -> None:
    """Write a new whole file under its name; its folder's own fsync is the caller's, once a group."""
    draft = f"{folder}/.{name}"
    fd = os.open(draft, NEW, 0o600)
    os.write(fd, BODY)
    if power:
        os.fsync(fd)
    os.close(fd)
    os.rename(draft, f"{folder}/{name}")


def machine() -> dict[str, float]:
    """Return a few figures to know the machine by, each the median of five short rounds."""
    root = Path(tempfile.mkdtemp(prefix="kingdom-bench-", dir=os.environ.get("KINGDOM_BENCH_DIR")))
    try:
        database = sqlite3.connect(root / "commits", isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE t (body BLOB)")
        rounds: dict[str, list[float]] = {}
        for number in range(5):
            folder = root / f"{number}"
            folder.mkdir()
            rates = {
                "files written and renamed /s": _files_per_second(f"{folder}", 500, power=False),
                "the same with fsync of file and folder /s": _files_per_second(f"{folder}", 40, power=True),
                "SQLite commits (WAL, FULL) /s": _commits_per_second(database, 40),
                "python -c pass ms": _python_ms(),
            }
            for name, rate in rates.items():
                rounds.setdefault(name, []).append(rate)
        database.close()
        return {name: round(statistics.median(rates), 1) for name, rates in rounds.items()}
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _files_per_second(folder: str, count: int, *, power: bool) -> float:
    began = time.perf_counter()
    for number in range(count):
        write_file(folder, f"{power}-{number}", power=power)
        if power:
            sync_folder(folder)
    return count / (time.perf_counter() - began)


def _commits_per_second(database: sqlite3.Connection, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        database.execute("INSERT INTO t VALUES (?)", (BODY,))
    return count / (time.perf_counter() - began)


def _python_ms() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return (time.perf_counter() - began) * 1e3


def sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def court_burst(root: Path, count: int, *, power: bool) -> float:
    """Events a second for the writes, fsyncs and moves of the court: the event read and written again with its note,
    a task, a message, the event moved; folders synced once a group, as ours are."""
    pending, dispatched, tasks, messages = (str(root / name) for name in ("pending", "dispatched", "tasks", "messages"))
    for folder in (pending, dispatched, tasks, messages):
        os.makedirs(folder)
    names = [f"evt-{number:05d}.json" for number in range(count)]
    for name in names:
        write_file(pending, name, power=False)
    os.sync()
    began = time.perf_counter()
    for first in range(0, count, BATCH):
        group = names[first : first + BATCH]
        for name in group:
            fd = os.open(f"{pending}/{name}", os.O_RDONLY)
            os.read(fd, 4096)
            os.close(fd)
        for folder in (pending, tasks, messages):
            for name in group:
                write_file(folder, name, power=power)
            if power:
                sync_folder(folder)
        for name in group:
            os.rename(f"{pending}/{name}", f"{dispatched}/{name}")
        if power:
            sync_folder(dispatched)
            sync_folder(pending)
    return count / (time.perf_counter() - began)


def watch(folder: str) -> int:
    """Return an inotify descriptor that tells what arrives in a folder."""
    fd: int = _libc.inotify_init1(os.O_CLOEXEC)
    if fd < 0 or _libc.inotify_add_watch(fd, os.fsencode(folder), IN_MOVED_TO) < 0:
        raise OSError(ctypes.get_errno(), "inotify", folder)
    return fd


def arrivals(fd: int) -> list[str]:
    data, at, names = os.read(fd, 1 << 20), 0, []
    while at < len(data):
        length = struct.unpack_from("iIII", data, at)[3]
        names.append(data[at + 16 : at + 16 + length].rstrip(b"\0").decode())
        at += 16 + length
    return names


def echo(inbox: str, outbox: str, *, power: bool) -> None:
    """Answer each file with a file: see the name, read it, write the answer, rename it in; say first that we listen."""
    fd = watch(inbox)
    print("listens", flush=True)
    while True:
        for name in arrivals(fd):
            source = os.open(f"{inbox}/{name}", os.O_RDONLY)
            os.read(source, 4096)
            os.close(source)
            write_file(outbox, name, power=power)


if __name__ == "__main__":
    echo(sys.argv[1], sys.argv[2], power=sys.argv[3] == "power")
