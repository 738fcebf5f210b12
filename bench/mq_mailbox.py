"""The mailbox beside the least that two processes need to exchange two files: an echo that stores nothing."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from bench import homes
from bench.clients import Queue, at_once, manager, our_mailbox
from bench.figures import LEVELS, Found, interleaved, seconds, timed
from bench.floors import BODY, Echo, echoing
from kingdom.mq.client import Client

BATCH, CLIENTS = 100, 4


def run(quick: bool) -> Found:
    found = Found()
    rounds, calls = (2, 150) if quick else (7, 600)
    for mode in LEVELS:
        for store in ("filesystem", "sqlite") if quick else ("filesystem", "sqlite", "hybrid"):
            with echoing(homes.folder(), power=mode == "power") as base, manager(store, mode) as (mailbox, _):
                number = calls if mode == "process" else calls // 3
                latencies(found, f"{store}, {mode}", base, mailbox, rounds, number)
                throughputs(found, f"{store}, {mode}", mailbox, max(2, rounds // 2), number)
    found.add("wake-ups of an idle manager", "", [wake_ups(2.0 if quick else 10.0)])
    return found


def latencies(found: Found, case: str, base: Path, mailbox: Path, rounds: int, calls: int) -> None:
    echo = Echo(base)
    with Client(mailbox, timeout=30) as client:
        contests = {"echo": lambda: timed(calls, echo.call), "requests": lambda: requests(client, calls)}
        times = interleaved(rounds + 1, contests)
    for at, what in enumerate(("publish", "consume", "ack")):
        found.times("one request", f"{what}, {case}", [one[at] for one in times["requests"][1:]])
        found.times("echo", f"{what}, {case}", times["echo"][1:])


def requests(client: Client, calls: int) -> list[list[float]]:
    """Return the seconds of publishes, consumes and acks, one after the other."""
    times: list[list[float]] = [[], [], []]

    for _ in range(calls):
        times[0].append(seconds(partial(client.publish, "bench", BODY)))
        began = time.perf_counter()
        delivery = client.take("bench")
        times[1].append(time.perf_counter() - began)
        assert delivery is not None
        times[2].append(seconds(partial(client.ack, delivery)))
    return times


def throughputs(found: Found, case: str, mailbox: Path, rounds: int, calls: int) -> None:
    """Add operations a second: publish, consume and ack."""
    opens = partial(our_mailbox, mailbox)
    contests = {
        "one client": lambda: 3 * at_once(opens, one_by_one, calls, 1),
        f"{CLIENTS} clients": lambda: 3 * at_once(opens, one_by_one, calls, CLIENTS),
        f"batches of {BATCH}": lambda: 3 * BATCH * at_once(opens, in_batches, max(4, calls // 20), 1),
    }
    found.add_all(case, interleaved(rounds, contests))


def one_by_one(queue: Queue) -> None:
    queue.publish(BODY)
    queue.take()


def in_batches(queue: Queue) -> None:
    assert queue.publish_many is not None
    assert queue.take_many is not None
    queue.publish_many([BODY] * BATCH)
    queue.take_many(BATCH)


def wake_ups(watched: float) -> int:
    """Return how often an idle manager was woken: its voluntary context switches."""
    with manager("memory", "process") as (_, pid):
        time.sleep(1.5)  # until the engine has tidied up after the first request
        before = _switches(pid)
        time.sleep(watched)
        return _switches(pid) - before


def _switches(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("voluntary_ctxt")))
