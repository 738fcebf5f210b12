"""What was found, for people: one line a row in a terminal, tables and plots in docs/benchmarks.md."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.reasons import WHY

Row = Mapping[str, Any]
Found = Mapping[str, Any]

COMPARE = {"≤": operator.le, "<=": operator.le, "≥": operator.ge, ">=": operator.ge, "": operator.le}
COLOURS = ("#1f6f8b", "#c8553d", "#5b8c3e", "#7a5195", "#d9a21b", "#444444")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 60, 40, 40


def met(row: Row) -> bool | None:
    """A script that judges its own row says so; for the others the goal is about the ratio. None: no goal."""
    if row.get("met") is not None:
        return bool(row["met"])
    goal = re.match(r"\s*(<=|>=|≤|≥|)\s*([\d.]+)", str(row.get("goal") or ""))
    if goal is None or row.get("ratio") is None:
        return None
    return bool(COMPARE[goal[1]](float(row["ratio"]), float(goal[2])))


def text(found: Found) -> str:
    head = f"# {found['title']} ({found.get('seconds', '?')} s, load before {found['machine']['load_before']})"
    rows = [
        f"{_mark(met(row)):<6} {row['name']} {row.get('durability') or ''}: {_figures(row)}" for row in found["rows"]
    ]
    trouble = [f"not measured: {found['trouble']}"] if "trouble" in found else []
    return "\n".join([head, *rows, *trouble, ""])


def write(docs: Path, scripts: Mapping[str, Found]) -> None:
    parts = [INTRODUCTION]
    for name, found in scripts.items():
        parts.append(_section(docs, name, found))
    (docs / "benchmarks.md").write_text("\n".join(parts))


INTRODUCTION = """\
# Benchmarks

`make bench` writes this page and `bench/results.json`; `make bench-quick` prints a rough version of it in a minute
or two and writes nothing; `python -m bench court` measures one part again. Every figure is a ratio taken in one run:
ours beside a floor (the same system calls in a few raw lines, `bench/floors.py`) or a peer, rounds interleaved,
medians of at least five. Absolute numbers hold for the machine named in each part, which other work shared;
its load when the part began stands beside it. Benchmarks never decide whether tests pass.

*process* survives `kill -9`; *power*, the default, also survives a power cut. What a row shows without a floor has
only an absolute goal.
"""


def _section(docs: Path, name: str, found: Found) -> str:
    machine = found["machine"]
    lines = [
        f"\n## {found['title']}\n",
        f"`python -m bench {name}`, {found['measured_at']} UTC, {machine['cores']} cores ({machine['processor']}), "
        f"Linux {machine['kernel']}, Python {machine['python']}, load before {machine['load_before']}.\n",
    ]
    if "trouble" in found:
        return "\n".join([*lines, f"Could not be measured: {found['trouble']}\n"])
    lines += ["| what | goal | process | power | verdict |", "|---|---|---|---|---|"]
    lines += [_line(rows) for rows in _side_by_side(found["rows"])]
    floors = dict.fromkeys(
        f"- {row['name']}: beside {about}."
        for row in found["rows"]
        if (about := row.get("floor_is") or row.get("peer_is"))
    )
    skipped = [f"- not there, so left out: {peer} ({why})." for peer, why in (found.get("skipped") or {}).items()]
    lines += ["", *floors, *skipped, *(f"\n{note}" for note in found.get("notes", ()))]
    for number, curve in enumerate(found.get("curves") or ()):
        file = f"benchmarks-{name}-{number}.svg"
        (docs / file).write_text(plot(curve))
        lines.append(f"\n![{curve['title']}]({file})")
    return "\n".join([*lines, ""])


def _side_by_side(rows: Iterable[Row]) -> Iterable[list[Row]]:
    """Rows of the same name and goal that differ in durability stand in one line."""
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        lines.setdefault((row["name"], str(row.get("goal"))), []).append(row)
    return lines.values()


def _line(rows: Sequence[Row]) -> str:
    cells: dict[str, str] = {}
    for row in rows:
        kind = row.get("durability") or ""
        column = kind if kind in ("process", "power") else "process"
        cells[column] = f"{_figures(row)} ({kind})" if kind and kind != column else _figures(row)
    words = []
    for row in rows:
        which = f"{row['durability']}: " if len(rows) > 1 else ""
        reason = row.get("reason") or ("" if met(row) is not False else WHY.get(row["name"], ""))
        words.append(f"{which}{_mark(met(row))}{reason and f', {reason}'}")
    verdict = "met" if {_mark(met(row)) for row in rows} == {"met"} else "; ".join(words)
    name, goal = rows[0]["name"], rows[0].get("goal") or ""
    return f"| {name} | {goal} | {cells.get('process', '')} | {cells.get('power', '')} | {verdict} |"


def _mark(verdict: bool | None) -> str:
    return {True: "met", False: "short", None: "-"}[verdict]


def _figures(row: Row) -> str:
    beside = row.get("floor") if row.get("floor") is not None else row.get("peer")
    told = f"{_number(row['ours'])} {row.get('unit') or ''}".strip()
    if isinstance(beside, int | float):
        told += f" / {_number(beside)}"
    if row.get("ratio") is not None:
        told += f" = {_number(row['ratio'])} x"
    return told


def _number(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


# --- plots


def plot(curve: Mapping[str, Any]) -> str:
    """Lines over a logarithmic axis that has room for 0; the upright axis begins at 0."""
    lines: Mapping[str, Sequence[Sequence[float]]] = curve["lines"]
    points = [point for line in lines.values() for point in line]
    furthest = max(math.log10(1 + x) for x, _ in points) or 1.0
    highest = max(y for _, y in points) * 1.1 or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        across = LEFT + math.log10(1 + x) / furthest * (WIDTH - LEFT - 20)
        return across, HEIGHT - BOTTOM - y / highest * (HEIGHT - BOTTOM - TOP)

    drawn = [_axis(curve, at, sorted({x for x, _ in points}), highest)]
    for colour, (name, line), row in zip(COLOURS, lines.items(), range(len(lines)), strict=False):
        spots = [at(x, y) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in spots]
        drawn.append(_words(LEFT + 10, TOP + 14 * row, name, fill=colour))
    body = "\n".join(drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="11">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
    )


def _axis(curve: Mapping[str, Any], at: Any, marks: Sequence[float], highest: float) -> str:
    (left, floor), (right, _) = at(0, 0), at(marks[-1], 0)
    parts = [
        _words(LEFT, 18, str(curve["title"]), size=13),
        f'<line x1="{left}" y1="{floor}" x2="{right}" y2="{floor}" stroke="#999"/>',
        f'<line x1="{left}" y1="{floor}" x2="{left}" y2="{TOP}" stroke="#999"/>',
        _words((left + right) / 2, HEIGHT - 6, str(curve["x_label"]), anchor="middle"),
        _words(6, TOP - 8, str(curve["y_label"])),
    ]
    parts += [_words(at(x, 0)[0], floor + 14, f"{x:,.0f}", anchor="middle") for x in marks]
    parts += [_words(left - 6, at(0, y)[1] + 4, _number(y), anchor="end") for y in (0.0, highest / 2, highest)]
    return "\n".join(parts)


def _words(x: float, y: float, words: str, *, fill: str = "#333", anchor: str = "start", size: int = 11) -> str:
    safe = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}" font-size="{size}">{safe}</text>'
