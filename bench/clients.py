"""Clients of a queue: ours through its mailbox, and several of any kind at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench import homes
from bench.floors import FORK
from kingdom.base.home.places import Places
from kingdom.mq.client import Client


class Queue(NamedTuple):
    """What can be measured of any queue. `take` consumes and acknowledges one; the calls for batches may be missing."""

    publish: Callable[[str], object]
    take: Callable[[], object]
    publish_many: Callable[[list[str]], object] | None = None
    take_many: Callable[[int], object] | None = None
    close: Callable[[], object] = lambda: None


@contextmanager
def manager(backend: str, durability: str) -> Iterator[tuple[Path, int]]:
    """Yield the mailbox of a running manager, and its pid."""
    home = homes.folder()
    mailbox = home / "queue" / "mailbox"
    (home / "config").mkdir()
    (mailbox / "requests").mkdir(parents=True)
    homes.configure(Places(home), mq={"backend": backend, "durability": durability})
    with homes.process("kingdom.mailbox", home=home) as process:
        with Client(mailbox, timeout=20) as client:
            client.health()
        yield mailbox, process.pid


def our_mailbox(mailbox: Path) -> Queue:
    client = Client(mailbox, timeout=30)

    def take() -> None:
        delivery = client.take("bench")
        assert delivery is not None
        client.ack(delivery)

    def take_many(number: int) -> None:
        client.ack_batch(client.consume_batch("bench", number))

    publish_many = lambda bodies: client.publish_batch("bench", bodies)  # noqa: E731
    return Queue(lambda body: client.publish("bench", body), take, publish_many, take_many, client.close)


def at_once(
    opens: Callable[[], Queue],
    work: Callable[[Queue], object],
    each: int,
    clients: int,
    *,
    threads: bool = False,
    shared: bool = False,
) -> float:
    """Return calls a second of several clients: each a process, or all threads of one, with a connection each unless
    it is shared."""
    spans, go = FORK.Queue(), FORK.Barrier(clients)

    def call(queue: Queue) -> None:
        work(queue)
        go.wait(60)
        began = time.perf_counter()
        for _ in range(each):
            work(queue)
        spans.put((began, time.perf_counter()))

    def alone() -> None:
        queue = opens()
        call(queue)
        queue.close()

    def program() -> None:
        queue = opens() if shared else None
        calls = [threading.Thread(target=partial(call, queue) if queue else alone) for _ in range(clients)]
        for thread in calls:
            thread.start()
        for thread in calls:
            thread.join()

    processes = [FORK.Process(target=program)] if threads else [FORK.Process(target=alone) for _ in range(clients)]
    for process in processes:
        process.start()
    times: list[Any] = [spans.get(timeout=120) for _ in range(clients)]
    for process in processes:
        process.join(20)
    return float(each * clients) / (max(ended for _, ended in times) - min(began for began, _ in times))
