"""Launchers used and misused by people: plain supervisorctl, a deleted socket."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from kingdom.home.places import Places, find_data
from kingdom.home.roster import ROLES
from kingdom.steward import STEWARDS
from kingdom.steward.base import Steward
from tests.faults.watch.kingdoms import LAUNCHERS
from tests.standins import Court, found_court, row
from tests.waiting import wait_until

CHECKOUT = find_data()


@pytest.fixture
def court(home: Path, monkeypatch: pytest.MonkeyPatch) -> Court:
    return found_court(home, monkeypatch)


@pytest.fixture(params=LAUNCHERS)
def steward(request: pytest.FixtureRequest, court: Court) -> Iterator[Steward]:
    module, attribute = STEWARDS[request.param].split(":")
    steward: Steward = getattr(import_module(module), attribute)(court.places)
    yield steward
    steward.down()


def test_a_deleted_socket_is_made_again(steward: Steward, court: Court) -> None:
    steward.start_launcher([row("king"), row("gen-a")])
    court.wait_for_beats("king", "gen-a")
    server = launcher_pid(court, "king")
    for path in (court.places.roles_socket, court.places.supervisor_socket):
        path.unlink(missing_ok=True)
    assert steward.launcher_runs()
    steward.start_launcher([row("king"), row("gen-a")])
    court.wait_for_beats("king", "gen-a")
    assert launcher_pid(court, "king") == server
    assert len(court.left()) == 2


def launcher_pid(court: Court, role: str) -> int:
    stat = Path(f"/proc/{court.lives(role)[-1]}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def test_plain_supervisorctl_works_from_a_checkout(court: Court) -> None:
    home = court.places.home
    (home / "bin").mkdir()
    shutil.copy(CHECKOUT / "bin" / "role", home / "bin" / "role")
    shutil.copy(CHECKOUT / "supervisord.conf", home)
    (home / "pyproject.toml").touch()
    for role in ROLES:
        court.behave(role, "beat")

    def ctl(*words: str) -> str:
        program = [sys.executable, "-m", "supervisor.supervisorctl", *words]
        return subprocess.run(program, cwd=home, capture_output=True, text=True, check=False).stdout

    daemon = [sys.executable, "-m", "supervisor.supervisord", "-c", "supervisord.conf"]
    subprocess.run(daemon, cwd=home, check=True)
    try:
        court.wait_for_beats("king", "chamberlain", "envoy")
        assert "RUNNING" in ctl("status", "king")
        assert ctl("stop", "king") == "king: stopped\n"
        wait_until(lambda: court.beat("king")["state"] == "stopped", 5.0, "it ended as asked")
        assert ctl("start", "king") == "king: started\n"
        court.wait_for_beats("king", life=2)
        assert ctl("restart", "king") == "king: stopped\nking: started\n"
        court.wait_for_beats("king", life=3)
        assert not court.lives("mailbox"), "switched on by configuration"
        assert Places(home).supervisor_socket.stat().st_mode & 0o777 == 0o700
    finally:
        ctl("shutdown")
        wait_until(lambda: not court.left(), 10.0, "all have ended")
