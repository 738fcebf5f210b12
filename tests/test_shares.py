"""On several workers the files that take long begin, dealt out among them, and no test is lost."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from tests.shares import TESTS, dealt, rank

LONG = ("faults/watch/test_a.py", "faults/watch/test_b.py", "faults/test_sweep_a.py", "journey/test_a.py")
QUICK = ("cli/test_a.py", "king/test_a.py", "mq/test_a.py", "records/test_a.py")


@dataclass(frozen=True)
class Item:
    path: Path
    number: int


def of_files(*files: str) -> list[Item]:
    return [Item(TESTS / file, number) for file in files for number in range(5)]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_no_test_is_lost_and_every_worker_begins_with_a_long_file(workers: int) -> None:
    tests = of_files(*QUICK, *LONG)
    order = dealt(tests, workers)
    assert sorted(order, key=tests.index) == tests
    shares = [order[at : at + len(tests) // workers] for at in range(0, len(tests), -(-len(tests) // workers))]
    assert [rank(share[0].path) for share in shares] == sorted(rank(TESTS / file) for file in LONG)[:workers]


def test_the_of_files_a_long_file_stay_together() -> None:
    order = dealt(of_files(*QUICK, *LONG), 3)
    files = [str(path.relative_to(TESTS)) for path, _ in groupby(order, key=lambda test: test.path)]
    assert all(files.count(file) == 1 for file in LONG)


def test_more_long_tests_than_a_share_holds_are_no_loss() -> None:
    tests = of_files(*LONG, QUICK[0])
    assert sorted(dealt(tests, 4), key=tests.index) == tests
