"""Our stores and our mailbox beside the queues that people use: the same 500-byte messages, rounds interleaved.

The peers live in an environment of their own under a cache folder, installed by package name; servers are used
where they are installed. What is not there is skipped, and said so. Every row says what it survives:

    power     acknowledged means on the platter
    process   survives a killed process, not a power cut
    no ack    a consumer that dies loses the message it took
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.mq_mailbox import ROOT, manager
from kingdom.mq import Client, Draft, EngineSettings, Plan, Policy, open_engine

BODY = json.dumps({"deviceId": "d-17", "seq": 1, "temp": 25.5, "pad": "x" * 440})
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kingdom-bench"
PACKAGES = (
    "persist-queue",
    "litequeue",
    "diskcache",
    "huey",
    "kombu",
    "redis",
    "greenstalk",
    "nats-py",
    "psycopg[binary]",
)
DEBS = {
    "beanstalkd": ("beanstalkd",),
    "nats-server": ("nats-server",),
    "redis-server": (
        *("redis-server", "redis-tools", "libhiredis0.14", "libjemalloc2", "liblua5.1-0", "liblzf1"),
        *("lua-cjson", "lua-bitop"),
    ),
}
"""Unpacked below the cache, never installed."""
ROOTS = CACHE / "programs"
INSTALL_SECONDS = 240.0
Row = dict[str, Any]


class Queue(Protocol):
    def publish(self, body: str) -> None: ...
    def take(self) -> str | None:
        """Consume and acknowledge one."""


@dataclass(frozen=True)
class Peer:
    """`works` names what has to be there; `server` starts what it talks to and yields its address."""

    name: str
    durability: str
    opens: Callable[[Path, Any], Queue]
    server: Callable[[Path], Any] | None = None
    module: str = ""
    program: str = ""


# --- ours


class OurStore:
    def __init__(self, backend: str, durability: Any, folder: Path) -> None:
        plan = Plan(
            root=folder, durability=durability, files=folder / "fs", payloads=folder / "p", database=folder / "d"
        )
        self._engine = open_engine(backend, plan, settings=EngineSettings(defaults=Policy.from_json({})))

    def publish(self, body: str) -> None:
        self._engine.publish("bench", Draft(body))
        self._engine.commit()

    def take(self) -> str | None:
        leased = self._engine.lease("bench", "c")
        self._engine.commit()
        if not leased:
            return None
        self._engine.ack(leased[0].message_key, leased[0].lease_id)
        self._engine.commit()
        return leased[0].payload

    def close(self) -> None:
        self._engine.close()


class OurMailbox:
    def __init__(self, root: Path) -> None:
        self._client = Client(root, timeout=30)

    def publish(self, body: str) -> None:
        self._client.publish("bench", body)

    def take(self) -> str | None:
        delivery = self._client.consume("bench")
        if delivery is None:
            return None
        self._client.ack(delivery)
        return delivery.text

    def close(self) -> None:
        self._client.close()


# --- libraries


class PersistFile:
    def __init__(self, folder: Path, address: Any) -> None:
        import persistqueue

        self._empty = persistqueue.Empty
        self._queue = persistqueue.Queue(str(folder / "q"), autosave=True)

    def publish(self, body: str) -> None:
        self._queue.put(body)

    def take(self) -> str | None:
        try:
            return str(self._queue.get(block=False))
        except self._empty:
            return None


class PersistAck:
    def __init__(self, folder: Path, address: Any) -> None:
        import persistqueue

        self._empty = persistqueue.Empty
        self._queue = persistqueue.SQLiteAckQueue(str(folder / "q"), auto_commit=True, multithreading=False)

    def publish(self, body: str) -> None:
        self._queue.put(body)

    def take(self) -> str | None:
        try:
            item = self._queue.get(block=False)
        except self._empty:
            return None
        self._queue.ack(item)
        return str(item)


class Lite:
    def __init__(self, folder: Path, address: Any) -> None:
        import litequeue

        self._queue = litequeue.LiteQueue(str(folder / "q.db"))

    def publish(self, body: str) -> None:
        self._queue.put(body)

    def take(self) -> str | None:
        message = self._queue.pop()
        if message is None:
            return None
        self._queue.done(message.message_id)
        return str(message.data)


class DiskDeque:
    def __init__(self, folder: Path, address: Any) -> None:
        import diskcache

        self._deque = diskcache.Deque(directory=str(folder / "q"))

    def publish(self, body: str) -> None:
        self._deque.append(body)

    def take(self) -> str | None:
        try:
            return str(self._deque.popleft())
        except IndexError:
            return None


class HueyFile:
    def __init__(self, folder: Path, address: Any) -> None:
        from huey.storage import FileStorage

        self._storage = FileStorage("bench", str(folder / "q"))

    def publish(self, body: str) -> None:
        self._storage.enqueue(body.encode())

    def take(self) -> str | None:
        found = self._storage.dequeue()
        return None if found is None else found.decode()


class HueySqlite(HueyFile):
    def __init__(self, folder: Path, address: Any) -> None:
        from huey.storage import SqliteStorage

        self._storage = SqliteStorage("bench", str(folder / "q.db"), fsync=True)


class Kombu:
    def __init__(self, folder: Path, address: Any) -> None:
        import kombu

        for name in ("messages", "control"):
            (folder / name).mkdir()
        box = str(folder / "messages")
        about = {"data_folder_in": box, "data_folder_out": box, "control_folder": str(folder / "control")}
        self._queue = kombu.Connection("filesystem://", transport_options=about).SimpleQueue("bench")

    def publish(self, body: str) -> None:
        self._queue.put(body)

    def take(self) -> str | None:
        try:
            message = self._queue.get(block=False)
        except self._queue.Empty:
            return None
        message.ack()
        return str(message.payload)


# --- servers


@contextmanager
def serving(argv: list[str], port: int, *, user: str = "") -> Iterator[int]:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(argv, stdout=quiet, stderr=quiet, user=user or None, env=_surroundings())
    try:
        until = time.monotonic() + 20
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if time.monotonic() > until or process.poll() is not None:
                raise RuntimeError(f"{argv[0]} does not serve")
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(15)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def beanstalkd(folder: Path) -> Any:
    port = free_port()
    return serving(["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", str(folder), "-f0"], port)


def redis_with(sync: str) -> Callable[[Path], Any]:
    def start(folder: Path) -> Any:
        port = free_port()
        argv = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        return serving([*argv, "--appendonly", "yes", "--appendfsync", sync], port)

    return start


def nats(folder: Path) -> Any:
    port = free_port()
    return serving(["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)], port)


@contextmanager
def postgresql(folder: Path) -> Iterator[int]:
    import pwd

    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    place = Path(tempfile.mkdtemp(prefix="bench-pg-", dir="/tmp"))  # its user must get there
    shutil.chown(place, user)
    port = free_port()
    binaries = Path(os.path.realpath(shutil.which("postgres") or "")).parent
    init = [str(binaries / "initdb"), "-D", str(place / "data"), "-A", "trust", "-U", "bench"]
    run = [str(binaries / "postgres"), "-D", str(place / "data"), "-p", str(port), "-k", str(place)]
    as_user = user if os.geteuid() == 0 else None
    try:
        subprocess.run(init, check=True, capture_output=True, user=as_user)
        with serving([*run, "-c", "listen_addresses=127.0.0.1"], port, user=as_user or "") as there:
            is_ready = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
            until = time.monotonic() + 20
            while subprocess.run(is_ready, check=False).returncode and time.monotonic() < until:
                time.sleep(0.05)
            yield there
    finally:
        shutil.rmtree(place, ignore_errors=True)


class Bean:
    def __init__(self, folder: Path, port: int) -> None:
        import greenstalk

        self._none = greenstalk.TimedOutError
        self._client = greenstalk.Client(("127.0.0.1", port))

    def publish(self, body: str) -> None:
        self._client.put(body)

    def take(self) -> str | None:
        try:
            job = self._client.reserve(timeout=0)
        except self._none:
            return None
        self._client.delete(job)
        return str(job.body)


class RedisStream:
    def __init__(self, folder: Path, port: int) -> None:
        import redis

        self._redis = redis.Redis(port=port, decode_responses=True)
        with suppress(redis.ResponseError):
            self._redis.xgroup_create("bench", "workers", mkstream=True)

    def publish(self, body: str) -> None:
        self._redis.xadd("bench", {"body": body})

    def take(self) -> str | None:
        found = self._redis.xreadgroup("workers", "one", {"bench": ">"}, count=1)
        if not found:
            return None
        entries = next(iter(found.values())) if isinstance(found, dict) else found[0][1]
        number, fields = entries[0] if not isinstance(entries[0], list) else entries[0][0]
        self._redis.xack("bench", "workers", number)
        return str(fields["body"])


class Nats:
    def __init__(self, folder: Path, port: int) -> None:
        import asyncio

        import nats

        self._loop = asyncio.new_event_loop()
        self._connection = self._wait(nats.connect(f"nats://127.0.0.1:{port}"))
        self._stream = self._connection.jetstream()
        with suppress(Exception):  # a second round finds it there
            self._wait(self._stream.add_stream(name="BENCH", subjects=["bench"]))
        self._consumer = self._wait(self._stream.pull_subscribe("bench", durable="workers"))

    def _wait(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def publish(self, body: str) -> None:
        self._wait(self._stream.publish("bench", body.encode()))

    def take(self) -> str | None:
        (message,) = self._wait(self._consumer.fetch(1, timeout=5))
        self._wait(message.ack_sync())
        return str(message.data.decode())

    def close(self) -> None:
        self._wait(self._connection.close())
        self._loop.close()


class Postgres:
    LEASE = (
        "UPDATE jobs SET taken = now() WHERE id = (SELECT id FROM jobs WHERE taken IS NULL ORDER BY id"
        " FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id, body"
    )

    def __init__(self, folder: Path, port: int) -> None:
        import psycopg

        where = f"host=127.0.0.1 port={port} user=bench dbname=postgres"
        self._db = psycopg.connect(where, autocommit=True, prepare_threshold=1)
        self._db.execute("CREATE TABLE IF NOT EXISTS jobs (id bigserial PRIMARY KEY, taken timestamptz, body text)")
        self._db.execute("CREATE INDEX IF NOT EXISTS waiting ON jobs (id) WHERE taken IS NULL")

    def publish(self, body: str) -> None:
        self._db.execute("INSERT INTO jobs (body) VALUES (%s)", (body,))

    def take(self) -> str | None:
        row = self._db.execute(self.LEASE).fetchone()
        if row is None:
            return None
        self._db.execute("DELETE FROM jobs WHERE id = %s", (row[0],))
        return str(row[1])

    def close(self) -> None:
        self._db.close()


def _ours() -> list[Peer]:
    def store(backend: str, durability: str) -> Callable[[Path, Any], Queue]:
        return lambda folder, _: OurStore(backend, durability, folder)

    def mailbox(backend: str, durability: str) -> Peer:
        return Peer(
            f"our mailbox, {backend}",
            durability,
            lambda folder, root: OurMailbox(root),
            server=lambda folder: manager(backend, durability),
        )

    levels = ("process", "power")
    stores = [
        Peer(f"our {backend} store", level, store(backend, level))
        for level in levels
        for backend in ("filesystem", "sqlite", "hybrid")
    ]
    return [*stores, *(mailbox(backend, level) for level in levels for backend in ("filesystem", "sqlite"))]


PEERS: list[Peer] = [
    *_ours(),
    Peer("persist-queue file", "no ack", PersistFile, module="persistqueue"),
    Peer("persist-queue ack-sqlite", "power", PersistAck, module="persistqueue"),
    Peer("litequeue", "process", Lite, module="litequeue"),
    Peer("diskcache Deque", "no ack", DiskDeque, module="diskcache"),
    Peer("huey file", "no ack", HueyFile, module="huey"),
    Peer("huey sqlite", "no ack", HueySqlite, module="huey"),
    Peer("kombu filesystem", "no ack", Kombu, module="kombu"),
    Peer("beanstalkd -f0", "power", Bean, beanstalkd, "greenstalk", "beanstalkd"),
    Peer("redis streams everysec", "process", RedisStream, redis_with("everysec"), "redis", "redis-server"),
    Peer("redis streams always", "power", RedisStream, redis_with("always"), "redis", "redis-server"),
    Peer("NATS JetStream file", "process", Nats, nats, "nats", "nats-server"),
    Peer("PostgreSQL SKIP LOCKED", "power", Postgres, postgresql, "psycopg", "postgres"),
]


# --- measuring


def environment() -> Path | None:
    """The peers' own environment; None, loudly, when it cannot be made."""
    python = CACHE / "bin" / "python"
    stamp = CACHE / "packages"
    wanted = "\n".join(PACKAGES)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", str(CACHE)], check=True, capture_output=True, timeout=120)
        argv = [str(python), "-m", "pip", "install", "--quiet", *PACKAGES]
        subprocess.run(argv, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as trouble:
        print(f"bench: NO PEER LIBRARIES: {trouble}", file=sys.stderr)
        return None
    stamp.write_text(wanted)
    return python


def _surroundings() -> dict[str, str]:
    """Where the unpacked programs and their libraries are found."""
    folders = [str(ROOTS / "usr" / "bin"), str(ROOTS / "usr" / "sbin"), os.environ.get("PATH", "")]
    libraries = [str(folder) for folder in sorted((ROOTS / "usr" / "lib").glob("*-linux-gnu"))]
    return {**os.environ, "PATH": ":".join(folders), "LD_LIBRARY_PATH": ":".join(libraries)}


def fetch_programs() -> None:
    """Where Debian's packages can be had, servers that are not installed are unpacked into the cache."""
    for program, packages in DEBS.items():
        if shutil.which(program, path=_surroundings()["PATH"]) or not shutil.which("apt-get"):
            continue
        place = CACHE / "packages.d" / program
        place.mkdir(parents=True, exist_ok=True)
        try:
            argv = ["apt-get", "download", *packages]
            subprocess.run(argv, cwd=place, check=True, capture_output=True, timeout=INSTALL_SECONDS)
            for package in place.glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(package), str(ROOTS)], check=True, capture_output=True)
        except (OSError, subprocess.SubprocessError) as trouble:
            print(f"bench: NO {program}: {trouble}", file=sys.stderr)


def use(python: Path) -> None:
    """Only what we do not have ourselves comes from there."""
    found = sorted((python.parents[1] / "lib").glob("python3*/site-packages"))
    sys.path.extend(str(folder) for folder in found)


def missing(peer: Peer) -> str:
    from importlib.util import find_spec

    if peer.module and peer.module not in sys.modules and find_spec(peer.module) is None:
        return f"package {peer.module} is not there"
    if peer.program and shutil.which(peer.program, path=_surroundings()["PATH"]) is None:
        return f"program {peer.program} is not there"
    return ""


def measure(peer: Peer, seconds: float) -> tuple[float, float]:
    """Messages a second: published, and consumed with acknowledgement. Each round starts empty."""
    folder = Path(tempfile.mkdtemp(prefix="bench-peer-", dir=ROOT / "queue"))
    try:
        with ExitStack() as stack:
            address = stack.enter_context(peer.server(folder)) if peer.server else None
            queue = peer.opens(folder, address)
            stack.callback(getattr(queue, "close", lambda: None))
            queue.publish(BODY)
            queue.take()
            published, took = _while(seconds, lambda: (queue.publish(BODY),))
            found, spent = _while(seconds, queue.take, published)
            return published / took, found / spent
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _while(seconds: float, work: Callable[[], object], most: int = 1 << 60) -> tuple[int, float]:
    """How often it did something, and how long that took. A take that came back empty-handed did nothing."""
    done, began = 0, time.perf_counter()
    while done < most and time.perf_counter() - began < seconds:
        done += work() is not None
    return max(done, 1), time.perf_counter() - began


BEST = {"process": ("our sqlite store", "our filesystem store"), "power": ("our sqlite store", "our filesystem store")}


def run(quick: bool) -> dict[str, Any]:
    rounds, seconds = (1, 0.12) if quick else (5, 0.8)
    python = environment() if not quick or (CACHE / "packages").exists() else None
    if python is not None:
        use(python)
    if not quick:
        fetch_programs()
    skipped = {peer.name: why for peer in PEERS if (why := missing(peer))}
    chosen = [peer for peer in PEERS if peer.name not in skipped]
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for peer in chosen:
            if peer.name in skipped:
                continue
            try:
                found.setdefault((peer.name, peer.durability), []).append(measure(peer, seconds))
            except Exception as trouble:  # noqa: BLE001 - a peer that breaks must not cost the others' figures
                skipped[peer.name] = f"{type(trouble).__name__}: {trouble}"
    for name, why in skipped.items():
        print(f"bench: SKIPPED {name}: {why}", file=sys.stderr)
    return {"title": "peers", "rows": _rows(found), "skipped": skipped}


def _rows(found: dict[tuple[str, str], list[tuple[float, float]]]) -> list[Row]:
    """Each beside our best of the same durability; queues without acknowledgement beside `process`."""
    rows = []
    for (name, durability), rates in found.items():
        level = "process" if durability == "no ack" else durability
        for index, what in enumerate(("publish", "consume+ack")):
            ours = max(
                statistics.median(rate[index] for rate in found[mine, level])
                for mine in BEST[level]
                if (mine, level) in found
            )
            theirs = statistics.median(rate[index] for rate in rates)
            rows.append(
                {
                    "name": f"{name}: {what}",
                    "unit": "messages/s",
                    "ours": round(ours),
                    "peer": round(theirs),
                    "floor": round(theirs),
                    "floor_is": name,
                    "ratio": round(ours / theirs, 2),
                    "goal": "",
                    "durability": durability,
                }
            )
    return rows


if __name__ == "__main__":
    told = run("--quick" in sys.argv)
    for row in told["rows"]:
        print(f"{row['name']:45s} {row['durability']:8s} {row['peer']:>9,} /s   our best / it: {row['ratio']}")
