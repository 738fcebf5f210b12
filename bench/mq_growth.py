"""What a backlog costs: every operation with few and with many messages waiting, restart, and memory. Row 4."""

from __future__ import annotations

import gc
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.figures import Curve, Row, curve, row
from bench.mq_stores import PAYLOAD, QUEUE, Ground
from kingdom.disk.atomic import Durability
from kingdom.mq.engine import Engine, Leased, open_engine
from kingdom.mq.message_format import Draft
from kingdom.mq.policy import Policy
from kingdom.mq.queues import EngineSettings
from kingdom.mq.stores.base import Plan

STORES = ("filesystem", "sqlite", "hybrid")
FEW = 1_000
ONE_PAGE = os.sysconf("SC_PAGE_SIZE")


def run(quick: bool) -> dict[str, Any]:
    sizes = [FEW, 5_000, 20_000] if quick else [FEW, 10_000, 100_000, 1_000_000]
    tries, rounds = (100, 3) if quick else (400, 5)
    ground = Ground()
    rows: list[Row] = []
    curves: list[Curve] = []
    try:
        for backend in STORES:
            costs = [_cost(ground, backend, sizes, tries, rounds)]
            rows += _rows(backend, sizes, costs[0])
            lines = {what: [(size, cost[what]) for size, cost in costs[0].items()] for what in costs[0][FEW]}
            curves.append(curve(f"{backend}: µs per operation by backlog", "waiting", "µs", lines))
            rows += _restart(backend, sizes[-1], ground)
        rows += _memory(ground, sizes[-1])
    finally:
        shutil.rmtree(ground.root, ignore_errors=True)
    return {"title": "MQ growth", "rows": rows, "curves": curves}


def _open(backend: str, folder: Path, durability: Durability = "process") -> Engine:
    return open_engine(backend, Plan(root=folder, durability=durability), settings=EngineSettings(Policy.from_json({})))


def _fill(mq: Engine, size: int, dedup: bool = False) -> None:
    waiting = mq.status(QUEUE).ready
    while waiting < size:
        for number in range(waiting, min(waiting + 1_000, size)):
            mq.publish(QUEUE, Draft(PAYLOAD, dedup_key=f"device-{number}") if dedup else Draft(PAYLOAD))
        mq.commit()
        waiting = min(waiting + 1_000, size)
    mq.store.tidy(0, False)


def _cost(ground: Ground, backend: str, sizes: list[int], tries: int, rounds: int) -> dict[int, dict[str, float]]:
    """All backlogs stand side by side, and take turns."""
    engines = {size: _open(backend, ground.root / f"{backend}-{size}") for size in sizes}
    seen: dict[int, dict[str, list[float]]] = {size: {} for size in sizes}
    for size, mq in engines.items():
        mq.queues.declare(QUEUE)
        _fill(mq, size)
    gc.collect()
    for _ in range(rounds):
        for size, mq in engines.items():
            for what, cost in _turn(mq, tries).items():
                seen[size].setdefault(what, []).append(cost)
    for mq in engines.values():
        _leave(mq)
    return {
        size: {what: round(statistics.median(each), 1) for what, each in costs.items()} for size, costs in seen.items()
    }


def _turn(mq: Engine, tries: int) -> dict[str, float]:
    """CPU time of each operation in µs: others on the machine must not look like growth."""
    held: list[Leased] = []
    costs = {
        "publish": _each(tries, lambda: _committed(mq, lambda: mq.publish(QUEUE, Draft(PAYLOAD)))),
        "lease": _each(tries, lambda: held.extend(_committed(mq, lambda: mq.lease(QUEUE, "bench")))),
    }
    half = tries // 2
    acked, nacked = iter(held[:half]), iter(held[half:])
    costs["ack"] = _each(half, lambda: _committed(mq, lambda: _end(mq.ack, next(acked))))
    costs["nack"] = _each(tries - half, lambda: _committed(mq, lambda: _end_with_nack(mq, next(nacked))))
    costs["status"] = _each(tries, lambda: mq.status(QUEUE))
    mq.sweep()
    mq.commit()
    return costs


def _each(times: int, work: Callable[[], object]) -> float:
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


def _leave(mq: Engine) -> None:
    mq.commit()
    mq.store.close()
    assert mq._lock is not None
    mq._lock.release()


def _rows(backend: str, sizes: list[int], costs: dict[int, dict[str, float]]) -> list[Row]:
    few, many = costs[FEW], costs[sizes[-1]]
    return [
        row(
            f"{backend} {what} with {sizes[-1]:,} waiting",
            goal="≤ 1.25",
            met=many[what] <= few[what] * 1.25,
            ours=many[what],
            unit="µs",
            durability="process",
            floor=few[what],
            floor_is=f"with {FEW:,} waiting, CPU time",
            ratio=round(many[what] / few[what], 2),
        )
        for what in few
    ]


def _restart(backend: str, size: int, ground: Ground) -> list[Row]:
    """Opening a store in a new process, beside one scandir of as many files."""
    folder = ground.root / f"{backend}-{size}"
    files = ground.root / f"filesystem-{size}" / "fs" / QUEUE / "inbox"
    ours, scans = [], []
    for _ in range(3):
        scans.append(float(_child("scan", str(files))))
        ours.append(float(_child("open", backend, str(folder))))
    ratio = statistics.median(mine / scan for mine, scan in zip(ours, scans, strict=True))
    return [
        row(
            f"{backend} restart with {size:,} waiting",
            goal="≤ 2",
            met=ratio <= 2,
            ours=round(statistics.median(ours) * 1000),
            unit="ms",
            floor=round(statistics.median(scans) * 1000),
            floor_is="one scandir of as many files",
            ratio=round(ratio, 2),
        )
    ]


def _memory(ground: Ground, size: int) -> list[Row]:
    plain = float(_child("memory", str(ground.root / f"filesystem-{size}")))
    keyed = float(_child("keyed", str(ground.root / "keyed"), str(size)))
    return [
        row(
            f"memory per waiting message, {size:,} waiting{with_what}",
            goal=f"≤ {most}",
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
    for backend in ("filesystem", "sqlite", "hybrid"):
        ground = Ground()
        mq = _open(backend, ground.fresh())
        mq.publish(QUEUE, Draft(PAYLOAD))
        mq.commit()
        _leave(mq)
        shutil.rmtree(ground.root)


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
        mq = _open(words[1], Path(words[2]))
        took = time.process_time() - began
        _leave(mq)
        return took
    if words[0] == "memory":
        before = _resident()
        mq = _open("filesystem", Path(words[1]))
        return (_resident() - before) / mq.status(QUEUE).ready
    # The sqlite store keeps no bodies in memory once it has settled them.
    mq = _open("sqlite", Path(words[1]))
    mq.queues.declare(QUEUE)
    _fill(mq, 1_000, dedup=True)
    before = _resident()
    _fill(mq, int(words[2]), dedup=True)
    return (_resident() - before) / (int(words[2]) - 1_000)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in ("scan", "open", "memory", "keyed"):
        print(_in_child(sys.argv[1:]))
    else:
        for each in run("--quick" in sys.argv)["rows"]:
            short = "" if each["met"] else "  SHORT"
            print(
                f"{each['name']:60} {each['ours']:>9,} {each['unit']:5} {each['ratio'] or '':>6} {each['goal']}{short}"
            )
