"""What was found, for people: one line a row in a terminal, tables and plots in docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.plots import plot

Row = Mapping[str, Any]
Part = Mapping[str, Any]

INTRODUCTION = """\
# Benchmarks

What Kingdom costs, beside the least that the machine needs for the same, and beside what other people use.

- **Floor**: the same system calls or statements in a few raw lines (`bench/floors.py` and beside each part), on the
  same disk with the same payload, without validation, order or recovery. **Ratio** is ours / floor, the median of
  the rounds' own ratios; rounds of ours and of the floor alternate, so that a noisy minute hits both.
- **Survives**: *process*, `kill -9`; *power*, the default, also a power cut. Empty where the row does not depend on it.
- **Goal** is about the ratio, unless it names a unit. What is short of its goal says why below the table.
- Absolute figures hold for the machine named in each part alone. Benchmarks never decide whether tests pass.

`make bench` measures everything (about half an hour) and writes this page and `bench/results.json`; `make bench-quick`
prints a rough version in two minutes and writes nothing; `python -m bench court` measures one part again.
How long the way of one event is, in files and calls instead of milliseconds, is printed by `python bench/walk.py`;
`python bench/compare.py --old TREE` says whether another checkout is faster.
"""


def text(part: Part) -> str:
    lines = [f"# {part['title']} ({part.get('seconds', '?')} s, load before {part['machine']['load_before']})"]
    if "error" in part:
        return "\n".join([*lines, f"not measured: {part['error']}", ""])
    for row in part.get("rows", ()):
        lines.append(f"{_verdict(row):<6} {row['name']} {row['durability']}: {_terminal(row)}")
    for table in part.get("tables", ()):
        lines.append(f"{table['title']}: {', '.join(table['columns'])}")
        lines += [f"       {name}: {', '.join(map(_cell, row))}" for name, row in table["rows"].items()]
    for growth in part.get("growth", ()):
        lines.append(growth["title"])
        lines += [f"       {name}: {', '.join(cells)}" for name, cells in _growth_cells(growth)]
    for peer in part.get("peers", {}).get("rows", ()):
        rates = ", ".join(f"{name} {rate:,}" for name, rate in peer["rates"].items())
        lines.append(f"       {peer['name']} {peer['durability']}: {rates}")
    return "\n".join([*lines, ""])


def write(docs: Path, parts: Mapping[str, Part]) -> None:
    """Write benchmarks.md and its plots; plots of earlier runs are removed."""
    for old in docs.glob("benchmarks-*.svg"):
        old.unlink()
    contents = [f"- [{part['title']}](#{_anchor(part['title'])}){_in_short(part)}" for part in parts.values()]
    pages = [_section(docs, name, part) for name, part in parts.items()]
    (docs / "benchmarks.md").write_text("\n".join([INTRODUCTION, *contents, *pages]))


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
    lines += [f"{part['about']}\n", *_rows(part.get("rows", ())), *_peers(part)]
    for table in part.get("tables", ()):
        lines += [f"**{table['title']}**\n", *_table(table), ""]
    for growth in part.get("growth", ()):
        lines += _growth(growth)
    for number, curve in enumerate(part.get("curves", ())):
        file = f"benchmarks-{name}-{number}.svg"
        (docs / file).write_text(plot(curve))
        lines.append(f"![{curve['title']}]({file})\n")
    left_out = [f"Left out: {peer} ({why})." for peer, why in part.get("skipped", {}).items()]
    return "\n".join(
        [*lines, *(f"{note}\n" for note in [*part.get("notes", ()), *left_out]), _about_the_run(name, part)]
    )


def _about_the_run(name: str, part: Part) -> str:
    machine = part["machine"]
    at_best = ", ".join(f"{what}: {number(value)}" for what, value in machine["at_best"].items())
    how = "A quick run, with fewer rounds and smaller numbers than a full one: " if part.get("quick") else ""
    return (
        f"<sub>{how}`python -m bench {name}` at {part['commit']}, {part['measured_at']} UTC, {machine['cores']} cores "
        f"({machine['processor']}), Linux {machine['kernel']}, Python {machine['python']}, "
        f"load before {machine['load_before']}. The machine at best: {at_best}.</sub>\n"
    )


def _rows(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    lines = ["| what | survives | ours | floor or peer | ratio | goal | |", "|---|---|--:|---|--:|---|---|"]
    reasons: dict[str, int] = {}
    for row in rows:
        verdict = _verdict(row)
        if row["met"] is False:
            number_of = reasons.setdefault(row["reason"], len(reasons) + 1) if row["reason"] else ""
            verdict = f"**short** ({number_of})" if number_of else "**short**"
        beside = "" if row["floor"] is None else f"{number(row['floor'])} {row['unit']}: {row['floor_is']}"
        ratio = "" if row["ratio"] is None else number(row["ratio"])
        ours = f"{number(row['ours'])} {row['unit']}"
        lines.append(
            f"| {row['name']} | {row['durability']} | {ours} | {beside} | {ratio} | {row['goal']} | {verdict} |"
        )
    return [*lines, "", *(f"({number}) {reason}.  " for reason, number in reasons.items()), *([""] if reasons else [])]


def _table(table: Mapping[str, Any]) -> list[str]:
    """One row for each name, with a number in each column."""
    lines = [f"| | {' | '.join(table['columns'])} |", f"|---{'|--:' * len(table['columns'])}|"]
    return [*lines, *(f"| {name} | {' | '.join(map(_cell, row))} |" for name, row in table["rows"].items())]


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else number(value)


def _growth(growth: Mapping[str, Any]) -> list[str]:
    head = ["operation", *growth["columns"]]
    lines = [f"**{growth['title']}**; the goal is at most {growth['most']:g} times as much:\n"]
    lines += [f"| {' | '.join(head)} |", f"|---{'|--:' * len(growth['columns'])}|"]
    return [*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in _growth_cells(growth)), ""]


def _growth_cells(growth: Mapping[str, Any]) -> Iterable[tuple[str, list[str]]]:
    for name, costs in growth["rows"].items():
        cells = []
        for column in growth["columns"]:
            few, many = costs[column]
            short = ", **short**" if many > few * growth["most"] else ""
            cells.append(f"{number(few)} → {number(many)} {growth['unit']} ({many / few:.2f}{short})")
        yield name, cells


def _peers(part: Part) -> list[str]:
    """One table, ours first for each durability; in brackets ours / theirs."""
    peers = part.get("peers")
    if not peers:
        return []
    measures = peers["measures"]
    lines = [
        f"| queue | survives | {' | '.join(f'{name} /s' for name in measures)} |",
        f"|---|---{'|--:' * len(measures)}|",
    ]
    for level in ("power", "process"):
        rows = [row for row in peers["rows"] if level in (row["durability"], *AS_GOOD_AS.get(row["durability"], ()))]
        ours = next((row["rates"] for row in rows if row["ours"]), {})
        for row in sorted(rows, key=lambda row: (not row["name"].startswith("our "), row["durability"])):
            cells = [_rate(row, name, ours) for name in measures]
            name = f"**{row['name']}**" if row["name"].startswith("our ") else row["name"]
            lines.append(f"| {name} | {row['durability']} | {' | '.join(cells)} |")
    return [*lines, ""]


AS_GOOD_AS = {"no ack": ("process",)}


def _rate(row: Row, name: str, ours: Mapping[str, float]) -> str:
    rate = row["rates"].get(name)
    if rate is None:
        return "-"
    return f"{rate:,}" if row["name"].startswith("our ") or name not in ours else f"{rate:,} ({ours[name] / rate:.2f})"


def _verdict(row: Row) -> str:
    return {True: "met", False: "short", None: ""}[row["met"]]


def _terminal(row: Row) -> str:
    floor = "" if row["floor"] is None else f" / {number(row['floor'])}"
    beside = floor if row["ratio"] is None else f"{floor} = {number(row['ratio'])}"
    return f"{number(row['ours'])} {row['unit']}{beside}, goal {row['goal'] or 'none'}"


def number(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
