"""The unit of a home: systemd takes it, and it leaves little of the machine open."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kingdom.cli.systemd import unit

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="NO SYSTEMD-ANALYZE: the unit is not checked")


@pytest.fixture
def written(home: Path) -> Path:
    path = home / "kingdom.service"
    path.write_text(unit(home, "root", Path("/bin/true")))
    return path


def analyze(*words: str) -> str:
    done = subprocess.run([str(ANALYZE), *words], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@needs_systemd
def test_systemd_finds_no_fault_with_it(written: Path) -> None:
    said = analyze("verify", str(written))
    assert [line for line in said.splitlines() if written.name in line] == []


@needs_systemd
def test_its_exposure_is_under_4(written: Path) -> None:
    said = analyze("security", "--offline=true", "--no-pager", str(written))
    found = re.search(r"Overall exposure level.*?: ([0-9.]+)", said)
    assert found is not None, said
    assert float(found[1]) < 4


def test_it_names_the_home_and_the_command(home: Path) -> None:
    text = unit(home, "kim", Path("/opt/venv/bin/kingdom"))
    for line in (f'Environment="KINGDOM_HOME={home}"', "User=kim", "ExecStart=/opt/venv/bin/kingdom up --foreground"):
        assert line in text.splitlines()


def test_it_leaves_open_what_the_cage_of_soldiers_needs(home: Path) -> None:
    lines = dict(line.split("=", 1) for line in unit(home, "kim", Path("/bin/kingdom")).splitlines() if "=" in line)
    assert set(lines["RestrictNamespaces"].split()) >= {"user", "mnt", "ipc"}
    assert set(lines["SystemCallFilter"].split()) >= {"@mount", "landlock_restrict_self"}
