"""The checked-in supervisord.conf, and plain supervisorctl from the checkout."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kingdom.places import Places, find_data
from kingdom.roster import ROLES
from kingdom.steward.supervisord import render_checkout
from tests.standins import found_court
from tests.waiting import wait_until

CHECKOUT = find_data()


def test_the_checked_in_file_is_what_the_process_table_renders() -> None:
    assert (CHECKOUT / "supervisord.conf").read_text() == render_checkout()


def test_its_folder_is_there_in_a_fresh_clone() -> None:
    listed = subprocess.run(["git", "ls-files", "state/run"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a clone")
    assert listed.stdout.split() == ["state/run/.gitignore"]


def test_plain_supervisorctl_works_from_a_checkout(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    court = found_court(home, monkeypatch)
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
