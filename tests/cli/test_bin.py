"""The thin programs of bin/ lead to the same commands."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kingdom.base.home.roster import ROLES
from tests.cli.conftest import Terminal

BIN = Path(__file__).resolve().parents[2] / "bin"


def called(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(BIN / name), *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_kingdom(terminal: Terminal) -> None:
    if not (BIN.parent / ".venv/bin/kingdom").exists():
        pytest.skip("the checkout is not set up")
    assert called("kingdom", "--version").stdout.startswith("kingdom, version ")
    assert called("kingdom", "evnts").returncode == 2


def test_install_general(terminal: Terminal) -> None:
    if not (BIN.parent / ".venv/bin/kingdom").exists():
        pytest.skip("the checkout is not set up")
    terminal.ok("generals", "uninstall", "gen-herald")
    done = called("install-general", str(terminal.places.package("gen-herald")))
    assert (done.returncode, done.stderr) == (0, "")
    assert terminal.places.manifest("gen-herald").exists()


def test_another_kingdoms_installer_is_kept_beside_ours(terminal: Terminal) -> None:
    theirs = terminal.places.installer
    theirs.write_text("#!/bin/sh\n# theirs\n")
    for _ in range(2):
        terminal.ok("init", str(terminal.places.home))
        assert "Made by `kingdom init`" in theirs.read_text()
        assert theirs.with_name(f"{theirs.name}.before").read_text() == "#!/bin/sh\n# theirs\n"


@pytest.mark.parametrize("where", ["home", "checkout"])
def test_packages_that_install_themselves(where: str, terminal: Terminal, tmp_path: Path) -> None:
    """A home's script installs there, whatever KINGDOM_HOME says; a checkout's in the home that it names."""
    places = terminal.places
    if where == "checkout" and not (BIN.parent / ".venv/bin/kingdom").exists():
        pytest.skip("the checkout is not set up")
    package = shutil.copytree(places.package("gen-herald"), tmp_path / "gen-herald")
    script = places.installer if where == "home" else BIN / "install-general.sh"
    for words in ((str(package), "--force"), ("--force", str(package)), (str(package),)):
        terminal.ok("generals", "uninstall", "gen-herald")
        elsewhere = {"KINGDOM_HOME": str(tmp_path)} if where == "home" else {}
        env = {**os.environ, **elsewhere}
        done = subprocess.run([str(script), *words], env=env, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert places.manifest("gen-herald").exists()
    assert script.stat().st_mode & 0o100
    refused = subprocess.run([str(script), str(tmp_path / "nothing")], capture_output=True, text=True)
    assert refused.returncode != 0
    assert refused.stderr.startswith("kingdom: ")


@pytest.mark.parametrize("role", [role for role in ROLES if (BIN / role).exists()])
def test_a_role(role: str, terminal: Terminal) -> None:
    terminal.places.wanted(role).write_text("down\n")
    done = called(role)
    said = f"{role}: was stopped by hand; kingdom start {role} starts it again\n"
    assert (done.returncode, done.stderr) == (0, said), "a role that is switched off ends at once"
    terminal.places.wanted(role).write_text("quarantined\n")
    done = called(role)
    assert done.returncode == 78
    assert done.stderr.startswith(f"{role}: is quarantined")


def test_a_general(terminal: Terminal) -> None:
    terminal.places.wanted("gen-herald").write_text("down\n")
    assert called("general", "gen-herald").returncode == 0
    assert called("general").returncode != 0
