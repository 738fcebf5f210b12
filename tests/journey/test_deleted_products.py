"""A kingdom without one of its products works as the whole one does.

A product is its folder, its processes, its row, its configuration and schemas, and what MORE names.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kingdom import wings
from kingdom.base import tables
from tests.faults import trees
from tests.test_house import tracked

MORE = {
    "mq": ["bin/yirangmq"],
    "hall": [],
    "council": ["kingdom/team.py", "generals/gen-council", "scripts"],
}
COMMANDS = (
    "init .",
    "status --json",
    "doctor",
    "say --no-wait hello",
    "why",
    "why no-such-id",
    "events",
    "tasks",
    "queue",
    "generals",
    "report",
    "metrics",
    "prune --dry-run",
    "fsck",
    "backup ../copy.tar.gz",
    "--help",
)
LOAD_ALL = """
import importlib, pkgutil, kingdom
for module in pkgutil.walk_packages(kingdom.__path__, "kingdom."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
FAST_TESTS = ("tests/base", "tests/court/king", "tests/court/rules", "tests/court/soldiers", "tests/court/general")


def delete(tree: Path, product: str) -> None:
    row = tables.load(f"kingdom.{product}.wing:WING")
    paths = [f"kingdom/{product}", f"tests/{product}", f"config/default/{product}.yaml", f"schemas/{product}"]
    paths += [f"schemas/config/{product}.schema.json", *MORE[product]]
    paths += [path for role in row.roles for path in (f"kingdom/{role.name}.py", f"bin/{role.name}")]
    for path in (tree / path for path in paths):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    table = tree / "kingdom/wings.py"
    lines = table.read_text().splitlines(keepends=True)
    named = [line.replace(f'"{product}", ', "").replace(f', "{product}"', "") for line in lines]
    assert named != lines
    table.write_text("".join(named))
    trees.compile_file(table)


@cache
def said_by(tree: Path) -> dict[str, int]:
    """Return the exit code of each command on a new home."""
    home = trees.new_folder() / "home"
    home.mkdir(mode=0o700)
    return dict(_codes(tree, home))


def _codes(tree: Path, home: Path) -> Iterator[tuple[str, int]]:
    for words in COMMANDS:
        said = subprocess.run(
            [sys.executable, "-P", "-m", "kingdom", *words.split()],
            cwd=home,
            env=trees.environment(tree, home),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in said.stderr, f"{words}: {said.stderr}"
        yield words, said.returncode


@pytest.fixture(scope="module", params=wings.WINGS)
def tree(request: pytest.FixtureRequest) -> Path:
    """The program without one of its products."""
    folder = trees.new_folder()
    trees.copy_program(trees.CHECKOUT, folder)
    delete(folder, request.param)
    return folder


def test_every_module_that_is_left_can_be_loaded(tree: Path) -> None:
    done = trees.run(tree, trees.new_folder(), ["-c", LOAD_ALL])
    assert done.returncode == 0, done.stderr


def test_every_command_that_is_left_ends_as_in_the_whole_kingdom(tree: Path) -> None:
    assert said_by(tree) == said_by(trees.program())


@trees.in_campaigns
@pytest.mark.parametrize("product", wings.WINGS)
def test_the_fast_tests_of_what_is_left_pass(product: str) -> None:
    checkout = trees.new_folder()
    for path in tracked(trees.CHECKOUT):
        target = checkout / path.relative_to(trees.CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    delete(checkout, product)
    done = trees.run(checkout, trees.new_folder(), ["-m", "pytest", "-q", "-n", "2", *FAST_TESTS], timeout=1200)
    assert done.returncode == 0, done.stdout[-4000:]
