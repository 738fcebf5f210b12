"""Answers as tables, for people at a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kingdom.words import printable

LONGEST_CELL = 60


def text(answer: Mapping[str, Any], width: int) -> str:
    """Return an answer as text: its lists of objects as tables, what else it holds as lines."""
    lists = {key: part for key, part in answer.items() if isinstance(part, list) and _is_table(part)}
    said = [(name, _cell(value)) for name, value in _flat(answer) if name not in lists]
    wide = max((len(name) for name, _ in said), default=0)
    lines = [f"{name:{wide}}  {value}".rstrip() for name, value in said]
    return "\n".join([*lines, *(_table(rows, width) for rows in lists.values())]) or "done"


def _is_table(part: Sequence[Any]) -> bool:
    return all(isinstance(row, dict) for row in part)


def _flat(part: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in part.items():
        if isinstance(value, Mapping) and value:
            found += _flat(value, f"{before}{key}.")
        else:
            found.append((f"{before}{key}", value))
    return found


def _table(rows: Sequence[Mapping[str, Any]], width: int) -> str:
    """Return the rows under their columns. What a row does not say is empty; a line ends where the terminal does."""
    flat = [dict(_flat(row)) for row in rows]
    if not flat:
        return "(none)"
    columns = list(dict.fromkeys(key for row in flat for key in row))
    cells = [columns, *([_cell(row.get(column, "")) for column in columns] for row in flat)]
    wide = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    right = [all(isinstance(row.get(column, 0), (int, float)) for row in flat) for column in columns]
    lines = (
        "  ".join(cell.rjust(wide[at]) if right[at] else cell.ljust(wide[at]) for at, cell in enumerate(line))
        for line in cells
    )
    return "\n".join(line.rstrip()[:width] for line in lines)


def _cell(value: Any) -> str:
    if value is None or value == "":
        return ""
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = printable(shown.replace("\n", " "))
    return shown if len(shown) <= LONGEST_CELL else f"{shown[: LONGEST_CELL - 1]}…"
