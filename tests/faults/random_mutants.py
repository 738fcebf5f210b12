"""`make faults MUTANTS=random ROOM=king [COUNT=100 SEED=1 TESTS=tests/king]`: small defects drawn by dice.

Each is put into a copy of the checkout, one at a time, and the quick tests of its room are run on it:
`killed` when one of them fails or hangs, `SURVIVED` when all pass. The same seed draws the same defects.
The tests that run the changed function come first, then those that run its file: tests/faults/reached.py.
What was found is kept in build/mutants, so that a run that was ended goes on where it was; `make clean` forgets it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.faults import changes, reached, trees

RESULTS = trees.CHECKOUT / "build" / "mutants"
SLOWER_AT_MOST = 3
"""So many times the seconds that the tests take without a defect, and then they count as hung."""
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
            if at and _order_matters(block[at - 1], part):
                yield Defect(
                    part.lineno, f"swap {_line(block[at - 1])} | {_line(part)}", lambda b=block, i=at: _swap(b, i)
                )
    decorators = {id(node) for about in _classes(tree) for part in about.decorator_list for node in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in decorators:
            continue  # a record that is not frozen behaves as one that nobody changes
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield Defect(node.lineno, f"negate {_line(node.test)}", lambda n=node: _negate(n))
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITES:
            yield Defect(node.lineno, f"other comparison in {_line(node)}", lambda n=node: _compare(n))
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield Defect(node.lineno, f"{node.value} is {not node.value}", lambda n=node: _set(n, not n.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield Defect(node.lineno, f"{node.value} is {node.value + 1}", lambda n=node: _set(n, n.value + 1))


def _classes(tree: ast.Module) -> list[ast.ClassDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def _line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:70]


def _order_matters(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether to swap two neighbours changes anything: one has an effect, or uses what the other sets."""
    pair = (first, second)
    if not all(isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign) for statement in pair):
        return False
    if any(isinstance(statement.value, ast.Constant) for statement in pair if isinstance(statement, ast.Expr)):
        return False  # a docstring
    effects = (ast.Call, ast.Attribute, ast.Subscript, ast.Yield, ast.Await)
    if any(isinstance(node, effects) for statement in pair for node in ast.walk(statement)):
        return True
    names = [{node.id for node in ast.walk(statement) if isinstance(node, ast.Name)} for statement in pair]
    return bool(names[0] & names[1])


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


class Run:
    """A copy of the checkout, and the tests that are run on it."""

    def __init__(self, tests: list[str]) -> None:
        self.tree = trees.new_folder()
        self._tests = tests
        self._reached = self.tree / "reached.json"
        self._limit = 3600.0
        for part in COPIED:
            shutil.copytree(trees.CHECKOUT / part, self.tree / part, ignore=shutil.ignore_patterns("*.pyc"))
        for file in (*trees.CHECKOUT.glob("*.toml"), *trees.CHECKOUT.glob("*.md"), trees.CHECKOUT / "Makefile"):
            shutil.copy(file, self.tree)
        for file in trees.CHECKOUT.glob("*.conf"):
            shutil.copy(file, self.tree)

    def learn(self) -> str:
        """Run the tests without a defect: which function each of them runs. Return what they say if one fails."""
        began = time.monotonic()
        passed, said = self._run({reached.WRITTEN: str(self._reached)})
        self._limit = SLOWER_AT_MOST * (time.monotonic() - began) + 30
        return "" if passed else said

    def survives(self, file: Path, defect: Defect, text: str) -> bool:
        whole = (self.tree / file).read_text()
        (self.tree / file).write_text(text)
        try:
            return self._run({reached.READ: str(self._reached), reached.CHANGED: f"{file}:{defect.line}"})[0]
        finally:
            (self.tree / file).write_text(whole)

    def _run(self, variables: dict[str, str]) -> tuple[bool, str]:
        """Return whether all tests pass, and the end of what they say."""
        argv = ["nice", sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KINGDOM_", "PYTEST_"))}
        with subprocess.Popen(
            [*argv, "-p", "tests.faults.reached", *self._tests],
            cwd=self.tree,
            env={**kept, "PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as child:
            try:
                said = child.communicate(timeout=self._limit)[0]
            except subprocess.TimeoutExpired:
                return _end(child), "hung"
        return child.returncode == 0, said[-1500:]


def _end(child: subprocess.Popen[str]) -> bool:
    """First INT, so that the tests remove what they have made. Always False."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=15)
            break
    return False


def main(room: str, count: int, seed: int, tests: list[str]) -> int:
    RESULTS.mkdir(parents=True, exist_ok=True)
    book = RESULTS / f"{room.replace('/', '.')}-{seed}.jsonl"
    rows = [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []
    known = {row["key"]: row for row in rows}
    run = Run(tests)
    if said := run.learn():
        print(f"{' '.join(tests)} fails without any defect: {said}", file=sys.stderr)
        return 1
    drawn = draw(room, count, seed)
    survivors = []
    for file, number in drawn:
        defect, text = planted((run.tree / file).read_text(), number)
        key = hashlib.sha256(f"{file} {' '.join(tests)} {text}".encode()).hexdigest()[:16]
        if key not in known:
            began = time.monotonic()
            outcome = "SURVIVED" if run.survives(file, defect, text) else "killed"
            known[key] = {
                "key": key,
                "outcome": outcome,
                "place": f"{file}:{defect.line}",
                "what": defect.what,
                "seconds": round(time.monotonic() - began, 1),
            }
            with book.open("a") as lines:
                lines.write(f"{json.dumps(known[key])}\n")
        row = known[key]
        line = f"{row['place']}: {row['what']}"
        survivors += [line] if row["outcome"] == "SURVIVED" else []
        print(f"{row['outcome']:8} {line} ({row['seconds']} s)", flush=True)
    print("\n".join(["", *sorted(survivors)]))
    caught = len(drawn) - len(survivors)
    print(f"random mutants of {room}, seed {seed}: {caught} of {len(drawn)} killed by {' '.join(tests)}")
    return 0


if __name__ == "__main__":
    room = os.environ.get("ROOM", "").removesuffix(".py")
    if not room or not changes.files_of(trees.CHECKOUT / "kingdom", room):
        sys.exit("random mutants: which room? make faults MUTANTS=random ROOM=king")
    tests = (os.environ.get("TESTS") or f"tests/{room.partition('/')[0]}").split()
    sys.exit(main(room, int(os.environ.get("COUNT") or 100), int(os.environ.get("SEED") or 1), tests))
