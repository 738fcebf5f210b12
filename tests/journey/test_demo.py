"""`kingdom demo`, as somebody without an account runs it: what it tells, and what it leaves behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kingdom.base.runtime.processes import all_pids
from tests.faults import trees
from tests.waiting import wait_until

MINUTES = 600.0
"""Beside other tests; alone it takes half a minute."""
PROGRAM = (sys.executable, "-P", "-m", "kingdom")


@contextmanager
def demo(folder: Path, *words: str, program: tuple[str, ...] = PROGRAM) -> Iterator[subprocess.Popen[bytes]]:
    """A demo that works in a folder, and writes there what it says."""
    folder.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KINGDOM_")}
    with folder.with_suffix(".out").open("w") as out:
        child = subprocess.Popen(
            [*program, "demo", *words],
            env={**kept, "TMPDIR": str(folder), "GH_TOKEN": "mine", "ANTHROPIC_API_KEY": "mine"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with child:
        try:
            yield child
        finally:
            child.kill()


def said_in(folder: Path) -> str:
    return folder.with_suffix(".out").read_text()


def left_in(folder: Path) -> list[str]:
    """Files, and processes that know this folder."""
    found = [str(path) for path in folder.iterdir()]
    for pid in all_pids():
        try:
            if os.fsencode(folder) in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@trees.in_campaigns
def test_two_at_once_tell_what_happens_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with demo(first) as one, demo(second, "--keep") as other:
        codes = one.wait(MINUTES), other.wait(MINUTES)
    assert codes == (0, 0), said_in(first) + said_in(second)
    assert left_in(first) == []
    assert [Path(name).name.rpartition("-")[0] for name in left_in(second)] == ["kingdom-demo"]
    for folder in (first, second):
        _tells_the_whole_story(said_in(folder))
    _names_files_that_are_there(said_in(second))


def test_it_tells_what_happens_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        assert process.wait(MINUTES) == 0, said_in(tmp_path)
    assert left_in(tmp_path) == []
    _tells_the_whole_story(said_in(tmp_path))


def _tells_the_whole_story(said: str) -> None:
    assert re.search(r"^0 lost, 0 doubled, 0 left over, \d+ s\.$", said, re.MULTILINE), said
    assert re.search(r"notifications of GitHub → events +13 +0 +0\n", said)
    assert "kill -9  the king (pid " in said
    assert "king     is back" in said
    assert "gen-pr   tries #101 again" in said
    assert "“[complete] resume of jira.ticket.assigned — prices are shown in EUR, with a test”" in said
    assert re.search(r"\$ kingdom why evt-github-1000-\n[0-9:]+  evt-github-1000-\S+ is a .*; it is completed", said)
    assert re.search(r"it was answered by evt-slack-reply-\S+ and goes on as task-", said)


def _names_files_that_are_there(said: str) -> None:
    home = Path(re.findall(r"^The home is (\S+);", said, re.MULTILINE)[0])
    named = re.findall(r" ((?:queue|state|logs)/\S+)$", said, re.MULTILINE)
    assert len(named) > 30
    assert [name for name in named if not list(home.glob(name))] == []
    story = said.partition("$ kingdom why")[0].splitlines()
    assert [line for line in story if len(line) > 80 and "“" not in line and "127.0.0.1" not in line] == []


ENDS = [(signal.SIGKILL, "sends a soldier"), (signal.SIGINT, "A kingdom in"), (signal.SIGTERM, "sends a soldier")]


@pytest.mark.parametrize(("number", "moment"), ENDS if trees.CAMPAIGN else ENDS[1:2])
def test_however_it_ends_its_kingdom_ends_with_it(tmp_path: Path, number: signal.Signals, moment: str) -> None:
    folder = tmp_path / "demo"
    with demo(folder) as child:
        wait_until(lambda: moment in said_in(folder), MINUTES, f"{moment!r} is said")
        child.send_signal(number)
        assert child.wait(MINUTES) == (-number if number == signal.SIGKILL else 130)
        wait_until(lambda: not left_in(folder), MINUTES, "its roles and its folder are gone")
    assert "Traceback" not in said_in(folder)
