"""Launchers used and misused by people: plain supervisorctl, a deleted socket."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from kingdom.base.home.places import Places, find_data
from kingdom.base.home.roster import ROLES
from kingdom.court.steward import STEWARDS, pick
from kingdom.court.steward.base import Steward, launching
from kingdom.court.steward.supervisord import Supervisord
from tests.faults import trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import LAUNCHERS
from tests.shell_roles import Court, found_court, row
from tests.waiting import SOON, wait_until

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


ROUNDS = 50 if trees.CAMPAIGN else 3


def test_up_right_after_down_waits_for_its_end(steward: Steward, court: Court, figure: Figure) -> None:
    """`down` holds the launch lock; `supervisorctl shutdown` takes none."""

    def down() -> None:
        with launching(court.places):
            begun.set()
            steward.down()

    for life in range(1, ROUNDS + 1):
        steward.start_launcher([row("king"), row("gen-a")])
        court.wait_for_beats("king", "gen-a", life=life)
        begun = threading.Event()
        stopper = threading.Thread(target=down)
        stopper.start()
        assert begun.wait(SOON)
        steward.start_launcher([row("king"), row("gen-a")])
        stopper.join()
        steward.down()
        assert not court.left()
        # As `kingdom down` does: a shell role that was stopped while it was loading cannot say so.
        for role in ("king", "gen-a"):
            court.places.starts(role).unlink(missing_ok=True)
    figure(f"row 10 up right after down, {steward.name}: {ROUNDS} rounds, 0 processes left")


@trees.in_campaigns
def test_up_right_after_a_shutdown_by_hand_waits_for_its_end(
    court: Court, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    monkeypatch.setenv("KINGDOM_SHORT_RUN", "1")
    court.behave("gen-a", "deaf beating")
    steward = Supervisord(court.places)
    for life in range(1, ROUNDS + 1):
        steward.start_launcher([row("king"), row("gen-a")])
        court.wait_for_beats("king", "gen-a", life=life)
        steward._call("shutdown")
        threading.Timer(0.2, os.kill, (court.lives("gen-a")[-1], signal.SIGKILL)).start()
    wait_until(lambda: not steward.launcher_runs(), SOON, "it has ended")
    assert pick(court.places).name == "supervisord", "the launcher that ran last is preferred"
    steward.start_launcher([row("king"), row("gen-a")])
    court.wait_for_beats("king", "gen-a", life=ROUNDS + 1)
    steward.down()
    assert not court.left()
    figure(f"row 10 up right after supervisorctl shutdown: {ROUNDS} rounds, 0 processes left")


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
        wait_until(lambda: court.beat("king")["state"] == "stopped", SOON, "it ended as asked")
        assert ctl("start", "king") == "king: started\n"
        court.wait_for_beats("king", life=2)
        assert ctl("restart", "king") == "king: stopped\nking: started\n"
        court.wait_for_beats("king", life=3)
        assert not court.lives("mailbox"), "switched on by configuration"
        assert Places(home).supervisor_socket.stat().st_mode & 0o777 == 0o700
    finally:
        ctl("shutdown")
        wait_until(lambda: not court.left(), SOON, "all have ended")
