"""Order among the soldiers: what outlived its task is ended, and nobody else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kingdom.base.disk.lock import Lock
from kingdom.base.records import sessions
from kingdom.base.records.messages import SessionRow
from kingdom.base.records.sessions import Sessions
from kingdom.base.runtime.processes import started_at
from kingdom.base.runtime.role import Services
from kingdom.court.chamberlain import orphans
from tests.fixtures import Clock, services
from tests.waiting import SOON, stays, wait_until

TASK = "task-20260207-001"
SLEEPER = [sys.executable, "-c", "import signal; signal.pause()"]


@pytest.fixture
def ours(home: Path) -> Services:
    return services(home, "chamberlain", Clock())


@contextmanager
def process(*words: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(words or SLEEPER, env={"PATH": os.environ["PATH"], **environment}, start_new_session=True)
    # Popen returns before the kernel shows the new program's environment.
    wait_until(Path(f"/proc/{child.pid}/environ").read_bytes, SOON, "the process shows its environment")
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def marks(ours: Services, task: str = TASK) -> dict[str, str]:
    return {"KINGDOM_HOME": str(ours.places.home), "KINGDOM_SOLDIER": task}


def gone(child: subprocess.Popen[bytes]) -> bool:
    return child.poll() is not None


def test_a_process_whose_soldier_is_no_more_is_ended(ours: Services) -> None:
    with process(**marks(ours)) as orphan:
        (found,) = orphans.kill(ours)
        assert (found.task, found.ended) == (TASK, 1)
        wait_until(lambda: gone(orphan), SOON, "the orphan is gone")
        assert orphan.returncode == -signal.SIGKILL


def enlist(ours: Services, row: SessionRow) -> None:
    rows = Sessions(ours.places, ours.unsynced)
    rows.add(row)
    rows.write()


def test_a_lock_that_nobody_holds_protects_no_process(ours: Services) -> None:
    lock = Lock(ours.places.control_folder("gen-pr", TASK) / "lock", TASK)
    lock.acquire()
    lock.release()
    enlist(ours, SessionRow(soldier=f"soldier-{TASK}-0", task_id=TASK, general="gen-pr"))
    with process(**marks(ours)) as orphan:
        (found,) = orphans.kill(ours)
        assert (found.task, found.ended) == (TASK, 1)
        wait_until(lambda: gone(orphan), SOON, "the orphan is gone")
    assert sessions.read(ours.places) == []


def test_a_whole_tree_of_orphans_goes(ours: Services, tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    script = (
        f"(setsid nohup sleep 600 & echo $! >> {noted}); sleep 600 & echo $! >> {noted}; echo done >> {noted}; wait"
    )
    with process("/bin/sh", "-c", script, **marks(ours)):
        wait_until(lambda: noted.exists() and "done" in noted.read_text(), SOON, "the tree stands")
        list(orphans.kill(ours))
        pids = [int(line) for line in noted.read_text().split() if line.isdigit()]
        wait_until(lambda: not any(started_at(pid) for pid in pids), SOON, "every member is gone")


def test_soldiers_that_are_out_are_left_alone(ours: Services) -> None:
    lock = Lock(ours.places.control_folder("gen-pr", TASK) / "lock", TASK)
    lock.acquire()
    with process(**marks(ours)) as soldier:
        assert list(orphans.kill(ours)) == []
        stays(lambda: not gone(soldier), 0.2, "the soldier lives")
    lock.release()


@pytest.mark.parametrize(
    "look_alike",
    [
        {"KINGDOM_SOLDIER": TASK},
        {"KINGDOM_SOLDIER": TASK, "KINGDOM_HOME": "/somewhere/else"},
        {"KINGDOM_SOLDIERS": TASK, "OLD_KINGDOM_SOLDIER": TASK},
        {"NOTE": f"KINGDOM_SOLDIER={TASK}"},
    ],
    ids=["no home", "another home", "other names", "in a value"],
)
def test_look_alikes_are_left_alone(ours: Services, look_alike: dict[str, str]) -> None:
    with process(**look_alike) as innocent, process("sleep", "60", KINGDOM_HOME=str(ours.places.home)) as role:
        assert list(orphans.kill(ours)) == []
        stays(lambda: not gone(innocent) and not gone(role), 0.2, "the other processes run")


def test_a_program_that_is_tried_by_hand_is_left_alone(ours: Services) -> None:
    """So are the soldiers of a foreign general."""
    with process(KINGDOM_HOME=str(ours.places.home), KINGDOM_TASK_ID=TASK) as by_hand:
        assert list(orphans.kill(ours)) == []
        stays(lambda: not gone(by_hand), 0.2, "it lives")


def test_a_foreign_row_stays(ours: Services) -> None:
    foreign = {"id": "session-7", "task_id": TASK, "started_at": "2026-11-18T08:00:00Z"}
    ours.places.sessions.write_text(json.dumps([foreign]))
    list(orphans.kill(ours))
    assert orphans.stop_newest(ours) is None
    assert json.loads(ours.places.sessions.read_text()) == [foreign]


def test_a_task_whose_name_begins_like_an_orphans_is_left_alone(ours: Services) -> None:
    lock = Lock(ours.places.control_folder("gen-pr", f"{TASK}0") / "lock", "x")
    lock.acquire()
    with process(**marks(ours)) as orphan, process(**marks(ours, f"{TASK}0")) as soldier:
        assert [found.task for found in orphans.kill(ours)] == [TASK]
        wait_until(lambda: gone(orphan), SOON, "the orphan is gone")
        assert not gone(soldier)
    lock.release()


def test_sessions_name_only_soldiers_that_run(ours: Services) -> None:
    lock = Lock(ours.places.control_folder("gen-pr", TASK) / "lock", TASK)
    lock.acquire()
    for task in (TASK, "task-20260207-002"):
        row = SessionRow(soldier=f"soldier-{task}-0", task_id=task, general="gen-pr")
        enlist(ours, row)
    list(orphans.kill(ours))
    assert [row.task_id for row in sessions.read(ours.places)] == [TASK]
    lock.release()


def test_when_memory_runs_out_the_newest_of_the_least_urgent_goes(ours: Services) -> None:
    for task, priority, started in (("t-1", "low", "10:00"), ("t-2", "low", "10:05"), ("t-3", "high", "10:09")):
        row = SessionRow(
            soldier=f"soldier-{task}-0", task_id=task, priority=priority, started_at=f"2026-02-07T{started}:00Z"
        )
        enlist(ours, row)
    with process(**marks(ours, "t-2")) as victim, process(**marks(ours, "t-3")) as spared:
        assert orphans.stop_newest(ours) == "t-2"
        wait_until(lambda: gone(victim), SOON, "the victim is gone")
        assert not gone(spared)


def test_damaged_rows_name_no_soldier_and_stop_no_turn(ours: Services) -> None:
    rows = [
        3,
        {},
        {"task_id": None},
        {"task_id": 7, "priority": "low"},
        {"task_id": TASK, "soldier": f"soldier-{TASK}-0", "started_at": 3},
    ]
    ours.places.sessions.write_text(json.dumps(rows))
    assert [row.task_id for row in sessions.read(ours.places)] == [TASK]
    assert orphans.stop_newest(ours) == TASK
    assert list(orphans.kill(ours)) == []
    assert json.loads(ours.places.sessions.read_text()) == []


@pytest.mark.parametrize("damage", ["", "[", '[{"task_id"'])
def test_a_sessions_file_that_a_power_cut_has_damaged_can_be_read_again(damage: str, ours: Services) -> None:
    ours.places.sessions.write_text(damage)
    list(orphans.kill(ours))
    assert json.loads(ours.places.sessions.read_text()) == []


def test_a_sessions_file_is_not_made_without_soldiers(ours: Services) -> None:
    Sessions(ours.places, ours.unsynced).repair()
    assert not ours.places.sessions.exists()
