"""`make faults MUTANTS=random ROOM=king [COUNT=20 SEED=1 TESTS=tests/king]`: small defects drawn by dice.

Each is put into a copy of the checkout, one at a time, and the quick tests of its room are run on it:
`killed` when one of them fails or hangs, `SURVIVED` when all pass. The same seed draws the same defects.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults import changes, trees

HUNG_AFTER = 300.0
COPIED = ("bin", "config", "docs", "generals", "kingdom", "schemas", "tests")
OPPOSITES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}


@dataclass(frozen=True)
class Defect:
    """One defect that a tree can be given; `put` changes that very tree."""

    line: int
    what: str
    put: Callable[[], None]


def defects(tree: ast.Module) -> Iterator[Defect]:
    """Yield every small defect for a tree, always in the same order."""
    for block in changes.blocks(tree):
        for at, part in enumerate(block):
            if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
                yield Defect(part.lineno, f"drop {_line(part)}", lambda b=block, i=at: b.__setitem__(i, ast.Pass()))
            if at and all(
                isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign) for statement in block[at - 1 : at + 1]
            ):
                yield Defect(
                    part.lineno, f"swap {_line(block[at - 1])} | {_line(part)}", lambda b=block, i=at: _swap(b, i)
                )
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield Defect(node.lineno, f"negate {_line(node.test)}", lambda n=node: _negate(n))
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITES:
            yield Defect(node.lineno, f"other comparison in {_line(node)}", lambda n=node: _compare(n))
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield Defect(node.lineno, f"{node.value} is {not node.value}", lambda n=node: _set(n, not n.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield Defect(node.lineno, f"{node.value} is {node.value + 1}", lambda n=node: _set(n, n.value + 1))


def _line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:70]


def _swap(block: list[ast.stmt], at: int) -> None:
    block[at - 1], block[at] = block[at], block[at - 1]


def _negate(node: ast.If | ast.While | ast.IfExp) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _compare(node: ast.Compare) -> None:
    node.ops[0] = OPPOSITES[type(node.ops[0])]()


def _set(node: ast.Constant, value: float) -> None:
    node.value = value


def draw(room: str, count: int, seed: int) -> list[tuple[Path, int]]:
    """Return so many defects of a room, as its files (relative) and the number of the defect in it."""
    files = changes.files_of(trees.CHECKOUT, f"kingdom.{room.replace('/', '.')}")
    every = [(file, number) for file in files for number, _ in enumerate(defects(ast.parse(file.read_text())))]
    drawn = random.Random(seed).sample(every, min(count, len(every)))
    return [(file.relative_to(trees.CHECKOUT), number) for file, number in drawn]


def planted(text: str, number: int) -> tuple[Defect, str]:
    """Return a defect, and the module's text with it."""
    tree = ast.parse(text)
    defect = list(defects(tree))[number]
    defect.put()
    return defect, ast.unparse(ast.fix_missing_locations(tree))


def passes(tree: Path, tests: list[str]) -> bool:
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(argv, cwd=tree, env=env, capture_output=True, timeout=HUNG_AFTER).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main(room: str, count: int, seed: int, tests: list[str]) -> int:
    tree = trees.new_folder()
    for part in COPIED:
        shutil.copytree(trees.CHECKOUT / part, tree / part, ignore=shutil.ignore_patterns("*.pyc"))
    for file in (*trees.CHECKOUT.glob("*.toml"), *trees.CHECKOUT.glob("*.md"), trees.CHECKOUT / "Makefile"):
        shutil.copy(file, tree)
    if not passes(tree, tests):
        print(f"{' '.join(tests)} fails without any defect", file=sys.stderr)
        return 1
    killed = 0
    drawn = draw(room, count, seed)
    for file, number in drawn:
        whole = (tree / file).read_text()
        defect, text = planted(whole, number)
        (tree / file).write_text(text)
        survived = passes(tree, tests)
        (tree / file).write_text(whole)
        killed += not survived
        print(f"{'SURVIVED' if survived else 'killed  '} {file}:{defect.line}: {defect.what}", flush=True)
    print(f"random mutants of {room}, seed {seed}: {killed} of {len(drawn)} killed by {' '.join(tests)}")
    return 0


if __name__ == "__main__":
    room = os.environ.get("ROOM", "")
    if not (trees.CHECKOUT / "kingdom" / room).is_dir() or not room:
        sys.exit("random mutants: which room? make faults MUTANTS=random ROOM=king")
    tests = (os.environ.get("TESTS") or f"tests/{room}").split()
    sys.exit(main(room, int(os.environ.get("COUNT") or 20), int(os.environ.get("SEED") or 1), tests))
