"""`kingdom fsck`, `backup` and `restore`, as people type them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.lock import Lock
from kingdom.base.home.places import Places
from tests.cli.conftest import Terminal
from tests.faults import trees


def test_a_home_that_is_well_and_one_that_is_not(terminal: Terminal) -> None:
    assert terminal.ok("fsck") == "All is well.\n"
    path = terminal.event("pending", "evt-1")
    path.write_text("{")
    said = terminal("fsck")
    assert said.code == 1
    assert "queue/events/pending/evt-1.json: " in said.out
    assert "1 finding, 1 can be repaired" in said.out
    repaired = terminal("fsck", "--repair")
    assert (repaired.code, path.exists()) == (0, False)
    assert terminal.ok("fsck") == "All is well.\n"


def test_nothing_is_repaired_while_a_role_runs(terminal: Terminal) -> None:
    lock = Lock(terminal.places.lock("king"), "king")
    lock.acquire()
    said = terminal("fsck", "--repair")
    lock.release()
    assert (said.code, said.out) == (2, "")
    assert "while something runs (king)" in said.err


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/null")], ids=["pipe", "link"])
def test_a_lock_that_cannot_be_locked_is_set_aside(terminal: Terminal, make: Callable[[Path], None]) -> None:
    lock = terminal.places.lock("king")
    make_folder(lock.parent)
    make(lock)
    assert "it is not a regular file, so it cannot be locked" in terminal("fsck").out
    assert terminal("fsck", "--repair").code == 0
    assert terminal.ok("fsck") == "All is well.\n"


def test_a_home_goes_into_a_file_and_comes_back(terminal: Terminal, tmp_path: Path) -> None:
    terminal.event("pending", "evt-1")
    terminal.places.env_file.write_text("A=secret\n")
    archive, again = tmp_path / "home.tar.gz", tmp_path / "again"
    assert "without secrets" in terminal.ok("backup", str(archive))
    assert terminal("backup", str(archive)).code == 2
    again.mkdir(mode=0o700)
    assert "see to" in terminal.ok("-C", str(again), "restore", str(archive))
    assert (again / "queue/events/pending/evt-1.json").read_text() == terminal.places.queue_file(
        "events", "pending", "evt-1"
    ).read_text()
    assert not Places(again).env_file.exists()


def test_a_home_comes_back_in_a_new_folder_without_more_ado(terminal: Terminal, tmp_path: Path) -> None:
    """In one that is named, and in the current one where no home is around, as from an installed wheel."""
    terminal.event("pending", "evt-1")
    archive, named, here = tmp_path / "home.tar.gz", tmp_path / "again there", tmp_path / "here"
    terminal.ok("backup", str(archive))
    assert f"-C '{named}' fsck" in terminal.ok("restore", str(archive), str(named))
    here.mkdir()
    program = [sys.executable, "-c", "import sys; from kingdom.cli.main import main; sys.exit(main())"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(trees.program())}
    subprocess.run([*program, "restore", str(archive)], cwd=here, env=env, check=True, capture_output=True)
    for folder in (named, here):
        assert Places(folder).queue_file("events", "pending", "evt-1").exists()


def test_nothing_is_restored_into_a_folder_of_other_things(terminal: Terminal, tmp_path: Path) -> None:
    archive, thesis = tmp_path / "home.tar.gz", tmp_path / "thesis"
    terminal.ok("backup", str(archive))
    thesis.mkdir()
    (thesis / "thesis.tex").write_text("")
    said = terminal("restore", str(archive), str(thesis))
    assert said.code == 78
    assert "it holds something else; name an empty folder" in said.err
    assert [path.name for path in thesis.iterdir()] == ["thesis.tex"]


def test_a_home_that_is_there_is_set_aside_only_by_force(terminal: Terminal, tmp_path: Path) -> None:
    path = terminal.event("pending", "evt-1")
    archive = tmp_path / "home.tar.gz"
    terminal.ok("backup", str(archive))
    path.unlink()
    later = terminal.event("pending", "evt-2")
    refused = terminal("restore", str(archive))
    assert (refused.code, later.exists()) == (78, True)
    assert "set-aside" in terminal.ok("restore", "--force", str(archive))
    assert (path.exists(), later.exists()) == (True, False)
    assert list(terminal.places.home.glob("set-aside-*/queue/events/pending/evt-2.json"))


def test_a_file_that_is_no_backup_changes_nothing(terminal: Terminal, tmp_path: Path) -> None:
    path = terminal.event("pending", "evt-1")
    (tmp_path / "x").write_text("no archive")
    said = terminal("restore", "--force", str(tmp_path / "x"))
    assert (said.code, path.exists()) == (78, True)
    assert list(terminal.places.home.glob(".restore-*")) == []
    assert said.err.count("\n") == 1
