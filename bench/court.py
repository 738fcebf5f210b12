"""The court: how soon an event becomes a task, how many a second, and whether a long past slows it."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from bench import homes
from bench.figures import LEVELS, Found, interleaved, per_second, seconds, timed
from bench.floors import Echo, Watch, court_burst, echoing, python_alone
from bench.homes import GENERAL, court
from kingdom.base.home.places import Places

PAUSE = 0.01
"""Between two single events, so that each one finds an idle king."""
PAST = {
    "events/completed": "evt-github-old-{}",
    "tasks/completed": "task-20260101-{}",
    "messages/sent": "msg-20260101-{}",
}
_numbers = itertools.count(1)


def run(quick: bool) -> Found:
    found, root = Found(), homes.folder()
    numbers = itertools.count()
    rounds, events = (2, 10) if quick else (5, 60)
    for mode, count in (("process", 10_000), ("power", 3_000)):
        with court(root / f"idle-{mode}", mode, "king") as (places, _):
            answers = beside_echo(places, root, mode, rounds, events)
        for what, each in answers.items():
            found.times(what, mode, each)
        power, count = mode == "power", 200 if quick else count
        contests = {
            "burst of events, gate open": lambda mode=mode, count=count: burst(
                root / f"{next(numbers)}", root, mode, count
            ),
            "the same writes": lambda power=power, count=count: court_burst(
                root / f"{next(numbers)}", count, power=power
            ),
        }
        found.add_all(mode, interleaved(1 if quick else 5, contests))
    for mode in LEVELS:
        round_trips(found, root, mode, 3 if quick else 40)
    with_a_past(found, root, 1 if quick else 5, (0, 2_000) if quick else (0, 1_000, 10_000, 100_000))
    return found


def beside_echo(places: Places, root: Path, mode: str, rounds: int, events: int) -> dict[str, list[list[float]]]:
    base = root / f"echo-{mode}"
    base.mkdir()
    with echoing(base, power=mode == "power"):
        client = Echo(base)
        contests = {
            "event renamed in → task visible, idle": lambda: [answer(places, root) for _ in range(events)],
            "echo": lambda: [paused(client.call) for _ in range(events)],
        }
        return interleaved(rounds, contests)


def paused(work: Callable[[], object]) -> float:
    time.sleep(PAUSE)
    return seconds(work)


def answer(places: Places, root: Path) -> float:
    """Return the seconds from renaming one event in until its task is there."""
    time.sleep(PAUSE)
    with Watch(places.folder("tasks", "pending")) as tasks:
        began = time.perf_counter()
        send(places, drafts(root, 1))
        tasks.wait(1)
        return time.perf_counter() - began


def drafts(root: Path, count: int) -> list[Path]:
    """Write whole events, ready to be renamed in."""
    outside = root / "drafts"
    outside.mkdir(exist_ok=True)
    made = [outside / f"evt-github-{next(_numbers):07d}.json" for _ in range(count)]
    for path in made:
        path.write_bytes(homes.event(path.stem))
    return made


def send(places: Places, sources: list[Path]) -> None:
    pending = places.folder("events", "pending")
    for source in sources:
        os.rename(source, pending / source.name)


def burst(home: Path, scratch: Path, mode: str, count: int) -> float:
    """Return events a second, from the first one renamed in to the last one moved, its task and message written."""
    with court(home, mode, "king") as (places, _), Watch(places.folder("events", "dispatched")) as dispatched:
        sources = drafts(scratch, count)
        os.sync()
        began = time.perf_counter()
        send(places, sources)
        dispatched.wait(count)
        return count / (time.perf_counter() - began)


def with_a_past(found: Found, root: Path, rounds: int, past: tuple[int, ...]) -> None:
    """The same work in homes that have completed more and more: files in completed/ and sent/, lines in done.idx."""
    for ended in past:
        remember(homes.bare(root / f"past-{ended}"), ended)
    costs: Mapping[str, dict[int, list[float]]] = {"one event, idle king": {}, "one of a burst of 300": {}}
    for _ in range(rounds):
        for ended in past:
            with court(root / f"past-{ended}", "process", "king") as (places, _):
                alone = median([answer(places, root) for _ in range(20)])
            costs["one event, idle king"].setdefault(ended, []).append(alone * 1e3)
            each = 1e3 / burst(root / f"past-{ended}", root, "process", 300)
            costs["one of a burst of 300"].setdefault(ended, []).append(each)
    for what, cost in costs.items():
        found.add(f"cost of an event with {past[-1]:,} completed files in each queue", what, cost[past[-1]])
        found.add("cost of an event in an empty home", what, cost[0])
    lines = {what: [(float(ended), median(of)) for ended, of in cost.items()] for what, cost in costs.items()}
    found.curve("Cost of an event in a home with a past", "completed files in each queue (logarithmic)", "ms", lines)


def remember(places: Places, count: int) -> None:
    """Fill a home with ended work. Only the names count, so the files share their content by hard links."""
    folders = {places.folder(*folder.split("/")): shape for folder, shape in PAST.items()}
    for there, shape in {**folders, places.results: PAST["tasks/completed"]}.items():
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


def round_trips(found: Found, root: Path, mode: str, events: int) -> None:
    """Event → king → general → soldier → king → envoy: until the final message is filed under sent/."""
    with court(root / f"trips-{mode}", mode, "king", GENERAL, "envoy") as (places, _):
        whole_turn(places, root)
        trips = [whole_turn(places, root) for _ in range(events)]
    found.add("event → command soldier → message filed, p50", mode, [whole * 1e3 for whole, _ in trips])
    ours = [(whole - soldier) * 1e3 for whole, soldier in trips]
    found.add("the same without the soldier's own run, p50", mode, ours)
    found.add("python -c pass", mode, [time * 1e3 for time in timed(max(3, events // 8), python_alone)])


def whole_turn(places: Places, scratch: Path) -> tuple[float, float]:
    """Return the seconds in all, and those between the soldier's order and its raw result."""
    time.sleep(PAUSE)
    (source,) = drafts(scratch, 1)
    claimed, sent = places.folder("tasks", "in_progress"), places.folder("messages", "sent")
    with Watch(claimed) as claims, Watch(places.results) as results, Watch(sent) as messages:
        began = time.perf_counter()
        send(places, [source])
        task = claims.wait(1)[0].removesuffix(".json")
        homes.wait_for((places.control_folder(GENERAL, task) / "order.json").exists, 20, f"an order for {task}")
        ordered = time.perf_counter()
        while f"{task}-raw.json" not in results.wait(1):
            pass
        reported = time.perf_counter()
        messages.wait(2)
        return time.perf_counter() - began, reported - ordered


def jobs_a_second(places: Places, scratch: Path, jobs: int) -> float:
    """Return jobs a second, from the first event renamed in to the last message filed: two for each."""
    with Watch(places.folder("messages", "sent")) as sent:
        sources = drafts(scratch, jobs)
        return per_second(jobs, lambda: (send(places, sources), sent.wait(2 * jobs)))
