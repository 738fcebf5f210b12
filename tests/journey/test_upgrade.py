"""A home that an older Kingdom made, with that Kingdom's programs in it, works on with this one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journey.conftest import founded
from tests.journey.kingdoms import Kingdom

BEFORE = Path(__file__).with_name("before")
"""The programs as they were before the modules they import were moved into packages."""


def with_old_programs(kingdom: Kingdom) -> None:
    kingdom.ok("init", ".")
    for program in BEFORE.glob("*/run"):
        package = kingdom.places.package(program.parent.name)
        shutil.copy(program, package / "run")
        (package / "prompt.md").write_text("A prompt of my own.\n")


@pytest.fixture
def older() -> Iterator[Kingdom]:
    yield from founded("tmux", with_old_programs)


def test_old_programs_are_replaced_and_answer(older: Kingdom) -> None:
    assert "[start]" in (said := older.ok("say", "brief me"))
    assert "All is well." in said or "Look here:" in said
    assert "this is what the kingdom can do" in older.ok("say", "something that nobody knows").lower()
    for program in BEFORE.glob("*/run"):
        assert (older.places.package(program.parent.name) / "run").read_bytes() != program.read_bytes()
        assert (older.places.package(program.parent.name) / "prompt.md").read_text() == "A prompt of my own.\n"
    assert "Brought up to date" not in older.ok("up")
