"""`make faults MUTANTS=random ROOM=court/king [COUNT=100 SEED=1 TESTS=tests/court/king]`: random small defects.

Each is put into a copy of the checkout, one at a time, and the quick tests of its room are run on it:
`killed` when one of them fails or hangs, and does so again, `SURVIVED` when all pass. The same seed draws the same
defects. Only tests that run a changed line meet it, the quickest first: tests/faults/reached.py. One outside of
functions meets those that run anything of its file.
What was found, and which lines each test runs, is kept in build/mutants, so that a run that was ended goes on where it
was; `make clean` forgets it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import changes, lines, reached, trees

RESULTS = trees.CHECKOUT / "build" / "mutants"
LARGEST_FILE, MOST_MEMORY = 1 << 30, 4 << 30
"""Bytes that a test with a defect may write into a file, and that a process of it may take."""
MOST_HARMLESS = 5
"""Of a hundred that are drawn so many are left out of the score, with a reason in equivalent.txt each."""
COPIED = ("bin", "config", "docs", "generals", "kingdom", "schemas", "scripts", "tests")
OPPOSITES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}


@dataclass(frozen=True)
class Defect:
    """One defect that a tree can be given; `put` changes that very tree."""

    line: int
    what: str
    put: Callable[[], None]
    #: Whether it can change anything, as far as that is seen without knowing what is called.
    counts: bool = True


def defects(tree: ast.Module) -> Iterator[Defect]:
    """Yield every small defect for a tree, always in the same order."""
    for block in changes.blocks(tree):
        for at, part in enumerate(block):
            if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
                yield Defect(part.lineno, f"drop {_line(part)}", lambda b=block, i=at: b.__setitem__(i, ast.Pass()))
            if at and _order_matters(block[at - 1], part):
                what = f"swap {_line(block[at - 1])} | {_line(part)}"
                needed = not _independent(block[at - 1], part)
                yield Defect(block[at - 1].lineno, what, lambda b=block, i=at: _swap(b, i), needed)
    decorators = {id(node) for about in _classes(tree) for part in about.decorator_list for node in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in decorators:
            continue  # a record that is not frozen behaves as one that nobody changes
        if isinstance(node, ast.If) and _line(node.test) == "TYPE_CHECKING":
            continue  # only types are imported there
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield Defect(node.lineno, f"negate {_line(node.test)}", lambda n=node: _negate(n), not _is_main(node.test))
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITES:
            yield Defect(
                node.lineno, f"other comparison in {_line(node)}", lambda n=node: _compare(n), not _is_main(node)
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield Defect(node.lineno, f"{node.value} is {not node.value}", lambda n=node: _set(n, not n.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield Defect(node.lineno, f"{node.value} is {node.value + 1}", lambda n=node: _set(n, n.value + 1))


def _is_main(test: ast.expr) -> bool:
    return _line(test) == "__name__ == '__main__'"


def _classes(tree: ast.Module) -> list[ast.ClassDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def _line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:70]


def _order_matters(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether to swap two neighbours changes anything: a call, or what the other one sets."""
    pair = (first, second)
    if not all(isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign) for statement in pair):
        return False
    if any(isinstance(statement.value, ast.Constant) for statement in pair if isinstance(statement, ast.Expr)):
        return False  # a docstring
    if any(_has_call(statement) for statement in pair):
        return True
    return bool(_set_by(first) & _used_by(second) or _set_by(second) & (_used_by(first) | _set_by(first)))


def _independent(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether two values that do not need each other are computed, or one and a line of the log.

    Or a value is only given another name, or two entries of one thing are set.
    """
    pair = (first, second)
    needed = _set_by(first) & (_used_by(second) | _set_by(second)) or _set_by(second) & _used_by(first)
    if not needed and any(isinstance(part, ast.Assign) and not _has_call(part) for part in pair):
        return True
    if all(".set(" in _line(part) and isinstance(part, ast.Expr) for part in pair):
        heads = [_line(part).partition(",")[0].partition("(") for part in pair]
        return heads[0][0] == heads[1][0] and heads[0] != heads[1]
    values = sum(isinstance(statement, ast.Assign) for statement in pair)
    lines = sum(isinstance(statement, ast.Expr) and "log." in _line(statement).partition("(")[0] for statement in pair)
    if values == 0 or values + lines < len(pair):
        return False
    return not needed


def _has_call(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call | ast.Yield | ast.Await) for node in ast.walk(statement))


def _set_by(statement: ast.stmt) -> set[str]:
    """Return what a statement sets: `a`, `a.b`, `a[b]`; not the names that only a comprehension knows."""
    within = [node.target for node in ast.walk(statement) if isinstance(node, ast.comprehension)]
    own = {id(part) for target in within for part in ast.walk(target)}
    targets = [node for node in ast.walk(statement) if isinstance(getattr(node, "ctx", None), ast.Store)]
    return {ast.unparse(target) for target in targets if id(target) not in own}


def _used_by(statement: ast.stmt) -> set[str]:
    return {ast.unparse(node) for node in ast.walk(statement) if isinstance(getattr(node, "ctx", None), ast.Load)}


def _swap(block: list[ast.stmt], at: int) -> None:
    block[at - 1], block[at] = block[at], block[at - 1]


def _negate(node: ast.If | ast.While | ast.IfExp) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _compare(node: ast.Compare) -> None:
    node.ops[0] = OPPOSITES[type(node.ops[0])]()


def _set(node: ast.Constant, value: float) -> None:
    node.value = value


def draw(room: str, count: int, seed: int) -> list[tuple[Path, int]]:
    """Return so many defects of a room, less those that change nothing: its files, and the number of each in it.

    Each has its own lot, so that a change elsewhere in the room leaves the others drawn.
    """
    files = changes.files_of(trees.CHECKOUT, f"kingdom.{room.replace('/', '.')}")
    lots = []
    for path in files:
        file = path.relative_to(trees.CHECKOUT)
        seen: Counter[str] = Counter()
        for number, defect in enumerate(defects(ast.parse(path.read_text()))):
            seen[defect.what] += 1
            lot = _digest(str(seed), str(file), defect.what, str(seen[defect.what]))
            lots.append((lot, file, number, defect.counts))
    return [(file, number) for _, file, number, counts in sorted(lots)[:count] if counts]


def planted(text: str, number: int) -> tuple[Defect, str]:
    """Return a defect, and the module's text with it."""
    tree = ast.parse(text)
    defect = list(defects(tree))[number]
    defect.put()
    return defect, ast.unparse(ast.fix_missing_locations(tree))


def touched(text: str, line: int) -> range:
    """Return the lines of the innermost statement around a line, of a block only its head."""
    around = [
        (first, node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and (first := _first_line(node)) <= line <= (node.end_lineno or 0)
    ]
    first, inner = max(around, key=lambda found: (found[0], -(found[1].end_lineno or 0)))
    last = inner.body[0].lineno - 1 if isinstance(getattr(inner, "body", None), list) else inner.end_lineno
    return range(first, max(first, last or 0) + 1)


def _first_line(statement: ast.stmt) -> int:
    return min([statement.lineno, *(decorator.lineno for decorator in getattr(statement, "decorator_list", ()))])


class Run:
    """A copy of the checkout, and the tests that are run on it: collected once, and forked for each defect."""

    def __init__(self, tests: list[str], known: Path) -> None:
        self.tree = trees.new_folder()
        self._tests = tests
        self._kept = known
        self._known = self.tree / "known.json"  # its own: another run may be at work on another version
        for part in COPIED:
            shutil.copytree(trees.CHECKOUT / part, self.tree / part)
        for file in (*trees.CHECKOUT.glob("*.toml"), *trees.CHECKOUT.glob("*.md"), trees.CHECKOUT / "Makefile"):
            shutil.copy(file, self.tree)
        for file in trees.CHECKOUT.glob("*.conf"):
            shutil.copy(file, self.tree)
        (self.tree / "sitecustomize.py").write_text(lines.SITE)
        trees.compile_program(self.tree)
        lines.begin(self.tree, "collection")
        (asked, asks), (tells, told) = os.pipe(), os.pipe()
        self._server = self._pytest(tests, {reached.SERVED: f"{asked} {told}"}, asked, told)
        os.close(asked)
        os.close(told)
        self._asks, self._tells = os.fdopen(asks, "w"), os.fdopen(tells)

    def learn(self) -> str:
        """Run the new tests without a defect: which lines each of them runs. Return what those say that fail."""
        tests = [file for part in self._tests for file in files_below(self.tree / part)]
        program = (self.tree / "kingdom").rglob("*.py")
        digests = {str(file.relative_to(self.tree)): _digest(file.read_text()) for file in (*tests, *program)}
        for folder in {file.parent for file in tests}:
            helpers = [file.read_text() for file in sorted(folder.glob("*.py")) if not file.name.startswith("test_")]
            digests[str(folder.relative_to(self.tree))] = _digest(*helpers)
        return self._ask({"learn": str(self._kept), "known": str(self._known), "digests": digests})

    def caught_by(self, file: Path, number: int) -> str:
        """Return what the first test that fails says; "" is that the defect survives."""
        whole = (self.tree / file).read_text()
        defect, text = planted(whole, number)
        self._put(file, text)
        try:
            changed = touched(whole, defect.line)
            job = {"file": str(file), "lines": [changed.start, changed.stop], "number": number, "whole": whole}
            said = self._ask({**job, "known": str(self._known)})
            if said != reached.ALONE:
                return said
            said = self._alone(str(file))
            return said and self._alone(str(file))
        finally:
            self._put(file, whole)

    def end(self) -> None:
        self._asks.close()
        self._server.wait()

    def _put(self, file: Path, text: str) -> None:
        (self.tree / file).write_text(text)
        trees.compile_file(self.tree / file)

    def _ask(self, job: dict[str, object]) -> str:
        self._asks.write(json.dumps(job) + "\n")
        self._asks.flush()
        line = self._tells.readline()
        return str(json.loads(line)) if line else "the tests cannot be collected"

    def _alone(self, changed: str) -> str:
        """Run the tests in a fresh process: what is only computed at import, or when tests are collected, is seen."""
        known = json.loads(self._known.read_text())
        meet = {name: row for name, row in known.items() if changed in row["lines"]} or known
        files = sorted({name.partition("::")[0] for name in meet})
        limit = reached.SLOWER_AT_MOST * sum(row["seconds"] for row in meet.values()) + 60
        with self._pytest(files, {reached.KNOWN: str(self._known), reached.CHANGED: changed}) as child:
            try:
                said = child.communicate(timeout=limit)[0]
            except subprocess.TimeoutExpired:
                _end(child)
                return "hung"
        return said[-1500:] if child.returncode else ""

    def _pytest(self, tests: list[str], variables: dict[str, str], *descriptors: int) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "tests.faults.reached"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KINGDOM_", "PYTEST_"))}
        return subprocess.Popen(
            [*argv, *tests],
            cwd=self.tree,
            env={**kept, "PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1", **variables},
            stdout=subprocess.DEVNULL if descriptors else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=descriptors,
            start_new_session=True,
            preexec_fn=_limit,
        )


def _limit() -> None:
    """Bound what is used by default; a test may set other bounds for its own processes."""
    for kind, most in ((resource.RLIMIT_FSIZE, LARGEST_FILE), (resource.RLIMIT_DATA, MOST_MEMORY)):
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def files_below(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


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
    tested = _digest(*(file.read_text() for part in tests for file in files_below(trees.CHECKOUT / part)))
    known = {row["key"]: row for row in rows if _still_holds(row, tests, tested)}
    places = draw(room, count, seed)
    texts = {file: (trees.CHECKOUT / file).read_text() for file, _ in places}
    drawn = [(file, number, *planted(texts[file], number)) for file, number in places]
    run: Run | None = None
    survivors, harmless = [], 0
    for file, number, defect, changed in drawn:
        key = _digest(str(file), changed)
        if key not in known:
            run = run or _learned(tests, book.with_name("lines.json"))
            began = time.monotonic()
            said = run.caught_by(file, number)
            known[key] = {
                "key": key,
                "outcome": "killed" if said else "SURVIVED",
                "place": f"{file}:{defect.line}",
                "what": defect.what,
                "seconds": round(time.monotonic() - began, 1),
                "by": said.partition(":\n")[0][:300],
                "tests": tests,
                "tested": tested,
            }
            with book.open("a") as lines:
                lines.write(f"{json.dumps(known[key])}\n")
        row = known[key]
        name = f"{file} {_function(texts[file], defect.line)}: {defect.what}"
        outcome = row["outcome"]
        if outcome == "SURVIVED" and name in equivalent():
            outcome, harmless = "the same", harmless + 1
        elif outcome == "SURVIVED":
            survivors.append(name)
        print(f"{outcome:8} {file}:{defect.line}: {defect.what} ({row['seconds']} s)", flush=True)
    if run is not None:
        run.end()
    print("\n".join(["", *sorted(survivors)]))
    said = score(len(drawn), harmless, len(survivors))
    print(f"random mutants of {room}, seed {seed}: {said} by {' '.join(tests)}")
    return 0


def _learned(tests: list[str], known: Path) -> Run:
    """Return the tests, once it is known which lines each of them runs."""
    run = Run(tests, known)
    if said := run.learn():
        print(f"not used, as it fails without any defect: {said}", file=sys.stderr)
    return run


def score(drawn: int, harmless: int, survivors: int) -> str:
    """Return how many were killed of those that count: at most five of a hundred may be said to change nothing."""
    left_out = min(harmless, drawn * MOST_HARMLESS // 100)
    above = f" ({harmless - left_out} of them count as not killed)" if harmless > left_out else ""
    caught, of = drawn - harmless - survivors, drawn - left_out
    return f"{drawn} drawn, {harmless} change nothing{above}, {caught} of {of} ({100 * caught // of} %) killed"


def _still_holds(row: dict[str, Any], tests: list[str], tested: str) -> bool:
    """Whether what was found earlier says what would be found now: more tests kill no less."""
    if row["outcome"] == "killed":
        return set(row.get("tests", ["?"])) <= set(tests)
    return bool(row.get("tested") == tested)


def equivalent() -> dict[str, str]:
    """Return the defects that change no behaviour, and why: lines of equivalent.txt, as the tool prints survivors."""
    lines = Path(__file__).with_name("equivalent.txt").read_text().splitlines()
    return dict(line.rsplit("  # ", 1) for line in lines if line)


def _function(text: str, line: int) -> str:
    """Return the qualified name of the innermost function or class around a line."""
    names, nodes = [], list(ast.parse(text).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.lineno <= line <= (node.end_lineno or 0):
            names.append(node.name)
            nodes = list(node.body)
        elif not isinstance(node, ast.FunctionDef | ast.ClassDef):
            nodes += [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt)]
    return ".".join(names) or "module"


def _digest(*texts: str) -> str:
    return hashlib.sha256(" ".join(texts).encode()).hexdigest()[:16]


if __name__ == "__main__":
    room = os.environ.get("ROOM", "").removesuffix(".py")
    if not room or not changes.files_of(trees.CHECKOUT / "kingdom", room):
        sys.exit("random mutants: which room? make faults MUTANTS=random ROOM=court/king")
    tests = (os.environ.get("TESTS") or f"tests/{'/'.join(room.split('/')[:2])}").split()
    sys.exit(main(room, int(os.environ.get("COUNT") or 100), int(os.environ.get("SEED") or 1), tests))
