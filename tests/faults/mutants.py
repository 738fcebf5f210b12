"""Seeded defects: a check that cannot see the defect it is for is no check.

A mutant changes one place of the program in a copy of it; the same check then runs on that copy and must
find something wrong. A row of MUTANTS is one mutant; `checks` in test_mutants.py says what each check runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.faults import trees
from tests.faults.sweep import StepFails

Check = Callable[[Path], list[str]]
"""A check runs the program of a tree and returns what is wrong; with the unchanged program, nothing."""


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    caught_by: str
    quick: bool = False


class Outdated(AssertionError):
    """The program has changed, so that this mutant's old text is not there exactly once."""


def plant(mutant: Mutant) -> Path:
    """A compiled copy of the program with the defect in it."""
    folder = trees.new_folder()
    trees.copy_program(trees.program(), folder)
    path = folder / mutant.file
    text = path.read_text() if path.is_file() else ""
    count = text.count(mutant.old)
    if count != 1:
        raise Outdated(f"{mutant.name}: the old text is {count} times in {mutant.file}:\n{mutant.old}")
    path.write_text(text.replace(mutant.old, mutant.new))
    trees.compile_program(folder)
    return folder


def is_caught(mutant: Mutant, check: Check) -> bool:
    tree = plant(mutant)
    try:
        found = check(tree)
    except StepFails as trouble:
        found = [str(trouble)]
    finally:
        trees.remove(tree)
    print(f"{mutant.name}: {found[0][:300] if found else 'NOT CAUGHT'}")
    return bool(found)


def chosen(mutants: Iterable[Mutant]) -> list[Mutant]:
    return [mutant for mutant in mutants if mutant.quick or trees.ALL_MUTANTS]


MUTANTS: list[Mutant] = []
