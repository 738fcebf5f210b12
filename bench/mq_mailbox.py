"""The mailbox beside the least that two processes need to exchange two files.

The floor is an echo: both sides sleep on inotify, one file there and one file back, written and renamed,
read and removed, JSON decoded and encoded, nothing stored. Rounds of floor and ours are interleaved.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import sqlite3
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import orjson

from bench.figures import Row, interleaved, percentile, ratio, row
from bench.floors import sync_folder, write_file
from bench.homes import HOUSE, folder
from kingdom.mq.client import Client

BODY = json.dumps({"deviceId": "d-17", "seq": 1, "temp": 25.5, "pad": "x" * 440})
BATCH, CLIENTS = 100, 4
MOVED_TO = 0x80
ABOUT = (
    "The manager as its own process, clients that speak to it through files: how long one request takes, and how many "
    "operations (publish, consume, ack) a second. The floor is an echo that stores nothing: one file there, one back; "
    "for *power* it makes 500 bytes durable first. It sleeps until a file arrives; ours looks for a moment before it "
    "sleeps, while requests come at once."
)
SHARED = (
    "one client and the manager have a core each; with 4 clients an operation took {cost:.0f} µs of processor time, "
    "manager and client together: {cores} cores do at most {most:,.0f}/s, {gain:.1f} of one client"
)
BATCHED = (
    "client and manager wait for each other, and an operation of a batch took {cost:.0f} µs of processor time in both: "
    "at most {gain:.1f} of one client, between whose single requests neither side sleeps"
)
OWN_FILE = f"each message has a payload file of its own; {BATCHED}"
REASONS = {
    "process": "the echo itself varies by a factor of two over runs; ours adds the store and its directory operations",
    "filesystem": "files and folders are synced one after the other, the floor appends to one open file",
    "sqlite": "a commit of SQLite beside one fdatasync: see the syncs of one publish, below",
    "hybrid": "payload, folder and row are three syncs in a row, the floor has one: see the syncs, below",
}
_libc = ctypes.CDLL(None, use_errno=True)
_fork = get_context("fork")


def _watch(folder: str) -> int:
    fd = _libc.inotify_init1(os.O_CLOEXEC)
    if fd < 0 or _libc.inotify_add_watch(fd, folder.encode(), MOVED_TO) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    return int(fd)


def _arrived(fd: int) -> Iterator[str]:
    data, at = os.read(fd, 1 << 16), 0
    while at < len(data):
        (length,) = struct.unpack_from("I", data, at + 12)
        yield data[at + 16 : at + 16 + length].rstrip(b"\0").decode()
        at += 16 + length


def _put(draft: str, path: str, data: bytes, sync: bool = False) -> None:
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, data)
    if sync:
        os.fdatasync(fd)
    os.close(fd)
    os.rename(draft, path)


def _take(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    data = os.read(fd, 1 << 20)
    os.close(fd)
    os.unlink(path)
    return data


def _echo(base: str, synced: bool, ready: Any) -> None:
    """One process that answers; with `synced` it makes 500 bytes durable first, as a journal would."""
    fd = _watch(f"{base}/in")
    journal = os.open(f"{base}/journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    ready.set()
    made = 0
    while True:
        answers = []
        for name in _arrived(fd):
            if name == "stop":
                return
            request = orjson.loads(_take(f"{base}/in/{name}"))
            answer = orjson.dumps({"id": request["id"], "ok": True, "payload": request["payload"]})
            answers.append((request["client"], request["id"], answer))
        if synced:
            os.write(journal, BODY.encode())
            os.fdatasync(journal)
        for client, number, answer in answers:
            made += 1
            _put(f"{base}/tmp/s{made}", f"{base}/out/{client}/{number}", answer)


class Echo:
    """One client of the echo; it sends and gets back as many bodies as it is told."""

    def __init__(self, base: str, client: str) -> None:
        self._base, self._client = base, client
        os.makedirs(f"{base}/out/{client}", exist_ok=True)
        self._fd = _watch(f"{base}/out/{client}")
        self._sent = 0

    def call(self, bodies: int = 1) -> None:
        self._sent += 1
        name = f"{self._client}-{self._sent}"
        request = orjson.dumps({"id": name, "client": self._client, "payload": [BODY] * bodies})
        _put(f"{self._base}/tmp/{name}", f"{self._base}/in/{name}", request)
        while name not in list(_arrived(self._fd)):
            pass
        orjson.loads(_take(f"{self._base}/out/{self._client}/{name}"))

    def run(self, rounds: int) -> None:
        """As many calls as a round of publish, consume and ack takes."""
        for _ in range(3 * rounds):
            self.call()

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def echoing(synced: bool = False) -> Iterator[str]:
    base = folder()
    for name in ("in", "out", "tmp"):
        (base / name).mkdir()
    ready = _fork.Event()
    server = _fork.Process(target=_echo, args=(str(base), synced, ready))
    server.start()
    ready.wait(10)
    try:
        yield str(base)
    finally:
        _put(f"{base}/tmp/stop", f"{base}/in/stop", b"")
        server.join(5)


@contextmanager
def manager(backend: str, durability: str) -> Iterator[Path]:
    """Yield the mailbox of a running manager."""
    home = folder()
    (home / "config").mkdir()
    mailbox = home / "queue" / "mailbox"
    (mailbox / "requests").mkdir(parents=True)
    (home / "config" / "mq.yaml").write_text(json.dumps({"backend": backend, "durability": durability}))
    environment = {**os.environ, "KINGDOM_HOME": str(home)}
    process = subprocess.Popen([sys.executable, "-m", "kingdom.mailbox"], env=environment, cwd=HOUSE)
    try:
        with Client(mailbox, timeout=20) as client:
            client.health()
        yield mailbox
    finally:
        process.terminate()
        process.wait(20)


def _times(calls: int, call: Callable[[], object]) -> list[float]:
    found = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return found


class Rounds:
    """One client that publishes, consumes and acknowledges, one after the other, each timed."""

    def __init__(self, root: Path) -> None:
        self._client = Client(root, timeout=30)
        self.publish: list[float] = []
        self.consume: list[float] = []
        self.ack: list[float] = []

    def run(self, count: int) -> None:
        client = self._client
        for _ in range(count):
            a = time.perf_counter()
            client.publish("bench", BODY)
            b = time.perf_counter()
            delivery = client.consume("bench")
            c = time.perf_counter()
            assert delivery is not None
            client.ack(delivery)
            d = time.perf_counter()
            self.publish.append(b - a)
            self.consume.append(c - b)
            self.ack.append(d - c)

    def close(self) -> None:
        self._client.close()


def _worker(user: Callable[[], Any], seconds: float, go: Any, done: Any) -> None:
    client, rounds = user(), 0
    client.run(3)
    go.wait(30)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        client.run(5)
        rounds += 5
    done.put(3 * rounds / (time.perf_counter() - began))
    client.close()


def at_once(users: list[Callable[[], Any]], seconds: float) -> float:
    """Return the operations a second of several clients at once, each in a process of its own."""
    go, done = _fork.Event(), _fork.Queue()
    processes = [_fork.Process(target=_worker, args=(user, seconds, go, done)) for user in users]
    for process in processes:
        process.start()
    go.set()
    total = sum(done.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(10)
    return float(total)


def batches(root: Path, seconds: float) -> float:
    """Return the operations a second of one client that works in batches."""
    with Client(root, timeout=30) as client:
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            client.publish_batch("batches", [BODY] * BATCH)
            deliveries = client.consume_batch("batches", BATCH)
            client.ack_batch(deliveries)
            done += 3 * len(deliveries)
        return done / (time.perf_counter() - began)


def echoed_batches(base: str, seconds: float) -> float:
    """Return the same of an echo: each call is one operation on every body in it."""
    echo = Echo(base, "batches")
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        echo.call(BATCH)
        done += BATCH
    echo.close()
    return done / (time.perf_counter() - began)


def idle_wakeups(root: Path, seconds: float) -> int:
    """Return how often an idle manager was woken: its voluntary context switches."""
    pid = _manager_of(root)
    before = _switches(pid)
    select.select([], [], [], seconds)
    return _switches(pid) - before


def _manager_of(root: Path) -> int:
    (pid,) = [pid for pid in _pids() if str(root.parents[1]) in _environ(pid) and _is_manager(pid)]
    return pid


def _processor_seconds(pid: int) -> float:
    """Return what a process and our children that have ended have used of the processor."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9 + ended.ru_utime + ended.ru_stime


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environ(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text("utf-8", "replace")
    except OSError:
        return ""


def _is_manager(pid: int) -> bool:
    return b"kingdom.mailbox" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _switches(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("voluntary_ctxt")))


def run(quick: bool) -> dict[str, Any]:
    rounds, calls, seconds = (3, 150, 0.5) if quick else (7, 600, 1.5)
    rows: list[Row] = []
    for durability in ("process", "power"):
        for backend in ("filesystem", "sqlite") if quick else ("filesystem", "sqlite", "hybrid"):
            with echoing(durability == "power") as base, manager(backend, durability) as root:
                rows += _latencies(
                    base, root, backend, durability, rounds, calls if durability == "process" else calls // 3
                )
                rows += _throughputs(base, root, backend, durability, seconds, max(2, rounds // 2))
    rows += _syncs(rounds, calls // 3)
    rows.append(_idle(2.0 if quick else 10.0))
    return {"title": "The queue's mailbox", "about": ABOUT, "rows": rows}


def _syncs(rounds: int, calls: int) -> list[Row]:
    """Return what a publish on these stores has to make durable, in raw lines, beside the one fdatasync of the echo."""
    place = folder()
    (place / "payloads").mkdir()
    database = sqlite3.connect(place / "raw.db", isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "CREATE TABLE m (body TEXT)"):
        database.execute(statement)
    journal = os.open(place / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    names = map(str, count())

    def append() -> None:
        os.write(journal, BODY.encode())
        os.fdatasync(journal)

    def commit() -> None:
        database.execute("INSERT INTO m VALUES (?)", (BODY,))

    def file_and_commit() -> None:
        write_file(str(place / "payloads"), next(names), power=True)
        sync_folder(str(place / "payloads"))
        commit()

    works = {"append": append, "sqlite": commit, "hybrid": file_and_commit}
    found = interleaved(
        rounds, {what: lambda work=work: percentile(_times(calls, work), 0.5) * 1000 for what, work in works.items()}
    )
    database.close()
    os.close(journal)
    return [
        row(
            f"the syncs of one publish in raw lines, p50, {what}: {about}",
            durability="power",
            goal="",
            met=None,
            ours=round(statistics.median(found[what]), 3),
            unit="ms",
            floor=round(statistics.median(found["append"]), 3),
            floor_is="one fdatasync",
            ratio=round(ratio(found[what], found["append"]), 2),
        )
        for what, about in (("sqlite", "a commit"), ("hybrid", "payload, folder and a commit"))
    ]


def _latencies(base: str, root: Path, backend: str, durability: str, rounds: int, calls: int) -> list[Row]:
    floors: list[list[float]] = []
    ours: dict[str, list[list[float]]] = {"publish": [], "consume": [], "ack": []}
    echo = Echo(base, "bench")
    for number in range(rounds + 1):
        floor = _times(calls, echo.call)
        mine = Rounds(root)
        mine.run(calls)
        mine.close()
        if number == 0:
            continue
        floors.append(floor)
        for name, found in ours.items():
            found.append(getattr(mine, name))
    echo.close()
    rows = []
    for what, found in ours.items():
        for part, share, most in (("p50", 0.5, 1.6), ("p99", 0.99, 2.5)):
            mine_ms = [percentile(times, share) * 1000 for times in found]
            floor_ms = [percentile(times, share) * 1000 for times in floors]
            reached = ratio(mine_ms, floor_ms)
            rows.append(
                row(
                    f"mailbox {what} {part}, {backend}",
                    durability=durability,
                    goal=f"≤ {most:g}",
                    met=reached <= most,
                    ours=round(statistics.median(mine_ms), 3),
                    unit="ms",
                    floor=round(statistics.median(floor_ms), 3),
                    floor_is="echo" if durability == "process" else "echo and one fdatasync",
                    ratio=round(reached, 2),
                    reason=REASONS["process" if durability == "process" else backend],
                )
            )
    return rows


def _throughputs(base: str, root: Path, backend: str, durability: str, seconds: float, rounds: int) -> list[Row]:
    one, four, costs, batched, batch_costs, echo_four, echo_batched = [], [], [], [], [], [], []
    pid = _manager_of(root)
    echoes = [lambda number=number: Echo(base, f"client-{number}") for number in range(CLIENTS)]
    for _ in range(rounds):
        one.append(at_once([lambda: Rounds(root)], seconds))
        echo_four.append(at_once(echoes, seconds))
        before = _processor_seconds(pid)
        four.append(at_once([lambda: Rounds(root)] * CLIENTS, seconds))
        costs.append((_processor_seconds(pid) - before) / (four[-1] * seconds))
        echo_batched.append(echoed_batches(base, seconds))
        before = _processor_seconds(pid) + time.process_time()
        batched.append(batches(root, seconds))
        used = _processor_seconds(pid) + time.process_time() - before
        batch_costs.append(used / (batched[-1] * seconds))
    least = 6 if backend == "filesystem" else 15
    cost, cores = statistics.median(costs), os.cpu_count() or 1
    most = cores / cost
    shared = SHARED.format(cost=cost * 1e6, cores=cores, most=most, gain=most / statistics.median(one))
    cost = statistics.median(batch_costs)
    alone = (BATCHED if backend == "sqlite" else OWN_FILE).format(
        cost=cost * 1e6, gain=1 / cost / statistics.median(one)
    )
    rows = []
    for what, found, floor, times, reason in (
        (f"{CLIENTS} clients", four, echo_four, 2, shared),
        (f"batches of {BATCH}", batched, echo_batched, least, alone),
    ):
        gain = ratio(found, one)
        rows.append(
            row(
                f"mailbox {what}, {backend}",
                durability=durability,
                goal=f"≥ {times} of one client: {gain:.1f}",
                met=gain >= times,
                ours=round(statistics.median(found)),
                unit="operations/s",
                floor=round(statistics.median(floor)),
                floor_is=f"echo, {what}",
                ratio=round(ratio(found, floor), 2),
                reason=reason,
            )
        )
    return rows


def _idle(seconds: float) -> Row:
    with manager("memory", "process") as root:
        select.select([], [], [], 1.5)  # until the engine has tidied up after the first request
        woken = idle_wakeups(root, seconds)
    return row(f"idle manager, wake-ups in {seconds:g} s", goal="0", met=woken == 0, ours=woken, unit="wake-ups")
