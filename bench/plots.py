"""Growth curves as SVG: a logarithmic x axis that has room for 0, a y axis from 0, the lines' names beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

COLOURS = ("#1f6f8b", "#c8553d", "#4f7f35", "#7a5195", "#b8860b", "#444444")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 340, 56, 210, 52, 48
TICKS, GAP = 5, 18


def plot(curve: Mapping[str, Any]) -> str:
    points = [point for line in curve["lines"].values() for point in line]
    marks = sorted({x for x, _ in points})
    least = math.log10(next(x for x in marks if x > 0)) - (marks[0] == 0)
    step = _round_step(max(y for _, y in points) / TICKS)
    highest = step * math.ceil(max(y for _, y in points) * 1.02 / step)

    def at(x: float, y: float) -> tuple[float, float]:
        """Return the place of a point; 0 is one decade before the smallest."""
        share = (math.log10(x) - least) / (math.log10(marks[-1]) - least or 1.0) if x > 0 else 0.0
        across = LEFT + 12 + share * (WIDTH - LEFT - RIGHT - 24)
        return across, HEIGHT - BOTTOM - y / highest * (HEIGHT - BOTTOM - TOP)

    parts = [_text(16, 22, curve["title"]), _text(16, TOP - 12, curve["y_label"])]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, curve["x_label"], anchor="middle"))
    for tick in range(round(highest / step) + 1):
        y = at(marks[0], tick * step)[1]
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{tick * step:g}", anchor="end"))
    parts += [_text(at(x, 0)[0], HEIGHT - BOTTOM + 18, f"{x:,.0f}", anchor="middle") for x in marks]
    ends = sorted(curve["lines"], key=lambda name: -curve["lines"][name][-1][1])
    for colour, (name, line) in zip(COLOURS, curve["lines"].items(), strict=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        height = TOP + 8 + GAP * ends.index(name)
        parts.append(_text(WIDTH - RIGHT + 14, height, f"{name}: {line[-1][1]:.3g}", fill=colour))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    body = "\n".join([f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>', *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">\n{body}\n</svg>\n'


def _round_step(least: float) -> float:
    """Return the next of 1, 2, 5, 10, 20 … that is not smaller."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least)


def _text(x: float, y: float, text: str, *, fill: str = "#333333", anchor: str = "start") -> str:
    safe = text.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}" font-size="12">{safe}</text>'
