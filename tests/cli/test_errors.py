"""Every complaint is one line that names what, where and what to do, and an exit code that means something."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from kingdom.base.program.run import run
from kingdom.cli import COMMANDS
from tests.cli.conftest import Terminal

COMPLAINTS: list[tuple[tuple[str, ...], int, str]] = [
    (("evnts",), 2, "there is no command 'evnts', did you mean 'events'?"),
    (("xyzzy",), 2, "there is no command 'xyzzy'; `kingdom --help` lists them"),
    (("status", "--foo"), 2, "No such option '--foo'. `kingdom status --help` shows how."),
    (("say", "--wait", "x"), 2, "Did you mean '--no-wait'? `kingdom say --help` shows how."),
    (("say",), 2, "Missing argument 'TEXT...'. `kingdom say --help` shows how."),
    (("events", "ls", "--state", "gone"), 2, "'gone' is not one of"),
    (("say", "hello"), 3, "the king is not running; start it with `"),
    (("say", "--answer", "../x", "yes", "--no-wait"), 78, "task '../x' cannot name a file"),
    (("say", "--answer", "task-1", "--no-wait", "yes"), 78, "task-1 has no open question"),
    (("say", "--no-wait", "\udcff"), 78, "the text is not UTF-8"),
    (("say", "--no-wait", "x" * (1 << 20)), 78, "and 1048576 is the most"),
    (("say", "--no-wait", "  "), 2, "nothing to say"),
    (("say", "--answer"), 2, "`kingdom say --help` shows how."),
    (("logs", "task-1"), 1, "attach task-1` follows a task's soldier"),
    (("logs", "council-leader"), 1, "attach council-leader` follows what this agent prints"),
    (("start", "king"), 3, "the kingdom is not running; start it with `"),
    (("stop", "kong"), 1, "no role named 'kong', did you mean 'king'?"),
    (("stop", "mailbox"), 1, "no role named 'mailbox' is switched on; set roles.mailbox: true in"),
    (("events", "evt-0"), 1, "no event named 'evt-0'"),
    (("tasks", "show", "task-0"), 1, "no task named 'task-0'"),
    (("queue", "ls", "letters"), 1, "no queue folder named 'letters'; the folders are events/{pending,"),
    (("why", "evt-0"), 1, "no event, task, message or order named 'evt-0'"),
    (("logs", "king"), 1, "no log named 'king'"),
    (("attach", "task-0"), 1, "no role, or task with a soldier, named 'task-0'"),
    (("attach", "king"), 3, "a terminal of king is not running; it is not running"),
    (("generals", "validate", "./nowhere"), 78, "nowhere: no such folder; a package is a folder with"),
    (("generals", "install", "/"), 78, "/: it has no manifest.yaml; a package is a folder with"),
    (("generals", "validate", "nowhere"), 1, "no package named 'nowhere'"),
    (("generals", "uninstall", "gen-x"), 1, "no installed general named 'gen-x'"),
]


@pytest.mark.parametrize(("words", "code", "fragment"), COMPLAINTS, ids=lambda part: str(part)[:40])
def test_a_complaint_is_one_line(words: tuple[str, ...], code: int, fragment: str, terminal: Terminal) -> None:
    said = terminal(*words)
    assert (said.code, said.err.count("\n")) == (code, 1), said
    assert said.err.startswith("kingdom: ")
    assert fragment in said.err


def test_a_broken_configuration_names_file_line_and_key(terminal: Terminal) -> None:
    (terminal.places.config / "system.yaml").write_text("wake: inotify\nlauncher: tmucks\n")
    said = terminal("up")
    assert said.code == 78
    assert "system.yaml:2: launcher: 'tmucks' is not one of" in said.err


def test_a_full_disk_is_said_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert run("kingdom", fail) == 1
    assert capsys.readouterr().err == "kingdom: No space left on device; make room on the disk of the home\n"


def test_a_home_that_everybody_may_write_to_is_refused(terminal: Terminal) -> None:
    terminal.places.home.chmod(0o707)
    said = terminal("status")
    assert (said.code, said.err.count("\n")) == (78, 1)
    assert "run `chmod o-w` on it" in said.err


def test_a_reader_that_has_seen_enough_is_no_error(terminal: Terminal) -> None:
    for number in range(300):
        terminal.event("completed", f"evt-{number:03}", discarded_reason="x" * 500)
    shell = f"{sys.executable} -c 'import sys; from kingdom.cli.main import main; sys.exit(main(sys.argv[1:]))' "
    done = subprocess.run(f"{shell} events -n 300 --json | head -1", shell=True, capture_output=True, text=True)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error(closed: str, terminal: Terminal) -> None:
    terminal.task("completed", "task-1", outcome="failed")
    program = f"{sys.executable} -c 'import sys; from kingdom.cli.main import main; sys.exit(main(sys.argv[1:]))'"
    for words, code in (("generals", 0), ("tasks", 0), ("doctor --all", 0), ("nonsense", 2)):
        done = subprocess.run(f"{program} {words} {closed}", shell=True, capture_output=True, text=True)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, terminal: Terminal) -> None:
    assert "Usage: kingdom" in terminal.ok(command, "--help")


def test_help_names_every_command_in_a_whole_sentence(terminal: Terminal) -> None:
    shown = terminal.ok("--help")
    assert all(f"\n  {command} " in shown for command in COMMANDS)
    assert "..." not in shown.partition("Commands:")[2]
