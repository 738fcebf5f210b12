"""What every launcher must do, driven with the real tmux and the real supervisord."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from kingdom.base import tables
from kingdom.base.disk.atomic import make_folder
from kingdom.base.errors import LauncherError
from kingdom.base.home.places import Places
from kingdom.base.runtime.processes import started_at
from kingdom.court.steward import STEWARDS, pick
from kingdom.court.steward.base import RoleStatus, Steward, Timeouts
from kingdom.court.steward.supervisord import Supervisord
from tests.faults.strace import slow_forks
from tests.shell_roles import Court, found_court, row, runs
from tests.waiting import stays, wait_until

SOON = 30.0
A_WHILE = 0.3
PATIENCE = 0.3


class Raised(Protocol):
    def __call__(self, *roles: str, beating: Sequence[str] = ()) -> Steward: ...


@pytest.fixture
def court(home: Path, monkeypatch: pytest.MonkeyPatch) -> Court:
    return found_court(home, monkeypatch)


@pytest.fixture(params=STEWARDS)
def launcher(request: pytest.FixtureRequest) -> str:
    if request.param == "tmux" and shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    name: str = request.param
    return name


@pytest.fixture
def steward(launcher: str, court: Court) -> Iterator[Steward]:
    yield from employed(launcher, court.places)


def employed(launcher: str, places: Places) -> Iterator[Steward]:
    steward: Steward = tables.load(STEWARDS[launcher])(places, Timeouts(stop=PATIENCE))
    yield steward
    steward.down()


@pytest.fixture
def raised(steward: Steward, court: Court) -> Raised:
    def raise_and_wait(*roles: str, beating: Sequence[str] = ()) -> Steward:
        steward.start_launcher([row(role) for role in roles])
        court.wait_for_beats(*(beating or roles), meanwhile=steward.statuses)
        return steward

    return raise_and_wait


def status_is(steward: Steward, role: str, status: RoleStatus) -> None:
    wait_until(lambda: steward.statuses().get(role) == status, SOON, f"{role}: {status}, not {steward.statuses()}")


def launcher_pid(court: Court, role: str) -> int:
    stat = Path(f"/proc/{court.lives(role)[-1]}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def test_every_role_is_started(raised: Raised, court: Court) -> None:
    steward = raised("king", "envoy", "gen-a")
    assert steward.launcher_runs()
    for role in ("king", "envoy", "gen-a"):
        assert steward.statuses()[role] == RoleStatus(pid=court.lives(role)[0])


def test_before_the_first_start_no_role_runs(steward: Steward) -> None:
    assert not steward.launcher_runs()
    assert steward.statuses() == {}
    steward.down()


def test_a_launcher_that_ends_while_it_is_asked_has_no_roles(steward: Steward, court: Court, launcher: str) -> None:
    path = {"tmux": court.places.roles_socket, "supervisord": court.places.supervisor_socket}[launcher]
    make_folder(path.parent)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)

    def answer_once() -> None:
        listener.accept()[0].close()
        listener.close()

    answering = threading.Thread(target=answer_once)
    answering.start()
    assert steward.statuses() == {}
    answering.join()


def test_a_role_that_its_supervisord_has_just_forked_ends_when_it_is_asked(court: Court) -> None:
    """Until it is its own program it takes TERM as supervisord would, and forgets it."""
    steward = Supervisord(court.places, Timeouts(stop=5.0))
    steward.start_launcher([row("king")])
    court.wait_for_beats("king")
    try:
        with slow_forks(launcher_pid(court, "king")):
            for end in (lambda: steward.stop("gen-a"), steward.down):
                steward.start(row("gen-a"))
                end()
                assert "by SIGKILL" not in court.places.supervisor_log.read_text(), "it had to be killed"
    finally:
        steward.down()
    assert not court.left()


def test_half_an_answer_of_a_supervisord_that_ends_is_none(court: Court) -> None:
    make_folder(court.places.supervisor_socket.parent)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(court.places.supervisor_socket))
    listener.listen(2)

    def answer_half() -> None:
        listener.accept()[0].close()
        asking, _ = listener.accept()
        listener.close()
        asking.recv(1 << 16)
        asking.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: text/xml\r\n\r\n<?xml version='1.0'?><methodResponse><par")
        asking.shutdown(socket.SHUT_RDWR)
        asking.close()

    answering = threading.Thread(target=answer_half)
    answering.start()
    assert Supervisord(court.places).statuses() == {}
    answering.join()


def test_starting_again_starts_no_role_twice(raised: Raised, court: Court) -> None:
    steward = raised("king", "gen-a")
    steward.start_launcher([row("king"), row("gen-a")])
    stays(lambda: [len(court.lives(role)) for role in ("king", "gen-a")] == [1, 1], A_WHILE, "one life each")


def test_starting_with_other_roles_ends_those_no_longer_listed(raised: Raised, court: Court) -> None:
    steward = raised("king", "gen-a")
    steward.start_launcher([row("king"), row("envoy")])
    assert not runs(court.lives("gen-a")[0])
    court.wait_for_beats("envoy")
    assert len(court.lives("king")) == 1


def test_a_crashed_role_comes_back(raised: Raised, court: Court) -> None:
    court.behave("king", "exit=1", "beat")
    steward = raised("king")
    assert steward.statuses()["king"] == RoleStatus(pid=court.lives("king")[1])


def test_a_killed_role_comes_back(raised: Raised, court: Court) -> None:
    steward = raised("king", "gen-a")
    for role in ("king", "gen-a"):
        os.kill(court.lives(role)[0], signal.SIGKILL)
    court.wait_for_beats("king", "gen-a", life=2, meanwhile=steward.statuses)
    assert steward.statuses()["king"] == RoleStatus(pid=court.lives("king")[1])


@pytest.mark.parametrize("code", [0, 75, 78])
def test_an_end_by_contract_is_left_alone(code: int, raised: Raised, court: Court) -> None:
    court.behave("king", f"exit={code}")
    steward = raised("king", "envoy", beating=["envoy"])
    status_is(steward, "king", RoleStatus(code=code))
    stays(lambda: len(court.lives("king")) == 1, A_WHILE, "down")


def test_an_ended_role_can_be_started(raised: Raised, court: Court) -> None:
    court.behave("king", "exit=78", "beat")
    steward = raised("king", "envoy", beating=["envoy"])
    status_is(steward, "king", RoleStatus(code=78))
    steward.start(row("king"))
    court.wait_for_beats("king")
    steward.start(row("king"))
    stays(lambda: len(court.lives("king")) == 2, A_WHILE, "not started twice")


def test_a_general_installed_later_is_started(raised: Raised, court: Court) -> None:
    steward = raised("king")
    steward.start(row("gen-a"))
    court.wait_for_beats("gen-a")
    steward.stop("gen-a")
    assert not runs(court.lives("gen-a")[0])


def test_a_stopped_role_is_gone_and_stays_gone(raised: Raised, court: Court) -> None:
    steward = raised("gen-a", "gen-ab")
    steward.stop("gen-a")
    assert not runs(court.lives("gen-a")[0])
    stays(lambda: len(court.lives("gen-a")) == 1, A_WHILE, "down")
    assert steward.statuses()["gen-ab"] == RoleStatus(pid=court.lives("gen-ab")[0]), (
        "a name that begins alike is another"
    )
    steward.stop("gen-a")
    steward.start(row("gen-a"))
    court.wait_for_beats("gen-a", life=2)


def test_a_role_that_does_not_listen_is_killed_with_its_children(raised: Raised, court: Court) -> None:
    court.behave("king", "child deaf beating")
    steward = raised("king")
    court.wait_for_beats("king")
    child = wait_until(lambda: _number(court.places.home / "child-king"), SOON, "its child runs")
    steward.stop("king")
    assert not runs(court.lives("king")[0])
    assert not runs(child)


def _number(path: Path) -> int:
    try:
        return int(path.read_text() or 0)
    except FileNotFoundError:
        return 0


def test_a_role_between_two_lives_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch, steward: Steward, court: Court
) -> None:
    monkeypatch.setenv("KINGDOM_DELAY_FIRST", "6000")
    court.behave("king", "exit=1")
    steward.start_launcher([row("king"), row("envoy")])
    wait_until(
        lambda: court.lives("king") and steward.statuses()["king"].pid not in (None, court.lives("king")[0]),
        SOON,
        "it waits",
    )
    steward.stop("king")
    stays(lambda: not [pid for pid in [steward.statuses().get("king", RoleStatus()).pid] if pid], A_WHILE, "down")
    assert len(court.lives("king")) == 1


def test_down_leaves_no_process(raised: Raised, court: Court) -> None:
    court.behave("king", "deaf beating")
    steward = raised("king", "envoy", "chamberlain", "gen-a")
    court.wait_for_beats("king")
    server = launcher_pid(court, "king")
    steward.down()
    assert court.left() == []
    assert not runs(server)
    assert not steward.launcher_runs()
    steward.down()


def test_a_killed_launcher_is_started_again(raised: Raised, court: Court) -> None:
    steward = raised("king", "gen-a")
    os.kill(launcher_pid(court, "king"), signal.SIGKILL)
    wait_until(lambda: not steward.launcher_runs(), SOON, "the launcher is dead")
    assert steward.statuses() == {}
    for pid in court.left():  # what supervisord leaves behind ends by itself only when it is a real role
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not court.left(), SOON, "its roles end with it")
    steward.start_launcher([row("king"), row("gen-a")])
    court.wait_for_beats("king", "gen-a", life=2)


def test_a_role_inherits_the_home_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, raised: Raised, court: Court, launcher: str
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-canary")
    court.behave("king", "env beat")
    raised("king")
    inherited = (court.places.home / "env-king").read_text()
    assert f"KINGDOM_HOME={court.places.home}\n" in inherited
    assert f"KINGDOM_LAUNCHER={launcher}\n" in inherited
    assert "canary" not in inherited
    assert b"canary" not in Path(f"/proc/{launcher_pid(court, 'king')}/environ").read_bytes()


def test_a_home_with_a_long_and_odd_path(launcher: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = home / ("it's a long way; 100% of it" + "x" * 100)
    deep.mkdir()
    court = found_court(deep, monkeypatch)
    for steward in employed(launcher, court.places):
        steward.start_launcher([row("king"), row("gen-a")])
        court.wait_for_beats("king", "gen-a")
        steward.stop("king")
        assert steward.statuses()["gen-a"].pid


def test_many_that_start_at_once_start_one_kingdom(steward: Steward, court: Court, launcher: str) -> None:
    program = (
        "import sys; from pathlib import Path; from kingdom.base.home.places import Places;"
        "from kingdom.court.steward import pick;"
        "from tests.shell_roles import row;"
        f"pick(Places(Path(sys.argv[1])), {launcher!r}).start_launcher([row('king'), row('gen-a')])"
    )
    crowd = [subprocess.Popen([sys.executable, "-c", program, court.places.home]) for _ in range(4)]
    assert [process.wait(SOON) for process in crowd] == [0] * len(crowd)
    court.wait_for_beats("king", "gen-a")
    assert [len(court.lives(role)) for role in ("king", "gen-a")] == [1, 1]


def test_the_launcher_that_runs_is_picked(raised: Raised, court: Court, launcher: str) -> None:
    raised("king")
    assert pick(court.places).name == launcher


def test_without_tmux_the_roles_run_under_supervisord(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(court.places.home))
    assert pick(court.places).name == "supervisord"
    with pytest.raises(LauncherError, match="not installed"):
        pick(court.places, "tmux")


def test_an_unknown_launcher_is_refused(court: Court) -> None:
    with pytest.raises(LauncherError, match="known are tmux, supervisord"):
        pick(court.places, "upstart")


@pytest.mark.parametrize(
    ("word", "in_the_home"), [("supervisord", False), ("supervisor.supervisord", False), ("supervisord.log", True)]
)
def test_a_stale_pid_file_names_nobody_of_ours(court: Court, word: str, in_the_home: bool, tmp_path: Path) -> None:
    """Its number may be another home's supervisord by now, or whoever looks at ours."""
    sleeper = [sys.executable, "-c", "import signal; signal.pause()", word]
    other = subprocess.Popen(sleeper, cwd=court.places.home if in_the_home else tmp_path)
    try:
        wait_until(lambda: started_at(other.pid), SOON, "the other has started")
        court.places.run.mkdir(parents=True, exist_ok=True)
        court.places.supervisor_pid.write_text(f"{other.pid}\n")
        ours = Supervisord(court.places, Timeouts(stop=PATIENCE))
        assert not ours.launcher_runs()
        ours.kill()
        ours.down()
        stays(lambda: other.poll() is None, 0.3, "the other, untouched")
    finally:
        other.kill()
        other.wait()
