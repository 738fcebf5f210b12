"""Whether new work may start now: the machine's health and the number of soldiers."""

from __future__ import annotations

from dataclasses import dataclass

from kingdom.codec import read_json
from kingdom.errors import BadFile
from kingdom.messages import moment
from kingdom.places import Places

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
            admitted = ", ".join(sorted(ADMITS[self.health])) or "nothing"
            return f"the machine is {self.health} ({self.why}), which admits {admitted}"
        if self.room == 0:
            return f"{self.under_way} tasks are under way and concurrency.max_soldiers is {self.at_most}"
        return None


def look(places: Places, now: float, stale_seconds: float, under_way: int, at_most: int) -> Gate:
    health, why = _health(places, now, stale_seconds)
    return Gate(health, why, under_way, at_most)


def _health(places: Places, now: float, stale_seconds: float) -> tuple[str, str]:
    try:
        vitals = read_json(places.resources)
        taken = moment(str(vitals["timestamp"]))
        health = str(vitals.get("health", "green"))
    except (FileNotFoundError, KeyError):
        return "green", "no vitals yet"
    except (BadFile, ValueError, OSError):
        return "orange", "the vitals cannot be read"
    if now - taken > stale_seconds:
        return "orange", f"the vitals are {now - taken:.0f} s old"
    if health not in ADMITS:
        return "orange", f"the vitals say {health!r}"
    return health, "by its vitals"
