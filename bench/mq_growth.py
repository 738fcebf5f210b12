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

from bench.__main__ import keep
from bench.figures import Curve, Growth, Row, curve, growth, row
from bench.mq_stores import PAYLOAD, QUEUE, Scratch, opened
from kingdom.mq.engine import Engine, Leased
from kingdom.mq.message_format import Draft

STORES = ("filesystem", "sqlite", "hybrid")
FEW = 1_000
ONE_PAGE = os.sysconf("SC_PAGE_SIZE")
ABOUT = (
    "Every operation on a queue that holds few messages and on one that holds many, in processor time, so that other "
    "work on the machine does not look like growth; opening a store in a new process; memory."
)
REASONS = {
    "filesystem": "half of it is the listing, the rest reads names in Python",
}


def run(quick: bool) -> dict[str, Any]:
    sizes = [FEW, 5_000, 20_000] if quick else [FEW, 10_000, 100_000, 1_000_000]
    tries, rounds = (100, 3) if quick else (400, 5)
    rows: list[Row] = []
    costs: dict[str, dict[int, dict[str, float]]] = {}
    place = Scratch()
    for backend in STORES:
        costs[backend] = _cost(place, backend, sizes, tries, rounds)
        rows.append(_restart(backend, sizes[-1], place))
    rows += _memory(place, sizes[-1])
    return {
        "title": "The queue's backlog",
        "about": ABOUT,
        "rows": rows,
        "growth": [_growth(costs, sizes[-1])],
        "curves": [_curve(backend, cost) for backend, cost in costs.items()],
    }


def _growth(costs: dict[str, dict[int, dict[str, float]]], many: int) -> Growth:
    operations = costs[STORES[0]][FEW]
    rows = {
        operation: {backend: (cost[FEW][operation], cost[many][operation]) for backend, cost in costs.items()}
        for operation in operations
    }
    title = f"Cost of an operation with {FEW:,} → with {many:,} messages waiting (durability process)"
    return growth(title, 1.25, STORES, "µs", rows)


def _curve(backend: str, cost: dict[int, dict[str, float]]) -> Curve:
    lines = {what: [(float(size), of[what]) for size, of in cost.items()] for what in cost[FEW]}
    return curve(f"{backend} store: processor time of an operation", "messages waiting (logarithmic)", "µs", lines)


def _fill(mq: Engine, size: int, dedup: bool = False) -> None:
    waiting = mq.status(QUEUE).ready
    while waiting < size:
        for number in range(waiting, min(waiting + 1_000, size)):
            mq.publish(QUEUE, Draft(PAYLOAD, dedup_key=f"device-{number}") if dedup else Draft(PAYLOAD))
        mq.commit()
        waiting = min(waiting + 1_000, size)
    mq.store.tidy(0, False)


def _cost(scratch: Scratch, backend: str, sizes: list[int], tries: int, rounds: int) -> dict[int, dict[str, float]]:
    """All backlogs stand side by side, and take turns."""
    engines = {size: opened(backend, scratch.root / f"{backend}-{size}") for size in sizes}
    found: dict[int, dict[str, list[float]]] = {size: {} for size in sizes}
    for size, mq in engines.items():
        mq.queues.declare(QUEUE)
        _fill(mq, size)
    gc.collect()
    for _ in range(rounds):
        for size, mq in engines.items():
            for what, cost in _turn(mq, tries).items():
                found[size].setdefault(what, []).append(cost)
    for mq in engines.values():
        mq.close()
    return {
        size: {what: round(statistics.median(times), 1) for what, times in costs.items()}
        for size, costs in found.items()
    }


def _turn(mq: Engine, tries: int) -> dict[str, float]:
    """CPU time of each operation in µs: others on the machine must not look like growth."""
    held: list[Leased] = []
    costs = {
        "publish": _microseconds(tries, lambda: _committed(mq, lambda: mq.publish(QUEUE, Draft(PAYLOAD)))),
        "lease": _microseconds(tries, lambda: held.extend(_committed(mq, lambda: mq.lease(QUEUE, "bench")))),
    }
    half = tries // 2
    acked, nacked = iter(held[:half]), iter(held[half:])
    costs["ack"] = _microseconds(half, lambda: _committed(mq, lambda: _end(mq.ack, next(acked))))
    costs["nack"] = _microseconds(tries - half, lambda: _committed(mq, lambda: _end_with_nack(mq, next(nacked))))
    costs["status"] = _microseconds(tries, lambda: mq.status(QUEUE))
    mq.sweep()
    mq.commit()
    return costs


def _microseconds(times: int, work: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times * 1e6


def _committed(mq: Engine, work: Callable[[], Any]) -> Any:
    done = work()
    mq.commit()
    return done


def _end(call: Callable[..., object], leased: Leased) -> None:
    call(leased.message_key, leased.lease_id)


def _end_with_nack(mq: Engine, leased: Leased) -> None:
    mq.nack(leased.message_key, leased.lease_id, reason="bench", requeue=True)


def _restart(backend: str, size: int, scratch: Scratch) -> Row:
    """Open a store in a new process, beside one scandir of as many files."""
    folder = scratch.root / f"{backend}-{size}"
    files = scratch.root / f"filesystem-{size}" / "fs" / QUEUE / "inbox"
    ours, scans = [], []
    for _ in range(3):
        scans.append(float(_child("scan", str(files))))
        ours.append(float(_child("open", backend, str(folder))))
    ratio = statistics.median(mine / scan for mine, scan in zip(ours, scans, strict=True))
    return row(
        f"{backend}: opening a store with {size:,} waiting",
        goal="≤ 2",
        met=ratio <= 2,
        ours=round(statistics.median(ours) * 1000),
        unit="ms",
        floor=round(statistics.median(scans) * 1000),
        floor_is="one scandir of as many files",
        ratio=round(ratio, 2),
        reason=REASONS.get(backend, ""),
    )


def _memory(scratch: Scratch, size: int) -> list[Row]:
    plain = float(_child("memory", str(scratch.root / f"filesystem-{size}")))
    keyed = float(_child("keyed", str(scratch.root / "keyed"), str(size)))
    return [
        row(
            f"memory per waiting message, {size:,} waiting{with_what}",
            goal=f"≤ {most} bytes",
            met=found <= most,
            ours=round(found),
            unit="bytes",
        )
        for with_what, most, found in (("", 150, plain), (" with a deduplication key", 250, keyed))
    ]


def _child(*words: str) -> str:
    return subprocess.check_output([sys.executable, "-m", "bench.mq_growth", *words], text=True).splitlines()[-1]


def _warm_up() -> None:
    """Imports and schemas are the same for every backlog."""
    place = Scratch()
    for backend in STORES:
        mq = opened(backend, place.fresh())
        mq.publish(QUEUE, Draft(PAYLOAD))
        mq.commit()
        mq.close()


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * ONE_PAGE


def _in_child(words: list[str]) -> float:
    _warm_up()
    if words[0] == "scan":
        began = time.process_time()
        with os.scandir(words[1]) as entries:
            for entry in entries:
                _ = entry.name
        return time.process_time() - began
    if words[0] == "open":
        began = time.process_time()
        mq = opened(words[1], Path(words[2]))
        took = time.process_time() - began
        mq.close()
        return took
    if words[0] == "memory":
        before = _resident()
        mq = opened("filesystem", Path(words[1]))
        return (_resident() - before) / mq.status(QUEUE).ready
    # The sqlite store keeps no bodies in memory once it has settled them.
    mq = opened("sqlite", Path(words[1]))
    mq.queues.declare(QUEUE)
    _fill(mq, 1_000, dedup=True)
    before = _resident()
    _fill(mq, int(words[2]), dedup=True)
    return (_resident() - before) / (int(words[2]) - 1_000)


def _again(part: dict[str, Any], size: int) -> dict[str, Any]:
    """Return the part with its rows about starts of the file store and about memory measured anew."""
    place = Scratch()
    mq = opened("filesystem", place.root / f"filesystem-{size}")
    mq.queues.declare(QUEUE)
    _fill(mq, size)
    mq.close()
    found = {new["name"]: new for new in (_restart("filesystem", size, place), *_memory(place, size))}
    return {**part, "rows": [found.get(old["name"], old) for old in part["rows"]]}


if __name__ == "__main__":
    if sys.argv[1:] == ["--keep"]:  # a quarter of an hour less than all of it
        keep("mq_growth", lambda part: _again(part, 1_000_000))
    else:
        print(_in_child(sys.argv[1:]))
