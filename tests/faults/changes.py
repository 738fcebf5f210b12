"""Changes of a program by its syntax tree: names of variables, layout and comments do not matter.

A place is a package or a module, and in it, if need be, a qualified name: `kingdom.base.disk.atomic:Disk._draft`.
A pattern is Python source, in which a single capital letter stands for any expression (the same letter for the
same one) and `...` for any arguments or any block. A call may be named by its end alone: `fsync`, `tasks.create`.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

Captured = dict[str, ast.AST]
BLOCKS = ("body", "orelse", "finalbody", "handlers")


@dataclass(frozen=True)
class Change:
    """What to look for, and how to change it there. `apply` returns in how many places it did."""

    looked_for: str
    apply: Callable[[ast.AST], int]
    inserted: str = ""


@dataclass(frozen=True)
class Text:
    """A change of a file that is not Python: its place is its path."""

    old: str
    new: str


class DoesNotApply(AssertionError):
    """The program has changed: a mutant matches nowhere or twice, or its text uses an unknown name."""


def changed(root: Path, place: str, change: Change | Text) -> tuple[Path, str]:
    """Return the one file below the root that the change applies to, and its text with the change in it."""
    path, program = apply(root, place, change)
    return path, program if isinstance(program, str) else ast.unparse(ast.fix_missing_locations(program))


def apply(root: Path, place: str, change: Change | Text) -> tuple[Path, str | ast.Module]:
    """Return the one file below the root that the change applies to, and its text or tree with the change in it."""
    if isinstance(change, Text):
        text = (root / place).read_text()
        if text.count(change.old) != 1:
            raise DoesNotApply(f"{text.count(change.old)} times in {place}: {change.old}")
        return root / place, text.replace(change.old, change.new)
    module, _, name = place.partition(":")
    hits = []
    for path in files_of(root, module):
        tree = ast.parse(path.read_text())
        hits += [(path, tree)] * sum(change.apply(scope) for scope in scopes(tree, name))
    if len(hits) != 1:
        raise DoesNotApply(f"{len(hits)} times in {place}: {change.looked_for}")
    path, tree = hits[0]
    inserted = ast.parse(change.inserted)
    needed = identifiers(inserted, uses=True) - identifiers(inserted)
    if needed and (unknown := needed - identifiers(ast.parse(path.read_text()))):
        raise DoesNotApply(f"no {', '.join(sorted(unknown))} in {path.name}: {change.inserted}")
    return path, tree


def files_of(root: Path, module: str) -> list[Path]:
    path = root / module.replace(".", "/")
    return (
        sorted(path.rglob("*.py")) if path.is_dir() else [file for file in [path.with_suffix(".py")] if file.exists()]
    )


def scopes(tree: ast.Module, name: str) -> list[ast.AST]:
    """Return the tree itself, or the classes and functions of a qualified name."""
    found: list[ast.AST] = [tree]
    for part in name.split(".") if name else ():
        found = [node for scope in found for node in getattr(scope, "body", ()) if getattr(node, "name", None) == part]
    return found


def identifiers(tree: ast.AST, uses: bool = False) -> set[str]:
    """Return the names that a tree binds, or with `uses` the names and attributes of self that it reads."""
    found: set[str] = set() if uses else set(dir(builtins))
    for node in ast.walk(tree):
        match node:
            case ast.Name(name, ctx) if isinstance(ctx, ast.Load) == uses and not is_wildcard(node):
                found.add(name)
            case ast.Attribute(ast.Name("self"), name) if uses or not isinstance(node.ctx, ast.Load):
                found.add(name)
            case ast.arg(name) | ast.alias(_, str(name)) | ast.alias(name, None) if not uses:
                found.add(name.partition(".")[0])
            case ast.ClassDef(name) | ast.FunctionDef(name) if not uses:
                found.add(name)
            case ast.ExceptHandler(_, str(name)) if not uses:
                found.add(name)
    return found


# What a mutant may do.


def drop(call: str) -> Change:
    """Leave out the statement that is this call."""

    def apply(scope: ast.AST) -> int:
        return rewritten(scope, lambda part: isinstance(part, ast.Expr) and calls(part.value, call) and [ast.Pass()])

    return Change(f"a statement {call}", apply)


def swap(first: str, second: str, between: str = "") -> Change:
    """Exchange two statements of one block: the one with the first call in it and the one with the second."""
    pause = ast.parse(between).body

    def apply(scope: ast.AST) -> int:
        count = 0
        for block in list(blocks(scope)):
            places = [[at for at, part in enumerate(block) if has_call(part, call)] for call in (first, second)]
            if [len(found) for found in places] == [1, 1] and places[0] != places[1]:
                (one,), (other,) = places
                block[one], block[other] = block[other], block[one]
                block[max(one, other) : max(one, other)] = pause
                count += 1
        return count

    return Change(f"{first} and {second} in one block", apply, between)


def replace(old: str, new: str) -> Change:
    """Put an expression in place of an expression that matches, or statements in place of a statement."""
    pattern, by = ast.parse(old).body, ast.parse(new).body

    def apply(scope: ast.AST) -> int:
        if isinstance(pattern[0], ast.Expr) and isinstance(by[0], ast.Expr):
            return replaced(scope, pattern[0].value, by[0].value)
        return rewritten(scope, lambda part: same(pattern[0], part, found := {}) and [filled(new, found) for new in by])

    return Change(old, apply, new)


def before(call: str, statements: str) -> Change:
    """Insert statements before the statement that is this call."""
    return _beside(call, statements, lambda part, new: [*new, part])


def after(call: str, statements: str) -> Change:
    """Insert statements behind the statement that is this call."""
    return _beside(call, statements, lambda part, new: [part, *new])


def omit(call: str, keyword: str) -> Change:
    """Leave a keyword out of the arguments of a call."""

    def apply(scope: ast.AST) -> int:
        count = 0
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and calls(node, call) and keyword in [part.arg for part in node.keywords]:
                node.keywords = [part for part in node.keywords if part.arg != keyword]
                count += 1
        return count

    return Change(f"{call}(… {keyword}=)", apply)


def constant(name: str, value: str) -> Change:
    """Give a name another value where it is assigned."""

    def apply(scope: ast.AST) -> int:
        assigned = [part for block in blocks(scope) for part in block if isinstance(part, ast.Assign | ast.AnnAssign)]
        ours = [
            part
            for part in assigned
            if ast.unparse(getattr(part, "targets", [getattr(part, "target", part)])[0]) == name
        ]
        for part in ours:
            part.value = ast.parse(value, mode="eval").body
        return len(ours)

    return Change(f"{name} =", apply, value)


def body(statements: str) -> Change:
    """Give the named function another body."""

    def apply(scope: ast.AST) -> int:
        assert isinstance(scope, ast.FunctionDef)
        scope.body = ast.parse(statements).body
        return 1

    return Change("that function", apply, statements)


def _beside(call: str, statements: str, joined: Callable[[ast.stmt, list[ast.stmt]], list[ast.stmt]]) -> Change:
    by = ast.parse(statements).body

    def match(part: ast.AST) -> list[ast.stmt] | bool:
        if not isinstance(part, ast.Expr) or not calls(part.value, call, found := {}):
            return False
        return joined(part, [filled(new, found) for new in by])

    return Change(f"a statement {call}", lambda scope: rewritten(scope, match), statements)


# Patterns and trees.


def is_wildcard(node: object) -> bool:
    return isinstance(node, ast.Name) and len(node.id) == 1 and node.id.isupper()


def is_ellipsis(parts: object) -> bool:
    """Whether a list of arguments or statements is a bare `...`."""
    if not isinstance(parts, list) or len(parts) != 1:
        return False
    part = parts[0].value if isinstance(parts[0], ast.Expr) else parts[0]
    return isinstance(part, ast.Constant) and part.value is ...


def same(pattern: object, node: object, found: Captured) -> bool:
    """Return whether a node has the pattern's form; what its capital letters stand for is noted in `found`."""
    if isinstance(pattern, ast.Name) and is_wildcard(pattern):
        known = found.setdefault(pattern.id, node) if isinstance(node, ast.expr) else None
        return known is not None and isinstance(node, ast.AST) and ast.unparse(known) == ast.unparse(node)
    if type(pattern) is not type(node):
        return False
    if isinstance(pattern, ast.Call) and isinstance(node, ast.Call) and is_ellipsis(pattern.args):
        return same(pattern.func, node.func, found)
    if isinstance(pattern, ast.AST):
        return all(same(getattr(pattern, key), getattr(node, key), found) for key in pattern._fields)
    if isinstance(pattern, list | tuple) and isinstance(node, list | tuple):
        fits = len(pattern) == len(node) and all(same(*pair, found) for pair in zip(pattern, node, strict=True))
        return fits or is_ellipsis(pattern)
    return pattern == node


def calls(node: ast.AST, call: str, found: Captured | None = None) -> bool:
    """Return whether a node is this call: the whole of it, or the end of what is called (`fsync`, `tasks.create`)."""
    if not isinstance(node, ast.Call):
        return False
    pattern = ast.parse(call if call.endswith(")") else f"{call}(...)", mode="eval").body
    assert isinstance(pattern, ast.Call)
    found = {} if found is None else found
    if same(pattern.func, node.func, found) or f".{ast.unparse(node.func)}".endswith(f".{ast.unparse(pattern.func)}"):
        return is_ellipsis(pattern.args) or same((pattern.args, pattern.keywords), (node.args, node.keywords), found)
    return False


def has_call(tree: ast.AST, call: str) -> bool:
    return any(calls(node, call) for node in ast.walk(tree))


def filled(pattern: ast.stmt, found: Captured) -> ast.stmt:
    """Return the pattern with what was found in place of its capital letters."""

    class Filler(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return copy.deepcopy(found.get(node.id, node)) if is_wildcard(node) else node

    return Filler().visit(copy.deepcopy(pattern))  # type: ignore[no-any-return]


def blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in BLOCKS:
            if isinstance(block := getattr(node, name, None), list):
                yield block


def rewritten(scope: ast.AST, change: Callable[[ast.stmt], list[ast.stmt] | bool]) -> int:
    """Put what `change` returns in place of every statement for which it returns any."""
    count = 0
    for block in list(blocks(scope)):
        parts = [(part, change(part)) for part in block]
        count += sum(bool(new) for _, new in parts)
        block[:] = [statement for part, new in parts for statement in (new if isinstance(new, list) else [part])]
    return count


def replaced(scope: ast.AST, pattern: ast.expr, by: ast.AST) -> int:
    """Put an expression in place of every one that matches."""
    count = 0

    class Replacer(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            nonlocal count
            if same(pattern, node, found := {}):
                count += 1
                return filled(by, found)  # type: ignore[arg-type]
            return self.generic_visit(node)

    Replacer().visit(scope)
    return count
