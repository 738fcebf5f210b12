"""Trivial jobs, one command for each event: how many a second, how soon one alone, beside mere runners of commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import homes
from bench.court import PAUSE, arrived, drafts, watching
from bench.figures import Row, at_most, interleaved, median, percentile, ratio, row
from bench.homes import GENERAL, Home

ABOUT = (
    "A shell script that does nothing, once for each event, 16 at a time. Ours runs each in its sandbox and files two "
    "messages; the others start it and wait for its end."
)
AT_ONCE = 16
GOALS = {"process": 300, "power": 150}
NO_PEER = "not installed here"
HUEY = """
import subprocess, sys
from huey import SqliteHuey
huey = SqliteHuey(filename=sys.argv[-1], fsync=True)

@huey.task()
def job(script):
    subprocess.run([script], check=True)
"""


def run(quick: bool) -> dict[str, Any]:
    root = homes.folder()
    rounds, jobs, alone = (1, 50, 10) if quick else (5, 200, 60)
    again = iter(range(1_000_000))
    contestants: dict[str, Any] = {
        mode: lambda mode=mode: our_rate(root / f"home-{next(again)}", root, mode, jobs) for mode in GOALS
    }
    peers: dict[str, Any] = {}
    if shutil.which("tsp"):
        peers["task-spooler"] = lambda: spooler_rate(root / f"tsp-{next(again)}", jobs)
    if _has_huey():
        peers["huey, SQLite"] = lambda: huey_rate(root / f"huey-{next(again)}", jobs)
    found = interleaved(rounds, {**contestants, **peers})
    rows = [_rate_row(mode, found, list(peers)) for mode in GOALS]
    for mode in GOALS:
        rows += _alone_rows(mode, [*our_times_alone(root / f"alone-{mode}", root, mode, alone)])
    notes = [f"{name}: {median(found[name]):.0f} jobs/s" for name in peers]
    return {"title": "Trivial jobs", "about": ABOUT, "rows": rows, "notes": notes}


def _rate_row(mode: str, found: dict[str, list[float]], peers: list[str]) -> Row:
    best = max(peers, key=lambda name: median(found[name]), default=None)
    ours = median(found[mode])
    return row(
        f"jobs a second, {AT_ONCE} at once",
        durability=mode,
        goal=f"≥ {GOALS[mode]}",
        met=ours >= GOALS[mode],
        ours=ours,
        unit="jobs/s",
        floor=median(found[best]) if best else None,
        floor_is=best or NO_PEER,
        ratio=ratio(found[mode], found[best]) if best else None,
        reason="a sandbox of its own for each, and files from role to role",
    )


def _alone_rows(mode: str, times: list[float]) -> list[Row]:
    return [
        at_most(
            f"one job alone, event → message, {what}",
            percentile(times, part) * 1e3,
            most,
            "ms",
            durability=mode,
            reason="a sandbox of its own, and files from role to role",
        )
        for what, part, most in (("p50", 0.5, 30.0), ("p99", 0.99, 80.0))
    ]


@contextmanager
def _court(root: Path, mode: str) -> Iterator[Home]:
    home = Home(root, durability=mode, config={"king": {"concurrency": {"max_soldiers": AT_ONCE}}})
    home.start("king", GENERAL, "envoy")
    try:
        yield home
    finally:
        home.stop()


def our_rate(root: Path, scratch: Path, mode: str, jobs: int) -> float:
    """Return jobs a second, from the first event renamed in to the last message filed."""
    with _court(root, mode) as home:
        pending = home.places.folder("events", "pending")
        with watching(str(home.places.folder("messages", "sent"))) as sent:
            for count in (1, jobs):  # the first one starts what is started once
                sources = drafts(scratch, count)
                began = time.perf_counter()
                for source in sources:
                    os.rename(source, pending / source.name)
                arrived(sent, 2 * count)
            return jobs / (time.perf_counter() - began)


def our_times_alone(root: Path, scratch: Path, mode: str, jobs: int) -> Iterator[float]:
    """Yield the seconds from an event renamed in to its last message filed, one after the other."""
    with _court(root, mode) as home:
        pending = home.places.folder("events", "pending")
        with watching(str(home.places.folder("messages", "sent"))) as sent:
            for number in range(jobs + 1):
                time.sleep(PAUSE)
                (source,) = drafts(scratch, 1)
                began = time.perf_counter()
                os.rename(source, pending / source.name)
                arrived(sent, 2)
                if number:
                    yield time.perf_counter() - began


def spooler_rate(root: Path, jobs: int) -> float:
    script = _script(root)
    environment = {**os.environ, "TS_SOCKET": str(root / "socket"), "TMPDIR": str(root), "TS_MAXFINISHED": str(jobs)}
    try:
        subprocess.run(["tsp", "-S", str(AT_ONCE)], env=environment, check=True, stdout=subprocess.DEVNULL)
        began = time.perf_counter()
        for _ in range(jobs):
            subprocess.run(["tsp", "-n", script], env=environment, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["tsp", "-w"], env=environment, check=True, stdout=subprocess.DEVNULL)
        return jobs / (time.perf_counter() - began)
    finally:
        subprocess.run(["tsp", "-K"], env=environment, check=False)


def huey_rate(root: Path, jobs: int) -> float:
    script = _script(root)
    (root / "jobs.py").write_text(HUEY)
    database, environment = str(root / "huey.db"), {**os.environ, "PYTHONPATH": str(root)}
    put = f"import jobs\nfor _ in range({jobs}): jobs.job({script!r})"
    subprocess.run([sys.executable, "-c", put, database], env=environment, check=True)
    consume = (
        "import sys, jobs\nfrom huey.consumer_options import ConsumerConfig\n"
        f"config = ConsumerConfig(workers={AT_ONCE}, worker_type='thread', initial_delay=0.001, max_delay=0.01)\n"
        "jobs.huey.create_consumer(**config.values).run()"
    )
    began = time.perf_counter()
    consumer = subprocess.Popen([sys.executable, "-c", consume, database], env=environment, stderr=subprocess.DEVNULL)
    try:
        done = root / "done"
        homes.wait_for(lambda: done.exists() and done.stat().st_size >= jobs, 120, f"{jobs} jobs of huey")
        return jobs / (time.perf_counter() - began)
    finally:
        consumer.kill()
        consumer.wait()


def _script(root: Path) -> str:
    root.mkdir()
    script = root / "job"
    script.write_text(f"#!/bin/sh\nprintf x >>'{root}/done'\n")
    script.chmod(0o700)
    return str(script)


def _has_huey() -> bool:
    try:
        import huey  # noqa: F401
    except ImportError:
        return False
    return True
