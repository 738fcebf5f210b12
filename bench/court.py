"""The court: how soon an event becomes a task, how many a second, and whether a long past slows it."""

from __future__ import annotations

import itertools
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import floors, homes
from bench.figures import (
    Curve,
    Growth,
    Row,
    at_most,
    curve,
    growth,
    interleaved,
    median,
    percentile,
    ratio,
    row,
    seconds,
)
from bench.homes import GENERAL, HOUSE, Home, TooSlow
from kingdom.base.home.places import Places

ABOUT = (
    "How soon an event becomes a task, how many a second, and how long an event takes to its answer. The king, a "
    "general with a shell command for a soldier, and the envoy run as in a home."
)
MODES = ("process", "power")
PAUSE = 0.01
"""Between two single events, so that each one finds an idle king."""
_numbers = itertools.count(1)


def run(quick: bool) -> dict[str, Any]:
    rows: list[Row] = []
    for mode in MODES:
        rows += latency(mode, rounds=2 if quick else 5, events=10 if quick else 60)
    for mode, count in (("process", 10_000), ("power", 3_000)):
        rows += burst(mode, rounds=1 if quick else 5, count=200 if quick else count)
    for mode in MODES:
        rows += round_trip(mode, events=3 if quick else 40)
    table, plot = with_a_past(rounds=1 if quick else 5, past=(0, 2_000) if quick else (0, 1_000, 10_000, 100_000))
    return {"title": "The court", "about": ABOUT, "rows": rows, "growth": [table], "curves": [plot]}


def latency(mode: str, *, rounds: int, events: int) -> list[Row]:
    root = homes.folder()
    with running(root / "home", mode, "king") as home, echoing(root, mode) as (inbox, outbox):
        tasks = str(home.places.folder("tasks", "pending"))
        pending = home.places.folder("events", "pending")
        answer(root, pending, tasks)
        found = interleaved(
            rounds,
            {
                "ours": lambda: [answer(root, pending, tasks) for _ in range(events)],
                "echo": lambda: [answer(root, inbox, str(outbox)) for _ in range(events)],
            },
        )
    ours, echo = (list(itertools.chain(*found[name])) for name in ("ours", "echo"))
    rows = []
    for what, part, most in (("p50", 0.5, 3.0), ("p99", 0.99, 20.0)):
        mine, least = percentile(ours, part) * 1e3, percentile(echo, part) * 1e3
        rows.append(
            at_most(
                f"event renamed in → task visible, idle, {what}",
                mine,
                most,
                "ms",
                durability=mode,
                floor=least,
                floor_is="raw echo: one file read, one written",
                ratio=mine / least,
                reason="files written one after another, each with its fsync",
            )
        )
    return rows


def answer(root: Path, inbox: Path, outbox: str) -> float:
    """Return the seconds from renaming one event in until something is renamed into the outbox."""
    time.sleep(PAUSE)
    (source,) = drafts(root, 1)
    with watching(outbox) as fd:
        began = time.perf_counter()
        os.rename(source, inbox / source.name)
        if not select.select([fd], [], [], 10)[0]:
            raise TooSlow(f"no answer to {source.name}")
        return time.perf_counter() - began


def drafts(root: Path, count: int) -> list[Path]:
    """Write whole events, ready to be renamed in."""
    outside = root / "drafts"
    outside.mkdir(exist_ok=True)
    made = [outside / f"evt-github-{next(_numbers):07d}.json" for _ in range(count)]
    for path in made:
        path.write_bytes(homes.event(path.stem))
    return made


def burst(mode: str, *, rounds: int, count: int) -> list[Row]:
    root = homes.folder()
    again = itertools.count()
    found = interleaved(
        rounds,
        {
            "ours": lambda: court_burst(root / f"home-{next(again)}", root, mode, count),
            "raw": lambda: floors.court_burst(root / f"raw-{next(again)}", count, power=mode == "power"),
        },
    )
    share = ratio(found["ours"], found["raw"])
    return [
        row(
            f"burst of {count:,} events, gate open",
            durability=mode,
            goal="≥ 0.5",
            met=share >= 0.5,
            ours=median(found["ours"]),
            unit="events/s",
            floor=median(found["raw"]),
            floor_is="the same writes, fsyncs and moves, raw",
            ratio=share,
            reason="validation, ids, logs and order in Python",
        )
    ]


def court_burst(root: Path, scratch: Path, mode: str, count: int) -> float:
    with running(root, mode, "king") as home:
        return _burst(home, scratch, count)


def _burst(home: Home, scratch: Path, count: int) -> float:
    """Return events a second, from the first one renamed in to the last one moved, its task and message written."""
    sources = drafts(scratch, count)
    os.sync()
    pending = home.places.folder("events", "pending")
    with watching(str(home.places.folder("events", "dispatched"))) as fd:
        began = time.perf_counter()
        for source in sources:
            os.rename(source, pending / source.name)
        left = count
        while left > 0:
            if not select.select([fd], [], [], 60)[0]:
                raise TooSlow(f"{left} of {count} events still wait")
            left -= len(floors.arrivals(fd))
        return count / (time.perf_counter() - began)


def with_a_past(*, rounds: int, past: tuple[int, ...]) -> tuple[Growth, Curve]:
    """The same work in homes that have completed more and more: files in completed/ and sent/, lines in done.idx."""
    root = homes.folder()
    for ended in past:
        home = Home(root / f"{ended}", durability="process")
        remember(home.places, ended)
    one = interleaved(rounds, {str(n): lambda n=n: one_by_one(root / str(n), root) for n in past})
    many = interleaved(rounds, {str(n): lambda n=n: court_burst(root / str(n), root, "process", 300) for n in past})
    costs = {
        "one event, idle king": {n: median(one[str(n)]) * 1e3 for n in past},
        "one of a burst of 300": {n: 1e3 / median(many[str(n)]) for n in past},
    }
    first, last = past[0], past[-1]
    table = growth(
        f"Cost of an event in an empty home → with {last:,} completed files in each queue (durability process)",
        1.25,
        ["king"],
        "ms",
        {name: {"king": (cost[first], cost[last])} for name, cost in costs.items()},
    )
    lines = {name: [(float(n), value) for n, value in cost.items()] for name, cost in costs.items()}
    return table, curve(
        "Cost of an event in a home with a past", "completed files in each queue (logarithmic)", "ms", lines
    )


def one_by_one(root: Path, scratch: Path) -> float:
    with running(root, "process", "king") as home:
        tasks, pending = str(home.places.folder("tasks", "pending")), home.places.folder("events", "pending")
        return median([answer(scratch, pending, tasks) for _ in range(20)])


def remember(places: Places, count: int) -> None:
    """Names are what counts here, so they share their content by hard links."""
    for kind, state, shape in (
        ("events", "completed", "evt-github-old-{}"),
        ("tasks", "completed", "task-20260101-{}"),
        ("messages", "sent", "msg-20260101-{}"),
        ("results", "", "task-20260101-{}"),
    ):
        there = places.folder(kind, state) if state else places.results
        there.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            path = there / f"{shape.format(number)}.json"
            if number % 50_000 == 0:
                first = path
                first.write_bytes(homes.event("evt-github-old"))
            else:
                os.link(first, path)
    own = places.own("king")
    own.mkdir(parents=True, exist_ok=True)
    day = time.strftime("%Y%m%d")
    lines = (f"{day} evt-github-old-{number} task-20260101-{number}\n" for number in range(count))
    (own / "done.idx").write_text("".join(lines))


def round_trip(mode: str, *, events: int) -> list[Row]:
    """Event → king → general → soldier → king → envoy: until the final message is filed under sent/."""
    root = homes.folder()
    with running(root / "home", mode, "king", GENERAL, "envoy") as home:
        whole_turn(home, root)
        trips = [whole_turn(home, root) for _ in range(events)]
        start_up = [seconds(python_alone) for _ in range(max(3, events // 8))]
    total = median([whole for whole, _ in trips]) * 1e3
    own = median([soldier for _, soldier in trips]) * 1e3
    ours = median([whole - soldier for whole, soldier in trips]) * 1e3
    return [
        at_most(
            "event → command soldier → message filed, p50",
            total,
            120,
            "ms",
            durability=mode,
            floor=median(start_up) * 1e3,
            floor_is="python -c pass",
            ratio=total / (median(start_up) * 1e3),
            reason=f"the soldier's own run alone takes {own:.0f} ms",
        ),
        at_most(
            "the same without the soldier's own run, p50",
            ours,
            40,
            "ms",
            durability=mode,
            reason="fsyncs of four roles in a row",
        ),
    ]


def whole_turn(home: Home, scratch: Path) -> tuple[float, float]:
    """Return the seconds in all, and those between the soldier's order and its raw result."""
    time.sleep(PAUSE)
    places = home.places
    (source,) = drafts(scratch, 1)
    sent, results = places.folder("messages", "sent"), places.results
    with (
        watching(str(places.folder("tasks", "in_progress"))) as claims,
        watching(str(results)) as raws,
        watching(str(sent)) as messages,
    ):
        began = time.perf_counter()
        os.rename(source, places.folder("events", "pending") / source.name)
        task = arrived(claims, 1)[0].removesuffix(".json")
        homes.wait_for((places.control_folder(GENERAL, task) / "order.json").exists, 20, f"an order for {task}")
        ordered = time.perf_counter()
        while f"{task}-raw.json" not in arrived(raws, 1):
            pass
        reported = time.perf_counter()
        arrived(messages, 2)
        return time.perf_counter() - began, reported - ordered


def arrived(fd: int, count: int) -> list[str]:
    names: list[str] = []
    while len(names) < count:
        if not select.select([fd], [], [], 20)[0]:
            raise TooSlow(f"{count} files expected, seen {names}")
        names += floors.arrivals(fd)
    return names


def python_alone() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


@contextmanager
def running(root: Path, mode: str, *roles: str) -> Iterator[Home]:
    home = Home(root, durability=mode)
    home.start(*roles)
    try:
        yield home
    finally:
        home.stop()


@contextmanager
def echoing(root: Path, mode: str) -> Iterator[tuple[Path, Path]]:
    inbox, outbox = root / "inbox", root / "outbox"
    inbox.mkdir()
    outbox.mkdir()
    command = [sys.executable, "-m", "bench.floors", str(inbox), str(outbox), mode]
    with subprocess.Popen(command, cwd=HOUSE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it listens
        try:
            yield inbox, outbox
        finally:
            process.terminate()


@contextmanager
def watching(folder: str) -> Iterator[int]:
    fd = floors.watch(folder)
    try:
        yield fd
    finally:
        os.close(fd)
