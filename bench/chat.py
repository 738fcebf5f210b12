"""The hall: how soon a message is accepted and seen, how many a second, and what a connection costs.

Embedded (files + SQLite), and on Kafka + PostgreSQL, which needs Java, Maven and PostgreSQL. Floors are taken in the
same rounds: what one durable event, one commit and one raw delivery cost on this machine.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from bench import chat_floor, floors
from bench.figures import Row, percentile, ratio, row
from bench.footprint import unique_megabytes
from bench.homes import HOUSE, folder
from tests.hall.gateway.halls import Hall, Person

CLIENTS, ROOMS = 20, 5
WINDOW = 16
IDLE = 1_000
LIMITS = {"messages": {"count": 100_000, "seconds": 1}, "worker_lag": 1_000_000, "connections": 20_000}
ABOUT = (
    "20 clients in 5 rooms, 4 members each, over web sockets; gateway, worker, clients and servers share the machine. "
    "*ACCEPTED* is the answer to the sender: with files the message is on the platter (fsync of file and folder), with "
    "Kafka all replicas have it (one broker here, which does not sync by itself). *newMessage* is from sending to "
    "every member's socket. For comparison, the stack of the original system as it was measured once on another such "
    "machine, also without syncs in Kafka: ACCEPTED p50 1.2 / 1.1 / 1.4 / 1.6 ms and newMessage p50 4.3 / 3.5 / 24.5 / "
    "608 ms at 50 / 200 / 400 / 700 messages a second."
)
ALONE = "the floor is one process; for another one, by a socket and a thread that writes, a bare server takes"
SHARED = "clients, gateway, worker and servers share two cores, and every hop waits for one of them"


def run(quick: bool) -> dict[str, Any]:
    return {"title": "The hall, embedded", "about": ABOUT, "rows": _embedded(*_size(quick))}


def run_distributed(quick: bool) -> dict[str, Any]:
    about = "The same with one broker and one database, real ones, on the same machine as all the rest."
    return {"title": "The hall on Kafka and PostgreSQL", "about": about, "rows": _distributed(*_size(quick))}


def _size(quick: bool) -> tuple[int, float]:
    return (1, 2.0) if quick else (5, 2.0)


def _embedded(rounds: int, seconds: float) -> list[Row]:
    with hall({}) as (opened, people):
        produce, commit = _file_floor(), _sqlite_floor()
        rows = _latencies("embedded", opened, people, rounds, seconds, produce, commit, _served_floor())
        rows += _sustained("embedded", opened, people, rounds, seconds, 3000)
        rows += _idle(opened, people)
        return rows


def _distributed(rounds: int, seconds: float) -> list[Row]:
    from tests.distributed.kafka import Brokers
    from tests.distributed.postgres import Postgres

    with tempfile.TemporaryDirectory(dir="/tmp") as kafka, tempfile.TemporaryDirectory(dir="/tmp") as postgres:
        brokers, database = Brokers(Path(kafka)), Postgres(Path(postgres))
        brokers.start()
        database.start()
        try:
            config = {"transport": "kafka", "database": database.url, "kafka": {"servers": brokers.servers}}
            with hall(config) as (opened, people):
                produce, commit = _kafka_floor(brokers.servers), _postgres_floor(database.url)
                name = "Kafka + PostgreSQL"
                rows = _latencies(name, opened, people, rounds, seconds, produce, commit)
                return rows + _sustained(name, opened, people, rounds, seconds, 2000)
        finally:
            database.stop()
            brokers.stop()


People = list[dict[str, str]]


@contextmanager
def hall(config: Mapping[str, Any]) -> Iterator[tuple[Hall, People]]:
    """A hall at work with people in its rooms."""
    home = folder() / "home"
    home.mkdir()
    opened = Hall(home, {"registration": "open", "port": 0, "limits": LIMITS, **config})
    try:
        opened.start("gateway")
        opened.start("worker")
        persons = [opened.person() for _ in range(CLIENTS)]
        groups = [persons[at::ROOMS] for at in range(ROOMS)]
        rooms = [group[0].room(*group[1:]) for group in groups]
        yield opened, [_seat(person, rooms[at % ROOMS]) for at, person in enumerate(persons)]
    finally:
        opened.close()


def _seat(person: Person, room: str) -> dict[str, str]:
    return {"token": person.token, "room": room}


def load(opened: Hall, people: People, **order: Any) -> dict[str, Any]:
    """Let the clients talk, and return what they have seen."""
    given = json.dumps({"url": opened.url.replace("http", "ws", 1), "people": people, **order})
    done = subprocess.run(
        [sys.executable, "-m", "bench.chat_load"],
        input=given + "\n",
        capture_output=True,
        text=True,
        cwd=HOUSE,
        timeout=120,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _latencies(
    name: str,
    opened: Hall,
    people: People,
    rounds: int,
    seconds: float,
    produce: Callable[[int], float],
    commit: Callable[[int], float],
    served: Callable[[int], float] | None = None,
) -> list[Row]:
    """`served` is the floor of a durable event that is asked for through a socket."""
    rates = (50, 200, 400)
    found: dict[int, list[dict[str, Any]]] = {rate: [] for rate in rates}
    floors_of: dict[int, list[tuple[float, float]]] = {rate: [] for rate in rates}
    served_at: dict[int, list[float]] = {rate: [] for rate in rates}
    load(opened, people, rate=50, seconds=1.0)
    for _ in range(rounds):
        for rate in rates:
            floors_of[rate].append((produce(rate), commit(rate)))
            if served is not None:
                served_at[rate].append(served(rate))
            found[rate].append(load(opened, people, rate=rate, seconds=seconds))
    rows = []
    for rate in rates:
        for what, part, most in (("ACCEPTED", "accepted", 2.0), ("newMessage", "delays", 3.0)):
            p50 = [percentile(one[part], 0.5) * 1000 for one in found[rate]]
            p99 = [percentile(one[part], 0.99) * 1000 for one in found[rate]]
            floor = [p if part == "accepted" else 2 * p + c for p, c in floors_of[rate]]
            beside = served_at[rate] if part == "accepted" else []
            times = ratio(p50, floor)
            ours = statistics.median(p50)
            goal, met = _goal(name, rate, what, ours, times, most)
            rows.append(
                row(
                    f"{what} p50 at {rate}/s, {name} (p99 {statistics.median(p99):.1f} ms)",
                    durability=_durability(name),
                    goal=goal,
                    met=met,
                    ours=round(ours, 2),
                    unit="ms",
                    floor=round(statistics.median(floor), 2),
                    floor_is="one durable event" if part == "accepted" else "durable event, commit, durable event",
                    ratio=round(times, 2),
                    reason=f"{ALONE} {statistics.median(beside):.2f} ms" if beside else SHARED,
                )
            )
            if beside:
                rows.append(_beside_served(f"{what} p50 at {rate}/s, {name}", p50, beside))
    wrong = [
        f"{one['missing']} missing, {one['disorder']} out of order"
        for all_of in found.values()
        for one in all_of
        if one["missing"] or one["disorder"]
    ]
    if wrong:
        raise RuntimeError(f"{name}: {wrong}")
    return rows


def _beside_served(name: str, p50: list[float], served: list[float]) -> Row:
    return row(
        f"{name}, again",
        durability="power",
        goal="",
        met=None,
        ours=round(statistics.median(p50), 2),
        unit="ms",
        floor=round(statistics.median(served), 2),
        floor_is="one durable event by a bare server: a socket, and a thread that writes",
        ratio=round(ratio(p50, served), 2),
    )


def _durability(name: str) -> str:
    return "power" if name == "embedded" else ""


def _goal(name: str, rate: int, what: str, ours: float, times: float, most: float) -> tuple[str, bool | None]:
    if rate == 400:
        bound = 3.0 if what == "ACCEPTED" else 8.0
        return (f"≤ {bound:g} ms", ours <= bound) if name == "embedded" else ("", None)
    return f"≤ {most:g}", times <= most


def _sustained(name: str, opened: Hall, people: People, rounds: int, seconds: float, least: int) -> list[Row]:
    rates, raw = [], []
    for _ in range(max(1, rounds - 2)):
        found = load(opened, people, rate=0, seconds=seconds, window=WINDOW)
        if found["missing"] or found["disorder"] or set(found["answers"]) != {"ACCEPTED"}:
            told = {key: found[key] for key in ("missing", "disorder", "answers")}
            raise RuntimeError(f"{name}: {told}")
        rates.append(found["sent"] / found["seconds"])
        raw.append(asyncio.run(_raw_deliveries(20_000)) / (CLIENTS // ROOMS))
    ours = statistics.median(rates)
    return [
        row(
            f"messages a second until every member has them, {name}",
            durability=_durability(name),
            goal=f"≥ {least}/s",
            met=ours >= least,
            ours=round(ours),
            unit="/s",
            floor=round(statistics.median(raw)),
            floor_is="the same frames by raw sockets, nothing stored",
            ratio=round(statistics.median([mine / theirs for mine, theirs in zip(rates, raw, strict=True)]), 3),
            reason=SHARED,
        )
    ]


def _idle(opened: Hall, people: People) -> list[Row]:
    gateway = opened.pid("gateway")
    before = unique_megabytes(gateway)
    crowd = [people[at % len(people)] for at in range(IDLE)]
    order = json.dumps({"url": opened.url.replace("http", "ws", 1), "people": crowd, "idle": True})
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.chat_load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HOUSE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    print(order, file=process.stdin, flush=True)
    process.stdout.readline()
    with_all = unique_megabytes(gateway)
    each = (with_all - before) * 1024 / IDLE
    process.communicate("\n", timeout=30)
    return [
        row(
            f"memory of one idle connection, of {IDLE:,}",
            goal="≤ 60 kB",
            met=each <= 60,
            ours=round(each, 1),
            unit="kB",
            reason="what Socket.IO's server keeps for each of them",
        ),
        row(
            f"unique memory of the gateway with {IDLE:,} idle connections",
            goal="≤ 130 MB",
            met=with_all <= 130,
            ours=round(with_all, 1),
            unit="MB",
            reason="the gateway's own 70 MB, and 60 kB for each connection",
        ),
    ]


def _p50_ms(rate: int, work: Callable[[], object]) -> float:
    """Return the median of single operations that come as many a second as the messages do."""
    taken = []
    for _ in range(rate):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
        time.sleep(max(0.0, 1 / rate - taken[-1]))
    return statistics.median(taken) * 1000


def _file_floor() -> Callable[[int], float]:
    place, done = str(folder()), count()
    return lambda rate: _p50_ms(rate, lambda: chat_floor.write_event(place, f"{next(done)}"))


def _served_floor() -> Callable[[int], float]:
    command = [sys.executable, "-m", "bench.chat_floor", str(folder())]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HOUSE)  # ends with our connection
    assert server.stdout is not None
    client = socket.create_connection(("127.0.0.1", int(server.stdout.readline())))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def work() -> None:
        client.sendall(b"x" * 240)
        client.recv(4096)

    return lambda rate: _p50_ms(rate, work)


def _sqlite_floor() -> Callable[[int], float]:
    db = sqlite3.connect(folder() / "floor.db", isolation_level=None)
    for sentence in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE t (body BLOB)"):
        db.execute(sentence)
    return lambda rate: _p50_ms(rate, lambda: db.execute("INSERT INTO t VALUES (?)", (floors.BODY,)))


def _kafka_floor(servers: str) -> Callable[[int], float]:
    from confluent_kafka import Producer

    client = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "linger.ms": 0})

    def work() -> None:
        client.produce("chat.messages.persisted.v1", floors.BODY, "floor")
        client.flush()

    return lambda rate: _p50_ms(rate, work)


def _postgres_floor(url: str) -> Callable[[int], float]:
    import psycopg

    db = psycopg.connect(url, autocommit=True)
    db.execute("CREATE TABLE floor (body bytea)")
    return lambda rate: _p50_ms(rate, lambda: db.execute("INSERT INTO floor VALUES (%s)", (floors.BODY,)))


async def _raw_deliveries(messages: int) -> float:
    """Deliveries a second from one process to four sockets each, frames made once and nothing stored."""
    frame = b"\x81\x7e\x01\x40" + b"x" * 320
    each = CLIENTS // ROOMS
    code = (
        "import socket,sys\n"
        "from threading import Thread\n"
        "def read(s):\n"
        "    left=int(sys.argv[2])\n"
        "    while left>0: left-=len(s.recv(1<<16))\n"
        f"ss=[socket.create_connection(('127.0.0.1',int(sys.argv[1]))) for _ in range({each})]\n"
        "ts=[Thread(target=read,args=(s,)) for s in ss]\n"
        "[t.start() for t in ts];[t.join() for t in ts];print('done')\n"
    )
    writers: list[asyncio.StreamWriter] = []
    ready = asyncio.Event()

    async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if len(writers) == each:
            ready.set()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = str(server.sockets[0].getsockname()[1])
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, port, str(messages * len(frame)), stdout=asyncio.subprocess.PIPE
    )
    await ready.wait()
    began = time.perf_counter()
    for number in range(messages):
        for writer in writers:
            writer.write(frame)
        if number % 50 == 0:
            await asyncio.gather(*(writer.drain() for writer in writers))
    await reader.wait()
    taken = time.perf_counter() - began
    for writer in writers:
        writer.close()
    server.close()
    return messages * each / taken
