"""The chamberlain's turn: what each part of it leaves, in a home without roles."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.records import notes
from kingdom.base.records.messages import SessionRow
from kingdom.base.records.sessions import Sessions
from kingdom.base.runtime.role import Services
from kingdom.court.chamberlain import job
from kingdom.court.chamberlain.cleanup import PAUSE_SECONDS
from kingdom.court.chamberlain.job import ChamberlainJob
from kingdom.court.chamberlain.vitals import MachineReading
from kingdom.court.steward.roll_call import RollCallFinding, What
from tests.fixtures import Clock, all_of, founded, services, write
from tests.waiting import SOON, wait_until

TASK = "task-20260207-001"


class Machine:
    """What the next measurement will say."""

    available = 9000.0

    def measure(self, home: Path) -> MachineReading:
        return MachineReading(5.0, 5.0, self.available, 50.0, 5.0, (0.1, 0.1, 0.1))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    stand_in = Machine()
    monkeypatch.setattr(job, "Meter", lambda: stand_in)
    return stand_in


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ours(home: Path, clock: Clock, machine: Machine) -> Services:
    return replace(services(home, "chamberlain", clock), monotonic=clock)


def told(ours: Services, type: str) -> list[dict[str, Any]]:
    ours.log.flush()
    log = ours.places.events_log
    every = [json.loads(line) for line in (log.read_text() if log.exists() else "").splitlines()]
    return [about["data"] for about in every if about["type"] == type]


def test_the_folders_that_wake_it_are_there(ours: Services) -> None:
    assert all(folder.is_dir() for folder in ChamberlainJob(ours).folders())


def test_what_outlived_its_soldier_is_ended_and_told(ours: Services) -> None:
    notes.note_soldier(ours.places, ours.unsynced, TASK, f"soldier-{TASK}-0")
    sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
    marks = {"KINGDOM_HOME": str(ours.places.home), "KINGDOM_SOLDIER": TASK}
    with subprocess.Popen(sleeper, env={"PATH": os.environ["PATH"], **marks}) as orphan:
        wait_until(Path(f"/proc/{orphan.pid}/environ").read_bytes, SOON, "the process shows its environment")
        ChamberlainJob(ours).turn(None)
        assert orphan.wait(SOON) == -signal.SIGKILL
    assert told(ours, "system.session_orphaned") == [
        {"soldier_id": f"soldier-{TASK}-0", "task_id": TASK, "processes": 1}
    ]
    log = ours.places.role_log("chamberlain").read_text()
    assert f"ended 1 processes that outlived the soldier of {TASK}" in log


def test_a_home_that_is_at_work_is_noted(ours: Services, tmp_path: Path) -> None:
    other = founded(tmp_path)
    sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
    with subprocess.Popen(sleeper, env={"PATH": os.environ["PATH"], "KINGDOM_HOME": str(tmp_path)}) as role:
        wait_until(Path(f"/proc/{role.pid}/environ").read_bytes, SOON, "the process shows its environment")
        ChamberlainJob(ours).turn(None)
        role.kill()
    assert other.home in ours.places.known_neighbours()


def test_memory_that_stays_short_costs_a_soldier_at_every_second_look(
    ours: Services, clock: Clock, machine: Machine
) -> None:
    role = ChamberlainJob(ours)
    role.turn(None)
    rows = Sessions(ours.places, ours.unsynced)
    rows.add(SessionRow(soldier=f"soldier-{TASK}-0", task_id=TASK, general="gen-pr"))
    rows.write()
    notes.note_soldier(ours.places, ours.unsynced, TASK, f"soldier-{TASK}-0")
    role._next_roll_call = clock() + 1e6
    stopped = []
    for available in (100, 9000, 100, 100, 100, 100):
        machine.available = available
        clock.pass_(3600)
        role.turn(None)
        stopped.append(len(told(ours, "recovery.session_killed")))
    assert stopped == [0, 0, 0, 1, 1, 2]
    assert told(ours, "recovery.session_killed")[0] == {"target": f"soldier-{TASK}-0", "task_id": TASK}
    assert f"100 MB of memory are left: stopped the soldier of {TASK}" in ours.places.system_log.read_text()


@dataclass
class RollCall:
    """What the next roll call will find."""

    findings: list[RollCallFinding]
    wait = 10.0

    def call(self, threshold: float, period: float) -> list[RollCallFinding]:
        return self.findings

    def someone_ended(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("what", "is_told", "ends"),
    [
        (What.RESTARTED, True, False),
        (What.QUARANTINED, True, False),
        (What.REFUSED, True, False),
        (What.LAUNCHER_FAILED, True, False),
        (What.LAUNCHER_STARTED, True, True),
        (What.STARTED, False, False),
        (What.MISSED, False, False),
    ],
)
def test_people_are_told_of_what_a_roll_call_could_not_mend_quietly(
    ours: Services, what: What, is_told: bool, ends: bool
) -> None:
    role = ChamberlainJob(ours)
    role._roll_call = RollCall([RollCallFinding("king", what, "king 1")])  # type: ignore[assignment]
    assert role.turn(None).ended is ends
    messages = [message["content"] for message in all_of(ours.places.home, "messages", "pending")]
    assert messages == ([f"[alert] king: {what}"] if is_told else [])
    assert f"king: {what}" in (ours.log.flush() or ours.places.role_log("chamberlain").read_text())


def test_a_turn_leaves_the_figures_the_dashboard_and_the_counts(ours: Services, clock: Clock) -> None:
    role = ChamberlainJob(ours)
    role.turn(None)
    assert "kingdom_" in ours.places.metrics.read_text()
    assert read_json(ours.places.dashboard)
    counts = ours.places.analysis / "stats.json"
    before = read_json(counts)["updated_at"]
    ours.log.event("system.startup", role="king")
    ours.log.flush()
    role.turn(None)
    assert read_json(counts)["updated_at"] == before, "not before the next measurement is due"
    clock.pass_(3600)
    role.turn(None)
    assert read_json(counts)["totals"]["system_startup"] == 1


def test_a_cleaning_that_is_asked_for_begins_at_the_next_turn_and_goes_on_soon(ours: Services) -> None:
    role = ChamberlainJob(ours)
    role.folders()
    write(ours.places.cleanup_request, {"id": "a request"})
    assert role.turn(None).wait <= PAUSE_SECONDS
    assert read_json(ours.places.cleanup)["why"] == "somebody asked for it"


def test_new_configuration_is_taken_over_by_all_of_it(ours: Services, clock: Clock) -> None:
    role = ChamberlainJob(ours)
    role.turn(None)
    later = replace(services(ours.places.home, "chamberlain", clock, system={"timezone": "Pacific/Kiritimati"}))
    role.reload(later)
    for part in (role, role._alerts, role._cleanup, role._chronicle, role._ledger, role._reports):
        assert part._services is later
    for part in (role._alerts, role._cleanup, role._chronicle, role._reports):
        assert str(part._zone) == "Pacific/Kiritimati"


def test_no_report_is_sent_while_heartbeats_look_old_because_the_machine_slept(home: Path, machine: Machine) -> None:
    wall, awake = Clock(), Clock()
    role = ChamberlainJob(replace(services(home, "chamberlain", wall), monotonic=awake))
    sent: list[float] = []
    role._reports.send = lambda *_: sent.append(awake())  # type: ignore[method-assign]

    def live(seconds: int) -> int:
        for _ in range(seconds):
            wall.pass_(1)
            awake.pass_(1)
            role._next_count = 0.0
            role.turn(None)
        return len(sent)

    assert live(59) == 0
    assert live(2) == 1
    wall.pass_(8 * 3600)
    assert live(59) == 1
    assert live(3) > 1
