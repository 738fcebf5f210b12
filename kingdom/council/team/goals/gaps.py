"""A list of source files that no test names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache

from kingdom.council.team.goals.base import Goal, GoalPart, is_in, keys_of
from kingdom.council.team.goals.repository import Repository, code, quoted

SOURCES = (".py", ".js", ".ts", ".tsx", ".jsx", ".go", ".rs", ".rb", ".java", ".kt", ".c", ".cc", ".cpp", ".sh")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]+")
NO_MODULES = frozenset(("__init__", "__main__", "conftest", "setup", "index", "mod", "main"))


def parts(repository: Repository) -> list[GoalPart]:
    """Return a part for each folder with sources, the last one for all that are left."""
    keys = keys_of(map(_top, _sources(repository)))
    return [GoalPart(key, _title(key), "testing") for key in keys or [""]]


def facts(repository: Repository, key: str) -> list[str]:
    named = _words_of_tests(repository.folder)
    found = []
    for path in _sources(repository):
        stem = os.path.splitext(os.path.basename(path))[0]
        if is_in(_top(path), key) and stem not in NO_MODULES and stem not in named:
            found.append(f"- {code(path)}: no test names {code(stem)}")
    return found


def _top(path: str) -> str:
    return os.path.dirname(path).partition("/")[0]


def _sources(repository: Repository) -> Iterator[str]:
    return (path for path in repository.files if path.endswith(SOURCES) and not _is_test(path))


def _is_test(path: str) -> bool:
    name = os.path.basename(path).lower()
    folders = path.lower().split("/")[:-1]
    return bool({"test", "tests", "spec", "__tests__"} & set(folders)) or bool(
        re.match(r"tests?[_.-]|.*[_.-](test|spec)s?\.", name)
    )


@cache
def _words_of_tests(folder: str) -> frozenset[str]:
    repository = Repository(folder)
    tests = [path for path in repository.files if _is_test(path)]
    words = {word for path in tests for word in WORD.findall(repository.text(path))}
    names = {re.sub(r"^tests?_|[._-](tests?|spec)$", "", os.path.splitext(os.path.basename(path))[0]) for path in tests}
    return frozenset(words | names)


def _title(key: str) -> str:
    if not key:
        return "Without a test at the top"
    return "Without a test elsewhere" if key.startswith("+") else f"Without a test in {quoted(key)}"


def heading(repository: Repository) -> str:
    return f"What no test names in {repository.name}"


WORDS = (("test", "gap"), ("untested",), ("no test",), ("missing", "test"), ("without", "test"), ("lack", "test"))
GAPS = Goal("a list of what has no test", "test-gaps.md", WORDS, parts, facts, heading)
