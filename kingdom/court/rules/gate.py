"""Whether new work may start now, by the machine's health and the number of soldiers. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kingdom.base.records.load import MEASURED, Load
from kingdom.base.words import Said

PEOPLE = "people"
ADMITS = {
    "green": frozenset({"high", "normal", "low", PEOPLE}),
    "yellow": frozenset({"high", PEOPLE}),
    "orange": frozenset[str](),
    "red": frozenset[str](),
}
"""Which priorities start at which health, and whether what people say does. What needs no model always starts."""
STARTS = {
    "yellow": "only what people say, what has high priority and what needs no model starts",
    "orange": "only what needs no model starts",
    "red": "only what needs no model starts",
}
"""The same in words."""


@dataclass(frozen=True, slots=True)
class Work:
    """What asks to start."""

    priority: str
    #: A person said it, on the console or in a chat.
    is_said: bool = False
    #: The general that gets it asks a model.
    needs_model: bool = True


@dataclass(frozen=True, slots=True)
class Gate:
    """What starts at this load. Answers of people bypass it; what it holds stays in pending."""

    load: Load
    #: concurrency.max_soldiers
    at_most: int

    @property
    def room(self) -> int:
        """How many more tasks may start."""
        return max(0, self.at_most - self.load.under_way)

    def admits(self, work: Work) -> bool:
        """Return whether the machine's health lets it start."""
        admitted = ADMITS[self.load.health]
        return not work.needs_model or work.priority in admitted or (work.is_said and PEOPLE in admitted)

    def holds_because(self, work: Work) -> str | None:
        """Say why something must wait; None when it need not."""
        if not self.admits(work):
            health, why, until = self.load.health, self.load.why, self.load.until
            said = f"the machine is {health} ({why}), so {STARTS[health]} {until}"
            ends = "measured" if until == MEASURED else "calmer"
            return Said("machine", said, health=health, why=why, until=ends)
        if self.room == 0:
            more = "more starts when one ends, or when config/king.yaml allows more"
            tasks = "1 task runs" if self.load.under_way == 1 else f"{self.load.under_way} tasks run"
            said = f"concurrency.max_soldiers is {self.at_most}, and {tasks} or could run now: {more}"
            return Said("full", said, count=self.load.under_way, most=self.at_most)
        return None


def no_soldier_because(
    running: Collection[tuple[str, str]], general: str, is_answer: bool, own_most: int | None, at_most: int
) -> str | None:
    """Say why a task that has been let in gets no soldier yet; None when it gets one.

    Tasks that waited for their time, or for a general that was stopped, come back all at once.
    """
    own = sum(name == general for name, _ in running)
    if own_most is not None and own >= own_most:
        return full_because(general, own, own_most)
    if not is_answer and len(running) >= at_most:
        said = f"{_soldiers(len(running))} running and concurrency.max_soldiers is {at_most}"
        return Said("full", said, count=len(running), most=at_most)
    return None


def full_because(general: str, count: int, most: int) -> str:
    """Say that a general has as many soldiers as its manifest allows."""
    said = f"{_soldiers(count, f' of {general}')} running and its max_soldiers is {most}"
    return Said("own_full", said, general=general, count=count, most=most)


def _soldiers(count: int, whose: str = "") -> str:
    return f"1 soldier{whose} is" if count == 1 else f"{count} soldiers{whose} are"
