"""The roll call over a launcher that only notes what it is told: what is seen, done and told of each role."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.lock import Lock
from kingdom.base.errors import LauncherError, Locked
from kingdom.base.home import roster
from kingdom.base.home.places import Places
from kingdom.base.home.roster import ROLES, RoleRow
from kingdom.base.runtime.processes import started_at
from kingdom.base.runtime.wake import ProcessExits
from kingdom.court.steward.base import RoleStatus, Timeouts
from kingdom.court.steward.diagnosis import State
from kingdom.court.steward.roll_call import SOON as NEXT_LOOK
from kingdom.court.steward.roll_call import RollCall, RollCallFinding, What, _beater, log_findings
from tests.fixtures import Clock, founded, services
from tests.waiting import SOON, wait_until

THRESHOLD, PERIOD = 30.0, 5.0
KING, CHAMBERLAIN, ENVOY = ROLES["king"], ROLES["chamberlain"], ROLES["envoy"]

HOLDS = """
import signal, sys, time
from pathlib import Path
from kingdom.base.disk.lock import Lock
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Lock(Path(sys.argv[1]), "king").acquire()
print(flush=True)
time.sleep(300)
"""


class Launcher:
    """Starts nobody: it says what the test lets it say, and notes what it is asked to do."""

    name = "stand-in"

    def __init__(self) -> None:
        self.runs = True
        self.asked = 0
        self.says: dict[str, RoleStatus] = {}
        self.started: list[str] = []
        self.raised: list[list[str]] = []
        self.raises: Exception | None = None
        self.killed = 0

    def launcher_runs(self) -> bool:
        return self.runs

    def statuses(self) -> dict[str, RoleStatus]:
        self.asked += 1
        if self.raises is not None:
            raise self.raises
        return self.says

    def start(self, row: RoleRow) -> None:
        self.started.append(row.name)

    def start_launcher(self, rows: Sequence[RoleRow]) -> None:
        if self.raises is not None:
            raise self.raises
        self.raised.append([row.name for row in rows])

    def kill(self) -> None:
        self.killed += 1

    def stop(self, name: str) -> None:
        raise AssertionError("a roll call ends roles by itself")

    def down(self) -> None:
        raise AssertionError("a roll call never takes the kingdom down")


@pytest.fixture
def places(home: Path) -> Places:
    return founded(home)


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def roll_call(places: Places, launcher: Launcher, clock: Clock) -> Callable[..., RollCall]:
    def make(own: str = "chamberlain", rows: Sequence[RoleRow] = (CHAMBERLAIN, KING)) -> RollCall:
        disk = Disk(places.scratch("chamberlain"), durability="process")
        times = Timeouts(hung=10.0, quarantine=600.0)
        return RollCall(places, launcher, disk, lambda: rows, own, clock, ProcessExits(), times)

    return make


def calls(roll: RollCall, clock: Clock, seconds: float, step: float = PERIOD) -> list[RollCallFinding]:
    """What one call finds now, and each one of the following seconds."""
    found = list(roll.call(THRESHOLD, PERIOD))
    for _ in range(round(seconds / step)):
        clock.pass_(step)
        found += roll.call(THRESHOLD, PERIOD)
    return found


def next_call(roll: RollCall) -> Sequence[RollCallFinding]:
    """Return what the next call finds, once what a role had started is gone, too."""
    return wait_until(lambda: roll.call(THRESHOLD, PERIOD), SOON, "something to tell")


def told(findings: Sequence[RollCallFinding]) -> list[tuple[str, What, str]]:
    return [(finding.role, finding.what, finding.detail) for finding in findings]


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own group; `deaf` does not hear TERM."""
    is_deaf = getattr(request, "param", "") == "deaf"
    words = [
        "sh",
        "-c",
        "trap '' TERM; echo here; while :; do sleep 1; done" if is_deaf else "echo here; exec sleep 300",
    ]
    with subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)


def beat(places: Places, role: str, pid: int) -> None:
    places.heartbeat(role).parent.mkdir(parents=True, exist_ok=True)
    places.heartbeat(role).write_text(f'{{"pid": {pid}}}')


def want(places: Places, role: str, word: str) -> None:
    places.wanted(role).parent.mkdir(parents=True, exist_ok=True)
    places.wanted(role).write_text(f"{word}\n")


@pytest.mark.parametrize(
    ("status", "after", "state"),
    [
        (None, 10.0, State.ABSENT),
        (RoleStatus(), 10.0, State.ABSENT),
        (RoleStatus(code=0), 2.0, State.ENDED),
        (RoleStatus(code=75), 10.0, State.DISPLACED),
        (RoleStatus(code=1), 10.0, State.FORGOTTEN),
    ],
)
def test_who_should_run_and_does_not_is_started_after_a_while(
    roll_call: Callable[..., RollCall],
    launcher: Launcher,
    clock: Clock,
    status: RoleStatus | None,
    after: float,
    state: State,
) -> None:
    roll = roll_call()
    launcher.says = {"king": status} if status is not None else {}
    assert calls(roll, clock, after - 1, step=1.0) == []
    assert launcher.started == []
    clock.pass_(1)
    (found,) = roll.call(THRESHOLD, PERIOD)
    assert told([found]) == [("king", What.STARTED, state.value)]
    assert launcher.started == ["king"], "nobody watches itself"


def test_who_ends_with_0_again_is_started_later(
    roll_call: Callable[..., RollCall], launcher: Launcher, clock: Clock
) -> None:
    roll, waits = roll_call(), []
    for _ in range(3):
        launcher.says = {"king": RoleStatus(pid=os.getpid())}
        assert roll.call(THRESHOLD, PERIOD) == []
        launcher.says = {"king": RoleStatus(code=0)}
        began = clock()
        while not roll.call(THRESHOLD, PERIOD):
            clock.pass_(1)
        waits.append(clock() - began)
    assert waits == [2, 10, 20]


@pytest.mark.parametrize(("status", "started"), [(RoleStatus(code=0, stopped=True), 0), (RoleStatus(code=78), 0)])
def test_who_was_stopped_or_cannot_run_is_left_and_only_the_latter_is_told_once(
    roll_call: Callable[..., RollCall], launcher: Launcher, clock: Clock, status: RoleStatus, started: int
) -> None:
    launcher.says = {"king": status}
    found = calls(roll_call(), clock, 60)
    assert [what for _, what, _ in told(found)] == ([] if status.stopped else [What.REFUSED])
    assert len(launcher.started) == started


def test_whom_the_launcher_was_asked_to_stop_is_noted_until_he_is_started(
    roll_call: Callable[..., RollCall], launcher: Launcher, clock: Clock, places: Places
) -> None:
    roll = roll_call()
    launcher.says = {"king": RoleStatus(code=0, stopped=True)}
    calls(roll, clock, 20)
    assert roster.was_stopped(places, "king")
    launcher.says = {"king": RoleStatus(pid=os.getpid())}
    calls(roll, clock, 1)
    assert not roster.was_stopped(places, "king")


def test_whoever_holds_its_lock_and_beats_is_well_and_the_launcher_is_asked_seldom(
    roll_call: Callable[..., RollCall], launcher: Launcher, clock: Clock, places: Places
) -> None:
    lock = Lock(places.lock("king"), "king")
    lock.acquire()
    roll = roll_call()
    for number in range(10):
        beat(places, "king", number)
        assert calls(roll, clock, 5) == []
    assert roll.wait == PERIOD
    assert calls(roll, clock, 20) == []
    seldom = launcher.asked
    assert 0 < seldom <= 1 + 70 // (THRESHOLD / 2), "whether it answers at all: once in half of the threshold"
    want(places, "king", "quarantined")
    assert told(roll.call(THRESHOLD, PERIOD)) == [("king", What.QUARANTINED, "")]
    assert launcher.asked == seldom + 1, "somebody who is not wanted is looked at"
    lock.release()


@pytest.mark.parametrize(
    ("process", "how"), [("hears", "it ended when asked"), ("deaf", "it had to be killed")], indirect=["process"]
)
def test_who_hangs_is_ended_and_started_again_once_it_is_gone(
    roll_call: Callable[..., RollCall],
    launcher: Launcher,
    clock: Clock,
    places: Places,
    process: subprocess.Popen[bytes],
    how: str,
) -> None:
    roll = roll_call()
    beat(places, "king", process.pid)
    launcher.says = {"king": RoleStatus(pid=process.pid)}
    assert calls(roll, clock, 25) == []
    assert process.poll() is None
    clock.pass_(5)
    (missed,) = roll.call(THRESHOLD, PERIOD)
    assert told([missed]) == [("king", What.MISSED, f"pid {process.pid}, 30 s")]
    assert roll.wait == NEXT_LOOK
    if how == "it had to be killed":
        assert calls(roll, clock, 9.0, step=1.0) == []
        assert process.poll() is None
        clock.pass_(1)
        assert roll.call(THRESHOLD, PERIOD) == []
    process.wait(SOON)
    assert roll.call(THRESHOLD, PERIOD) == [], "its launcher has not noticed"
    launcher.says = {"king": RoleStatus(code=-15)}
    assert told(next_call(roll)) == [("king", What.RESTARTED, how)]
    assert launcher.started == ["king"]
    assert roll.wait == PERIOD


def wish(places: Places, role: str, pid: int, started: int | None) -> None:
    """Ask for a restart of this process as the gateway does."""
    places.wanted_folder.mkdir(parents=True, exist_ok=True)
    places.restart(role).write_text(json.dumps({"pid": pid, "started": started, "by": "anna@example.org"}))


def test_whom_an_owner_wants_restarted_is_ended_once_and_started_once(
    roll_call: Callable[..., RollCall],
    launcher: Launcher,
    clock: Clock,
    places: Places,
    process: subprocess.Popen[bytes],
) -> None:
    beat(places, "king", process.pid)
    launcher.says = {"king": RoleStatus(pid=process.pid)}
    wish(places, "king", process.pid, started_at(process.pid))
    assert roll_call().call(THRESHOLD, PERIOD) == []
    process.wait(SOON)
    # The chamberlain that asked it to end was killed then: the next one finds the same wish.
    roll = roll_call()
    assert roll.call(THRESHOLD, PERIOD) == []
    launcher.says = {"king": RoleStatus(code=0)}
    assert told(calls(roll, clock, PERIOD)) == [("king", What.STARTED, State.ENDED.value)]
    assert launcher.started == ["king"]
    assert not places.restart("king").exists()


def test_who_asked_for_a_restart_is_told(
    roll_call: Callable[..., RollCall], launcher: Launcher, places: Places, process: subprocess.Popen[bytes]
) -> None:
    roll = roll_call()
    beat(places, "king", process.pid)
    launcher.says = {"king": RoleStatus(pid=process.pid)}
    wish(places, "king", process.pid, started_at(process.pid))
    assert roll.call(THRESHOLD, PERIOD) == []
    assert roll.wait == NEXT_LOOK
    process.wait(SOON)
    launcher.says = {"king": RoleStatus(code=0)}
    how = "anna@example.org; it ended when asked"
    assert told(next_call(roll)) == [("king", What.RENEWED, how)]
    assert roll.call(THRESHOLD, PERIOD) == []
    assert launcher.started == ["king"]
    assert not places.restart("king").exists()


@pytest.mark.parametrize(
    ("word", "pid", "later"),
    [("up", 1, 0), ("up", 0, 1), ("down", 0, 0), ("quarantined", 0, 0)],
    ids=["another process", "another start of the same pid", "stopped", "quarantined"],
)
def test_a_wish_about_another_process_or_about_who_shall_not_run_is_taken_away(
    roll_call: Callable[..., RollCall],
    launcher: Launcher,
    clock: Clock,
    places: Places,
    process: subprocess.Popen[bytes],
    word: str,
    pid: int,
    later: int,
) -> None:
    runs = word == "up"
    launcher.says = {"king": RoleStatus(pid=process.pid) if runs else RoleStatus(code=0, stopped=True)}
    beat(places, "king", process.pid)
    want(places, "king", word)
    wish(places, "king", process.pid + pid, (started_at(process.pid) or 0) + later)
    calls(roll_call(), clock, 2 * PERIOD)
    assert not places.restart("king").exists()
    assert launcher.started == []
    assert process.poll() is None
    assert places.wanted("king").read_text() == f"{word}\n"


def test_who_runs_and_should_not_is_ended_and_stays_so(
    roll_call: Callable[..., RollCall],
    launcher: Launcher,
    clock: Clock,
    places: Places,
    process: subprocess.Popen[bytes],
) -> None:
    roll = roll_call()
    want(places, "king", "down")
    launcher.says = {"king": RoleStatus(pid=process.pid)}
    lock = Lock(places.launch_lock, "launcher")
    lock.acquire()
    assert calls(roll, clock, 20) == [], "somebody is just stopping it"
    lock.release()
    assert roll.call(THRESHOLD, PERIOD) == []
    process.wait(SOON)
    launcher.says = {"king": RoleStatus(code=0, stopped=True)}
    assert told(next_call(roll)) == [("king", What.STOPPED, "it ended when asked")]
    assert calls(roll, clock, 60) == []
    assert launcher.started == []
    places.wanted("king").unlink()
    assert told(roll.call(THRESHOLD, PERIOD)) == [("king", What.STARTED, State.ABSENT.value)]


def test_a_quarantined_role_is_told_once_and_started_when_all_have_been_well_for_long(
    roll_call: Callable[..., RollCall], launcher: Launcher, clock: Clock, places: Places
) -> None:
    roll = roll_call(rows=(CHAMBERLAIN, KING, ENVOY))
    want(places, "king", "quarantined")
    launcher.says = {"king": RoleStatus(code=1), "envoy": RoleStatus(code=0, stopped=True)}
    assert told(calls(roll, clock, 300)) == [("king", What.QUARANTINED, "")]
    launcher.says["envoy"] = RoleStatus(code=1)
    assert told(calls(roll, clock, 10)) == [("envoy", What.STARTED, State.FORGOTTEN.value)]
    launcher.says["envoy"] = RoleStatus(code=0, stopped=True)
    assert calls(roll, clock, 595) == [], "since something was last wrong"
    clock.pass_(5)
    assert told(roll.call(THRESHOLD, PERIOD)) == [("king", What.REARMED, "")]
    assert (launcher.started, places.wanted("king").exists()) == (["envoy", "king"], False)


@pytest.mark.parametrize(("own", "killed"), [("chamberlain", 1), ("king", 0)])
def test_a_launcher_that_does_not_answer_is_told_once_and_killed_by_the_chamberlain(
    roll_call: Callable[..., RollCall], launcher: Launcher, clock: Clock, own: str, killed: int
) -> None:
    roll = roll_call(own)
    launcher.raises = LauncherError(launcher="stand-in", action="ask", what="it", why="silence")
    (failed,) = calls(roll, clock, 25)
    assert (failed.role, failed.what) == ("stand-in", What.LAUNCHER_FAILED)
    assert "silence" in failed.detail
    assert launcher.killed == 0
    clock.pass_(5)
    assert roll.call(THRESHOLD, PERIOD) == []
    assert launcher.killed == killed
    launcher.raises = None
    roll.call(THRESHOLD, PERIOD)
    launcher.raises = LauncherError(launcher="stand-in", action="ask", what="it", why="silence")
    assert len(calls(roll, clock, 25)) == 1, "it is told anew, and its time begins anew"
    assert launcher.killed == killed


def test_a_dead_launcher_is_started_with_all_its_roles_and_the_chamberlain_last(
    roll_call: Callable[..., RollCall], launcher: Launcher
) -> None:
    launcher.runs = False
    assert roll_call("king").call(THRESHOLD, PERIOD) == []
    assert told(roll_call(rows=(CHAMBERLAIN, KING, ENVOY)).call(THRESHOLD, PERIOD)) == [
        ("stand-in", What.LAUNCHER_STARTED, "")
    ]
    assert launcher.raised == [["king", "envoy", "chamberlain"]]


def test_a_dead_launcher_is_started_when_the_roles_that_it_left_are_gone(
    roll_call: Callable[..., RollCall], launcher: Launcher, places: Places, clock: Clock
) -> None:
    words = [sys.executable, "-c", HOLDS, str(places.lock("king"))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as left:
        assert left.stdout is not None
        left.stdout.readline()
        roll = roll_call()
        launcher.runs = False
        assert calls(roll, clock, 9, step=1.0) == []
        assert left.poll() is None
        clock.pass_(1)
        assert roll.call(THRESHOLD, PERIOD) == []
        assert left.wait(SOON) == -signal.SIGKILL
        assert told(roll.call(THRESHOLD, PERIOD)) == [("stand-in", What.LAUNCHER_STARTED, "")]
    assert launcher.started == []


@pytest.mark.parametrize(
    ("raises", "found"),
    [
        (Locked(role="launcher", path="x", holder="1"), 0),
        (LauncherError(launcher="x", action="start", what="it", why="no"), 1),
    ],
    ids=["somebody else starts it", "it fails"],
)
def test_a_launcher_that_cannot_be_started_is_tried_again(
    roll_call: Callable[..., RollCall], launcher: Launcher, clock: Clock, raises: Exception, found: int
) -> None:
    roll = roll_call()
    launcher.runs, launcher.raises = False, raises
    assert len(calls(roll, clock, 20)) == found, "told once"
    launcher.raises = None
    assert [finding.what for finding in roll.call(THRESHOLD, PERIOD)] == [What.LAUNCHER_STARTED]


def test_after_the_end_of_a_watched_process_it_looks_again_soon_for_a_while(
    roll_call: Callable[..., RollCall],
    launcher: Launcher,
    clock: Clock,
    process: subprocess.Popen[bytes],
    places: Places,
) -> None:
    roll = roll_call()
    beat(places, "king", process.pid)
    launcher.says = {"king": RoleStatus(pid=process.pid)}
    roll.call(THRESHOLD, PERIOD)
    assert not roll.someone_ended()
    assert roll.wait == PERIOD
    process.kill()
    process.wait(SOON)

    def noted() -> bool:
        roll._ends.note()
        return roll.someone_ended()

    wait_until(noted, SOON, "its end is seen")
    assert roll.wait == NEXT_LOOK
    clock.pass_(2)
    assert roll.wait == NEXT_LOOK
    clock.pass_(1)
    assert roll.wait == PERIOD


def test_each_finding_is_a_warning_and_some_are_events(home: Path, clock: Clock) -> None:
    given = services(home, "chamberlain", clock)
    every = [RollCallFinding("king", what, "x", "why") for what in What]
    log_findings(every, given.log, 30.0)
    given.log.flush()
    lines = given.places.role_log("chamberlain").read_text().splitlines()
    assert [line.split(" ", 1)[1].split("chamberlain: ")[1] for line in lines] == [f"king: {w} (why)" for w in What]
    events = [json.loads(line) for line in given.places.events_log.read_text().splitlines()]
    assert [event["type"] for event in events] == [
        "system.heartbeat_missed",
        *["recovery.session_restarted"] * 3,
        "recovery.session_killed",
        *["recovery.session_restarted"] * 2,
    ]
    assert [event["data"].get("threshold_seconds") for event in events] == [30.0, *[None] * 6]
    assert str(RollCallFinding("king", What.REARMED, "x")) == "king: its quarantine is over"


@pytest.mark.parametrize(
    ("content", "pid"),
    [(b'{"pid": 77, "role": "ki', 77), (b"", None), (b"alive\n", None), (b"\xff 5", 5), (None, None)],
)
def test_who_beats_is_known_also_by_a_damaged_heartbeat(home: Path, content: bytes | None, pid: int | None) -> None:
    if content is not None:
        (home / "king").write_bytes(content)
    assert _beater(home / "king") == pid
