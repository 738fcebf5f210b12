"""Order the tests for several workers: slow files first, divided among the workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Protocol, TypeVar

TESTS = Path(__file__).resolve().parent
LONG_FIRST = (
    "hall/gateway/test_stock_client",
    "faults/watch",
    "faults/test_sweep_",
    "faults/sandbox",
    "faults/test_",
    "faults",
    "journey",
    "contracts/test_stewards",
    "base/runtime",
    "court/general",
    "test_run",
)
"""Beginnings of paths. A new one is wanted when a run's last minute belongs to one worker."""


class InAFile(Protocol):
    @property
    def path(self) -> Path: ...


Item = TypeVar("Item", bound=InAFile)


def dealt(items: Sequence[Item], workers: int) -> list[Item]:
    """Return the tests in as many shares of equal length, one after the other, and every share's long files first.

    A worker takes its share from the front, and an idle one takes from the ends of others' shares.
    """
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    files.sort(key=lambda tests: rank(tests[0].path))
    long = [tests for tests in files if rank(tests[0].path) < len(LONG_FIRST)]
    quick = iter([test for tests in files[len(long) :] for test in tests])
    shares = [[test for tests in long[worker::workers] for test in tests] for worker in range(workers)]
    size = -(-len(items) // workers)
    return [test for share in shares for test in (*share, *islice(quick, max(0, size - len(share))))] + list(quick)


def rank(path: Path) -> int:
    name = str(path.relative_to(TESTS)) if path.is_relative_to(TESTS) else ""
    return next((at for at, start in enumerate(LONG_FIRST) if name.startswith(start)), len(LONG_FIRST))
