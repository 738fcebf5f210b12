"""`python -m bench.house [TREE ...]`: the size of checkouts, side by side: code lines by product, names, words."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PRODUCTS = ("base", "court", "mq", "hall", "council", "cli", "demo")
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
GENERATED = ("docs/reference/", "docs/benchmarks.md")


def main(trees: list[Path]) -> None:
    columns = [dict(figures(tree)) for tree in trees]
    for name in columns[0]:
        print(f"{name:44}" + "".join(f"{column.get(name, 0):>10,}" for column in columns))


def figures(tree: Path) -> Iterator[tuple[str, int]]:
    modules = sorted((tree / "kingdom").rglob("*.py"))
    lines = {path: code_lines(path) for path in modules}
    for product in PRODUCTS:
        yield (
            f"code lines in {product}/",
            sum(lines[path] for path in modules if path.is_relative_to(tree / "kingdom" / product)),
        )
    yield "code lines in kingdom/ without demo/", sum(n for path, n in lines.items() if "demo" not in path.parts)
    yield "modules in kingdom/", len(modules)
    for folder in ("tests", "bench"):
        yield f"code lines in {folder}/", sum(map(code_lines, sorted((tree / folder).rglob("*.py"))))
    names = Counter(name for path in modules for name in class_names(path))
    yield "class names used more than once", sum(count > 1 for count in names.values())
    yield "classes that share a name", sum(count for count in names.values() if count > 1)
    pages = [path for path in (tree / "docs").rglob("*.md") if not str(path.relative_to(tree)).startswith(GENERATED)]
    yield "words in docs/ that people wrote", sum(len(path.read_text().split()) for path in pages)
    yield "words in docs/, all", sum(len(path.read_text().split()) for path in (tree / "docs").rglob("*.md"))


def code_lines(path: Path) -> int:
    """Count the lines that hold code: no blank lines, comments and docstrings."""
    source = path.read_text()
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT and token.type != tokenize.ENDMARKER:
            held.update(range(token.start[0], token.end[0] + 1))
    return len(held.difference(*docstrings(ast.parse(source))))


def docstrings(tree: ast.Module) -> Iterator[range]:
    """Yield the lines of each string that is a statement: docstrings, and those after constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield range(node.lineno, (node.end_lineno or node.lineno) + 1)


def class_names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_")


if __name__ == "__main__":
    main([Path(tree) for tree in sys.argv[1:]] or [Path(__file__).resolve().parent.parent])
