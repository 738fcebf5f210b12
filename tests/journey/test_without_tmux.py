"""A machine without tmux: everything works under supervisord, and it is said loudly."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journey.kingdoms import Kingdom


@pytest.fixture
def bare() -> Iterator[Kingdom]:
    """Every program of this machine is there, but tmux."""
    home = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    programs = home / "programs"
    programs.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for name in os.listdir(folder):
            if name != "tmux" and not (programs / name).is_symlink():
                (programs / name).symlink_to(f"{folder}/{name}")
    kingdom = Kingdom(home, PATH=str(programs))
    yield kingdom
    kingdom.run("down", "--soldiers")
    shutil.rmtree(home, ignore_errors=True)


def test_it_runs_under_supervisord_and_says_so(bare: Kingdom) -> None:
    said = bare.ok("up")
    assert said.startswith("NO TMUX HERE: the roles run under supervisord")
    assert ", under supervisord." in said
    assert "\nThe hall: http://127.0.0.1:" in said
    assert "  make it yours, within a day: http://127.0.0.1:" in said
    assert "- Roles: 8 of 8 at work" in bare.ok("say", "brief me")
    doctor = bare.ok("doctor", "--all")
    assert "warn  tmux: not installed: roles run under supervisord" in doctor
    assert "supervisord runs" in doctor
    code, said = bare.refused("attach", "king")
    assert code == 3
    assert "under supervisord roles have no terminal" in said
    bare.ok("down")
    assert bare.processes() == []
