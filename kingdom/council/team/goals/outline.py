"""The outline of a README, made of what the repository holds."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kingdom.base.words import count
from kingdom.council.team.goals.base import Goal, GoalPart
from kingdom.council.team.goals.repository import Repository, code, quoted

MOST = 12
"""Lines of a part."""


def parts(_: Repository) -> list[GoalPart]:
    return [GoalPart(key, title, skill) for key, (title, skill, _) in PARTS.items()]


def facts(repository: Repository, key: str) -> list[str]:
    return PARTS[key][2](repository)[:MOST]


def heading(repository: Repository) -> str:
    return quoted(_text(_manifest(repository).get("name"))) or repository.name


def about(repository: Repository) -> list[str]:
    """Say what it is: its name and description as its manifest has them, its languages, its licence."""
    manifest, found = _manifest(repository), []
    if description := _text(manifest.get("description")):
        found.append(f"- in one line: {quoted(description)}")
    if first := _first_heading(repository):
        found.append(f"- the README of today begins with {quoted(first)}")
    if version := _text(manifest.get("version")):
        found.append(f"- version {quoted(version)}")
    endings = Counter(os.path.splitext(path)[1] for path in repository.files)
    known = [f"{LANGUAGES[ending]} ({number})" for ending, number in endings.most_common() if ending in LANGUAGES]
    if known:
        found.append(f"- files by language: {', '.join(known[:5])}")
    found.append(f"- {count(len(repository.files), 'file')} in all")
    return found


def layout(repository: Repository) -> list[str]:
    """Say what lies where, by folders at the top."""
    tops = Counter(path.partition("/")[0] for path in repository.files if "/" in path)
    return [f"- {code(f'{top}/')}: {count(number, 'file')}" for top, number in sorted(tops.items())]


def start(repository: Repository) -> list[str]:
    """Say how it is set up and started: what it needs, its commands."""
    found = [f"- requirements: {code(path)}" for path in REQUIREMENTS if repository.has(path)]
    manifest = _manifest(repository)
    scripts = manifest.get("scripts")
    if isinstance(scripts, dict):
        found += [f"- command {code(str(name))}: {code(str(call))}" for name, call in sorted(scripts.items())]
    targets = re.findall(r"^([a-z][\w-]*):(?!=)", repository.text("Makefile"), re.MULTILINE)
    found += [f"- {code(f'make {target}')}" for target in dict.fromkeys(targets)]
    return found


def develop(repository: Repository) -> list[str]:
    """Say how it is worked on: tests, the tools that are configured."""
    tests = Counter(path.partition("/")[0] for path in repository.files if re.search(r"(^|/|_)tests?(/|_|\.)", path))
    found = [f"- tests in {code(top)}: {count(number, 'file')}" for top, number in sorted(tests.items())]
    return found + [f"- see {code(path)}" for path in TOOLS if repository.has(path)]


def further(repository: Repository) -> list[str]:
    """Say what else there is to read, and the licence."""
    found = [
        f"- licence: {code(path)}"
        for path in repository.files
        if re.fullmatch(r"(?i)(licen[cs]e|copying)(\.\w+)?", path)
    ]
    papers = [path for path in repository.files if path.endswith((".md", ".rst")) and path.count("/") <= 1]
    return found + [f"- {code(path)}" for path in papers]


def _manifest(repository: Repository) -> dict[str, Any]:
    """Return what pyproject.toml, Cargo.toml or package.json say of the project."""
    with suppress(tomllib.TOMLDecodeError):
        for path, key in (("pyproject.toml", "project"), ("Cargo.toml", "package")):
            found = tomllib.loads(repository.text(path)).get(key)
            if isinstance(found, dict):
                return found
    with suppress(ValueError, RecursionError):
        found = json.loads(repository.text("package.json"))
        if isinstance(found, dict):
            return found
    return {}


def _first_heading(repository: Repository) -> str:
    for path in ("README.md", "README.rst", "README.txt", "README"):
        for line in repository.text(path).splitlines():
            if line.strip("# =\t"):
                return line.strip("# \t")
    return ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


LANGUAGES = {
    ".py": "Python", ".js": "JavaScript", ".ts": "TypeScript", ".go": "Go", ".rs": "Rust", ".rb": "Ruby",
    ".java": "Java", ".kt": "Kotlin", ".c": "C", ".h": "C", ".cc": "C++", ".cpp": "C++", ".sh": "shell", ".sql": "SQL",
}  # fmt: skip
REQUIREMENTS = (
    *("pyproject.toml", "requirements.txt", "requirements.lock", "package.json", "go.mod", "Cargo.toml", "Gemfile"),
    *("pom.xml", "build.gradle", "Containerfile", "Dockerfile", "compose.yaml"),
)
TOOLS = ("CONTRIBUTING.md", "Makefile", "tox.ini", "noxfile.py", "ruff.toml", "mypy.ini", "setup.cfg", "tsconfig.json")
PARTS: dict[str, tuple[str, str, Callable[[Repository], list[str]]]] = {
    "about": ("What it is", "reading", about),
    "layout": ("What lies where", "reading", layout),
    "start": ("Getting started", "running", start),
    "develop": ("Working on it", "testing", develop),
    "further": ("Further reading", "reading", further),
}
OUTLINE = Goal("the outline of a README", "README-outline.md", (("readme",),), parts, facts, heading)
