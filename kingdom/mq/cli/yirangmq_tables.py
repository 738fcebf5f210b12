"""Answers as tables, for people at a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kingdom.base import words
from kingdom.base.times import stamp

LONGEST_CELL = 300
WIDEST = 60
NARROWEST = 12
"""Columns on the screen that a text keeps where room is short."""
SAID_BY = {"messageId": "messageKey", "message": "reason"}
"""Columns that repeat what another one says."""
WHOLE = ("messageKey",)
"""What people copy into the next command."""
MOMENT = "At"
"""How the names of columns end that hold a time, in ms."""
LATEST_MS = 10**14


def text(answer: Mapping[str, Any], width: int) -> str:
    """Return an answer as text: its lists of objects as tables, what else it holds as lines."""
    lists = {key: part for key, part in answer.items() if isinstance(part, list) and _is_table(part)}
    said = [(name, _cell(name, value)) for name, value in _flat(answer) if name not in lists]
    return "\n".join([*_lines(said), *(_table(rows, width, answer) for rows in lists.values())]) or "done"


def _lines(said: Sequence[tuple[str, str]]) -> list[str]:
    wide = max((len(name) for name, _ in said), default=0)
    return [f"{name:{wide}}  {value}".rstrip() for name, value in said]


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


def _table(rows: Sequence[Mapping[str, Any]], width: int, about: Mapping[str, Any]) -> str:
    """Return the rows under their columns, without those that say nothing. Long texts are cut to the terminal's width;
    where that is not enough, each row is a paragraph."""
    flat = [{name: _cell(name, value) for name, value in _flat(row)} for row in rows]
    if not flat:
        return "(none)"
    found = dict.fromkeys(name for row in flat for name in row)
    columns = [name for name in found if any(row.get(name) for row in flat) and not _is_said(name, found, about)]
    cells = [columns, *([row.get(name, "") for name in columns] for row in flat)]
    full = [max(map(words.width, column)) for column in zip(*cells, strict=True)]
    right = [not name.endswith(MOMENT) and _are_numbers(rows, name) for name in columns]
    fixed = [right[at] or name.endswith((*WHOLE, MOMENT)) for at, name in enumerate(columns)]
    wide = [most if fixed[at] else min(most, WIDEST) for at, most in enumerate(full)]
    least = [most if fixed[at] else max(len(columns[at]), min(most, NARROWEST)) for at, most in enumerate(wide)]
    room = width - 2 * (len(columns) - 1)
    if sum(least) > room:
        return "\n\n".join("\n".join(_lines([(name, row[name]) for name in columns if row.get(name)])) for row in flat)
    while sum(wide) > room:
        wide[max(range(len(wide)), key=lambda at: (wide[at] > least[at], wide[at]))] -= 1
    lines = ("  ".join(_fill(cell, wide[at], right[at]) for at, cell in enumerate(line)).rstrip() for line in cells)
    return "\n".join(lines)


def _is_said(name: str, columns: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    return SAID_BY.get(name) in columns or (name == "queue" and name in about)


def _are_numbers(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return all(isinstance(value, (int, float)) for row in rows for key, value in _flat(row) if key == name)


def _fill(cell: str, wide: int, right: bool) -> str:
    while words.width(cell) > wide:
        cell = f"{cell[:-2]}…"
    room = " " * (wide - words.width(cell))
    return room + cell if right else cell + room


def _cell(name: str, value: Any) -> str:
    if value is None or value in ("", "{}"):
        return ""
    if name.endswith(MOMENT) and isinstance(value, int) and 0 < value < LATEST_MS:
        return stamp(value / 1000)
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return words.one_line(shown, LONGEST_CELL)
