"""A soldier as its general sees it, one look at a time."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.lock import Lock
from kingdom.base.home.places import Places
from kingdom.base.records.soldiers import RawReport, SoldierOrder, Started, Stopping
from kingdom.base.runtime.processes import carriers, seconds_suspended, since_boot, soldier_markers, started_at
from kingdom.court.soldiers.handle import Look, SoldierHandle, last_output
from kingdom.court.soldiers.starter import Starter
from tests.base.records.test_soldiers import ORDER
from tests.fixtures import Clock, founded, services, write
from tests.waiting import SOON, stays, wait_until

TASK = "task-20260207-001"


@pytest.fixture
def places(home: Path) -> Places:
    return founded(home)


@pytest.fixture
def soldier(places: Places) -> SoldierHandle:
    soldier = SoldierHandle(places, "gen-pr", TASK)
    soldier.control_folder.mkdir(parents=True)
    return soldier


def test_of_a_soldier_that_never_was_there_is_nothing(places: Places) -> None:
    soldier = SoldierHandle(places, "gen-pr", TASK)
    assert soldier.look(0) == Look(False, None, None, None)
    assert (soldier.order, soldier.stderr_tail(), soldier.left_traces()) == (None, "", False)


def test_one_look_sees_its_lock_its_notes_and_its_report(places: Places, soldier: SoldierHandle) -> None:
    write(soldier.control_folder / "started", Started(7, 99, 1).to_json())
    write(soldier.control_folder / "stopping", Stopping("timeout", 3.5).to_json())
    write(soldier.control_folder / "order.json", ORDER.to_json())
    report = RawReport(1, task_id=TASK, ended="by itself", exit_code=0)
    write(places.raw_result(TASK), report.to_json())
    lock = Lock(soldier.control_folder / "lock", TASK)
    lock.acquire()
    assert soldier.look(1) == Look(True, Started(7, 99, 1), Stopping("timeout", 3.5), report)
    lock.release()
    assert soldier.look(1).has_ended(1)
    assert not soldier.look(2).has_ended(2), "an earlier try's"
    assert soldier.order == ORDER


def test_a_report_of_another_try_is_none(places: Places, soldier: SoldierHandle) -> None:
    write(places.raw_result(TASK), RawReport(0).to_json())
    assert soldier.look(1).report is None


DAMAGED: list[dict[str, Any]] = [{}, {"attempt": "0"}, {"attempt": 0, "result": "x"}, {"attempt": 0, "code": "x"}]


@pytest.mark.parametrize("damaged", DAMAGED, ids=str)
def test_a_damaged_report_is_none(places: Places, soldier: SoldierHandle, damaged: dict[str, Any]) -> None:
    write(places.raw_result(TASK), damaged)
    assert soldier.look(0).report is None


@pytest.mark.parametrize("text", [b"", b"{", b'{"pid": 1}', b'{"pid": "x", "start": 1, "attempt": 0}', b"[]"])
def test_a_damaged_note_is_none(soldier: SoldierHandle, text: bytes) -> None:
    for name in ("started", "stopping"):
        (soldier.control_folder / name).write_bytes(text)
    assert soldier.look(0) == Look(False, None, None, None)


def test_time_is_counted_from_the_start_of_its_process() -> None:
    start = started_at(os.getpid())
    assert start is not None
    an_hour = 3600 * os.sysconf("SC_CLK_TCK")
    assert Look(True, Started(os.getpid(), start - an_hour, 0), None, None).seconds >= 3600
    assert Look(True, None, None, None).seconds == 0


def test_of_one_whose_process_has_served_others_only_its_own_time_counts() -> None:
    assert Look(
        True, Started(os.getpid(), 0, 0, seconds_suspended(), since_boot() - 90), None, None
    ).seconds == pytest.approx(90, abs=1)


def test_a_soldier_is_not_charged_for_the_time_that_the_machine_was_suspended() -> None:
    start = started_at(os.getpid())
    assert start is not None
    start -= 3600 * os.sysconf("SC_CLK_TCK")
    whole = Look(True, Started(os.getpid(), start, 0, seconds_suspended()), None, None).seconds
    after_a_night = Look(True, Started(os.getpid(), start, 0, seconds_suspended() - 3000), None, None).seconds
    assert (whole >= 3600, after_a_night) == (True, pytest.approx(whole - 3000, abs=1))


@pytest.fixture
def sleeper(places: Places) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the soldier's markers."""
    marks = {"KINGDOM_HOME": str(places.home), "KINGDOM_SOLDIER": TASK}
    with subprocess.Popen(["sleep", "300"], env={"PATH": os.environ["PATH"], **marks}) as child:
        wait_until(lambda: carriers(soldier_markers(places.home, TASK)), SOON, "it shows its environment")
        yield child
        child.kill()


def test_who_is_asked_to_end_is_told_so_after_the_reason_is_noted(
    places: Places, soldier: SoldierHandle, sleeper: subprocess.Popen[bytes]
) -> None:
    soldier.request_stop(Disk(places.scratch("gen-pr"), durability="process"), "timeout", 3.5)
    assert sleeper.wait(SOON) == -signal.SIGTERM
    assert soldier.look(0).stopping == Stopping("timeout", 3.5)


def test_who_could_not_be_noted_as_stopped_is_not_asked_to_end(
    places: Places, soldier: SoldierHandle, sleeper: subprocess.Popen[bytes]
) -> None:
    places.scratch("gen-pr").write_text("no folder: nothing can be written")
    with pytest.raises(OSError, match="gen-pr"):
        soldier.request_stop(Disk(places.scratch("gen-pr"), durability="process"), "timeout", 3.5)
    stays(lambda: sleeper.poll() is None, 0.2, "it lives")


class Midwife:
    """Starts nobody: says that this process was started, by its warm server or, when that fails, directly."""

    def __init__(self, warm: bool) -> None:
        self.warm = warm
        self.environments: list[Mapping[str, str]] = []

    def start(self, environment: Mapping[str, str], errors: Path, lock: Lock) -> int | None:
        self.environments.append(environment)
        return os.getpid() if self.warm else None

    def wait(self, serving: int) -> int:
        return serving

    def start_slowly(self, task: str, environment: Mapping[str, str], errors: Path, lock: Lock) -> int:
        self.environments.append(environment)
        return os.getpid()


def begun(
    soldier: SoldierHandle, disk: Disk, order: SoldierOrder, environment: Mapping[str, str], starter: Starter
) -> Started | None:
    starting = soldier.start(disk, order, environment, starter)
    assert starting is not None
    return soldier.finish_start(disk, starting, starter)


@pytest.mark.parametrize(("warm", "tries"), [(True, 1), (False, 2)])
def test_a_soldier_is_started_with_its_order_and_its_start_is_noted(
    places: Places, soldier: SoldierHandle, warm: bool, tries: int
) -> None:
    midwife, disk = Midwife(warm), Disk(places.scratch("gen-pr"), durability="process")
    started = begun(soldier, disk, ORDER, {"A": "1"}, midwife)  # type: ignore[arg-type]
    assert started is not None
    assert (started.pid, started.attempt, soldier.look(0).started) == (os.getpid(), ORDER.attempt, started)
    order = soldier.control_folder / "order.json"
    assert midwife.environments == [{"A": "1", "KINGDOM_ORDER": str(order)}] * tries
    assert SoldierHandle(places, "gen-pr", TASK).order == soldier.order == ORDER
    assert (soldier.folder.is_dir(), soldier.is_running()) == (True, False)


def test_a_soldier_whose_report_is_there_is_not_started_directly_as_well(
    places: Places, soldier: SoldierHandle
) -> None:
    write(places.raw_result(TASK), RawReport(ORDER.attempt, task_id=TASK, ended="by itself").to_json())
    midwife = Midwife(warm=False)
    disk = Disk(places.scratch("gen-pr"), durability="process")
    assert begun(soldier, disk, ORDER, {}, midwife) is None  # type: ignore[arg-type]
    assert len(midwife.environments) == 1


def test_a_start_that_nobody_noted_is_found_by_its_process(
    places: Places, soldier: SoldierHandle, sleeper: subprocess.Popen[bytes]
) -> None:
    disk = Disk(places.scratch("gen-pr"), durability="process")
    noted = soldier.note_unrecorded_start(disk, 2)
    assert noted is not None
    assert (noted.pid, noted.start, noted.attempt) == (sleeper.pid, started_at(sleeper.pid), 2)
    assert soldier.look(2).started == noted
    assert soldier.kill() == 1
    assert sleeper.wait(SOON) == -signal.SIGKILL
    assert soldier.note_unrecorded_start(disk, 2) is None


@pytest.mark.parametrize(
    ("result", "used"),
    [
        ({"metrics": {"cost_usd": 0.5, "tokens_used": 7, "turns": 3}}, {"cost_usd": 0.5, "tokens_used": 7}),
        ({"metrics": {"cost_usd": 0, "tokens_used": "7"}}, {}),
        ({"metrics": [1]}, {}),
        ({}, {}),
        (None, {}),
    ],
)
def test_what_a_soldier_has_used_is_what_its_engine_has_told(
    home: Path, soldier: SoldierHandle, result: dict[str, Any] | None, used: dict[str, float]
) -> None:
    order = ORDER._replace(result_path=str(home / "result.json"))
    write(soldier.control_folder / "order.json", order.to_json())
    if result is not None:
        write(home / "result.json", {"status": "success", **result})
    assert soldier.used() == used


def test_what_the_run_before_has_written_is_gone_when_a_soldier_starts(
    home: Path, places: Places, soldier: SoldierHandle
) -> None:
    soldier.folder.mkdir(parents=True)
    soldier.result_path.write_text("{}")
    given = services(home, "gen-pr", Clock())
    starter = Starter(home, given.log, given.alarm)
    starter._slow_until = inf
    order = ORDER._replace(result_path=str(soldier.result_path))
    assert begun(soldier, given.unsynced, order, {"KINGDOM_HOME": str(home)}, starter) is not None
    assert not soldier.result_path.exists()
    wait_until(lambda: (starter.reap(), starter._children)[1] == [], SOON, "it has ended: its order leads nowhere")


def test_a_cleared_soldier_leaves_nothing(places: Places, soldier: SoldierHandle) -> None:
    (soldier.control_folder / "deep").mkdir()
    soldier.folder.mkdir(parents=True)
    write(places.raw_result(TASK), {"attempt": 0})
    assert soldier.left_traces()
    soldier.clear(Disk(places.scratch("gen-pr"), durability="process"))
    assert not soldier.left_traces()


def test_the_last_output_is_that_of_the_younger_log(home: Path) -> None:
    for name, at in (("out", 100), ("err", 200)):
        (home / name).touch()
        os.utime(home / name, (at, at))
    assert last_output([home / "out", home / "err", home / "none"]) == 200
    assert last_output([home / "none"]) == 0
