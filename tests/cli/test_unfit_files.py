"""Whatever lies in the queues, and whatever somebody types: commands that look go on looking."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.base.home.states import MOVES
from tests.cli.conftest import Terminal

ESCAPE = "\x1b[31m"

UNFIT: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link to itself": (lambda path: path.symlink_to(path.name), "it cannot be shown: a symbolic link"),
    "a link to a secret": (lambda path: path.symlink_to("/etc/passwd"), "it cannot be shown: a symbolic link"),
    "a pipe": (os.mkfifo, "it cannot be shown: not a regular file"),
    "a folder": (Path.mkdir, "it cannot be shown: not a regular file"),
    "bytes": (lambda path: path.write_bytes(b"\0\xff"), "it is not text: not UTF-8 at byte 1"),
    "tricks": (lambda path: path.write_text(f"{ESCAPE}red"), "[31mred"),
}
LOOKS = (
    ["status"],
    ["events"],
    ["tasks"],
    ["queue"],
    *(["queue", "ls", kind] for kind in MOVES),
    ["report"],
    ["doctor"],
)


@pytest.fixture(params=UNFIT)
def unfit(request: pytest.FixtureRequest, terminal: Terminal) -> str:
    """One in every folder of every queue, and one with a name that no id could have."""
    make, shown = UNFIT[request.param]
    for kind, states in MOVES.items():
        for state in states:
            make(terminal.places.folder(kind, state) / "unfit.json")
            make(terminal.places.folder(kind, state) / f"{ESCAPE}odd\nname.json")
    return shown


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_unfit_files_keep_no_command_from_showing_the_rest(words: list[str], terminal: Terminal, unfit: str) -> None:
    said = terminal(*words)
    assert said.code in (0, 1)
    assert "\x1b[31m" not in said.out + said.err
    assert said.err in ("", "none\n")


def test_what_is_unfit_is_named_and_not_followed(terminal: Terminal, unfit: str) -> None:
    shown = terminal.ok("queue", "show", "unfit")
    assert unfit in shown
    assert ESCAPE not in shown
    assert "and its file cannot be read" in terminal.ok("why", "unfit")


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a" * 100_000, "a\0b", f"{ESCAPE}x", "../../etc/passwd"])
@pytest.mark.parametrize("words", [["why"], ["events"], ["tasks", "show"], ["queue", "show"]], ids=" ".join)
def test_a_name_that_nothing_has(words: list[str], name: str, terminal: Terminal) -> None:
    said = terminal(*words, name)
    assert (said.code, said.out) == (1, "")
    assert "named" in said.err
    assert len(said.err) < 300
    assert ESCAPE not in said.err


@pytest.mark.parametrize("words", [["report", "--days"], ["say", "hello", "--timeout"]], ids=" ".join)
@pytest.mark.parametrize("number", ["nan", "inf", "1e400"])
def test_a_number_that_is_none(words: list[str], number: str, terminal: Terminal) -> None:
    said = terminal(*words, number)
    assert said.code == 2
    assert f"'{number}' is not a finite number" in said.err
    assert list(terminal.places.folder("events", "pending").iterdir()) == []
