"""Seeded defects: `make faults MUTANTS=1 [ONLY="the queue"]` plants each row of mutants.toml in a copy of the checkout.

A row names a file, a text that is in it once, the text to put there, and the test that must fail then; `env` is what
that test gets, mostly KINGDOM_NEAR, the calls at which a sweep is to strike.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.faults import trees

TABLE = trees.CHECKOUT / "tests/faults/mutants.toml"
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "build", "node_modules", "*.sock")
SECONDS = 600
PASSED, FAILED = 0, 1  # exit codes of pytest
CAUGHT, SURVIVED, SKIPPED = "caught", "SURVIVED", "skipped here"


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    test: str
    env: Mapping[str, str] = MappingProxyType({})

    def why_not(self) -> str:
        """Say why this row cannot be planted; "" if it can."""
        file, _, test = self.test.partition("::")
        if (count := (trees.CHECKOUT / self.file).read_text().count(self.old)) != 1:
            return f"{self.name!r}: its text is {count} times in {self.file}: {self.old}"
        if f"def {test.partition('[')[0]}" not in (trees.CHECKOUT / file).read_text():
            return f"{self.name!r}: there is no {self.test}"
        return ""


def mutants() -> list[Mutant]:
    rows = tomllib.loads(TABLE.read_text())
    return [Mutant(name, **row) for name, row in rows.items()]


@cache
def pristine() -> Path:
    """Copy the checkout, compiled, as a repository: some tests ask git what belongs to it."""
    folder = trees.new_folder() / "checkout"
    shutil.copytree(trees.CHECKOUT, folder, symlinks=True, ignore=LEFT_OUT)
    trees.compile_program(folder)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


@contextmanager
def _planted(mutant: Mutant | None) -> Iterator[Path]:
    folder = trees.new_folder() / "checkout"
    subprocess.run(["cp", "-a", "--reflink=auto", "--", pristine(), folder], check=True)
    if mutant:
        trees.change(folder / mutant.file, mutant.old, mutant.new)
    yield folder
    trees.remove(folder.parent)


def _run(test: str, env: Mapping[str, str], mutant: Mutant | None) -> tuple[int, str]:
    argv = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0", test]
    with _planted(mutant) as folder:
        home = trees.new_folder()
        try:
            done = trees.run(folder, home, argv, timeout=SECONDS, env=env)
        except subprocess.TimeoutExpired:
            return FAILED, f"it hung for {SECONDS} s"
        finally:
            trees.remove(home)
    return done.returncode, done.stdout + done.stderr


def outcome(mutant: Mutant) -> tuple[str, str]:
    """Plant a defect and run its test: CAUGHT, SURVIVED or SKIPPED, and what pytest says last."""
    if mutant.env:  # not as in the quick suite, so nobody knows that it passes without the defect
        code, said = _run(mutant.test, {**mutant.env, "KINGDOM_PART": "1/10"}, None)
        assert code == PASSED, f"{mutant.test} fails without any defect:\n{said[-3000:]}"
    code, said = _run(mutant.test, mutant.env, mutant)
    if "No module named 'playwright'" in said or (code == PASSED and re.search(r"^\d+ skipped", said, re.MULTILINE)):
        return SKIPPED, said.splitlines()[-1]
    assert code in (PASSED, FAILED), f"{mutant.test} cannot be run:\n{said[-3000:]}"
    last = next((line for line in reversed(said.splitlines()) if line.startswith(("FAILED", "ERROR"))), said[-300:])
    return (CAUGHT if code == FAILED else SURVIVED), last


def main(only: str) -> int:
    chosen = [mutant for mutant in mutants() if only in f"{mutant.name} {mutant.file} {mutant.test}"]
    chosen = chosen[trees.PART - 1 :: trees.PARTS]
    counts = {CAUGHT: 0, SURVIVED: 0, SKIPPED: 0}
    for mutant in chosen:
        result, last = outcome(mutant)
        counts[result] += 1
        print(f"{result}: {mutant.name}\n    {last}", flush=True)
    print(f"mutants caught: {counts[CAUGHT]} of {len(chosen)}, {counts[SKIPPED]} skipped here")
    return int(counts[SURVIVED] > 0)


if __name__ == "__main__":
    sys.exit(main(os.environ.get("ONLY", "")))
