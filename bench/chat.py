"""The hall: how soon a message is accepted and seen, how many a second, and what a connection costs.

Embedded (files + SQLite), and on Kafka + PostgreSQL, which needs Java, Maven and PostgreSQL. Floors are taken in the
same rounds: what one durable event and one commit cost on this machine.
"""

from __future__ import annotations

import json
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

from bench.figures import Found, timed
from bench.floors import BODY, open_database, sync_folder, write_file
from bench.homes import HOUSE, folder, megabytes
from tests.hall.gateway.halls import Hall

CLIENTS, ROOMS, WINDOW, IDLE, SECONDS = 20, 5, 16, 1_000, 2.0
LIMITS = {"messages": {"count": 100_000, "seconds": 1}, "worker_lag": 1_000_000, "connections": 20_000}
Floor = Callable[[int], float]
People = list[dict[str, str]]


def run(quick: bool) -> Found:
    with hall({}) as (opened, people):
        found = talk("embedded, power", opened, people, quick, _file_floor(), _sqlite_floor())
        idle(found, opened, people)
        return found


def run_distributed(quick: bool) -> Found:
    from tests.distributed.kafka import Brokers
    from tests.distributed.postgres import Postgres

    with tempfile.TemporaryDirectory(dir="/tmp") as kafka, tempfile.TemporaryDirectory(dir="/tmp") as postgres:
        brokers, database = Brokers(Path(kafka)), Postgres(Path(postgres))
        brokers.start()
        database.start()
        try:
            config = {"transport": "kafka", "database": database.url, "kafka": {"servers": brokers.servers}}
            with hall(config) as (opened, people):
                floors = _kafka_floor(brokers.servers), _postgres_floor(database.url)
                return talk("distributed", opened, people, quick, *floors)
        finally:
            database.stop()
            brokers.stop()


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
        yield opened, [{"token": person.token, "room": rooms[at % ROOMS]} for at, person in enumerate(persons)]
    finally:
        opened.close()


def talk(case: str, opened: Hall, people: People, quick: bool, produce: Floor, commit: Floor) -> Found:
    found, rounds = Found(), 1 if quick else 5
    samples: dict[str, list[float]] = {}
    load(opened, people, rate=50, seconds=1.0)
    for _ in range(rounds):
        for rate in (50, 200, 400):
            event, committed = produce(rate), commit(rate)
            seen = load(opened, people, rate=rate, seconds=SECONDS)
            for name, value in (
                (f"ACCEPTED p50 at {rate}/s", statistics.median(seen["accepted"]) * 1000),
                (f"newMessage p50 at {rate}/s", statistics.median(seen["delays"]) * 1000),
                (f"one durable event at {rate}/s", event),
                (f"durable event, commit, durable event at {rate}/s", 2 * event + committed),
            ):
                samples.setdefault(name, []).append(value)
    for _ in range(max(1, rounds - 2)):
        seen = load(opened, people, rate=0, seconds=SECONDS, window=WINDOW)
        each = seen["sent"] / seen["seconds"]
        samples.setdefault("messages a second until every member has them", []).append(each)
    found.add_all(case, samples)
    return found


def load(opened: Hall, people: People, **order: Any) -> dict[str, Any]:
    """Let the clients talk. Return what they have seen: every message, in order."""
    with clients(opened, people, **order) as process:
        found: dict[str, Any] = json.loads(process.communicate(timeout=120)[0])
    if found["missing"] or found["disorder"] or set(found["answers"]) != {"ACCEPTED"}:
        raise RuntimeError(f"{found['missing']} missing, {found['disorder']} out of order, answers {found['answers']}")
    return found


@contextmanager
def clients(opened: Hall, people: People, **order: Any) -> Iterator[subprocess.Popen[str]]:
    command, pipe = [sys.executable, "-m", "bench.chat_load"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=HOUSE) as process:
        url = opened.url.replace("http", "ws", 1)
        print(json.dumps({"url": url, "people": people, **order}), file=process.stdin, flush=True)
        yield process


def idle(found: Found, opened: Hall, people: People) -> None:
    gateway = opened.pid("gateway")
    before = megabytes(gateway)
    crowd = [people[at % len(people)] for at in range(IDLE)]
    with clients(opened, crowd, idle=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with_all = megabytes(gateway)
        process.communicate("\n", timeout=30)
    found.add("memory of one idle connection", f"of {IDLE:,}", [(with_all - before) * 1024 / IDLE])
    found.add("unique memory of the gateway", f"with {IDLE:,} idle connections", [with_all])


def _p50_ms(rate: int, work: Callable[[], object]) -> float:
    """Return the median of single operations that come as many a second as the messages do."""
    taken = []
    for _ in range(rate):
        taken += timed(1, work)
        time.sleep(max(0.0, 1 / rate - taken[-1]))
    return statistics.median(taken) * 1000


def _file_floor() -> Floor:
    place, names = str(folder()), map(str, count())

    def work() -> None:
        write_file(place, next(names), power=True)
        sync_folder(place)

    return lambda rate: _p50_ms(rate, work)


def _sqlite_floor() -> Floor:
    database = open_database(folder() / "floor.db", "FULL", "CREATE TABLE t (body BLOB)")
    return lambda rate: _p50_ms(rate, lambda: database.execute("INSERT INTO t VALUES (?)", (BODY,)))


def _kafka_floor(servers: str) -> Floor:
    from confluent_kafka import Producer

    client = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "linger.ms": 0})

    def work() -> None:
        client.produce("chat.messages.persisted.v1", BODY.encode(), "floor")
        client.flush()

    return lambda rate: _p50_ms(rate, work)


def _postgres_floor(url: str) -> Floor:
    import psycopg

    database = psycopg.connect(url, autocommit=True)
    database.execute("CREATE TABLE floor (body text)")
    return lambda rate: _p50_ms(rate, lambda: database.execute("INSERT INTO floor VALUES (%s)", (BODY,)))
