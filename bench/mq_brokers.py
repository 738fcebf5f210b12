"""The mailbox beside brokers: a client in this process, the queue in another."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench import mq_clients, mq_costs
from bench.figures import Row, row
from bench.mq_mailbox import manager
from bench.mq_peers import BACKLOG, Peer, surroundings, table
from kingdom.mq.client import Client
from tests.ports import free_port

ABOUT = (
    f"The queue in another process, messages of 500 bytes, {BACKLOG:,} waiting before each measure. Ours speaks "
    "through files, the others through a socket. The first table has 1, 4 and 16 clients, each call for itself: "
    "*processes*, or *threads* of one program, which share a client where its manual says so (ours: their calls go "
    "together) and else have a connection each. The second has one client, one by one and in batches of 100; in "
    "brackets: our mailbox on the sqlite store with the same durability divided by it."
)


class OurMailbox:
    def __init__(self, folder: Path, mailbox: Path) -> None:
        self._client = Client(mailbox, timeout=30)

    def publish(self, body: str) -> None:
        self._client.publish("bench", body)

    def publish_many(self, bodies: list[str]) -> None:
        self._client.publish_batch("bench", bodies)

    def take(self) -> str | None:
        delivery = self._client.consume("bench")
        if delivery is None:
            return None
        self._client.ack(delivery)
        return delivery.text

    def take_many(self, count: int) -> int:
        deliveries = self._client.consume_batch("bench", count)
        self._client.ack_batch(deliveries)
        return len(deliveries)

    def close(self) -> None:
        self._client.close()


@contextmanager
def serving(argv: list[str], port: int, *, user: str = "") -> Iterator[int]:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(argv, stdout=quiet, stderr=quiet, user=user or None, env=surroundings())
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
    place = Path(tempfile.mkdtemp(prefix="bench-pg-", dir="/tmp"))  # its user must be able to enter it
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

    def publish_many(self, bodies: list[str]) -> None:
        with self._redis.pipeline(transaction=False) as pipe:
            for body in bodies:
                pipe.xadd("bench", {"body": body})
            pipe.execute()

    def take_many(self, count: int) -> int:
        found = self._redis.xreadgroup("workers", "one", {"bench": ">"}, count=count)
        if not found:
            return 0
        entries = next(iter(found.values())) if isinstance(found, dict) else found[0][1]
        entries = entries[0] if isinstance(entries[0], list) else entries
        self._redis.xack("bench", "workers", *(number for number, _ in entries))
        return len(entries)


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

    def publish_many(self, bodies: list[str]) -> None:
        self._wait(self._together([self._stream.publish("bench", body.encode()) for body in bodies]))

    def take_many(self, count: int) -> int:
        messages = self._wait(self._consumer.fetch(count, timeout=5))
        self._wait(self._together([message.ack_sync() for message in messages]))
        return len(messages)

    async def _together(self, work: list[Any]) -> None:
        import asyncio

        await asyncio.gather(*work)

    def close(self) -> None:
        self._wait(self._connection.close())
        self._loop.close()


class Postgres:
    LEASE = (
        "UPDATE jobs SET taken = now() WHERE id = ANY(ARRAY(SELECT id FROM jobs WHERE taken IS NULL ORDER BY id"
        " FOR UPDATE SKIP LOCKED LIMIT {count})) RETURNING id, body"
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
        row = self._db.execute(self.LEASE.format(count=1)).fetchone()
        if row is None:
            return None
        self._db.execute("DELETE FROM jobs WHERE id = %s", (row[0],))
        return str(row[1])

    def publish_many(self, bodies: list[str]) -> None:
        with self._db.transaction(), self._db.cursor() as cursor:
            cursor.executemany("INSERT INTO jobs (body) VALUES (%s)", [(body,) for body in bodies])

    def take_many(self, count: int) -> int:
        rows = self._db.execute(self.LEASE.format(count=count)).fetchall()
        self._db.execute("DELETE FROM jobs WHERE id = ANY(%s)", ([row[0] for row in rows],))
        return len(rows)

    def close(self) -> None:
        self._db.close()


def _ours(backend: str, durability: str) -> Peer:
    server = lambda folder: manager(backend, durability)  # noqa: E731
    return Peer(f"our mailbox, {backend}", durability, OurMailbox, server, ours=backend == "sqlite", shared=True)


PEERS = (
    *(_ours(backend, level) for level in ("process", "power") for backend in ("sqlite", "filesystem")),
    Peer(
        "redis streams, appendfsync everysec", "process", RedisStream, redis_with("everysec"), "redis", "redis-server"
    ),
    Peer("NATS JetStream, file storage", "process", Nats, nats, "nats", "nats-server"),
    Peer("beanstalkd -f0", "power", Bean, beanstalkd, "greenstalk", "beanstalkd"),
    Peer("redis streams, fsync always", "power", RedisStream, redis_with("always"), "redis", "redis-server"),
    Peer("PostgreSQL, SKIP LOCKED", "power", Postgres, postgresql, "psycopg", "postgres"),
)


GOALS = {"publish": 1.5, "take+ack": 1.0}
AGAINST = "beanstalkd -f0"
REASON = "each request of a process is a file, and so is its answer: the table of processor time says what that costs"


def run(quick: bool) -> dict[str, Any]:
    found = table(PEERS, quick)
    rates = {(peer["name"], peer["durability"]): peer["rates"] for peer in found["peers"]["rows"]}
    beside = [peer for peer in PEERS if peer.durability == "power" and (peer.ours or peer.name == AGAINST)]
    several = mq_clients.table(PEERS, quick, found["skipped"])
    rows = [*_against_beanstalkd(rates), *mq_clients.rows("mailbox", several["rounds"], beside, GOALS, REASON)]
    compared = [peer for peer in PEERS if (peer.name == AGAINST or peer.ours) and peer.durability == "power"]
    costs = mq_costs.table([peer for peer in compared if peer.name not in found["skipped"]], quick)
    figures = {**found, "clients": several, "tables": [costs]}
    return {"title": "The mailbox, beside brokers", "about": ABOUT, "rows": rows, **figures}


def _against_beanstalkd(rates: dict[tuple[str, str], dict[str, float]]) -> list[Row]:
    if (AGAINST, "power") not in rates:
        return []
    ours = rates["our mailbox, sqlite", "power"]["publish by 100"]
    theirs = rates[AGAINST, "power"]["publish"]
    return [
        row(
            "mailbox publish by 100, sqlite",
            durability="power",
            goal="≥ 10",
            met=ours >= 10 * theirs,
            ours=ours,
            unit="messages/s",
            floor=theirs,
            floor_is="beanstalkd -f0, which has no batches",
            ratio=round(ours / theirs, 2),
            reason="client and manager wait for each other, and the table of processor time says what a message of a "
            "batch costs both; beanstalkd answers 4 bytes, ours an id for each message",
        )
    ]
