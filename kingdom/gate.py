"""Whether new work may start now: the machine's health and the number of soldiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kingdom.codec import read_json
from kingdom.errors import BadFile
from kingdom.places import Places
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


def look(places: Places, now: float, stale_seconds: float, under_way: int, at_most: int) -> Gate:
    health, why, until = _health(places, now, stale_seconds)
    return Gate(health, why, until, under_way, at_most)


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
    return health, _figures(vitals.get("system")), CALMER


def _figures(system: Any) -> str:
    known = (("cpu_percent", "cpu"), ("memory_percent", "memory"))
    figures = system if isinstance(system, dict) else {}
    said = [f"{name} {figures[key]:.0f} %" for key, name in known if isinstance(figures.get(key), int | float)]
    return ", ".join(said) or "by its vitals"
