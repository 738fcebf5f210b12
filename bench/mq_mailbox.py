"""The mailbox against the least that two processes need to exchange two files: performance row 3.

The floor is an echo: both sides sleep on inotify, one file there and one file back, written and renamed,
read and removed, JSON decoded and encoded, nothing stored. Rounds of floor and ours are interleaved.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import orjson

from kingdom.mq.client import Client

ROOT = Path(__file__).resolve().parents[1]
BODY = json.dumps({"deviceId": "d-17", "seq": 1, "temp": 25.5, "pad": "x" * 440})
MOVED_TO = 0x80
_libc = ctypes.CDLL(None, use_errno=True)
_fork = get_context("fork")

Row = dict[str, Any]


# --- the floor


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
            answers.append((request["client"], request["id"], orjson.dumps({"id": request["id"], "ok": True})))
        if synced:
            os.write(journal, BODY.encode())
            os.fdatasync(journal)
        for client, number, answer in answers:
            made += 1
            _put(f"{base}/tmp/s{made}", f"{base}/out/{client}/{number}", answer)


class Echo:
    def __init__(self, base: str, client: str) -> None:
        self._base, self._client = base, client
        os.makedirs(f"{base}/out/{client}", exist_ok=True)
        self._fd = _watch(f"{base}/out/{client}")
        self._sent = 0

    def call(self) -> None:
        self._sent += 1
        name = f"{self._client}-{self._sent}"
        request = orjson.dumps({"id": name, "client": self._client, "payload": {"message": BODY}})
        _put(f"{self._base}/tmp/{name}", f"{self._base}/in/{name}", request)
        while name not in list(_arrived(self._fd)):
            pass
        orjson.loads(_take(f"{self._base}/out/{self._client}/{name}"))

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def echoing(synced: bool = False) -> Iterator[str]:
    base = tempfile.mkdtemp(prefix="bench-echo-", dir=ROOT / "queue")
    for name in ("in", "out", "tmp"):
        os.mkdir(f"{base}/{name}")
    ready = _fork.Event()
    server = _fork.Process(target=_echo, args=(base, synced, ready))
    server.start()
    ready.wait(10)
    try:
        yield base
    finally:
        _put(f"{base}/tmp/stop", f"{base}/in/stop", b"")
        server.join(5)
        shutil.rmtree(base, ignore_errors=True)


# --- ours


@contextmanager
def manager(backend: str, durability: str) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="bench-mq-", dir=ROOT / "queue"))
    (home / "config").mkdir()
    (home / "queue" / "mailbox" / "requests").mkdir(parents=True)
    (home / "config" / "mq.yaml").write_text(json.dumps({"backend": backend, "durability": durability}))
    environment = {**os.environ, "KINGDOM_HOME": str(home)}
    process = subprocess.Popen([sys.executable, "-m", "kingdom.mailbox"], env=environment, cwd=ROOT)
    try:
        with Client(home / "queue" / "mailbox", timeout=20) as client:
            client.health()
        yield home / "queue" / "mailbox"
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(home, ignore_errors=True)


def _times(calls: int, call: Callable[[], object]) -> list[float]:
    found = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return found


class Rounds:
    """publish, consume and ack, one after the other, each timed."""

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


def _percentile(found: list[float], part: float) -> float:
    ordered = sorted(found)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1000


def _worker(root: Path, seconds: float, go: Any, done: Any) -> None:
    rounds = Rounds(root)
    rounds.run(3)
    rounds.publish.clear()
    go.wait(30)
    end = time.perf_counter() + seconds
    began = time.perf_counter()
    while time.perf_counter() < end:
        rounds.run(5)
    done.put(3 * len(rounds.publish) / (time.perf_counter() - began))
    rounds.close()


def clients(root: Path, count: int, seconds: float) -> float:
    """Operations a second of so many clients at once."""
    go, done = _fork.Event(), _fork.Queue()
    processes = [_fork.Process(target=_worker, args=(root, seconds, go, done)) for _ in range(count)]
    for process in processes:
        process.start()
    go.set()
    total = sum(done.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(10)
    return float(total)


def batches(root: Path, seconds: float, size: int = 100) -> float:
    """Operations a second of one client that works in batches."""
    with Client(root, timeout=30) as client:
        end, done, began = time.perf_counter() + seconds, 0, time.perf_counter()
        while time.perf_counter() < end:
            client.publish_batch("batches", [BODY] * size)
            deliveries = client.consume_batch("batches", size)
            client.ack_batch(deliveries)
            done += 3 * len(deliveries)
        return done / (time.perf_counter() - began)


def idle_wakeups(root: Path, seconds: float) -> int:
    """Voluntary context switches of an idle manager."""
    (pid,) = [pid for pid in _pids() if str(root.parents[1]) in _environ(pid) and _is_manager(pid)]
    before = _switches(pid)
    select.select([], [], [], seconds)
    return _switches(pid) - before


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


# --- the rows


def run(quick: bool) -> dict[str, Any]:
    rounds, calls, seconds = (3, 150, 0.5) if quick else (7, 600, 2.0)
    rows: list[Row] = []
    for durability in ("process", "power"):
        for backend in ("filesystem", "sqlite") if quick else ("filesystem", "sqlite", "hybrid"):
            rows += _latencies(backend, durability, rounds, calls if durability == "process" else calls // 3)
            rows += _throughputs(backend, durability, seconds, rounds)
    rows.append(_idle(2.0 if quick else 10.0))
    return {"title": "mailbox round trip", "rows": rows}


def _latencies(backend: str, durability: str, rounds: int, calls: int) -> list[Row]:
    floors: list[tuple[float, float]] = []
    ours: dict[str, list[tuple[float, float]]] = {"publish": [], "consume": [], "ack": []}
    with echoing(durability == "power") as base, manager(backend, durability) as root:
        echo = Echo(base, "bench")
        for number in range(rounds + 1):
            floor = _times(calls, echo.call)
            mine = Rounds(root)
            mine.run(calls)
            mine.close()
            if number == 0:
                continue
            floors.append((_percentile(floor, 0.5), _percentile(floor, 0.99)))
            for name, found in ours.items():
                times = getattr(mine, name)
                found.append((_percentile(times, 0.5), _percentile(times, 0.99)))
        echo.close()
    rows = []
    for name, found in ours.items():
        for index, (part, goal) in enumerate((("p50", 1.6), ("p99", 2.5))):
            ratios = [mine[index] / floor[index] for mine, floor in zip(found, floors, strict=True)]
            rows.append(
                {
                    "name": f"mailbox {name} {part}, {backend}",
                    "unit": "ms",
                    "ours": round(statistics.median(each[index] for each in found), 3),
                    "floor": round(statistics.median(each[index] for each in floors), 3),
                    "floor_is": "inotify echo" if durability == "process" else "inotify echo and one fdatasync",
                    "ratio": round(statistics.median(ratios), 2),
                    "goal": f"<= {goal}",
                    "durability": durability,
                }
            )
    return rows


def _throughputs(backend: str, durability: str, seconds: float, rounds: int) -> list[Row]:
    one, four, batch = [], [], []
    with manager(backend, durability) as root:
        for _ in range(max(2, rounds // 2)):
            one.append(clients(root, 1, seconds))
            four.append(clients(root, 4, seconds))
            batch.append(batches(root, seconds))
    goals = {"4 clients": ">= 2", "batches of 100": ">= 6" if backend == "filesystem" else ">= 15"}
    return [
        {
            "name": f"mailbox {name} against one client, {backend}",
            "unit": "operations/s",
            "ours": round(statistics.median(found)),
            "floor": round(statistics.median(one)),
            "floor_is": "one client, one at a time",
            "ratio": round(statistics.median(a / b for a, b in zip(found, one, strict=True)), 2),
            "goal": goals[name],
            "durability": durability,
        }
        for name, found in (("4 clients", four), ("batches of 100", batch))
    ]


def _idle(seconds: float) -> Row:
    with manager("memory", "process") as root:
        select.select([], [], [], 1.5)  # until the engine has tidied up after the first request
        woken = idle_wakeups(root, seconds)
    return {
        "name": f"idle manager, wake-ups in {seconds:g} s",
        "unit": "wake-ups",
        "ours": woken,
        "floor": 0,
        "floor_is": "sleep",
        "ratio": woken,
        "goal": "0",
        "durability": "process",
    }


if __name__ == "__main__":
    for row in run("--quick" in sys.argv)["rows"]:
        print(json.dumps(row))
