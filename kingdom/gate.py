"""Whether new work may start now: the machine's health and the number of soldiers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kingdom import policy, roster
from kingdom.codec import read_json
from kingdom.errors import BadFile, BadName
from kingdom.lock import is_locked
from kingdom.places import Places, is_hidden
from kingdom.times import moment

ADMITS = {
    "green": frozenset({"high", "normal", "low"}),
    "yellow": frozenset({"high"}),
    "orange": frozenset[str](),
    "red": frozenset[str](),
}


@dataclass(frozen=True, slots=True)
class Gate:
    """One look at it. Answers of people bypass it; what it holds stays in pending."""

    health: str
    why: str
    until: str
    under_way: int
    at_most: int

    @property
    def room(self) -> int:
        return max(0, self.at_most - self.under_way)

    def admits(self, priority: str) -> bool:
        return priority in ADMITS[self.health]

    def holds_because(self, priority: str) -> str | None:
        """In words, why something of this priority must wait; None when it need not."""
        if not self.admits(priority):
            admitted = " and ".join(sorted(ADMITS[self.health]))
            starts = f"only what has {admitted} priority starts" if admitted else "nothing new starts"
            return f"the machine is {self.health} ({self.why}), so {starts} {self.until}"
        if self.room == 0:
            more = "more starts when one ends, or when config/king.yaml allows more"
            tasks = "1 task is" if self.under_way == 1 else f"{self.under_way} tasks are"
            return f"{tasks} under way and concurrency.max_soldiers is {self.at_most}: {more}"
        return None


def look(places: Places, now: float, stale_seconds: float, at_most: int) -> Gate:
    health, why, until = _health(places, now, stale_seconds)
    return Gate(health, why, until, _under_way(places, now, at_most), at_most)


def no_soldier_because(places: Places, general: str, is_answer: bool, own_most: int | None, at_most: int) -> str | None:
    """Why a task that has been let in gets no soldier yet: what rested, or lay with a general that was away, comes back
    all at once."""
    camps = places.camps()
    if len(camps) < min(at_most, own_most or at_most):
        return None
    out = [camp for camp in camps if is_locked(camp / "lock")]
    own = [camp for camp in out if camp.parent == places.camp(general, "any").parent]
    if own_most is not None and len(own) >= own_most:
        return f"{_soldiers(len(own), f' of {general}')} out and its max_soldiers is {own_most}"
    if not is_answer and len(out) >= at_most:
        return f"{_soldiers(len(out))} out and concurrency.max_soldiers is {at_most}"
    return None


def _soldiers(count: int, whose: str = "") -> str:
    return f"1 soldier{whose} is" if count == 1 else f"{count} soldiers{whose} are"


def _under_way(places: Places, now: float, at_most: int) -> int:
    """Tasks that could run. They are opened only when there would be no room else."""
    tasks = list(_tasks(places))
    if len(tasks) < at_most:
        return len(tasks)
    return sum(1 for task in tasks if _could_run(places, task, now))


def _tasks(places: Places) -> Iterator[str]:
    for state in ("pending", "in_progress"):
        folder = places.folder("tasks", state)
        names = os.listdir(folder) if folder.is_dir() else []
        yield from (f"{folder}/{name}" for name in names if name.endswith(".json") and not is_hidden(name))


def _could_run(places: Places, task: str, now: float) -> bool:
    """Not before its time, not while its general was stopped by hand, and not when it is no task at all."""
    try:
        about = os.lstat(task)
        general, not_before = _of_task(task, about.st_ino, about.st_mtime_ns)
    except (FileNotFoundError, BadFile):
        return False
    stays_down = False
    with suppress(BadName):
        stays_down = roster.wanted(places, general) != "up"
    return not stays_down and policy.rests_until(not_before, now) is None


@lru_cache(maxsize=1024)
def _of_task(path: str, _inode: int, _changed: int) -> tuple[str, object]:
    task = read_json(path)
    return str(task.get("target_general")), task.get("not_before")


CALMER = "until it is calmer; `thresholds` in config/chamberlain.yaml say how calm"
MEASURED = "until the chamberlain has measured again; `kingdom status` shows whether it beats"


def _health(places: Places, now: float, stale_seconds: float) -> tuple[str, str, str]:
    """The machine's state, what it was judged by, and what would end it."""
    try:
        vitals = read_json(places.resources)
        taken = moment(str(vitals["timestamp"]))
        health = str(vitals.get("health", "green"))
    except (FileNotFoundError, KeyError):
        return "green", "no vitals yet", CALMER
    except (BadFile, ValueError, OSError):
        return "orange", "the vitals cannot be read", MEASURED
    if now - taken > stale_seconds:
        return "orange", f"the vitals are {now - taken:.0f} s old", MEASURED
    if health not in ADMITS:
        return "orange", f"the vitals say {health!r}", MEASURED
    return health, _figures(vitals.get("judged_by", vitals.get("system"))), CALMER


def _figures(system: Any) -> str:
    known = (("cpu_percent", "cpu"), ("memory_percent", "memory"))
    figures = system if isinstance(system, dict) else {}
    said = [f"{name} {figures[key]:.0f} %" for key, name in known if isinstance(figures.get(key), int | float)]
    return ", ".join(said) or "by its vitals"
