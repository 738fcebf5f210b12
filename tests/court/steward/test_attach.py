"""`attach` shows a role's terminal and can do nothing to the role."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.court.steward.base import RoleStatus, Timeouts
from kingdom.court.steward.tmux import Tmux
from tests.fixtures import founded
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


def test_a_server_whose_socket_was_deleted_runs_and_opens_a_new_one(tmux: Tmux, court: Court) -> None:
    court.places.roles_socket.unlink()
    assert tmux.launcher_runs()
    assert tmux.statuses()["king"].pid == court.lives("king")[0]


TELLS = "#!/bin/sh\necho $SERVER:king:%3:77:1:: ; echo $SERVER:king:%9:78:0:: ; echo $SERVER:envoy:%4:79:1:3:\n"


def test_a_server_that_missed_an_end_is_reminded_and_the_oldest_pane_of_a_session_counts(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tmux before 3.5 sometimes does; a program in its place says what it would."""
    places = founded(home)
    (home / "bin").mkdir()
    (home / "bin/tmux").write_text(TELLS)
    (home / "bin/tmux").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
    places.roles_socket.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(places.roles_socket))
        listener.listen()
        words = ["sh", "-c", "trap 'echo reminded; exit' CHLD; echo; while :; do read -r _ || exit; done"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            server.stdout.readline()
            (home / "bin/tmux").write_text(TELLS.replace("$SERVER", str(server.pid)))
            statuses = Tmux(places, Timeouts()).statuses()
            assert statuses == {"king": RoleStatus(code=-signal.SIGKILL), "envoy": RoleStatus(code=3)}
            assert server.communicate("\n", timeout=SOON)[0] == "reminded\n"


NO_PID_OF_DEAD_PANES = """\
#!/bin/sh
for word; do shift; set -- "$@" "$(printf %s "$word" | sed 's/#{pane_pid}/#{?pane_dead,,#{pane_pid}}/')"; done
"""


def test_a_dead_pane_may_have_no_pid(court: Court, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is from tmux 3.8 on."""
    (home / "bin").mkdir()
    (home / "bin/tmux").write_text(f'{NO_PID_OF_DEAD_PANES}exec {shutil.which("tmux")} "$@"\n')
    (home / "bin/tmux").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
    court.behave("king", "exit=78", "beat")
    tmux = Tmux(court.places, Timeouts(stop=0.5))
    tmux.start_launcher([row("king"), row("envoy")])
    try:
        wait_until(lambda: tmux.statuses().get("king") == RoleStatus(code=78), SOON, "the king has ended")
        tmux.start(row("king"))
        court.wait_for_beats("king", life=2)
        tmux.stop("king")
        assert tmux.statuses() == {"envoy": RoleStatus(pid=court.lives("envoy")[0])}
    finally:
        tmux.down()
    assert not court.left()
