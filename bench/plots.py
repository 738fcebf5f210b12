"""Growth curves as SVG: a logarithmic x axis that has room for 0, a y axis from 0, names at the lines' ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

COLOURS = ("#1f6f8b", "#c8553d", "#4f7f35", "#7a5195", "#b8860b", "#444444")
WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 56, 210, 52, 48
LABEL_GAP = 16
TICKS = 5

Points = Sequence[Sequence[float]]


def plot(curve: Mapping[str, Any]) -> str:
    lines: Mapping[str, Points] = curve["lines"]
    axes = Axes([point for line in lines.values() for point in line])
    parts = [_frame(curve, axes)]
    ends = _apart({name: axes.at(*line[-1])[1] for name, line in lines.items()})
    for colour, (name, line) in zip(COLOURS, lines.items(), strict=False):
        spots = [axes.at(x, y) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in spots]
        (x, y), end = spots[-1], WIDTH - RIGHT + 14
        parts.append(f'<path d="M{x + 5:.1f},{y:.1f} L{end},{ends[name]:.1f}" stroke="{colour}" stroke-width="0.7"/>')
        parts.append(_text(end + 3, ends[name] + 4, f"{name}: {line[-1][1]:.3g}", fill=colour))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="Helvetica, Arial, sans-serif">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


class Axes:
    def __init__(self, points: Points) -> None:
        self.marks = sorted({x for x, _ in points})
        positive = [x for x in self.marks if x > 0]
        self._least = math.log10(positive[0]) - (1 if self.marks[0] == 0 else 0)
        self._span = math.log10(positive[-1]) - self._least or 1.0
        self.step = _round_step(max(y for _, y in points) / TICKS)
        self.highest = self.step * math.ceil(max(y for _, y in points) * 1.02 / self.step)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point lies; 0 stands one decade before the smallest."""
        share = (math.log10(x) - self._least) / self._span if x > 0 else 0.0
        across = LEFT + 12 + share * (WIDTH - LEFT - RIGHT - 24)
        return across, HEIGHT - BOTTOM - y / self.highest * (HEIGHT - BOTTOM - TOP)


def _round_step(least: float) -> float:
    """Return the next of 1, 2, 5, 10, 20 … that is not smaller."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least)


def _apart(ends: Mapping[str, float]) -> dict[str, float]:
    """Return the labels' heights, moved so that none touches its neighbour and all stay beside the plot."""
    heights: dict[str, float] = {}
    lowest = float(TOP)
    for name in sorted(ends, key=lambda name: ends[name]):
        heights[name] = lowest = max(ends[name], lowest)
        lowest += LABEL_GAP
    too_low = max(0.0, max(heights.values()) - (HEIGHT - BOTTOM))
    ceiling = HEIGHT - BOTTOM
    for name in sorted(heights, key=lambda name: -heights[name]) if too_low else ():
        heights[name] = ceiling = min(heights[name], ceiling)
        ceiling -= LABEL_GAP
    return heights


def _frame(curve: Mapping[str, Any], axes: Axes) -> str:
    floor, left, right = HEIGHT - BOTTOM, LEFT, WIDTH - RIGHT
    parts = [
        _text(16, 22, str(curve["title"]), size=15, weight="bold"),
        _text(16, TOP - 12, f"{curve['y_label']}"),
        _text((left + right) / 2, HEIGHT - 10, str(curve["x_label"]), anchor="middle"),
    ]
    for count in range(round(axes.highest / axes.step) + 1):
        y = axes.at(axes.marks[0], count * axes.step)[1]
        colour = "#888888" if count == 0 else "#e4e4e4"
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{colour}"/>')
        parts.append(_text(left - 6, y + 4, f"{count * axes.step:g}", anchor="end"))
    for mark in axes.marks:
        x = axes.at(mark, 0)[0]
        parts.append(f'<line x1="{x:.1f}" y1="{floor}" x2="{x:.1f}" y2="{floor + 5}" stroke="#888888"/>')
        parts.append(_text(x, floor + 18, f"{mark:,.0f}", anchor="middle"))
    return "\n".join(parts)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    fill: str = "#333333",
    anchor: str = "start",
    size: int = 12,
    weight: str = "normal",
) -> str:
    safe = text.replace("&", "&amp;").replace("<", "&lt;")
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}">{safe}</text>'
    )
