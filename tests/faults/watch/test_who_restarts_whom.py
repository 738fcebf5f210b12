"""For every state of a role, under both launchers, what its launcher, bin/role and its watcher do about it.

The roles are stand-ins in sh; the launchers, bin/role and the roll call are the real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from kingdom.base import tables
from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.errors import BadConfig
from kingdom.base.records import refusals
from kingdom.base.runtime.processes import carries
from kingdom.base.runtime.wake import ProcessExits, Waker
from kingdom.court.steward import STEWARDS, roll_call
from kingdom.court.steward.base import RoleStatus, Steward, Timeouts, command, launching
from kingdom.court.steward.diagnosis import ACTIONS, Action, State
from kingdom.court.steward.roll_call import RollCall, RollCallFinding, What
from tests.faults.watch.kingdoms import one_of
from tests.shell_roles import Court, found_court, row, runs
from tests.waiting import SOON, stays, wait_until

A_WHILE = 0.4
THRESHOLD = 1.0
KING = row("king")
NEVER = "99999999"


class Owner(StrEnum):
    LAUNCHER = "tmux or supervisord"
    BIN_ROLE = "bin/role"
    WATCHER = "the chamberlain; for the chamberlain itself, the king"


class Stage:
    """A king, his launcher, and a chamberlain who calls the roll when the test says so."""

    def __init__(self, court: Court, steward: Steward, monkeypatch: pytest.MonkeyPatch) -> None:
        self.court = court
        self.steward = steward
        self.set = monkeypatch.setenv
        self.findings: list[RollCallFinding] = []
        self.own = "chamberlain"
        self.rearm = 1e9
        self.period = 0.1
        self.clock = time.monotonic
        self.server = 0
        self.ends = ProcessExits()
        self.roll: RollCall | None = None

    def raise_king(self, *lives: str, beats: bool = True) -> None:
        self.court.behave("king", *lives)
        self.steward.start_launcher([KING])
        if beats:
            self.court.wait_for_beats("king", meanwhile=self.steward.statuses)

    def want(self, word: str) -> None:
        self.court.places.wanted("king").write_text(f"{word}\n")

    def call(self) -> list[RollCallFinding]:
        if self.roll is None:
            disk = Disk(self.court.places.scratch("chamberlain"))
            self.roll = RollCall(
                self.court.places,
                self.steward,
                disk,
                lambda: [KING, row("chamberlain")] if self.own == "king" else [KING],
                own=self.own,
                clock=self.clock,
                ends=self.ends,
                timeouts=Timeouts(hung=0.3, quarantine=self.rearm),
            )
        found = self.roll.call(THRESHOLD, self.period)
        self.findings += found
        return found

    @property
    def lives(self) -> list[int]:
        return self.court.lives("king")

    @property
    def status(self) -> RoleStatus | None:
        return self.steward.statuses().get("king")

    def wait_for_status(self, status: RoleStatus) -> None:
        wait_until(lambda: self.status == status, SOON, f"the launcher says {status}")

    def waits(self) -> bool:
        status = self.status
        return status is not None and status.pid is not None and cmdline(status.pid) == command(KING)

    def bin_roles(self) -> list[int]:
        return [int(process.name) for process in Path("/proc").glob("[0-9]*") if self._is_ours(int(process.name))]

    def _is_ours(self, pid: int) -> bool:
        home = b"KINGDOM_HOME=" + os.fsencode(self.court.places.home)
        return cmdline(pid) == command(KING) and carries(pid, frozenset({home}))

    def launcher_pid(self) -> int:
        status = self.status
        assert status is not None
        return int(Path(f"/proc/{status.pid}/stat").read_text().rpartition(")")[2].split()[1])


def cmdline(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


@pytest.fixture(params=one_of("tmux"))
def stage(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    court = found_court(home, monkeypatch)
    steward: Steward = tables.load(STEWARDS[request.param])(court.places, Timeouts(stop=0.5))
    scene = Stage(court, steward, monkeypatch)
    yield scene
    if scene.server and runs(scene.server):
        os.kill(scene.server, signal.SIGCONT)
    steward.down()
    for pid in court.left():
        os.kill(pid, signal.SIGKILL)


# How a king gets into each state.


def well(stage: Stage) -> None:
    stage.raise_king("beat")


def waiting(stage: Stage) -> None:
    stage.set("KINGDOM_DELAY_FIRST", NEVER)
    stage.raise_king("exit=1", beats=False)
    wait_until(lambda: stage.lives and stage.waits(), SOON, "bin/role waits")


def hung(stage: Stage) -> None:
    stage.raise_king("deaf hang", "beat")


def dead(stage: Stage) -> None:
    stage.raise_king("beat")
    os.kill(stage.lives[0], signal.SIGKILL)


def forgotten(stage: Stage) -> None:
    """A launcher that does not do its duty: tmux without its hook. supervisord has no such switch."""
    if stage.steward.name != "tmux":
        pytest.skip("supervisord restarts whatever it could start once")
    stage.raise_king("beat")
    stage.steward._tmux("break", "the hook", "set-hook", "-gu", "pane-died")  # type: ignore[attr-defined]
    os.kill(stage.lives[0], signal.SIGKILL)
    stage.wait_for_status(RoleStatus(code=-9))


def ended(stage: Stage) -> None:
    stage.raise_king("beat")
    os.kill(stage.lives[0], signal.SIGINT)
    stage.wait_for_status(RoleStatus(code=0))


def stopped(stage: Stage) -> None:
    """tmux knows no such thing: there only `kingdom stop` asks, which is the switch."""
    if stage.steward.name == "tmux":
        pytest.skip("under tmux only kingdom stop asks")
    stage.raise_king("beat")
    stage.steward.stop("king")
    stage.wait_for_status(RoleStatus(code=0, stopped=True))


def displaced(stage: Stage) -> None:
    stage.raise_king("exit=75", "beat", beats=False)
    stage.wait_for_status(RoleStatus(code=75))


def refused(stage: Stage) -> None:
    stage.raise_king("exit=78", beats=False)
    stage.wait_for_status(RoleStatus(code=78))


def mended(stage: Stage) -> None:
    places, file = stage.court.places, stage.court.places.config / "king.yaml"
    make_folder(places.own("king"))
    make_folder(places.config)
    file.write_text("intervals: soon\n")
    error = BadConfig(path=file, line=":1", key="intervals", why="is a text")
    refusals.note(places, Disk(places.scratch("king")), "king", error, refusals.versions([file]))
    stage.raise_king("exit=78", "beat", beats=False)
    stage.wait_for_status(RoleStatus(code=78))
    stays(lambda: (stage.call(), len(stage.lives) == 1)[1], A_WHILE, "left alone until then")
    assert [finding.what for finding in stage.findings] == [What.REFUSED]
    assert f"({error}; correct that" in str(stage.findings.pop())
    file.write_text("")


def absent(stage: Stage) -> None:
    stage.steward.start_launcher([row("envoy")])


def unwanted(stage: Stage) -> None:
    stage.want("down")
    stage.raise_king("beat", beats=False)
    stage.wait_for_status(RoleStatus(code=0))


def lingering(stage: Stage) -> None:
    stage.raise_king("beat")
    stage.want("down")


def quarantined(stage: Stage) -> None:
    stage.set("KINGDOM_DELAY_FIRST", "1")
    stage.set("KINGDOM_SHORT_RUNS", "1")
    stage.raise_king("exit=1", beats=False)
    stage.wait_for_status(RoleStatus(code=78))


def launcher_dead(stage: Stage) -> None:
    stage.set("KINGDOM_DELAY_FIRST", "200")
    stage.raise_king("exit=1", "beat", beats=False)
    wait_until(lambda: stage.lives and stage.waits(), SOON, "bin/role waits")
    os.kill(stage.launcher_pid(), signal.SIGKILL)
    wait_until(lambda: not stage.steward.launcher_runs(), SOON, "the launcher is dead")


def launcher_hung(stage: Stage) -> None:
    stage.raise_king("beat")
    stage.server = stage.launcher_pid()
    os.kill(stage.server, signal.SIGSTOP)


SCENES: dict[State, Callable[[Stage], None]] = {
    State.WELL: well,
    State.WAITING: waiting,
    State.HUNG: hung,
    State.DEAD: dead,
    State.FORGOTTEN: forgotten,
    State.ENDED: ended,
    State.STOPPED: stopped,
    State.DISPLACED: displaced,
    State.REFUSED: refused,
    State.MENDED: mended,
    State.ABSENT: absent,
    State.UNWANTED: unwanted,
    State.LINGERING: lingering,
    State.QUARANTINED: quarantined,
    State.LAUNCHER_DEAD: launcher_dead,
    State.LAUNCHER_HUNG: launcher_hung,
}


# How each action shows.


def leaves(stage: Stage, state: State, owner: Owner) -> None:
    allowed = len(stage.lives) + (state is State.DEAD)  # the launcher's own restart
    act = stage.call if owner is Owner.WATCHER else lambda: None
    stays(lambda: (act(), len(stage.lives) <= allowed)[1], A_WHILE, "left alone")
    assert not stage.findings


def restarts(stage: Stage, state: State, owner: Owner) -> None:
    stage.court.wait_for_beats("king", life=2, meanwhile=stage.steward.statuses)


def delays(stage: Stage, state: State, owner: Owner) -> None:
    ledger = stage.court.places.starts("king")
    wait_until(lambda: stage.waits() or ledger.read_text().startswith("streak 1\n"), SOON, "a short run was counted")


def refuses(stage: Stage, state: State, owner: Owner) -> None:
    lives = len(stage.lives)
    if state is not State.LAUNCHER_DEAD:
        stage.steward.start(KING)
        stage.wait_for_status(RoleStatus(code=78 if state is State.QUARANTINED else 0))
    wait_until(lambda: not stage.bin_roles(), SOON, "bin/role has ended")
    assert len(stage.lives) == lives


def starts(stage: Stage, state: State, owner: Owner) -> None:
    lives = len(stage.lives)
    stage.court.wait_for_beats("king", life=lives + 1, meanwhile=stage.call)
    stays(lambda: (stage.call(), len(stage.lives) == lives + 1)[1], A_WHILE, "started once")
    assert [finding.what for finding in stage.findings] == [What.STARTED]


def replaces(stage: Stage, state: State, owner: Owner) -> None:
    stage.court.wait_for_beats("king", life=2, meanwhile=stage.call)
    assert not runs(stage.lives[0]), "the old one was gone first"
    stays(lambda: (stage.call(), len(stage.lives) == 2)[1], A_WHILE, "replaced once")
    assert [finding.what for finding in stage.findings] == [What.MISSED, What.RESTARTED]


def ends(stage: Stage, state: State, owner: Owner) -> None:
    wait_until(lambda: (stage.call(), not runs(stage.lives[0]))[1], SOON, "ended")
    stays(lambda: (stage.call(), len(stage.lives) == 1)[1], A_WHILE, "not started again")
    assert [finding.what for finding in stage.findings] == [What.STOPPED]


def tells(stage: Stage, state: State, owner: Owner) -> None:
    lives = len(stage.lives)
    stays(lambda: (stage.call(), len(stage.lives) == lives)[1], A_WHILE, "left alone")
    told = What.QUARANTINED if state is State.QUARANTINED else What.REFUSED
    assert [finding.what for finding in stage.findings] == [told]


def kills(stage: Stage, state: State, owner: Owner) -> None:
    """Dead, it is raised again: stage.call goes on with that at once."""
    wait_until(lambda: (stage.call(), not runs(stage.server))[1], SOON, "the launcher is killed")
    assert stage.findings[0].what is What.LAUNCHER_FAILED
    assert {finding.what for finding in stage.findings} <= {What.LAUNCHER_FAILED, What.LAUNCHER_STARTED}


def raises(stage: Stage, state: State, owner: Owner) -> None:
    wait_until(lambda: What.LAUNCHER_STARTED in [finding.what for finding in stage.call()], SOON, "started again")
    assert stage.steward.launcher_runs()
    stage.court.wait_for_beats("king", life=2, meanwhile=stage.steward.statuses)


Show = Callable[[Stage, State, Owner], None]

BY_WATCHER: dict[Action, Show] = {
    Action.LEAVE: leaves,
    Action.START: starts,
    Action.REPLACE: replaces,
    Action.END: ends,
    Action.REPORT: tells,
    Action.KILL_LAUNCHER: kills,
    Action.START_LAUNCHER: raises,
}
BY_BIN_ROLE: dict[State, Show] = {
    State.WAITING: delays,
    State.DEAD: delays,
    State.UNWANTED: refuses,
    State.QUARANTINED: refuses,
    State.LAUNCHER_DEAD: refuses,
}
BY_LAUNCHER: dict[State, Show] = {State.DEAD: restarts}


def show_of(state: State, owner: Owner) -> Show:
    """What an owner does in a state; whoever stands in no table leaves the role alone."""
    if owner is Owner.WATCHER:
        return BY_WATCHER[ACTIONS[state]]
    return (BY_LAUNCHER if owner is Owner.LAUNCHER else BY_BIN_ROLE).get(state, leaves)


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_each_owner_does_its_part_and_no_more(state: State, stage: Stage) -> None:
    SCENES[state](stage)
    for owner in Owner:
        show_of(state, owner)(stage, state, owner)


def test_no_two_start_the_same_role() -> None:
    starters = {restarts, starts, replaces, raises}
    for state in State:
        assert len([owner for owner in Owner if show_of(state, owner) in starters]) <= 1, state


# Rules that span cells.


def test_a_role_that_is_wanted_again_is_started(stage: Stage) -> None:
    lingering(stage)
    ends(stage, State.LINGERING, Owner.WATCHER)
    stage.court.places.wanted("king").unlink()
    stage.court.wait_for_beats("king", life=2, meanwhile=stage.call)


def test_quarantine_is_over_when_the_rest_was_well_for_long_enough(stage: Stage) -> None:
    quarantined(stage)
    stage.court.behave("king", "beat")
    stage.rearm = 0.5
    stage.court.wait_for_beats("king", life=2, meanwhile=stage.call)
    assert [finding.what for finding in stage.findings] == [What.QUARANTINED, What.REARMED]


def test_a_role_that_was_ended_is_soon_back_and_one_that_ends_again_waits_longer(stage: Stage) -> None:
    now = [100.0]
    stage.clock, stage.period, stage.rearm = (lambda: now[0]), 5.0, 600.0
    stage.raise_king("beat")

    for life, seconds in ((1, 2.0), (2, 10.0)):
        stage.court.wait_for_beats("king", life=life, meanwhile=stage.steward.statuses)
        os.kill(stage.lives[-1], signal.SIGTERM)
        stage.wait_for_status(RoleStatus(code=0))
        stage.call()
        now[0] += seconds - 0.1
        stage.call()
        assert stage.status == RoleStatus(code=0)
        now[0] += 0.1
        stage.call()
    stage.court.wait_for_beats("king", life=3, meanwhile=stage.steward.statuses)


def test_nobody_is_started_while_somebody_else_starts_or_stops_roles(stage: Stage) -> None:
    ended(stage)
    with launching(stage.court.places):
        stays(lambda: (stage.call(), len(stage.lives) == 1)[1], A_WHILE, "left alone")
    stage.court.wait_for_beats("king", life=2, meanwhile=stage.call)


def test_the_king_watches_the_chamberlain_alone(stage: Stage) -> None:
    stage.own = "king"
    stage.court.behave("chamberlain", "deaf hang", "beat")
    stage.raise_king("deaf hang", "beat")
    stage.steward.start(row("chamberlain"))
    stage.court.wait_for_beats("chamberlain", life=2, meanwhile=stage.call)
    assert len(stage.lives) == 1
    assert {finding.role for finding in stage.findings} == {"chamberlain"}


def test_a_role_started_by_hand_is_left_alone(stage: Stage) -> None:
    absent(stage)
    by_hand = subprocess.Popen(command(KING), env={**os.environ, "KINGDOM_HOME": str(stage.court.places.home)})
    try:
        stage.court.wait_for_beats("king")
        stays(lambda: (stage.call(), stage.lives == [by_hand.pid])[1], A_WHILE, "left alone")
        assert not stage.findings
    finally:
        by_hand.terminate()
        assert by_hand.wait(SOON) == 0


def test_the_end_of_a_role_wakes_its_watcher_who_then_looks_closely(stage: Stage) -> None:
    """A launcher may notice an end late: being asked reminds it."""
    stage.period = 5.0
    well(stage)
    stage.call()
    assert stage.roll is not None
    assert stage.roll.wait == stage.period
    waker = Waker(())
    waker.add_descriptor(stage.ends.fileno())
    assert not stage.roll.someone_ended()
    os.kill(stage.lives[0], signal.SIGKILL)
    waker.wait(SOON)
    assert stage.roll.someone_ended()
    stage.call()
    assert stage.roll.wait == roll_call.SOON
    waker.close()
