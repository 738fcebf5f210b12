"""What every launcher gives its roles, who may start one, which one is picked, and how groups of processes end."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kingdom.base.errors import Locked
from kingdom.base.home.places import Places
from kingdom.court.steward import STEWARDS, base, pick, process_groups
from kingdom.court.steward.base import TIMEOUTS, LauncherError, Timeouts
from kingdom.court.steward.roll_call import make_roll_call
from tests.fixtures import Clock, founded, services
from tests.waiting import SOON

Starts = Callable[[str], subprocess.Popen[str]]


def test_a_role_gets_what_names_the_kingdom_and_nothing_of_the_shell_that_ran_up(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KINGDOM_LAUNCHER_PID", "KINGDOM_BASE_DIR", "KINGDOM_LEDGER", "KINGDOM_OWN", "GH_TOKEN"):
        monkeypatch.setenv(name, "of the shell")
    for python in (None, "/opt/python"):
        if python is None:
            monkeypatch.delenv("KINGDOM_PYTHON", raising=False)
        else:
            monkeypatch.setenv("KINGDOM_PYTHON", python)
        given = base.environment(Places(home), "tmux")
        ours = {name: value for name, value in given.items() if name.startswith("KINGDOM_")}
        assert ours == {
            "KINGDOM_OWN": "of the shell",
            "KINGDOM_HOME": str(home),
            "KINGDOM_LAUNCHER": "tmux",
            "KINGDOM_PYTHON": python or sys.executable,
        }
        assert "GH_TOKEN" not in given
        assert "PATH" in given


def test_one_at_a_time_starts_or_stops_the_launcher(home: Path) -> None:
    places = Places(home)
    for _ in range(2):
        with base.launching(places, 0.0), pytest.raises(Locked, match="launcher"), base.launching(places, 0.0):
            pass


class Missing:
    """A launcher that is not installed."""

    def __init__(self, _places: Places, _timeouts: Timeouts) -> None:
        raise LauncherError(launcher=type(self).__name__, action="start", what="the roles", why="it is not installed")


class Gone(Missing):
    """Another one."""


def test_where_no_launcher_can_be_used_it_is_said_why_of_each(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.court.steward.STEWARDS", {name: f"{__name__}:{name}" for name in ("Missing", "Gone")})
    with pytest.raises(LauncherError) as caught:
        pick(Places(home), "auto", TIMEOUTS)
    said = str(caught.value)
    assert said.count("it is not installed") == 2
    assert said.index("Missing") < said.index("Gone")
    with pytest.raises(LauncherError, match="known are Missing, Gone"):
        pick(Places(home), "init", TIMEOUTS)


@pytest.mark.parametrize("launcher", STEWARDS)
def test_which_launcher_runs_the_roles_is_noted_by_who_calls_the_roll(
    home: Path, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    if launcher == "tmux" and not shutil.which("tmux"):
        pytest.skip("TMUX IS NOT INSTALLED")
    founded(home)
    given = services(home, "chamberlain", Clock())
    monkeypatch.delenv("KINGDOM_LAUNCHER", raising=False)
    assert make_roll_call(given, list) is None
    monkeypatch.setenv("KINGDOM_LAUNCHER", launcher)
    assert make_roll_call(given, list) is not None
    assert given.places.last_launcher.read_text() == f"{launcher}\n"


@pytest.fixture
def starts() -> Iterator[Starts]:
    """Start a shell that leads a group, and wait for its first word."""
    children: list[subprocess.Popen[str]] = []

    def start(script: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
        children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    yield start
    for child in children:
        process_groups.send([child.pid], signal.SIGKILL)
        child.communicate()


def test_a_signal_goes_to_the_whole_group_of_who_leads_one_and_to_nobody_elses(starts: Starts) -> None:
    leader = starts("sleep 300 & echo; wait")
    other = starts("trap 'echo hit; exit' TERM; sh -c 'echo $$; exec sleep 300' & wait")
    process_groups.send([leader.pid], signal.SIGTERM)
    assert leader.communicate(timeout=SOON)[0] == "", "its child has let go of its output too"
    assert other.poll() is None
    process_groups.send([leader.pid], signal.SIGTERM)  # gone: no error


def test_a_signal_for_who_leads_no_group_is_for_it_alone() -> None:
    with subprocess.Popen(["sleep", "300"]) as child:
        process_groups.send([child.pid], signal.SIGTERM)
        assert child.wait(SOON) == -signal.SIGTERM


def test_who_does_not_end_when_asked_is_killed(starts: Starts) -> None:
    deaf, willing = starts("trap '' TERM; echo; while :; do sleep 0.05; done"), starts("echo; exec sleep 300")
    process_groups.end({deaf.pid, willing.pid}, 0.3)
    assert (deaf.wait(SOON), willing.wait(SOON)) == (-signal.SIGKILL, -signal.SIGTERM)
