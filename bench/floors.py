"""What the machine can do at best: the same system calls in a few raw lines, without validation, order or recovery."""

from __future__ import annotations

import ctypes
import os
import select
import sqlite3
import statistics
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import orjson

from bench.figures import interleaved, per_second, seconds

FORK = get_context("fork")
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
BODY = '{"deviceId": "d-17", "seq": 1, "temp": 25.5, "pad": "' + "x" * 440 + '"}'
IN_MOVED_TO = 0x80
WAIT_SECONDS = 60.0
_libc = ctypes.CDLL(None, use_errno=True)


def write_file(folder: str, name: str, *, power: bool = False, data: bytes = BODY.encode(), tmp: str = "") -> None:
    """Write a new whole file under its name; its folder's own fsync is the caller's, once a group."""
    draft = f"{tmp or folder}/.{name}"
    fd = os.open(draft, NEW, 0o600)
    os.write(fd, data)
    if power:
        os.fsync(fd)
    os.close(fd)
    os.rename(draft, f"{folder}/{name}")


def read_file(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    data = os.read(fd, 1 << 20)
    os.close(fd)
    return data


def sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def open_database(path: Path, synchronous: str, *statements: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", f"PRAGMA synchronous = {synchronous}", *statements):
        database.execute(statement)
    return database


def machine(root: Path) -> dict[str, float]:
    """Return a few figures to know the machine by, each the median of five short rounds."""
    database = open_database(root / "commits", "FULL", "CREATE TABLE t (body BLOB)")
    names, folder = map(str, count()), str(root)

    def files(times: int, *, power: bool) -> None:
        for _ in range(times):
            write_file(folder, next(names), power=power)
            if power:
                sync_folder(folder)

    def commits() -> None:
        for _ in range(40):
            database.execute("INSERT INTO t VALUES (?)", (BODY,))

    rates = {
        "files written and renamed /s": lambda: per_second(500, lambda: files(500, power=False)),
        "the same with fsync of file and folder /s": lambda: per_second(40, lambda: files(40, power=True)),
        "SQLite commits (WAL, FULL) /s": lambda: per_second(40, commits),
        "python -c pass ms": lambda: seconds(python_alone) * 1e3,
    }
    found = {name: round(statistics.median(rounds), 1) for name, rounds in interleaved(5, rates).items()}
    database.close()
    return found


def python_alone() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


class Watch:
    """What arrives in a folder, by inotify."""

    def __init__(self, folder: object) -> None:
        self.fd: int = _libc.inotify_init1(os.O_CLOEXEC)
        if self.fd < 0 or _libc.inotify_add_watch(self.fd, os.fsencode(str(folder)), IN_MOVED_TO) < 0:
            raise OSError(ctypes.get_errno(), "inotify", str(folder))

    def names(self) -> list[str]:
        """Wait for files. Return the names of those that have come."""
        if not select.select([self.fd], [], [], WAIT_SECONDS)[0]:
            raise TimeoutError("nothing has come for a minute")
        data, at, names = os.read(self.fd, 1 << 20), 0, []
        while at < len(data):
            length = struct.unpack_from("iIII", data, at)[3]
            names.append(data[at + 16 : at + 16 + length].rstrip(b"\0").decode())
            at += 16 + length
        return names

    def wait(self, number: int) -> list[str]:
        names: list[str] = []
        while len(names) < number:
            names += self.names()
        return names

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


def court_burst(root: Path, number: int, *, power: bool) -> float:
    """Events a second for the writes, fsyncs and moves of the court: the event read and written again with its note,
    a task, a message, the event moved; folders synced once a group of 128, as ours are."""
    pending, dispatched, tasks, messages = (str(root / name) for name in ("pending", "dispatched", "tasks", "messages"))
    for folder in (pending, dispatched, tasks, messages):
        os.makedirs(folder)
    names = [f"evt-{at:05d}.json" for at in range(number)]
    for name in names:
        write_file(pending, name)
    os.sync()

    def work() -> None:
        for first in range(0, number, 128):
            group = names[first : first + 128]
            for name in group:
                read_file(f"{pending}/{name}")
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

    return per_second(number, work)


def _echo(base: str, power: bool, ready: Any) -> None:
    """Answer each file with a file; with `power` after 500 bytes have been made durable, as by a journal."""
    journal = os.open(f"{base}/journal", NEW | os.O_APPEND, 0o600)
    with Watch(f"{base}/in") as requests:
        ready.set()
        for number in count():
            answers = []
            for name in requests.names():
                if name == "stop":
                    return
                request = orjson.loads(read_file(f"{base}/in/{name}"))
                os.unlink(f"{base}/in/{name}")
                answers.append((request["client"], name, orjson.dumps({**request, "ok": True, "number": number})))
            if power:
                os.write(journal, BODY.encode())
                os.fdatasync(journal)
            for client, name, answer in answers:
                write_file(f"{base}/out/{client}", name, data=answer, tmp=f"{base}/tmp")


class Echo:
    """One client of the echo."""

    def __init__(self, base: Path, client: str = "bench") -> None:
        self._base, self._client = str(base), client
        self._out = f"{base}/out/{client}"
        os.makedirs(self._out, exist_ok=True)
        self._watch, self._names = Watch(self._out), map(str, count())

    def call(self) -> None:
        name = f"{self._client}-{next(self._names)}"
        request = orjson.dumps({"client": self._client, "payload": [BODY]})
        write_file(f"{self._base}/in", name, data=request, tmp=f"{self._base}/tmp")
        while name not in self._watch.names():
            pass
        orjson.loads(read_file(f"{self._out}/{name}"))
        os.unlink(f"{self._out}/{name}")


@contextmanager
def echoing(base: Path, *, power: bool) -> Iterator[Path]:
    """The least that two processes need to exchange two files."""
    for name in ("in", "out", "tmp"):
        (base / name).mkdir()
    ready = FORK.Event()
    server = FORK.Process(target=_echo, args=(str(base), power, ready))
    server.start()
    ready.wait(10)
    try:
        yield base
    finally:
        write_file(f"{base}/in", "stop", tmp=f"{base}/tmp")
        server.join(5)
