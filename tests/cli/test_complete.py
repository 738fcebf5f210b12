"""What the shell offers when somebody presses Tab."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from kingdom.base.home.places import Places
from kingdom.cli.commands import kingdom
from tests.cli.conftest import Terminal


def offered(*words: str) -> list[str]:
    *before, begun = words
    return [item.value for item in ShellComplete(kingdom, {}, "kingdom", "_X").get_completions(before, begun)]


@pytest.fixture(autouse=True)
def _lived_in(terminal: Terminal) -> None:
    terminal.event("pending", "evt-1")
    for number in (2, 999, 1000):
        terminal.task("completed", f"task-20261118-{number:03}")
    terminal.places.checkpoint("task-20261118-999").write_text("{}")
    (terminal.places.folder("tasks", "pending") / ".task-3.json").write_text("{")


ROLES = ["chamberlain", "envoy", "king", "sentinel", "gateway", "worker", "gen-briefing", "gen-herald"]
TASKS = ["task-20261118-1000", "task-20261118-999", "task-20261118-002"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("em",), ["emit"]),
        (("start", "k"), ["king"]),
        (("stop", ""), ROLES),
        (("logs", "env"), ["envoy"]),
        (("attach", "task-"), TASKS),
        (("generals", "uninstall", ""), ["gen-briefing", "gen-herald"]),
        (("generals", "un"), ["uninstall"]),
        (("tasks", "ls", "--general", "gen-h"), ["gen-herald"]),
        (("why", ""), [*TASKS, "evt-1"]),
        (("why", "evt"), ["evt-1"]),
        (("tasks", "retry", ""), TASKS),
        (("tasks", "show", "task-20261118-9"), ["task-20261118-999"]),
        (("tasks", "task-20261118-9"), ["task-20261118-999"]),
        (("events", "discard", ""), ["evt-1"]),
        (("events", "--state", "pen"), ["pending"]),
        (("queue", "show", "evt"), ["evt-1"]),
        (("say", "--answer", ""), ["task-20261118-999"]),
        (("emit", "a.b", "--priority", "h"), ["high"]),
    ],
)
def test_what_is_offered(words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*words) == expected


def test_of_very_many_the_newest_are_offered(terminal: Terminal) -> None:
    for number in range(60):
        terminal.task("completed", f"task-20261119-{number:03}")
    assert offered("tasks", "show", "task-20261119") == [f"task-20261119-{number:03}" for number in range(59, 9, -1)]


def test_the_home_on_the_line_is_the_one_that_counts(tmp_path: Path, terminal: Terminal) -> None:
    castle = tmp_path / "castle"
    terminal.ok("init", str(castle))
    Places(castle).queue_file("events", "pending", "evt-elsewhere").write_text("{}")
    assert offered("-C", str(castle), "why", "") == ["evt-elsewhere"]


def test_where_there_is_no_home_nothing_is_offered_and_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KINGDOM_HOME", str(tmp_path / "nowhere"))
    assert offered("why", "") == []
    assert capsys.readouterr() == ("", "")
