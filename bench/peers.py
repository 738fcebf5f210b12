"""The queues and runners that people use, beside ours, each with an adapter of a few lines.

Only what delivers again after a consumer has died, and so promises what ours does. Libraries are in an environment of
their own under a cache folder, installed by package name; servers are used where they are installed. A peer that cannot
be had is left out, and the page says so.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import kingdom.mq
from bench.clients import Queue, at_once, manager, our_mailbox
from bench.figures import LEVELS, Found, interleaved
from bench.floors import BODY
from bench.homes import folder, wait_for
from bench.mq_stores import QUEUE, opened
from kingdom.base.disk.atomic import Durability
from kingdom.mq.message_format import Draft
from tests.ports import free_port

BACKLOG, BATCH, CLIENTS = 2_000, 100, (1, 4, 16)
MEASURES = ("publish", "take+ack", "publish by 100", "take+ack by 100")
INSTALL_SECONDS = 240.0
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kingdom-bench"
PACKAGES = ["persist-queue", "litequeue", "huey", "redis", "greenstalk", "nats-py", "psycopg[binary]"]


class Peer(NamedTuple):
    name: str
    #: What an acknowledged message survives.
    durability: str
    #: Opens it in a folder, with the address of its server.
    opens: Callable[[Path, Any], Queue]
    #: Starts its server in a folder, and yields its address.
    server: Callable[[Path], Any] | None = None
    #: The module and the program that have to be there.
    needs: tuple[str, str] = ("", "")
    #: Threads of one program share a connection, as its manual says; others have one for each.
    shared: bool = False


def prepare(quick: bool) -> Path | None:
    """Return the Python of the peers' environment, made unless it has to be quick; None where there is none."""
    stamp, python = CACHE / "packages", CACHE / "bin" / "python"
    wanted = "\n".join(PACKAGES)
    if stamp.exists() and (quick or stamp.read_text() == wanted):
        return python
    if quick:
        return None
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        for argv in ([sys.executable, "-m", "venv", str(CACHE)], [str(python), "-m", "pip", "install", *PACKAGES]):
            subprocess.run(argv, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"bench: NO PEER LIBRARIES: {error}", file=sys.stderr)
        return None
    stamp.write_text(wanted)
    return python


@contextmanager
def serving(argv: list[str], port: int, user: str | None = None) -> Iterator[int]:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(argv, stdout=quiet, stderr=quiet, user=user)
    try:
        wait_for(lambda: _answers(port), 20, f"{argv[0]} serves")
        yield port
    finally:
        process.terminate()
        process.wait(15)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def served(command: str) -> Callable[[Path], Any]:
    def start(place: Path) -> Any:
        port = free_port()
        return serving(shlex.split(command.format(place=place, port=port)), port)

    return start


@contextmanager
def postgresql(_: Path) -> Iterator[int]:
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    place = Path("/tmp") / f"bench-pg-{os.getpid()}"  # its user must be able to enter it
    place.mkdir(mode=0o700)
    shutil.chown(place, user)
    port, as_user = free_port(), user if os.geteuid() == 0 else None
    binaries = Path(os.path.realpath(shutil.which("postgres") or "")).parent
    try:
        init = [str(binaries / "initdb"), "-D", str(place / "data"), "-A", "trust", "-U", "bench"]
        subprocess.run(init, check=True, capture_output=True, user=as_user)
        run = [str(binaries / "postgres"), "-D", str(place / "data"), "-p", str(port), "-k", str(place)]
        with serving([*run, "-c", "listen_addresses=127.0.0.1"], port, as_user) as there:
            ready = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
            wait_for(lambda: subprocess.run(ready, check=False).returncode == 0, 20, "PostgreSQL is ready")
            yield there
    finally:
        shutil.rmtree(place, ignore_errors=True)


def our_store(backend: str, durability: Durability) -> Callable[[Path, Any], Queue]:
    def opens(place: Path, _: Any) -> Queue:
        mq = opened(backend, place, durability)

        def publish_many(bodies: list[str]) -> None:
            for body in bodies:
                mq.publish(QUEUE, Draft(body))
            mq.commit()

        def take_many(number: int) -> None:
            leased = mq.lease(QUEUE, "c", number)
            assert leased
            mq.commit()
            for message in leased:
                mq.ack(message.message_key, message.lease_id)
            mq.commit()

        return Queue(lambda body: publish_many([body]), lambda: take_many(1), publish_many, take_many, mq.close)

    return opens


def our_session(durability: Durability) -> Callable[[Path, Any], Queue]:
    """The store as a program opens it, for threads to share."""

    def opens(place: Path, _: Any) -> Queue:
        session = kingdom.mq.open(place, backend="sqlite", durability=durability)

        def take() -> None:
            delivery = session.take("bench")
            assert delivery is not None
            delivery.ack()

        return Queue(lambda body: session.publish("bench", body), take, close=session.close)

    return opens


def persist_ack(place: Path, _: Any) -> Queue:
    import persistqueue

    queue = persistqueue.SQLiteAckQueue(str(place / "q"), auto_commit=True, multithreading=False)
    return Queue(queue.put, lambda: queue.ack(queue.get(block=False)))


def lite(place: Path, _: Any) -> Queue:
    import litequeue

    queue = litequeue.LiteQueue(str(place / "q.db"))
    return Queue(queue.put, lambda: queue.done(queue.pop().message_id))


def beanstalk(_: Path, port: int) -> Queue:
    import greenstalk

    client = greenstalk.Client(("127.0.0.1", port))
    return Queue(client.put, lambda: client.delete(client.reserve(timeout=0)))


def redis_stream(_: Path, port: int) -> Queue:
    import redis

    client = redis.Redis(port=port, decode_responses=True)
    with suppress(redis.ResponseError):
        client.xgroup_create("bench", "workers", mkstream=True)

    def publish_many(bodies: list[str]) -> None:
        with client.pipeline(transaction=False) as pipe:
            for body in bodies:
                pipe.xadd("bench", {"body": body})
            pipe.execute()

    def take_many(number: int) -> None:
        found: Any = client.xreadgroup("workers", "one", {"bench": ">"}, count=number)
        entries = next(iter(found.values())) if isinstance(found, dict) else found[0][1]
        entries = entries[0] if isinstance(entries[0], list) else entries
        client.xack("bench", "workers", *(key for key, _ in entries))

    return Queue(lambda body: client.xadd("bench", {"body": body}), lambda: take_many(1), publish_many, take_many)


def jetstream(_: Path, port: int) -> Queue:
    import asyncio

    import nats

    loop = asyncio.new_event_loop()
    wait = loop.run_until_complete
    connection = wait(nats.connect(f"nats://127.0.0.1:{port}"))
    stream = connection.jetstream()
    with suppress(Exception):  # a second round finds it there
        wait(stream.add_stream(name="BENCH", subjects=["bench"]))
    consumer = wait(stream.pull_subscribe("bench", durable="workers"))

    async def together(work: list[Any]) -> None:
        await asyncio.gather(*work)

    def publish_many(bodies: list[str]) -> None:
        wait(together([stream.publish("bench", body.encode()) for body in bodies]))

    def take_many(number: int) -> None:
        wait(together([message.ack_sync() for message in wait(consumer.fetch(number, timeout=5))]))

    def close() -> None:
        wait(connection.close())
        loop.close()

    return Queue(lambda body: publish_many([body]), lambda: take_many(1), publish_many, take_many, close)


def postgres(_: Path, port: int) -> Queue:
    import psycopg

    db: Any = psycopg.connect(
        f"host=127.0.0.1 port={port} user=bench dbname=postgres", autocommit=True, prepare_threshold=1
    )
    db.execute("CREATE TABLE IF NOT EXISTS jobs (id bigserial PRIMARY KEY, taken timestamptz, body text)")
    db.execute("CREATE INDEX IF NOT EXISTS waiting ON jobs (id) WHERE taken IS NULL")
    insert = "INSERT INTO jobs (body) VALUES (%s)"
    lease = (
        "UPDATE jobs SET taken = now() WHERE id = ANY(ARRAY(SELECT id FROM jobs WHERE taken IS NULL ORDER BY id"
        " FOR UPDATE SKIP LOCKED LIMIT {})) RETURNING id, body"
    )

    def publish_many(bodies: list[str]) -> None:
        with db.transaction(), db.cursor() as cursor:
            cursor.executemany(insert, [(body,) for body in bodies])

    def take_many(number: int) -> None:
        rows = db.execute(lease.format(number)).fetchall()
        db.execute("DELETE FROM jobs WHERE id = ANY(%s)", ([row[0] for row in rows],))

    return Queue(lambda body: db.execute(insert, (body,)), lambda: take_many(1), publish_many, take_many, db.close)


REDIS = "redis-server --port {port} --bind 127.0.0.1 --dir {place} --save '' --appendonly yes --appendfsync "
BEANSTALKD = Peer(
    "beanstalkd -f0",
    "power",
    beanstalk,
    served("beanstalkd -l 127.0.0.1 -p {port} -b {place} -f0"),
    ("greenstalk", "beanstalkd"),
)
OUR_MAILBOXES = {
    (store, level): Peer(
        f"our mailbox, {store}",
        level,
        lambda _, address: our_mailbox(address[0]),
        lambda _, store=store, level=level: manager(store, level),
        shared=True,
    )
    for level in LEVELS
    for store in ("sqlite", "filesystem")
}
BROKERS = (
    *OUR_MAILBOXES.values(),
    Peer("redis streams, everysec", "process", redis_stream, served(REDIS + "everysec"), ("redis", "redis-server")),
    Peer(
        "NATS JetStream, files",
        "process",
        jetstream,
        served("nats-server -a 127.0.0.1 -p {port} -js -sd {place}"),
        ("nats", "nats-server"),
    ),
    BEANSTALKD,
    Peer("redis streams, fsync always", "power", redis_stream, served(REDIS + "always"), ("redis", "redis-server")),
    Peer("PostgreSQL, SKIP LOCKED", "power", postgres, postgresql, ("psycopg", "postgres")),
)
LIBRARIES = (
    *(
        Peer(f"our {store} store", level, our_store(store, level))  # type: ignore[arg-type]
        for level in LEVELS
        for store in ("sqlite", "filesystem", "hybrid")
    ),
    Peer("persist-queue ack-sqlite", "power", persist_ack, needs=("persistqueue", "")),
    Peer("litequeue", "process", lite, needs=("litequeue", "")),
)
SESSIONS = [Peer(f"kingdom.mq.open, {level}", level, our_session(level), shared=True) for level in LEVELS]  # type: ignore[arg-type]


def brokers(quick: bool) -> Found:
    found = Found()
    rates = beside(found, BROKERS, "our mailbox, sqlite", quick)
    ours = OUR_MAILBOXES["sqlite", "power"]
    if BEANSTALKD in rates and ours in rates:
        found.add("mailbox publish by 100, sqlite", "power", rates[ours]["publish by 100"])
        found.add("beanstalkd publish", "power", rates[BEANSTALKD]["publish"])
        several(found, "mailbox, one by one", (ours,), ("processes", "threads"), quick)
    return found


def libraries(quick: bool) -> Found:
    found = Found()
    beside(found, LIBRARIES, "our sqlite store", quick)
    if not missing(BEANSTALKD):
        several(found, "library, one by one", SESSIONS, ("threads",), quick)
    return found


def missing(peer: Peer) -> str:
    module, server = peer.needs
    if module and module not in sys.modules and find_spec(module) is None:
        return f"package {module} is not there"
    return f"program {server} is not there" if server and shutil.which(server) is None else ""


def beside(found: Found, peers: Sequence[Peer], ours: str, quick: bool) -> dict[Peer, dict[str, list[float]]]:
    """Measure all peers that are there, rounds interleaved, and add their table. Return the rates of each round."""
    rounds, seconds = (1, 0.2) if quick else (5, 0.5)
    if python := prepare(quick):  # only what we do not have ourselves comes from there
        sys.path.extend(map(str, sorted((python.parents[1] / "lib").glob("python3*/site-packages"))))
    skipped = {peer.name: why for peer in peers if (why := missing(peer))}
    rates: dict[Peer, dict[str, list[float]]] = {}
    for peer in [peer for _ in range(rounds) for peer in peers if peer.name not in skipped]:
        try:
            for what, rate in measure(peer, seconds).items():
                rates.setdefault(peer, {}).setdefault(what, []).append(rate)
        except Exception as error:  # noqa: BLE001 - a peer that breaks must not cost the others' figures
            skipped[peer.name] = f"{type(error).__name__}: {error}"
    rows = {}
    for peer, of in sorted(rates.items(), key=lambda item: (item[0].durability, not item[0].name.startswith("our"))):
        compared = next((rates[one] for one in rates if (one.name, one.durability) == (ours, peer.durability)), {})
        rows[f"{peer.name}, {peer.durability}"] = [_cell(peer, of.get(what), compared.get(what)) for what in MEASURES]
    found.table(f"Messages a second; in brackets: {ours}, divided by it", MEASURES, rows)
    found.notes += [f"Left out: {name} ({why})." for name, why in skipped.items()]
    return rates


def _cell(peer: Peer, theirs: list[float] | None, ours: list[float] | None) -> str:
    if not theirs:
        return "-"
    share = f" ({median(ours) / median(theirs):.2f})" if ours and not peer.name.startswith("our") else ""
    return f"{median(theirs):,.0f}{share}"


@contextmanager
def running(peer: Peer) -> Iterator[Callable[[], Queue]]:
    place = folder()
    with ExitStack() as stack:
        address = stack.enter_context(peer.server(place)) if peer.server else None
        yield lambda: peer.opens(place, address)


def measure(peer: Peer, seconds: float) -> dict[str, float]:
    """Return messages a second for each measure, with BACKLOG messages waiting before each of them.

    A round that takes is as long as the one that published, so that the backlog is the same again; one that is too
    slow for that ends after three times the seconds.
    """
    with running(peer) as opens:
        queue, found = opens(), {}
        _fill(queue)
        published, found["publish"] = _rate(seconds, BACKLOG, 1, lambda: queue.publish(BODY))
        _, found["take+ack"] = _rate(3 * seconds, published, 1, queue.take)
        if (publish := queue.publish_many) and (take := queue.take_many):
            published, found["publish by 100"] = _rate(seconds, BACKLOG, BATCH, lambda: publish([BODY] * BATCH))
            _, found["take+ack by 100"] = _rate(3 * seconds, published, BATCH, lambda: take(BATCH))
        queue.close()
        return found


def _fill(queue: Queue) -> None:
    for _ in range(BACKLOG // BATCH):
        if queue.publish_many:
            queue.publish_many([BODY] * BATCH)
        else:
            for _ in range(BATCH):
                queue.publish(BODY)


def _rate(seconds: float, most: int, each: int, work: Callable[[], object]) -> tuple[int, float]:
    """Work until all messages are done or the time is over. Return their number, and messages a second."""
    done, began = 0, time.perf_counter()
    while done < most and time.perf_counter() - began < seconds:
        work()
        done += each
    return done, done / (time.perf_counter() - began)


def several(found: Found, what: str, ours: Sequence[Peer], kinds: Sequence[str], quick: bool) -> None:
    """Add the rates of 1, 4 and 16 clients at once, beside those of beanstalkd."""
    contests = {peer: partial(_several, peer, kinds, 50 if quick else 100) for peer in (*ours, BEANSTALKD)}
    rates = interleaved(1 if quick else 5, {peer.name: contest for peer, contest in contests.items()})
    for peer in ours:
        for case in rates[peer.name][0]:
            found.add(what, f"{case}, {peer.durability}", [one[case] for one in rates[peer.name]])
            found.add("beanstalkd", f"{case}, {peer.durability}", [one[case] for one in rates[BEANSTALKD.name]])


def _several(peer: Peer, kinds: Sequence[str], each: int) -> dict[str, float]:
    found = {}
    calls = {"publish": lambda queue: queue.publish(BODY), "take+ack": lambda queue: queue.take()}
    with running(peer) as opens:
        at_once(opens, _fill, 1, 1)
        for kind in kinds:
            for clients in CLIENTS:
                for what, work in calls.items():
                    case = f"{what}, {clients} {kind}"
                    found[case] = at_once(opens, work, each, clients, threads=kind == "threads", shared=peer.shared)
    return found
