"""Trivial jobs, one command for each event: how many a second, how soon one alone, beside mere runners of commands."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench import homes, peers
from bench.court import drafts, jobs_a_second, paused, send
from bench.figures import LEVELS, Found, interleaved
from bench.floors import Watch
from bench.homes import GENERAL, court

AT_ONCE = 16
ROLES = ("king", GENERAL, "envoy")
HUEY = """
import subprocess, sys
from huey import SqliteHuey
from huey.consumer_options import ConsumerConfig
huey = SqliteHuey(filename=sys.argv[1], fsync=True)
@huey.task()
def job(script):
    subprocess.run([script], check=True)
if sys.argv[2:]:
    for _ in range(int(sys.argv[2])):
        job(sys.argv[3])
else:
    config = ConsumerConfig(workers=16, worker_type="thread", initial_delay=0.001, max_delay=0.01)
    huey.create_consumer(**config.values).run()
"""


def run(quick: bool) -> Found:
    found, root, numbers = Found(), homes.folder(), itertools.count()
    rounds, jobs, alone = (1, 50, 10) if quick else (5, 200, 60)
    fresh = lambda: root / f"{next(numbers)}"  # noqa: E731
    ours = {mode: lambda mode=mode: our_rate(fresh(), root, mode, jobs) for mode in LEVELS}
    others: dict[str, Callable[[], float]] = {}
    if tsp := shutil.which("tsp"):
        others["task-spooler, which keeps nothing"] = lambda: spooler_rate(tsp, fresh(), jobs)
    if python := peers.prepare(quick):
        others["huey, SQLite, which survives a power cut"] = lambda: huey_rate(python, fresh(), jobs)
    rates = interleaved(rounds, {**ours, **others})
    best = max(others, key=lambda name: median(rates[name]), default="")
    for mode in LEVELS:
        found.add(f"jobs a second, {AT_ONCE} at once", mode, rates[mode])
        found.add("the best peer", mode, rates.get(best, []))
        found.times("one job alone, event → message", mode, [times_alone(fresh(), root, mode, alone)])
    found.table(
        f"Runners of commands, {jobs} jobs waiting", ["jobs/s"], {name: [median(rates[name])] for name in others}
    )
    if not quick:
        steady(found, fresh(), root, 10_000)
    return found


def our_rate(home: Path, scratch: Path, mode: str, jobs: int) -> float:
    with court(home, mode, *ROLES, most=AT_ONCE) as (places, _):
        jobs_a_second(places, scratch, AT_ONCE)  # the first ones start what is started once
        return jobs_a_second(places, scratch, jobs)


def times_alone(home: Path, scratch: Path, mode: str, jobs: int) -> list[float]:
    """Return the seconds from an event renamed in to its last message filed, one after the other."""
    with court(home, mode, *ROLES, most=AT_ONCE) as (places, _), Watch(places.folder("messages", "sent")) as sent:
        sources = iter(drafts(scratch, jobs + 1))
        return [paused(lambda: (send(places, [next(sources)]), sent.wait(2))) for _ in range(jobs + 1)][1:]


def steady(found: Found, home: Path, scratch: Path, jobs: int) -> None:
    """Do very many jobs: the last tenth must be as fast as the first, and memory must not grow."""
    with court(home, "process", *ROLES, most=AT_ONCE) as (places, pids):
        with Watch(places.folder("messages", "sent")) as sent:
            send(places, drafts(scratch, jobs))
            took, left = [], 2 * jobs
            for _ in range(10):
                began = time.perf_counter()
                left -= (seen := len(sent.wait(min(left, 2 * jobs // 10))))
                took.append(seen / 2 / (time.perf_counter() - began))
        found.add(f"{jobs:,} jobs: a second at the end", "process", took[-1:])
        found.add("a second at the beginning", "process", took[:1])
        for role, pid in pids.items():
            found.add(f"{jobs:,} jobs: unique memory", role, [homes.megabytes(pid)])


def spooler_rate(tsp: str, root: Path, jobs: int) -> float:
    script, about = _script(root), {"TS_SOCKET": str(root / "socket"), "TMPDIR": str(root)}
    environment = {**os.environ, **about, "TS_MAXFINISHED": str(jobs)}
    call = lambda *words: subprocess.run([tsp, *words], env=environment, stdout=subprocess.DEVNULL, check=False)  # noqa: E731
    try:
        call("-S", str(AT_ONCE))
        began = time.perf_counter()
        for _ in range(jobs):
            call("-n", script)
        call("-w")
        return jobs / (time.perf_counter() - began)
    finally:
        call("-K")


def huey_rate(python: Path, root: Path, jobs: int) -> float:
    script, program, done = _script(root), root / "jobs.py", root / "done"
    program.write_text(HUEY)
    command = [str(python), str(program), str(root / "huey.db")]
    subprocess.run([*command, str(jobs), script], check=True)
    began = time.perf_counter()
    consumer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
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
