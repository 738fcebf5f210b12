"""What a backlog costs: every operation with few and with many messages waiting, opening a store, and memory."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.figures import Found
from bench.floors import BODY
from bench.mq_stores import QUEUE, Scratch, opened
from kingdom.mq.engine import Engine, Leased
from kingdom.mq.message_format import Draft

STORES = ("filesystem", "sqlite", "hybrid")
FEW = 1_000
PAGE = os.sysconf("SC_PAGE_SIZE")


def run(quick: bool) -> Found:
    found, place = Found(), Scratch()
    sizes = [FEW, 5_000, 20_000] if quick else [FEW, 10_000, 100_000, 1_000_000]
    tries, rounds = (100, 3) if quick else (400, 5)
    many = sizes[-1]
    for backend in STORES:
        costs = turns(place, backend, sizes, tries, rounds)
        for what in costs[FEW]:
            found.add(f"with {many:,} messages waiting", f"{what}, {backend}", costs[many][what])
            found.add("with few", f"{what}, {backend}", costs[FEW][what])
        lines = {what: [(float(size), statistics.median(costs[size][what])) for size in sizes] for what in costs[FEW]}
        title = f"{backend} store: processor time of an operation"
        found.curve(title, "messages waiting (logarithmic)", "µs", lines)
        opening(found, place, backend, many)
    for kind, folder in (("no deduplication key", f"filesystem-{many}"), ("with a deduplication key", "keyed")):
        found.add("memory of a waiting message", kind, [child(kind.split()[0], str(place.root / folder), str(many))])
    return found


def turns(place: Scratch, backend: str, sizes: list[int], tries: int, rounds: int) -> dict[int, dict[str, list[float]]]:
    """Return the processor time of operations in µs: all backlogs are open side by side, and take turns."""
    engines = {size: opened(backend, place.root / f"{backend}-{size}") for size in sizes}
    found: dict[int, dict[str, list[float]]] = {size: {} for size in sizes}
    for size, mq in engines.items():
        fill(mq, size)
    gc.collect()
    for _ in range(rounds):
        for size, mq in engines.items():
            for what, cost in turn(mq, tries).items():
                found[size].setdefault(what, []).append(cost)
    for mq in engines.values():
        mq.close()
    return found


def fill(mq: Engine, size: int, **more: Any) -> None:
    for first in range(mq.status(QUEUE).ready, size, 1_000):
        for number in range(first, min(first + 1_000, size)):
            mq.publish(QUEUE, Draft(BODY, **{name: f"{value}-{number}" for name, value in more.items()}))
        mq.commit()
    mq.store.tidy(0, False)


def turn(mq: Engine, tries: int) -> dict[str, float]:
    held: list[Leased] = []

    def cost(times: int, work: Callable[[], object]) -> float:
        began = time.process_time()
        for _ in range(times):
            work()
            mq.commit()
        return (time.process_time() - began) / times * 1e6

    def nack(leased: Leased) -> None:
        mq.nack(leased.message_key, leased.lease_id, reason="bench", requeue=True)

    costs = {
        "publish": cost(tries, lambda: mq.publish(QUEUE, Draft(BODY))),
        "lease": cost(tries, lambda: held.extend(mq.lease(QUEUE, "bench"))),
        "ack": cost(tries // 2, lambda: mq.ack((leased := held.pop()).message_key, leased.lease_id)),
        "nack": cost(tries - tries // 2, lambda: nack(held.pop())),
        "status": cost(tries, lambda: mq.status(QUEUE)),
    }
    mq.sweep()
    mq.commit()
    return costs


def opening(found: Found, place: Scratch, backend: str, size: int) -> None:
    """Open a store in a new process, beside one scandir of as many files."""
    files = place.root / f"filesystem-{size}" / "fs" / QUEUE / "inbox"
    for _ in range(3):
        for what, words in (
            (f"opening a store with {size:,} messages waiting", ("open", f"{place.root}/{backend}-{size}", backend)),
            ("one scandir", ("scan", str(files))),
        ):
            found.samples.setdefault((what, backend), []).append(child(*words) * 1e3)


def child(*words: str) -> float:
    return float(subprocess.check_output([sys.executable, "-m", "bench.mq_growth", *words], text=True).split()[-1])


def in_child(what: str, folder: str, more: str = "") -> float:
    place = Scratch()
    for backend in STORES:  # imports and schemas are the same for every backlog
        mq = opened(backend, place.fresh())
        mq.publish(QUEUE, Draft(BODY))
        mq.commit()
        mq.close()
    began, before = time.process_time(), resident()
    if what == "scan":
        with os.scandir(folder) as entries:
            for entry in entries:
                _ = entry.name
        return time.process_time() - began
    if what == "open":
        mq = opened(more, Path(folder))
        took = time.process_time() - began
        mq.close()
        return took
    if what == "no":
        mq = opened("filesystem", Path(folder))
        return (resident() - before) / mq.status(QUEUE).ready
    # The sqlite store keeps no bodies in memory once it has settled them.
    mq = opened("sqlite", Path(folder))
    fill(mq, FEW, dedup_key="device")
    before = resident()
    fill(mq, int(more), dedup_key="device")
    return (resident() - before) / (int(more) - FEW)


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


if __name__ == "__main__":
    print(in_child(*sys.argv[1:]))
