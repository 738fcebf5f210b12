"""What a run finds: samples by name and case, one of each round, and the rows that the table makes of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LEVELS = ("process", "power")
"""What is durable survives the end of a process, or a power cut, too."""


class Row(NamedTuple):
    """A row of table.toml: one line of the page for each case in which `what` was measured."""

    what: str
    unit: str
    #: "≥ 0.8" is about the ratio to the floor, "≤ 3 ms" about the figure; by a word of the case where cases differ.
    goal: str | Mapping[str, str] = ""
    #: The samples to compare with: of the same case, of its last word, or of no case.
    floor: str = ""
    floor_is: str = ""
    #: Why it is short of its goal, where it is.
    why: str = ""


@dataclass
class Found:
    """What a driver has measured."""

    samples: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    tables: list[dict[str, Any]] = field(default_factory=list)
    curves: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, what: str, case: str, rounds: Sequence[float]) -> None:
        self.samples[what, case] = list(rounds)

    def add_all(self, case: str, found: Mapping[str, Sequence[float]]) -> None:
        for what, rounds in found.items():
            self.add(what, case, rounds)

    def times(self, what: str, case: str, rounds: Sequence[Sequence[float]]) -> None:
        """Add the median and the 99th percentile of each round's seconds, in ms."""
        for name, part in (("p50", 0.5), ("p99", 0.99)):
            self.add(f"{what}, {name}", case, [percentile(times, part) * 1e3 for times in rounds])

    def table(self, title: str, columns: Sequence[str], rows: Mapping[str, Sequence[float | str]]) -> None:
        self.tables += [{"title": title, "columns": list(columns), "rows": rows}] if rows else []

    def curve(self, title: str, x_label: str, unit: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        self.curves.append({"title": title, "x_label": x_label, "y_label": unit, "lines": lines})

    def lines(self, rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
        for row in rows:
            for (what, case), ours in self.samples.items():
                if what == row.what:
                    yield self._line(row, case, ours)

    def _line(self, row: Row, case: str, ours: list[float]) -> dict[str, Any]:
        *before, last = case.split(", ")
        floor = next((found for at in (case, last, "") if (found := self.samples.get((row.floor, at)))), [])
        share = ratio(ours, floor) if floor else None
        figure = statistics.median(ours)
        met = _is_met(goal := _goal(row, case), figure, share)
        return {
            "name": ", ".join([row.what, *before, *([last] if last and last not in LEVELS else [])]),
            "durability": last if last in LEVELS else "",
            "goal": goal,
            "ours": figure,
            "unit": row.unit,
            "floor": statistics.median(floor) if floor else None,
            "floor_is": row.floor_is,
            "ratio": share,
            "met": met,
            "reason": row.why if met is False else "",
        }


def _goal(row: Row, case: str) -> str:
    if isinstance(row.goal, str):
        return row.goal
    return next(goal for word, goal in row.goal.items() if word in case)


def _is_met(goal: str, figure: float, share: float | None) -> bool | None:
    sign, number, *unit = goal.split() or ("", "0", "no goal")
    value = figure if unit else share
    if not sign or value is None:
        return None
    return value >= float(number) if sign == "≥" else value <= float(number)


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def interleaved(rounds: int, contestants: Mapping[str, Callable[[], Any]]) -> dict[str, list[Any]]:
    """Run every contestant once a round, so that a noisy minute hits all of them. Return what each found."""
    found: dict[str, list[Any]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contest in contestants.items():
            found[name].append(contest())
    return found


def ratio(ours: Sequence[float], other: Sequence[float]) -> float:
    """Return the median of the rounds' own ratios; of the medians where there were more rounds of one."""
    if len(ours) != len(other):
        return statistics.median(ours) / statistics.median(other)
    return statistics.median(mine / theirs for mine, theirs in zip(ours, other, strict=True))


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def timed(times: int, work: Callable[[], object]) -> list[float]:
    return [seconds(work) for _ in range(times)]


def per_second(times: int, work: Callable[[], object]) -> float:
    return times / seconds(work)
