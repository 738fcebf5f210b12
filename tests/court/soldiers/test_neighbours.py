"""What of other kingdoms and projects a soldier may not read: found where it usually is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
    words = [sys.executable, "-c", "input()"]
    environment = {**os.environ, "KINGDOM_HOME": str(other)}
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE) as process:
        mark = f"KINGDOM_HOME={other}".encode()
        shown = Path(f"/proc/{process.pid}/environ")
        wait_until(lambda: mark in shown.read_bytes(), SOON, "it has its environment")
        assert withheld(own, home) == data_of(other)


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


def test_a_home_whose_names_may_not_be_listed_is_withheld_too(home: Path) -> None:
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
