"""What of other kingdoms and projects a soldier may not read: found where it usually is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.home.places import Places
from kingdom.court.soldiers import neighbours
from tests.fixtures import founded
from tests.waiting import SOON, wait_until


@pytest.fixture(autouse=True)
def anew() -> None:
    neighbours._kept.clear()


def withheld(home: Path, user: Path) -> set[str]:
    found = neighbours.withheld(home, str(user), (".ssh",))
    return {path for path in found if path.startswith(str(user))}


def a_home(folder: Path) -> Path:
    folder.mkdir(parents=True)
    places = founded(folder)
    (folder / ".env").touch()
    (folder / ".env.old").touch()
    places.version.touch()
    return folder


def data_of(home: Path) -> set[str]:
    return {f"{home}/{name}" for name in ("state", "queue", "workspace", "logs", "memory", ".env", ".env.old")}


@pytest.mark.parametrize("where", ["other", ".local/share/kingdom"])
def test_homes_of_its_owner_are_withheld_and_not_its_own(home: Path, where: str) -> None:
    own, other = a_home(home / "own"), a_home(home / where)
    assert withheld(own, home) == data_of(other)


def test_a_home_beside_is_withheld(home: Path) -> None:
    own, other = a_home(home / "kingdoms/own"), a_home(home / "kingdoms/other")
    assert withheld(own, home) == data_of(other)


def test_a_home_at_work_is_withheld_wherever_it_is(home: Path) -> None:
    own, other = a_home(home / "own"), a_home(home / "very/deep/other")
    assert withheld(own, home) == set()
    neighbours._kept.clear()
    with at_work(other):
        assert withheld(own, home) == data_of(other)


@contextmanager
def at_work(home: Path) -> Iterator[None]:
    """Run a process of a home."""
    words = [sys.executable, "-c", "input()"]
    environment = {**os.environ, "KINGDOM_HOME": str(home)}
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE) as process:
        mark, shown = f"KINGDOM_HOME={home}".encode(), Path(f"/proc/{process.pid}/environ")
        wait_until(lambda: mark in shown.read_bytes(), SOON, "it has its environment")
        yield


def has_backup(home: Path, file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    make_folder(Places(home).backups.parent)
    Places(home).backups.write_text(f"{file}\n{home}/gone\n")
    return file


def known_to(own: Path, home: Path) -> list[Path]:
    """Return what a home has noted below a folder: other tests' kingdoms may be at work."""
    return [path for path in Places(own).known_neighbours() if path.is_relative_to(home)]


def noted(home: Path) -> None:
    make_folder(Places(home).neighbours.parent)
    neighbours.note(Places(home), Disk(home / "state/tmp"))


def test_a_home_that_was_at_work_is_withheld_when_it_has_stopped_and_its_backups_too(home: Path) -> None:
    own, other, third = (a_home(home / name) for name in ("own", "very/deep/other", "very/deep/third"))
    backup = has_backup(other, home / "elsewhere/deep/castle.tar.gz")
    with at_work(third):
        noted(other)
    with at_work(other):
        noted(own)
    noted(own)
    assert Places(own).neighbours.stat().st_mode & 0o777 == 0o600
    assert withheld(own, home) == {*data_of(other), *data_of(third), str(backup)}
    (home / "very").rename(home / "gone")
    noted(own)
    assert known_to(own, home) == [backup]
    neighbours._kept.clear()
    assert withheld(own, home) == {str(backup)}


def test_backups_of_a_home_at_work_are_withheld(home: Path) -> None:
    own, other = a_home(home / "own"), a_home(home / "very/deep/other")
    backup = has_backup(other, home / "elsewhere/deep/castle.tar.gz")
    with at_work(other):
        assert withheld(own, home) == {*data_of(other), str(backup)}


def test_a_noted_backup_that_cannot_be_looked_at_holds_nobody_up(home: Path) -> None:
    own = a_home(home / "own")
    has_backup(own, home / "castle.tar.gz")
    make_folder(Places(own).neighbours.parent)
    Places(own).neighbours.write_text(f"{home}/{'x' * 300}/castle.tar.gz\n")
    assert withheld(own, home) == set()
    noted(own)
    assert known_to(own, home) == []


def test_a_home_in_a_workspace_is_not_remembered(home: Path) -> None:
    own = a_home(home / "own")
    with at_work(a_home(own / "workspace/gen-x/task-1/mine")):
        noted(own)
    assert known_to(own, home) == []


def test_what_a_home_in_another_needs_is_not_withheld(home: Path) -> None:
    other = a_home(home / "other")
    own = a_home(other / "workspace/gen-x/task-1/own")
    assert withheld(own, home) == data_of(other) - {f"{other}/workspace"}


@contextmanager
def as_nobody() -> Iterator[None]:
    """Look at files as a user for whom modes count."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)


def test_a_home_whose_names_may_not_be_listed_is_withheld_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = neighbours.find_data()
    monkeypatch.setattr(neighbours, "find_data", lambda: data)  # the checkout may be root's alone
    own, other = a_home(home / "own"), a_home(home / "other")
    for folder, mode in ((home, 0o755), (other, 0o311), (other / "state", 0o711)):
        folder.chmod(mode)
    try:
        with as_nobody():
            assert withheld(own, home) == data_of(other) - {f"{other}/.env.old"}
    finally:
        other.chmod(0o700)


def test_projects_secrets_are_withheld(home: Path) -> None:
    own = a_home(home / "own")
    for name in ("shop/.env", "blog/.env.local", "shop/env.txt"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).touch()
    assert withheld(own, home) == {f"{home}/shop/.env", f"{home}/blog/.env.local"}


def test_it_is_not_looked_again_for_a_minute(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = a_home(home / "own")
    assert withheld(own, home) == set()
    a_home(home / "other")
    assert withheld(own, home) == set()
    monkeypatch.setattr(neighbours.time, "monotonic", lambda: neighbours._kept[own, str(home)][0])
    assert withheld(own, home) != set()


@pytest.mark.skipif(os.geteuid() != 0, reason="ONLY ROOT READS EVERYTHING")
def test_from_root_the_machines_keys_are_withheld(home: Path) -> None:
    found = neighbours.withheld(a_home(home / "own"), str(home), ())
    assert set(neighbours.OF_MACHINE) <= set(found)
