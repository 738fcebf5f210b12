"""Trivial jobs, one command for each event: how many a second, how soon one alone, beside mere runners of commands."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import floors, homes, mq_peers, starts
from bench.court import PAUSE, arrived, drafts, watching
from bench.figures import Row, at_most, interleaved, median, percentile, ratio, row
from bench.homes import GENERAL, Home

ABOUT = (
    "A shell script that does nothing, once for each event, 16 at a time. Ours runs each in its sandbox and files two "
    "messages; the others start it and wait for its end."
)
AT_ONCE = 16
GOALS = {"process": 300, "power": 150}
NO_PEER = "none could be installed here"
SURVIVES = {"task-spooler": "nothing", "huey, SQLite": "power"}
"""What the queues of others outlive."""
WITHOUT_JOURNAL = (
    "An ext4 without one looks, for each new file, through all that were removed in the minutes before: there the "
    "king, the general and the envoy use about twice as much processor time."
)
MANY = 10_000
LARGEST_MB = 25
SERVING, COMMANDS = "the serving processes", "the commands"
STAGES = (
    "king: event → task",
    "general, soldier: task → report",
    "general: report → result",
    "king: result → message",
    "envoy: message → filed",
)
"""What one job alone passes, one after the other. What a role does beside that does not hold it up."""
PARTS = ("king", GENERAL, "envoy", SERVING, COMMANDS)
"""Who spends processor time on a job."""
TRACED = 200
"""Jobs of which the kernel's calls are counted."""
TICKS = os.sysconf("SC_CLK_TCK")
SYNCS = ("fsync", "fdatasync", "syncfs")
EVERY_CALL = ("raw_syscalls:sys_enter", *(f"syscalls:sys_enter_{name}" for name in SYNCS))
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
    costs: dict[str, list[dict[str, float]]] = {mode: [] for mode in GOALS}
    contestants: dict[str, Any] = {
        mode: lambda mode=mode: our_rate(root / f"home-{next(again)}", root, mode, jobs, costs[mode]) for mode in GOALS
    }
    peers: dict[str, Any] = {}
    python = mq_peers.prepare(quick)
    if tsp := shutil.which("tsp", path=mq_peers.surroundings()["PATH"]):
        peers["task-spooler"] = lambda: spooler_rate(tsp, root / f"tsp-{next(again)}", jobs)
    if python:
        peers["huey, SQLite"] = lambda: huey_rate(python, root / f"huey-{next(again)}", jobs)
    found = interleaved(rounds, {**contestants, **peers})
    rows = [_rate_row(mode, found, list(peers)) for mode in GOALS]
    for mode in GOALS:
        rows += _alone_rows(mode, [*our_times_alone(root / f"alone-{mode}", root, mode, alone)])
    if not quick:
        rows += steady(root / "many", root, MANY)
    alone_cost = {name: [ms] for name, ms in starts.measured(root).items()}
    runners = {name: [SURVIVES[name], median(found[name])] for name in peers}
    beside = {"title": f"Runners of commands, {jobs} jobs waiting", "columns": ["survives", "jobs/s"], "rows": runners}
    tables = [
        *([beside] if runners else []),
        _cost_table(costs),
        {"title": "Starting a command alone", "columns": ["ms of processor time"], "rows": alone_cost},
        _stages_table(root, alone),
    ]
    if shutil.which("perf"):
        traced = {mode: calls(root / f"traced-{mode}", root, mode) for mode in GOALS}
        about = "Calls of the kernel for a job; in brackets those that sync"
        tables.append({"title": about, "columns": ["king", GENERAL, "envoy", "soldier", "all"], "rows": traced})
    return {"title": "Trivial jobs", "about": ABOUT, "rows": rows, "tables": tables, "notes": [file_system(root)]}


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


def _stages_table(root: Path, jobs: int) -> dict[str, Any]:
    """Return how long one job alone stays in each stage, and what one sync alone takes on the same disk."""
    found = {mode: stages(root / f"stages-{mode}", root, mode, jobs) for mode in GOALS}
    rows: dict[str, list[float | str]] = {
        stage: [median(times[stage]) * 1e3 for times in found.values()] for stage in STAGES
    }
    rows["one new file synced, alone"] = ["", median([_sync_alone(root, number) for number in range(jobs)]) * 1e3]
    return {"title": "Where the time of one job alone goes, p50 in ms", "columns": list(GOALS), "rows": rows}


def stages(root: Path, scratch: Path, mode: str, jobs: int) -> dict[str, list[float]]:
    """Return the seconds that jobs, one after the other, stay in each stage: until its file arrives for the next."""
    times: dict[str, list[float]] = {stage: [] for stage in STAGES}
    with _court(root, mode) as home, ExitStack() as opened:
        places = home.places
        tasks, results = places.folder("tasks", "pending"), places.results
        messages, sent = (places.folder("messages", state) for state in ("pending", "sent"))
        folders = {opened.enter_context(watching(str(path))): path for path in (tasks, results, messages, sent)}
        for number in range(jobs + 1):
            time.sleep(PAUSE)
            (source,) = drafts(scratch, 1)
            at: dict[Path, dict[str, float]] = {path: {} for path in folders.values()}
            began = time.perf_counter()
            os.rename(source, places.folder("events", "pending") / source.name)
            while len(at[sent]) < 2:
                _note_arrivals(folders, at)
            (task,) = at[tasks]
            reported, ended = at[results][task.replace(".json", "-raw.json")], at[results][task]
            ends = [began, at[tasks][task], reported, ended, max(at[messages].values()), max(at[sent].values())]
            if number:
                for stage, before, after in zip(STAGES, ends, ends[1:], strict=False):
                    times[stage].append(after - before)
    return times


def _note_arrivals(folders: Mapping[int, Path], at: Mapping[Path, dict[str, float]]) -> None:
    """Wait for files that arrive, and note when each came first."""
    ready, _, _ = select.select(list(folders), [], [], 20)
    if not ready:
        raise homes.TooSlow(f"a job has come no further than {at}")
    now = time.perf_counter()
    for fd in ready:
        for name in floors.arrivals(fd):
            at[folders[fd]].setdefault(name, now)


def _sync_alone(root: Path, number: int) -> float:
    """Return the seconds of one sync of a new file that holds as much as a message."""
    fd = os.open(root / f"sync-{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, b"x" * 600)
        began = time.perf_counter()
        os.fsync(fd)
        return time.perf_counter() - began
    finally:
        os.close(fd)


@contextmanager
def _court(root: Path, mode: str) -> Iterator[Home]:
    home = Home(root, durability=mode, config={"king": {"concurrency": {"max_soldiers": AT_ONCE}}})
    home.start("king", GENERAL, "envoy")
    try:
        yield home
    finally:
        home.stop()


def file_system(folder: Path) -> str:
    """Return on what the homes lay: where ext4 has no journal, it is slow to create files after many were removed."""
    about = os.stat(folder).st_dev
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    device, kind = next((words[0], words[2]) for words in mounts if _device_of(words[1]) == about)
    journals = os.listdir("/proc/fs/jbd2") if os.path.isdir("/proc/fs/jbd2") else []
    has_journal = any(name.startswith(f"{os.path.basename(device)}-") for name in journals)
    return f"Measured on {kind} {'with' if has_journal else 'without'} a journal. {WITHOUT_JOURNAL}"


def _device_of(mount_point: str) -> int:
    try:
        return os.stat(mount_point).st_dev
    except OSError:
        return -1


def _cost_table(costs: Mapping[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return what a job costs in processor time, by who spends it: this holds on a busy machine too."""
    found = {part: [median([cost[part] for cost in costs[mode]]) * 1e3 for mode in costs] for part in PARTS}
    found["all"] = [sum(column) for column in zip(*found.values(), strict=True)]
    return {"title": "Processor time of a job in ms", "columns": list(costs), "rows": found}


def processor_times(home: Home) -> dict[str, float]:
    """Return the seconds of processor time that each part has used so far."""
    pids = {role: home.pid(role) for role in ("king", GENERAL, "envoy")}
    found = {role: sum(_ticks(pid)[:2]) for role, pid in pids.items()}
    server = _warm_server(pids[GENERAL])
    # What the server has waited for are serving processes that were replaced, with all that they had started.
    ticks = [_ticks(server), *map(_ticks, _children(server))]
    return {**found, SERVING: sum(sum(own[:2]) for own in ticks), COMMANDS: sum(sum(own[2:]) for own in ticks)}


def _ticks(pid: int) -> list[float]:
    """Return a process's own user and system time, and that of the children that it has waited for, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(ticks) / TICKS for ticks in fields[11:15]]


def _warm_server(general: int) -> int:
    return next(pid for pid in _children(general) if b"--warm" in Path(f"/proc/{pid}/cmdline").read_bytes())


def _children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def steady(root: Path, scratch: Path, jobs: int) -> list[Row]:
    """Do very many jobs: the last tenth must be as fast as the first, and memory must not grow."""
    with _court(root, "process") as home:
        pending = home.places.folder("events", "pending")
        with watching(str(home.places.folder("messages", "sent"))) as sent:
            for source in drafts(scratch, jobs):
                os.rename(source, pending / source.name)
            took, left = [], 2 * jobs
            for _ in range(10):
                began = time.perf_counter()
                left -= (seen := len(arrived(sent, min(left, 2 * jobs // 10))))
                took.append(seen / 2 / (time.perf_counter() - began))
            memory = {role: _unique_mb(home.pid(role)) for role in ("king", GENERAL, "envoy")}
    name = f"{jobs:,} jobs, 16 at once"
    share = took[-1] / took[0]
    rows = [
        row(
            f"{name}: jobs a second at the end, of those at the beginning ({took[0]:.0f})",
            durability="process",
            goal="≥ 80 %",
            met=share >= 0.8,
            ours=share * 100,
            unit="%",
            reason="a growing home",
        )
    ]
    for role, used in memory.items():
        about = f"{name}: unique memory of {role}"
        rows.append(at_most(about, used, LARGEST_MB, "MB", durability="process", reason="what it keeps of each job"))
    return rows


def _unique_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def calls(root: Path, scratch: Path, mode: str) -> list[str]:
    """Count the kernel's calls for a job. Return them by who makes them, and all, with those that sync in brackets."""
    with _court(root, mode) as home:
        pending = home.places.folder("events", "pending")
        with watching(str(home.places.folder("messages", "sent"))) as sent:
            _do(pending, sent, drafts(scratch, AT_ONCE))
            general = home.pid(GENERAL)
            traced = {role: [home.pid(role)] for role in ("king", GENERAL, "envoy")}
            traced["soldier"] = [server := _warm_server(general), *_children(server)]
            tracers = {part: _trace(pids, root / f"{part}.calls") for part, pids in traced.items()}
            _do(pending, sent, drafts(scratch, TRACED))
            for tracer in tracers.values():
                tracer.send_signal(signal.SIGINT)
                tracer.communicate(timeout=60)
    counts = {part: _counted((root / f"{part}.calls").read_text()) for part in traced}
    whole = tuple(sum(column) for column in zip(*counts.values(), strict=True))
    return [f"{every / TRACED:,.0f} ({synced / TRACED:.1f})" for every, synced in (*counts.values(), whole)]


def _trace(pids: list[int], out: Path) -> subprocess.Popen[bytes]:
    """Count the calls of processes and of all that they fork from now on: at hardly any cost, other than strace."""
    whose = ",".join(map(str, pids))
    tracer = subprocess.Popen(["perf", "stat", "-x", ",", "-e", ",".join(EVERY_CALL), "-p", whose, "-o", str(out)])
    time.sleep(0.5)
    return tracer


def _counted(summary: str) -> tuple[int, int]:
    """Return all calls of a summary of perf, and those that wait for the disk."""
    counts = [line.split(",") for line in summary.splitlines() if "sys_enter" in line]
    every, *synced = (int(words[0]) for words in counts)
    return every, sum(synced)


def _do(pending: Path, sent: int, sources: list[Path]) -> None:
    for source in sources:
        os.rename(source, pending / source.name)
    arrived(sent, 2 * len(sources))


def our_rate(root: Path, scratch: Path, mode: str, jobs: int, costs: list[dict[str, float]]) -> float:
    """Return jobs a second, from the first event renamed in to the last message filed; add what one has cost."""
    with _court(root, mode) as home:
        pending = home.places.folder("events", "pending")
        with watching(str(home.places.folder("messages", "sent"))) as sent:
            _do(pending, sent, drafts(scratch, AT_ONCE))  # the first ones start what is started once
            sources, before = drafts(scratch, jobs), processor_times(home)
            began = time.perf_counter()
            _do(pending, sent, sources)
            took = time.perf_counter() - began
            costs.append({part: (used - before[part]) / jobs for part, used in processor_times(home).items()})
            return jobs / took


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


def spooler_rate(tsp: str, root: Path, jobs: int) -> float:
    script = _script(root)
    environment = {**os.environ, "TS_SOCKET": str(root / "socket"), "TMPDIR": str(root), "TS_MAXFINISHED": str(jobs)}
    try:
        subprocess.run([tsp, "-S", str(AT_ONCE)], env=environment, check=True, stdout=subprocess.DEVNULL)
        began = time.perf_counter()
        for _ in range(jobs):
            subprocess.run([tsp, "-n", script], env=environment, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([tsp, "-w"], env=environment, check=True, stdout=subprocess.DEVNULL)
        return jobs / (time.perf_counter() - began)
    finally:
        subprocess.run([tsp, "-K"], env=environment, check=False)


def huey_rate(python: Path, root: Path, jobs: int) -> float:
    script = _script(root)
    (root / "jobs.py").write_text(HUEY)
    database, environment = str(root / "huey.db"), {**os.environ, "PYTHONPATH": str(root)}
    put = f"import jobs\nfor _ in range({jobs}): jobs.job({script!r})"
    subprocess.run([python, "-c", put, database], env=environment, check=True)
    consume = (
        "import sys, jobs\nfrom huey.consumer_options import ConsumerConfig\n"
        f"config = ConsumerConfig(workers={AT_ONCE}, worker_type='thread', initial_delay=0.001, max_delay=0.01)\n"
        "jobs.huey.create_consumer(**config.values).run()"
    )
    began = time.perf_counter()
    consumer = subprocess.Popen([python, "-c", consume, database], env=environment, stderr=subprocess.DEVNULL)
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
