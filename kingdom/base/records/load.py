"""What the machine carries right now: its health as the chamberlain measured it, tasks under way, soldiers that run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kingdom.base.disk.codec import read_json
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadFile, BadName
from kingdom.base.home import roster
from kingdom.base.home.places import Places, is_hidden
from kingdom.base.records import heartbeats
from kingdom.base.times import moment, rests_until
from kingdom.base.words import Said

CALMER = "until it is calmer; `thresholds` in config/chamberlain.yaml say how calm"
MEASURED = "until the chamberlain has measured again; `kingdom status` shows whether it works"

RESTART_SECONDS = 15.0
"""After its last heartbeat a general that does not run may be on its way back."""
FOREIGN_SECONDS = 120.0
"""How often another program that plays a general writes its heartbeat, by default."""

HEALTHS = ("green", "yellow", "orange", "red")
FIGURES = {
    "cpu_percent": "cpu {:.0f} %",
    "memory_percent": "memory {:.0f} %",
    "memory_available_mb": "{:.0f} MB available",
    "memory_pressure_percent": "memory pressure {:.0f} %",
}
"""What a machine is judged by, in words."""


@dataclass(frozen=True, slots=True)
class Load:
    #: One of HEALTHS, as the chamberlain wrote it; "orange" when its file is old or cannot be read.
    health: str
    #: The figures it was judged by.
    why: str
    #: What would end this state, in words.
    until: str
    #: Tasks that run or could run now: not those that rest, nor those of a general that does not run.
    under_way: int


def read(places: Places, now: float, stale_seconds: float, at_most: int) -> Load:
    """Return the load now. Tasks are opened only when there are `at_most` of them or more."""
    return Load(*_health(places, now, stale_seconds), _under_way(places, now, at_most))


def soldiers_out(places: Places, enough: int = 0) -> list[tuple[str, str]]:
    """Return the general and task of every soldier that runs; nothing when there cannot be `enough` of them.

    Other roles bound theirs themselves.
    """
    folders = places.control_folders(generals_alone=True)
    if len(folders) < enough:
        return []
    return [(folder.parent.parent.name, folder.name) for folder in folders if is_locked(folder / "lock")]


def _under_way(places: Places, now: float, at_most: int) -> int:
    tasks = list(_tasks(places))
    if len(tasks) < at_most:
        return len(tasks)
    return sum(_by_general(places, tasks, now).values())


def under_way_of_each(places: Places, now: float) -> Counter[str]:
    """Return how many tasks each general has that run or could run now."""
    return _by_general(places, _tasks(places), now)


def _by_general(places: Places, tasks: Iterable[str], now: float) -> Counter[str]:
    found = Counter(general for task in tasks if (general := _of_ready(task, now)) is not None)
    return Counter({general: number for general, number in found.items() if _is_served(places, general, now)})


def _tasks(places: Places) -> Iterator[str]:
    for state in ("pending", "in_progress"):
        folder = places.folder("tasks", state)
        names = os.listdir(folder) if folder.is_dir() else []
        yield from (f"{folder}/{name}" for name in names if name.endswith(".json") and not is_hidden(name))


def _of_ready(task: str, now: float) -> str | None:
    """Return a task's general; None before its time, and for what is not a task."""
    try:
        about = os.lstat(task)
        general, not_before = _of_task(task, about.st_ino, about.st_mtime_ns)
    except (FileNotFoundError, BadFile):
        return None
    return general if rests_until(not_before, now) is None else None


def _is_served(places: Places, general: str, now: float) -> bool:
    """Return whether a general runs, or is just being started again: only then its tasks leave room to others."""
    try:
        if is_locked(places.lock(general)):
            return True
        beat = os.stat(places.heartbeat(general)).st_mtime
    except (FileNotFoundError, BadName):
        return False
    if roster.desired_state(places, general) != "up" or not places.manifest(general).exists():
        return False
    age = heartbeats.foreign_age(places, general, now)
    return now - beat <= RESTART_SECONDS or (age is not None and age <= FOREIGN_SECONDS)


@lru_cache(maxsize=1024)
def _of_task(path: str, _inode: int, _changed: int) -> tuple[str, object]:
    task = read_json(path)
    return str(task.get("target_general")), task.get("not_before")


def _health(places: Places, now: float, stale_seconds: float) -> tuple[str, str, str]:
    """Return the machine's state, what it was judged by, and what would end it."""
    try:
        vitals = read_json(places.resources)
        taken = moment(str(vitals["timestamp"]))
        health = str(vitals.get("health", "green"))
    except (FileNotFoundError, KeyError):
        return "green", Said("vitals_none", "no vitals yet"), CALMER
    except (BadFile, ValueError, OSError):
        return "orange", Said("vitals_bad", "the vitals cannot be read"), MEASURED
    if now - taken > stale_seconds:
        age = round(now - taken)
        return "orange", Said("vitals_old", f"the vitals are {age} s old", seconds=age), MEASURED
    if health not in HEALTHS:
        return "orange", Said("vitals_odd", f"the vitals say {health!r}", health=health), MEASURED
    return health, _figures(vitals.get("judged_by", vitals.get("system"))), CALMER


def _figures(system: Any) -> str:
    given = system if isinstance(system, dict) else {}
    figures = {key: given[key] for key in FIGURES if isinstance(given.get(key), int | float)}
    said = ", ".join(text.format(figures[key]) for key, text in FIGURES.items() if key in figures)
    return Said("figures", said, **figures) if said else Said("vitals", "by its vitals")
