"""Control groups of soldiers, with folders in place of the kernel's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.base.runtime import cgroup
from kingdom.base.runtime.cgroup import Cgroup
from tests.waiting import SOON


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as child:
        yield child
        child.kill()


@pytest.fixture
def groups(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders in place of the kernel's groups: what is written there stays. Return our own group."""
    monkeypatch.setattr(cgroup, "_GROUPS", str(home / "groups"))
    rows = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    paths = [f"pids{path}" for _, kind, path in rows if kind == "pids"]
    own = home / "groups" / (paths or [path.lstrip("/") for number, _, path in rows if number == "0"])[0]
    own.mkdir(parents=True)
    (own / "cgroup.procs").touch()
    return own


def test_a_group_takes_its_processes_in_and_ends_them_all(
    home: Path, groups: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    group = Cgroup(home, "task-1")
    assert Path(str(group.folder)).parent == groups
    assert (group.is_there(), group.members(), group.kill_all()) == (False, [], 0)
    group.create(5)
    folder = Path(str(group.folder))
    assert (group.is_there(), (folder / "pids.max").read_text(), group.members()) == (True, "10", [])
    (folder / "cgroup.procs").touch()
    opened = group.open()
    assert opened is not None
    os.write(opened.fd, b"0")
    os.close(opened.fd)
    assert not opened.takes_threads
    assert (folder / "cgroup.procs").read_text() == "0"
    (folder / "cgroup.procs").write_text(f"{sleeper.pid}\n")
    assert group.members() == [sleeper.pid]
    assert group.kill_all(seconds=0.05) == 1
    assert sleeper.wait(SOON) == -9
    assert Cgroup(home, "task-1").folder == group.folder
    assert Cgroup(home, "task-2").folder != group.folder != Cgroup(home / "x", "task-1").folder


def test_without_control_groups_nothing_is_done(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_GROUPS", "/nowhere")
    group = Cgroup(home, "task-1")
    group.create(5)
    assert group.open() is None
    assert (group.folder, group.is_there(), group.members(), group.kill_all()) == (None, False, [], 0)
    assert list(home.iterdir()) == []
