"""`attach` shows a role's terminal and can do nothing to the role."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.steward.base import Timeouts
from kingdom.steward.tmux import Tmux
from tests.shell_roles import Court, found_court, row
from tests.waiting import stays, wait_until

SOON = 10.0
pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@pytest.fixture
def court(home: Path, monkeypatch: pytest.MonkeyPatch) -> Court:
    monkeypatch.setenv("TERM", "xterm")
    return found_court(home, monkeypatch)


@pytest.fixture
def tmux(court: Court) -> Iterator[Tmux]:
    steward = Tmux(court.places, Timeouts(stop=0.5))
    steward.start_launcher([row("king")])
    court.wait_for_beats("king")
    yield steward
    steward.down()


def test_ctrl_c_in_an_attached_terminal_does_not_reach_the_role(tmux: Tmux, court: Court) -> None:
    ours, theirs = pty.openpty()
    client = subprocess.Popen(
        tmux.attach_command("king"), cwd=court.places.home, stdin=theirs, stdout=theirs, start_new_session=True
    )
    try:
        wait_until(lambda: clients(tmux, court), SOON, "somebody is attached")
        os.write(ours, b"\x03")
        stays(lambda: tmux.statuses()["king"].pid == court.lives("king")[0], 0.5, "the king runs on")
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
        os.close(ours)
        os.close(theirs)


def clients(tmux: Tmux, court: Court) -> str:
    command = [*tmux.attach_command("king")[:5], "list-clients"]
    return subprocess.run(command, cwd=court.places.home, capture_output=True, text=True).stdout
