"""A plugin of pytest for random mutants: which functions of kingdom/ each test runs, and the nearest tests first.

Only what runs in the test's own process is seen: tests that start programs come behind those that are near,
and before those that are known to run other files alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

WRITTEN, READ, CHANGED = "MUTANTS_REACHED_OUT", "MUTANTS_REACHED_IN", "MUTANTS_CHANGED"
TREE = Path(__file__).resolve().parents[2]

Spans = dict[str, list[tuple[int, int]]]
"""For a file, the first and last lines of the functions that a test runs."""

_found: dict[str, Spans] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    if WRITTEN not in os.environ:
        return (yield)
    spans: dict[str, set[tuple[int, int]]] = {}
    inside = f"{TREE}/kingdom/"

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(inside):
            last = max((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)
            spans.setdefault(code.co_filename, set()).add((code.co_firstlineno, last))

    sys.setprofile(note)
    try:
        return (yield)
    finally:
        sys.setprofile(None)
        _found[item.nodeid] = {str(Path(file).relative_to(TREE)): sorted(spans[file]) for file in spans}


def pytest_sessionfinish() -> None:
    if WRITTEN in os.environ:
        Path(os.environ[WRITTEN]).write_text(json.dumps(_found))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if READ in os.environ:
        known = json.loads(Path(os.environ[READ]).read_text())
        file, _, line = os.environ[CHANGED].rpartition(":")
        items.sort(key=lambda item: distance(known.get(item.nodeid, {}), file, int(line)))


def distance(spans: Spans, file: str, line: int) -> int:
    """Return 0 for a test that runs the changed function, 1 for its file, 2 for what is not known, 3 for others."""
    if any(first <= line <= last for first, last in spans.get(file, [])):
        return 0
    return 1 if file in spans else 3 if spans else 2
