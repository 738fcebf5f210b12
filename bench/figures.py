"""The figures of a run as plain data: rows, growth tables, curves; and the few ways to take them.

A row is ours beside a floor (raw lines that do the same on the same disk) or a peer, measured in one run with rounds
interleaved; its ratio is the median of the rounds' own ratios.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
Growth = dict[str, Any]
Curve = dict[str, Any]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


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
    """Return the median of the rounds' own ratios."""
    return median([mine / theirs for mine, theirs in zip(ours, other, strict=True)])


def row(
    name: str,
    *,
    goal: str,
    met: bool | None,
    ours: float,
    unit: str,
    durability: str = "",
    floor: float | None = None,
    floor_is: str = "",
    ratio: float | None = None,
    reason: str = "",
) -> Row:
    """`met` is None where there is no goal; `reason` says why a row is short of its goal."""
    return {
        "name": name,
        "durability": durability,
        "goal": goal,
        "ours": ours,
        "unit": unit,
        "floor": floor,
        "floor_is": floor_is,
        "ratio": ratio,
        "met": met,
        "reason": reason if met is False else "",
    }


def at_most(name: str, ours: float, most: float, unit: str, *, reason: str, **more: Any) -> Row:
    """Return a row whose goal is so much of the unit, or less."""
    return row(name, goal=f"≤ {most:g} {unit}", met=ours <= most, ours=ours, unit=unit, reason=reason, **more)


def growth(
    title: str, most: float, columns: Sequence[str], unit: str, rows: Mapping[str, Mapping[str, tuple[float, float]]]
) -> Growth:
    """The cost of each operation, by column, at a small size and at a large one; it may grow `most` times."""
    return {"title": title, "most": most, "columns": list(columns), "unit": unit, "rows": rows}


def curve(title: str, x_label: str, y_label: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> Curve:
    return {
        "title": title,
        "x_label": x_label,
        "y_label": y_label,
        "lines": {name: [list(point) for point in points] for name, points in lines.items()},
    }


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def per_second(times: int, work: Callable[[], object]) -> float:
    return times / seconds(work)
