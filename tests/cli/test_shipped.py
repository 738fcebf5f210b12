"""Copies of shipped generals follow a newer version, unless their owner has changed them."""

from __future__ import annotations

import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from kingdom.base.home.places import Places, find_data
from kingdom.cli import packages
from kingdom.cli.init import furnish
from tests.cli.conftest import Terminal

SHIPPED = Places(find_data())


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_every_shipped_file_stands_in_the_list() -> None:
    """A copy of it is recognised by a later version. Whoever changes a file appends the line that is missing."""
    listed = (SHIPPED.packages / packages.VERSIONS).read_text().splitlines()
    asked = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "gen-*")
    names = subprocess.run(asked, cwd=SHIPPED.packages, check=True, capture_output=True, text=True).stdout.split()
    files = [SHIPPED.packages / name for name in names]
    lines = [f"{sha256(path.read_bytes()).hexdigest()}  {path.relative_to(SHIPPED.packages)}" for path in files]
    missing = [line for line in lines if line not in listed]
    assert not missing, "\n".join(["append to generals/shipped.sha256:", *missing])


@pytest.fixture
def older(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """The terminal's home, and a newer Kingdom whose gen-briefing has another program, prompt and manifest."""
    data = Places(tmp_path / "data")
    furnish(data)
    package = data.package("gen-briefing")
    versions = []
    for name in ("run", "prompt.md", "manifest.yaml"):
        file = package / name
        versions.append(f"{sha256(file.read_bytes()).hexdigest()}  gen-briefing/{name}\n")
        file.write_bytes(file.read_bytes() + b"# newer\n")
        versions.append(f"{sha256(file.read_bytes()).hexdigest()}  gen-briefing/{name}\n")
    (data.packages / packages.VERSIONS).write_text("".join(versions))
    for module in ("kingdom.cli.init", "kingdom.cli.shipped", "kingdom.cli.packages"):
        monkeypatch.setattr(f"{module}.find_data", lambda: data.home)
    return data


def is_newer(path: Path) -> bool:
    return path.read_text().endswith("# newer\n")


def test_unchanged_copies_are_replaced_and_told_in_one_line(terminal: Terminal, older: Places) -> None:
    places = terminal.places
    said = terminal.ok("init", ".")
    told = "generals/gen-briefing/manifest.yaml, generals/gen-briefing/prompt.md, generals/gen-briefing/run"
    assert said.splitlines()[0] == f"Brought up to date: {told}, config/generals/gen-briefing.yaml."
    program = places.package("gen-briefing") / "run"
    assert is_newer(program)
    assert is_newer(places.manifest("gen-briefing"))
    assert program.stat().st_mode & 0o100
    assert "Brought up to date" not in terminal.ok("init", ".")


def test_a_program_that_may_not_be_run_may_be_run_again(terminal: Terminal) -> None:
    program = terminal.places.package("gen-briefing") / "run"
    program.chmod(0o600)
    terminal.ok("init", ".")
    assert program.stat().st_mode & 0o777 == 0o700


def test_what_the_owner_changed_is_kept_and_told_once(terminal: Terminal, older: Places) -> None:
    prompt, manifest = terminal.places.package("gen-briefing") / "prompt.md", terminal.places.manifest("gen-briefing")
    for path in (prompt, manifest, terminal.places.package("gen-herald") / "prompt.md"):
        path.write_text("mine\n")
    said = terminal.ok("init", ".").splitlines()
    assert "prompt.md" not in said[0]
    assert said[1].startswith("generals/gen-briefing/prompt.md is your own version and was kept; a newer one is ")
    assert "is your own version" not in "".join(said[2:]), "what has no newer version, and manifests, are not told"
    assert prompt.read_text() == manifest.read_text() == "mine\n"
    assert "is your own version" not in terminal.ok("init", ".")
    prompt.unlink()
    terminal.ok("init", ".")
    assert is_newer(prompt), "deleted, it is brought again"


def test_an_uninstalled_general_stays_uninstalled(terminal: Terminal, older: Places) -> None:
    terminal.ok("generals", "uninstall", "gen-briefing")
    terminal.ok("init", ".")
    assert not terminal.places.manifest("gen-briefing").exists()


def test_what_an_owner_adds_to_a_checkout_goes_into_no_other_home(
    terminal: Terminal, older: Places, tmp_path: Path
) -> None:
    """Neither a package of one's own nor what lies beside the files of a shipped one."""
    with open(older.packages / packages.VERSIONS, "a") as versions:
        versions.write((SHIPPED.packages / packages.VERSIONS).read_text())
    mine = older.package("gen-mine") / "manifest.yaml"
    mine.parent.mkdir()
    mine.write_text((older.package("gen-briefing") / "manifest.yaml").read_text())
    (older.package("gen-briefing") / "notes.txt").write_text("my plans\n")
    terminal.ok("init", str(tmp_path / "other"))
    other = Places(tmp_path / "other")
    assert is_newer(other.package("gen-briefing") / "run")
    assert not other.package("gen-mine").exists()
    assert not (other.package("gen-briefing") / "notes.txt").exists()
