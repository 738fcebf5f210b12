"""Find every default time in the program: constants, defaults of parameters, arguments, schemas, the page, scripts.

python -m tests.faults.timers.finder prints those that tests/faults/timers/timers.txt does not list.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).resolve().parents[3]
_WORDS = (
    "seconds|secs|sec|ms|millis|milliseconds|minutes|hours|days|timeouts?|intervals?|ttl|periods?|deadlines?|linger|keepalive"
    "|delays?|pauses?|patience|grace|waits?|age|polls?|soon|until|expires|expiry|lifetime|backoff|rests?|threshold|after"
)
_IS_A_TIME = re.compile(rf"(?:^|_)(?:{_WORDS})(?:_|$)|keep_alive", re.IGNORECASE)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NO_TIMES = re.compile(r"^_MS_")
"""Flags of mount(2)."""
_OF_SCRIPTS = re.compile(r"\$\{(KINGDOM_[A-Z_]*(?:DELAY|RUN|WINDOW)[A-Z_]*):-(\d+)\}")
_OF_PAGES = re.compile(r"\b(\w*_MS|reconnectionDelay\w*)\s*[:=]\s*([\d_]+)")


class Timer(NamedTuple):
    """A default time."""

    file: str
    #: A constant, `function(parameter)`, `called(argument)`, or the path of a key.
    name: str
    value: str

    @property
    def key(self) -> tuple[str, str]:
        """What names it in the table: a value may change."""
        return self.file, self.name


def is_a_time(name: str) -> bool:
    """Return whether a name says that a number is a time."""
    plain = _HUMP.sub("_", name).replace(".", "_")
    return bool(_IS_A_TIME.search(plain)) and not _NO_TIMES.search(name)


def modules(root: Path = CHECKOUT) -> list[Path]:
    """Return the modules of the program, without the stand-ins for outside services."""
    return [path for path in sorted((root / "kingdom").rglob("*.py")) if "demo" not in path.parts]


def timers(root: Path = CHECKOUT) -> list[Timer]:
    """Return all default times of a checkout."""
    found = [timer for path in modules(root) for timer in _of_module(path, root)]
    found += [timer for path in sorted((root / "schemas").rglob("*.json")) for timer in _of_schema(path, root)]
    pages = (root / "kingdom/hall/gateway/pages").rglob("*.js")
    found += [timer for path in sorted(pages) if "vendor" not in path.parts for timer in _by(_OF_PAGES, path, root)]
    return list(dict.fromkeys([*found, *_by(_OF_SCRIPTS, root / "bin/role", root)]))


def _by(pattern: re.Pattern[str], path: Path, root: Path) -> Iterator[Timer]:
    for name, value in pattern.findall(path.read_text()):
        yield Timer(str(path.relative_to(root)), name, value)


def _of_schema(path: Path, root: Path) -> Iterator[Timer]:
    def walk(part: dict[str, Any], keys: tuple[str, ...]) -> Iterator[Timer]:
        default = part.get("default")
        is_number = isinstance(default, int | float) and not isinstance(default, bool) and default
        if is_number and any(is_a_time(key) for key in keys):
            yield Timer(str(path.relative_to(root)), ".".join(keys), str(default))
        for key, inner in {**part.get("properties", {}), **part.get("$defs", {})}.items():
            yield from walk(inner, (*keys, key))

    yield from walk(json.loads(path.read_text()), ())


def _of_module(path: Path, root: Path) -> Iterator[Timer]:
    tree = ast.parse(path.read_text())
    file = str(path.relative_to(root))
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]:
        owner = scope.name if isinstance(scope, ast.ClassDef) else ""
        for name, value in _assigned(scope.body):
            if is_a_time(name) or "Timeouts" in owner:
                yield from _timer(file, f"{owner}.{name}" if owner else name, value)
    for node in ast.walk(tree):
        for name, value in _given(node):
            yield from _timer(file, name, value)


def _timer(file: str, name: str, value: ast.expr) -> Iterator[Timer]:
    number = _number(value)
    if number:
        yield Timer(file, name, f"{number:g}")


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for line in body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
            yield line.target.id, line.value
        elif isinstance(line, ast.Assign):
            for target in line.targets:
                if isinstance(target, ast.Name):
                    yield target.id, line.value
                elif isinstance(target, ast.Tuple) and isinstance(line.value, ast.Tuple):
                    yield from (
                        (name.id, value)
                        for name, value in zip(target.elts, line.value.elts, strict=True)
                        if isinstance(name, ast.Name)
                    )


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield defaults of parameters, named arguments, and values of keys that are written as strings."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        given = node.args
        positional = [*given.posonlyargs, *given.args]
        defaults = [*([None] * (len(positional) - len(given.defaults))), *given.defaults, *given.kw_defaults]
        for parameter, default in zip([*positional, *given.kwonlyargs], defaults, strict=True):
            if default is not None and is_a_time(parameter.arg):
                yield f"{node.name}({parameter.arg})", default
    elif isinstance(node, ast.Call):
        for argument in node.keywords:
            if argument.arg and is_a_time(argument.arg):
                yield f"{ast.unparse(node.func)}({argument.arg})", argument.value
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and is_a_time(key.value):
                yield f"[{key.value}]", value


def _number(value: ast.expr) -> float | None:
    """Return the value of a number, or of a product of numbers."""
    if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and not isinstance(value.value, bool):
        return float(value.value)
    if isinstance(value, ast.BinOp) and (left := _number(value.left)) and (right := _number(value.right)):
        if isinstance(value.op, ast.Mult):
            return left * right
        if isinstance(value.op, ast.Pow):
            return left**right
        if isinstance(value.op, ast.LShift):
            return left * 2**right
    return None


def main() -> None:
    from tests.faults.timers.table import rows

    known = {row.key for row in rows()}
    for timer in timers():
        if timer.key not in known:
            print(f"{timer.file} {timer.name} | {timer.value} |")


if __name__ == "__main__":
    main()
