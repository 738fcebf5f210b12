"""The small files of a running role: its heartbeat, the configuration that it watches, what it tells systemd."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.home.places import Places
from kingdom.runtime import cgroup, systemd
from kingdom.runtime.cgroup import Cgroup
from kingdom.runtime.config_files import LOOK_SECONDS, ConfigFiles
from kingdom.runtime.heartbeat import HEARTBEAT_BYTES, Heartbeat
from tests.fixtures import Clock, founded
from tests.waiting import SOON


@pytest.fixture
def places(home: Path) -> Places:
    return founded(home)


# The heartbeat


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_heartbeat_is_one_record_of_one_size_written_in_place(home: Path, clock: Clock) -> None:
    path = home / "king" / "heartbeat"
    heartbeat = Heartbeat(path, "king", clock)
    heartbeat.write("idle")
    first = os.stat(path)
    assert path.read_text().endswith("\n")
    assert json.loads(path.read_text()) == {
        "pid": os.getpid(),
        "role": "king",
        "seq": 1,
        "state": "idle",
        "time": "2026-02-07T10:00:00Z",
        "worked": False,
    }
    clock.pass_(1)
    heartbeat.write("busy " * 100)
    second = os.stat(path)
    assert (first.st_size, second.st_size, second.st_ino) == (HEARTBEAT_BYTES, HEARTBEAT_BYTES, first.st_ino)
    assert first.st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("later", "state", "worked", "seq"),
    [
        (0.0, "idle", False, 1),
        (0.9, "idle", False, 1),
        (1.0, "idle", False, 2),
        (0.0, "busy", False, 2),
        (0.0, "idle", True, 2),
    ],
)
def test_the_same_words_are_written_once_a_second(
    home: Path, clock: Clock, later: float, state: str, worked: bool, seq: int
) -> None:
    heartbeat = Heartbeat(home / "heartbeat", "king", clock)
    heartbeat.write("idle")
    clock.pass_(later)
    heartbeat.write(state, worked)
    assert json.loads((home / "heartbeat").read_text())["seq"] == seq


def test_who_has_worked_once_has_worked(home: Path, clock: Clock) -> None:
    heartbeat = Heartbeat(home / "heartbeat", "king", clock)
    said = []
    for worked in (False, True, False):
        heartbeat.write("idle", worked)
        clock.pass_(1)
        said.append(json.loads((home / "heartbeat").read_text())["worked"])
    assert said == [False, True, True]


# Its configuration


@pytest.mark.parametrize("name", ["config/system.yaml", "config/king.yaml", "config/general.yaml", ".env"])
@pytest.mark.parametrize("what", ["written", "replaced", "removed"])
def test_a_change_of_any_of_its_files_is_seen_once(places: Places, name: str, what: str) -> None:
    path = places.home / name
    path.write_text("a: 1\n")
    files = ConfigFiles(places, "king", "general")
    assert not files.changed(0.0)
    if what == "removed":
        path.unlink()
    elif what == "replaced":
        about = path.stat()
        (places.home / "new").write_text("a: 2\n")
        os.utime(places.home / "new", ns=(about.st_atime_ns, about.st_mtime_ns))
        (places.home / "new").replace(path)
    else:
        os.utime(path, (1, 1))
    assert (files.changed(1.0), files.changed(2.0)) == (True, False)


def test_a_file_of_another_role_is_nobodys_change(places: Places) -> None:
    files = ConfigFiles(places, "king")
    (places.config / "envoy.yaml").write_text("a: 1\n")
    assert not files.changed(1.0)


@pytest.mark.parametrize(
    ("later", "at_once", "seen"),
    [(LOOK_SECONDS - 0.01, False, False), (LOOK_SECONDS, False, True), (0.0, True, True)],
)
def test_it_is_looked_at_four_times_a_second_or_at_once(
    places: Places, later: float, at_once: bool, seen: bool
) -> None:
    files = ConfigFiles(places, "king")
    assert not files.changed(100.0)
    (places.config / "king.yaml").write_text("a: 1\n")
    assert files.changed(100.0 + later, at_once=at_once) is seen
    assert LOOK_SECONDS == 0.25


# systemd


@pytest.mark.parametrize("kind", ["a path", "abstract"])
def test_what_systemd_is_told_arrives_whole(home: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    address = f"@{home}" if kind == "abstract" else str(home / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{home}" if kind == "abstract" else address)
        manager.settimeout(SOON)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        systemd.tell(systemd.READY, systemd.WELL)
        assert manager.recv(100) == b"READY=1\nWATCHDOG=1"


@pytest.mark.parametrize("address", ["", "/nowhere/notify"])
def test_where_nobody_listens_nothing_is_told_and_nothing_fails(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    systemd.tell(systemd.ENDS)


# Control groups


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
    group.join()
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
    group.join()
    assert (group.folder, group.is_there(), group.members(), group.kill_all()) == (None, False, [], 0)
    assert list(home.iterdir()) == []
