"""What was found, for people: one line a row in a terminal, tables and plots in docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.plots import plot

Line = Mapping[str, Any]
Part = Mapping[str, Any]

INTRODUCTION = Path(__file__).with_name("introduction.md")


def text(part: Part) -> str:
    lines = [f"# {part['title']} ({part.get('seconds', '?')} s, load before {part['machine']['load_before']})"]
    if "error" in part:
        return "\n".join([*lines, f"not measured: {part['error']}", ""])
    for row in part["rows"]:
        floor = "" if row["floor"] is None else f" / {number(row['floor'])} = {number(row['ratio'])}"
        ours = f"{number(row['ours'])} {row['unit']}{floor}, goal {row['goal'] or 'none'}"
        lines.append(f"{_verdict(row):<6} {row['name']} {row['durability']}".rstrip() + f": {ours}")
    for table in part["tables"]:
        lines.append(f"{table['title']}: {', '.join(table['columns'])}")
        lines += [f"       {name}: {', '.join(map(_cell, row))}" for name, row in table["rows"].items()]
    return "\n".join([*lines, *part["notes"], ""])


def write(docs: Path, parts: Mapping[str, Part]) -> None:
    """Write benchmarks.md and its plots; plots of earlier runs are removed."""
    for old in docs.glob("benchmarks-*.svg"):
        old.unlink()
    contents = [f"- [{part['title']}](#{_anchor(part['title'])}){_in_short(part)}" for part in parts.values()]
    pages = [_section(docs, name, part) for name, part in parts.items()]
    (docs / "benchmarks.md").write_text("\n".join([INTRODUCTION.read_text(), *contents, *pages]))


def _anchor(title: str) -> str:
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter == "-")


def _in_short(part: Part) -> str:
    verdicts = [_verdict(row) for row in part.get("rows", ())]
    met = verdicts.count("met")
    return f": {met} goal{'' if met == 1 else 's'} met, {verdicts.count('short')} short" if any(verdicts) else ""


def _section(docs: Path, name: str, part: Part) -> str:
    lines = [f"\n## {part['title']}\n"]
    if "error" in part:
        return "\n".join([*lines, f"Could not be measured: {part['error']}\n"])
    lines += [f"{part['about']}\n", *_rows(part["rows"])]
    for table in part["tables"]:
        lines += [f"**{table['title']}**\n", *_table(table["columns"], table["rows"]), ""]
    for at, curve in enumerate(part["curves"]):
        file = f"benchmarks-{name}-{at}.svg"
        (docs / file).write_text(plot(curve))
        lines.append(f"![{curve['title']}]({file})\n")
    return "\n".join([*lines, *(f"{note}\n" for note in part["notes"]), _about_the_run(name, part)])


def _about_the_run(name: str, part: Part) -> str:
    machine = part["machine"]
    at_best = ", ".join(f"{what}: {number(value)}" for what, value in machine["at_best"].items())
    how = "A quick run, with fewer rounds and smaller numbers than a full one: " if part.get("quick") else ""
    return (
        f"<sub>{how}`python -m bench {name}` at {part['commit']}, {part['measured_at']} UTC, {machine['cores']} cores "
        f"({machine['processor']}), Linux {machine['kernel']}, Python {machine['python']}, "
        f"load before {machine['load_before']}. The machine at best: {at_best}.</sub>\n"
    )


def _rows(rows: Sequence[Line]) -> list[str]:
    reasons = list(dict.fromkeys(row["reason"] for row in rows if row["reason"]))
    cells = {}
    for at, row in enumerate(rows):
        verdict = f"**{_verdict(row)}**" if row["met"] is False else _verdict(row)
        verdict += f" ({reasons.index(row['reason']) + 1})" if row["reason"] else ""
        beside = "" if row["floor"] is None else f"{number(row['floor'])} {row['unit']}: {row['floor_is']}"
        ratio = "" if row["ratio"] is None else number(row["ratio"])
        ours = f"{number(row['ours'])} {row['unit']}"
        cells[at] = [row["name"], row["durability"], ours, beside, ratio, row["goal"], verdict]
    if not cells:
        return []
    lines = ["| what | survives | ours | floor or peer | ratio | goal | |", "|---|---|--:|---|--:|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in cells.values()]
    return [*lines, "", *(f"({at}) {reason}.  " for at, reason in enumerate(reasons, 1)), *([""] if reasons else [])]


def _table(columns: Sequence[str], rows: Mapping[str, Sequence[float | str]]) -> list[str]:
    """One row for each name, with a number in each column."""
    lines = [f"| | {' | '.join(columns)} |", f"|---{'|--:' * len(columns)}|"]
    return [*lines, *(f"| {name} | {' | '.join(map(_cell, row))} |" for name, row in rows.items())]


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else number(value)


def _verdict(row: Line) -> str:
    return {True: "met", False: "short", None: ""}[row["met"]]


def number(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
