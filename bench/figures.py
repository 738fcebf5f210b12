"""One figure is a ratio taken in one run: ours beside a floor or a peer, rounds interleaved, the median told."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
Curve = dict[str, Any]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def interleaved(rounds: int, contestants: Mapping[str, Callable[[], Any]]) -> dict[str, list[Any]]:
    """Every contestant once a round, so that a noisy minute hits all of them."""
    seen: dict[str, list[Any]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contest in contestants.items():
            seen[name].append(contest())
    return seen


def ratio(ours: Sequence[float], other: Sequence[float]) -> float:
    """The median of the rounds' own ratios."""
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
        "reason": reason,
    }


def curve(title: str, x_label: str, y_label: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> Curve:
    return {
        "title": title,
        "x_label": x_label,
        "y_label": y_label,
        "lines": {name: [list(point) for point in points] for name, points in lines.items()},
    }


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
