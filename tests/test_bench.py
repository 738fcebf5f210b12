"""Rows of benchmarks are judged by their goals, drivers fit the table, and the page is made of what was measured."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from pathlib import Path

import pytest

from bench import report
from bench.__main__ import PARTS, RESULTS
from bench.figures import Found, Row, ratio

DOCS = RESULTS.parents[1] / "docs"
CASES = [
    (Row("ours", "ms", "≤ 3 ms"), True),
    (Row("ours", "ms", "≤ 1 ms"), False),
    (Row("ours", "ms", "≥ 3 ms"), False),
    (Row("ours", "ms", "≤ 1.5", "floor"), False),
    (Row("ours", "ms", "≤ 2", "floor"), True),
    (Row("ours", "ms", "≥ 2", "floor"), True),
    (Row("ours", "ms", {"sqlite": "≤ 1 ms", "": "≤ 9 ms"}), False),
    (Row("ours", "ms", {"files": "≤ 1 ms", "": "≤ 9 ms"}), True),
    (Row("ours", "ms", "≤ 1", "nothing"), None),
    (Row("ours", "ms"), None),
]


@pytest.mark.parametrize(("row", "is_met"), CASES)
def test_a_goal_with_a_unit_is_about_the_figure_and_another_about_the_ratio(row: Row, is_met: bool | None) -> None:
    found = Found()
    found.add("ours", "sqlite, power", [1.0, 2.0, 90.0])
    found.add("floor", "power", [0.5, 1.0, 2.0])
    (line,) = found.lines([row])
    assert (line["name"], line["durability"], line["ours"]) == ("ours, sqlite", "power", 2.0)
    assert line["met"] is is_met


def test_a_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    assert ratio([1.0, 8.0, 3.0], [1.0, 2.0, 1.0]) == 3.0
    assert ratio([1.0, 2.0, 30.0], [1.0]) == 2.0


@pytest.mark.parametrize("name", PARTS)
def test_each_part_has_a_driver_and_rows_with_goals_that_can_be_read(name: str) -> None:
    module, _, function = PARTS[name]["run"].partition(":")
    assert list(inspect.signature(getattr(import_module(module), function)).parameters) == ["quick"]
    for row in (Row(*cells) for cells in PARTS[name]["rows"]):
        for goal in [row.goal] if isinstance(row.goal, str) else row.goal.values():
            sign, number, *unit = goal.split() or ("≤", "0")
            assert sign in "≤≥"
            assert float(number) >= 0
            assert unit or not goal or row.floor, f"{row.what}: a ratio to nothing"


def test_the_page_is_what_was_measured(tmp_path: Path) -> None:
    report.write(tmp_path, json.loads(RESULTS.read_text())["parts"])
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in DOCS.glob("benchmarks*")}
