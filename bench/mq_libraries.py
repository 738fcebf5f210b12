"""The engine as a library in one process, beside libraries that keep a queue on the local disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import kingdom.mq
from bench import homes, mq_clients
from bench.figures import median
from bench.mq_brokers import AGAINST, Bean, beanstalkd
from bench.mq_peers import BACKLOG, BODY, Peer, missing, table
from bench.mq_stores import opened
from kingdom.base.disk.atomic import Durability
from kingdom.mq.message_format import Draft

TITLE = "The queue as a library, beside libraries"
ABOUT = (
    f"In one process, messages of 500 bytes, {BACKLOG:,} waiting before each measure (libraries whose time depends on "
    "the backlog meet the same one). In brackets: our sqlite store of the same durability divided by it; "
    "what has no acknowledgement stands beside *process*. The first table: 1, 4 and 16 threads, call by call; what "
    "syncs nothing shows the most that syncing less could bring."
)


class OurStore:
    def __init__(self, backend: str, durability: Any, folder: Path) -> None:
        self._engine = opened(backend, folder, durability)
        self._engine.queues.declare("bench")

    def publish(self, body: str) -> None:
        self._engine.publish("bench", Draft(body))
        self._engine.commit()

    def publish_many(self, bodies: list[str]) -> None:
        for body in bodies:
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

    def take_many(self, count: int) -> int:
        leased = self._engine.lease("bench", "c", count)
        self._engine.commit()
        for message in leased:
            self._engine.ack(message.message_key, message.lease_id)
        self._engine.commit()
        return len(leased)

    def close(self) -> None:
        self._engine.close()


class OurSession:
    """The store as a program opens it, for threads to share."""

    def __init__(self, folder: Path, address: Any, durability: Durability = "power") -> None:
        self._session = kingdom.mq.open(folder, backend="sqlite", durability=durability)

    def publish(self, body: str) -> None:
        self._session.publish("bench", body)

    def take(self) -> str | None:
        delivery = self._session.take("bench")
        if delivery is None:
            return None
        delivery.ack()
        return delivery.text

    def close(self) -> None:
        self._session.close()


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

    def publish_many(self, bodies: list[str]) -> None:
        with self._deque.transact():
            self._deque.extend(bodies)

    def take_many(self, count: int) -> int:
        with self._deque.transact():
            return sum(self.take() is not None for _ in range(count))


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
        from kombu.transport.filesystem import Transport

        Transport.global_state.clear()  # else it takes the queue of an earlier folder for declared, and drops all
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


def _ours(backend: str, durability: str) -> Peer:
    name = f"our {backend} store"
    opens = lambda folder, _: OurStore(backend, durability, folder)  # noqa: E731
    return Peer(name, durability, opens, ours=backend == "sqlite")


PEERS = (
    *(_ours(backend, level) for level in ("process", "power") for backend in ("sqlite", "filesystem", "hybrid")),
    Peer("persist-queue file", "no ack", PersistFile, module="persistqueue"),
    Peer("persist-queue ack-sqlite", "power", PersistAck, module="persistqueue"),
    Peer("litequeue", "process", Lite, module="litequeue"),
    Peer("diskcache Deque", "no ack", DiskDeque, module="diskcache"),
    Peer("huey file", "no ack", HueyFile, module="huey"),
    Peer("huey sqlite", "no ack", HueySqlite, module="huey"),
    Peer("kombu filesystem", "no ack", Kombu, module="kombu"),
)


SYNCED = Peer("kingdom.mq.open, sqlite", "power", OurSession, shared=True)
UNSYNCED = Peer(SYNCED.name, "process", partial(OurSession, durability="process"), shared=True)
BEANSTALKD = Peer(AGAINST, "power", Bean, beanstalkd, "greenstalk", "beanstalkd")
THREADED = (SYNCED, UNSYNCED, BEANSTALKD)
"""The library from several threads, beside what a program would talk to instead."""
GOALS = {"publish": 5.0, "take+ack": 5.0}
REASON = (
    "threads of one Python program run in turns: what its processor time allows if no sync took any time is below the "
    "goal (the table of processor time)"
)
THREADS, EACH = 16, 200
COSTS = "Processor time of one message in µs, nothing synced, and how many a second one interpreter can do at most"


def run(quick: bool) -> dict[str, Any]:
    found = table(PEERS, quick)
    skipped = {peer.name: why for peer in THREADED if (why := missing(peer))}
    several = mq_clients.table(THREADED, quick, skipped, ("threads",))
    rows = [
        *mq_clients.rows("library", several["rounds"], (SYNCED, BEANSTALKD), GOALS, REASON),
        *mq_clients.rows("library that syncs nothing:", several["rounds"], (UNSYNCED, BEANSTALKD), {}, ""),
    ]
    return {
        "title": "The queue as a library, beside libraries",
        "about": ABOUT,
        "rows": rows,
        **found,
        "clients": several,
        "tables": [costs(1 if quick else 5)],
    }


def costs(rounds: int) -> dict[str, Any]:
    """Return what a message costs the one processor that the threads of a Python program have together."""
    group = THREADS
    cases: dict[str, Callable[[], tuple[float, float]]] = {
        f"{THREADS} threads hand over to one another, once and twice": _handing_over,
        "the engine without a disk": lambda: _of_engine("memory", group),
        f"the engine on sqlite, {group} calls for a commit": lambda: _of_engine("sqlite", group),
        f"kingdom.mq.open on sqlite, {THREADS} threads": _of_session,
    }
    found = {case: [measured() for _ in range(rounds)] for case, measured in cases.items()}
    rows = {}
    for case, times in found.items():
        both = [median([time[part] for time in times]) * 1e6 for part in (0, 1)]
        rows[case] = [f"{cost:.0f} ({1e6 / cost:,.0f}/s)" for cost in both]
    return {"title": COSTS, "columns": ["publish", "take+ack"], "rows": rows}


def _handing_over() -> tuple[float, float]:
    """One thread wakes all others, and so on: the least for threads that are answered together."""
    waiting = [threading.Lock() for _ in range(THREADS)]
    for lock in waiting:
        lock.acquire()
    arrivals = count(1)

    def call(own: threading.Lock) -> None:
        for _ in range(EACH):
            if next(arrivals) % THREADS:
                own.acquire()
            else:
                for lock in waiting:
                    if lock is not own:
                        lock.release()

    once = _in_threads(lambda number: call(waiting[number]))
    return once, 2 * once


def _of_engine(backend: str, group: int) -> tuple[float, float]:
    engine = opened(backend, homes.folder(), "process")
    engine.queues.declare("bench")
    times = THREADS * EACH
    began = time.process_time()
    for _ in range(times // group):
        for _ in range(group):
            engine.publish("bench", Draft(BODY))
        engine.commit()
    published = time.process_time()
    for _ in range(times // group):
        held = [engine.lease("bench", "c")[0] for _ in range(group)]
        engine.commit()
        for leased in held:
            engine.ack(leased.message_key, leased.lease_id)
        engine.commit()
    ended = time.process_time()
    engine.close()
    return (published - began) / times, (ended - published) / times


def _of_session() -> tuple[float, float]:
    queue = OurSession(homes.folder(), None, "process")
    publish = _in_threads(lambda _: [queue.publish(BODY) for _ in range(EACH)])
    take = _in_threads(lambda _: [queue.take() for _ in range(EACH)])
    queue.close()
    return publish, take


def _in_threads(work: Callable[[int], object]) -> float:
    """Return the processor time of one call, of so many by each thread."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    began = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.process_time() - began) / (THREADS * EACH)
