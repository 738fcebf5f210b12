"""The machine's health: thresholds, smoothing, alerts on transitions, and what is done when memory runs out."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from kingdom.chamberlain import job
from kingdom.chamberlain.job import ChamberlainJob
from kingdom.chamberlain.vitals import Health, Meter, Reading
from kingdom.disk.codec import read_json
from tests.fixtures import Clock, all_of, services

THRESHOLDS = {"yellow": 60.0, "orange": 80.0, "red": 90.0}


def reading(cpu: float = 5.0, memory: float = 5.0, disk: float = 5.0) -> Reading:
    return Reading(cpu, memory, disk, (0.1, 0.1, 0.1))


@pytest.mark.parametrize(
    ("percent", "health"),
    [(0, "green"), (59.9, "green"), (60, "yellow"), (80, "yellow"), (80.1, "orange"), (90, "orange"), (90.1, "red")],
)
@pytest.mark.parametrize("of", ["cpu", "memory"])
def test_the_worse_of_cpu_and_memory_is_the_health(percent: float, health: str, of: str) -> None:
    judge = Health()
    seen = [judge.judge(reading(**{of: percent}), THRESHOLDS) for _ in range(3)]
    assert seen[-1] == health


def test_one_busy_moment_is_no_alarm() -> None:
    judge = Health()
    assert judge.judge(reading(cpu=100), THRESHOLDS) == "green"
    assert judge.judge(reading(cpu=5), THRESHOLDS) == "green"


def test_a_busy_minute_is() -> None:
    judge = Health()
    assert [judge.judge(reading(cpu=100), THRESHOLDS) for _ in range(3)] == ["green", "yellow", "red"]


class Machine:
    """What the next measurement will say."""

    def __init__(self) -> None:
        self.now = reading()

    def measure(self, home: Path) -> Reading:
        return self.now


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    stand_in = Machine()
    monkeypatch.setattr(job, "Meter", lambda: stand_in)
    return stand_in


def letters(home: Path) -> list[str]:
    return [letter["content"] for letter in all_of(home, "messages", "pending")]


def test_resources_json_says_what_was_measured(home: Path, machine: Machine) -> None:
    machine.now = reading(cpu=7.04, memory=8.06)
    ours = services(home, "chamberlain", Clock())
    ChamberlainJob(ours).turn(None)
    vitals = read_json(ours.places.resources)
    assert vitals["timestamp"] == "2026-02-07T10:00:00Z"
    assert (vitals["system"]["cpu_percent"], vitals["system"]["memory_percent"]) == (7.0, 8.1)
    assert vitals["sessions"] == {"soldiers_active": 0, "soldiers_max": 3, "list": []}
    assert vitals["health"] == "green"
    assert vitals["judged_by"]["cpu_percent"] == round(vitals["system"]["cpu_percent"] / 3, 1)


def test_a_red_machine_is_one_alert_however_long_it_stays_red(home: Path, machine: Machine) -> None:
    machine.now = reading(memory=95)
    ours = services(home, "chamberlain", Clock(), chamberlain={"intervals": {"vitals_seconds": 0.0001}})
    role = ChamberlainJob(ours)
    for _ in range(6):
        role.turn(None)
    assert len(letters(home)) == 1
    assert "red" in letters(home)[0]


def test_a_full_disk_is_one_alert(home: Path, machine: Machine) -> None:
    machine.now = reading(disk=86)
    ours = services(home, "chamberlain", Clock(), chamberlain={"intervals": {"vitals_seconds": 0.0001}})
    role = ChamberlainJob(ours)
    for _ in range(4):
        role.turn(None)
    assert [("86 % full" in text) for text in letters(home)] == [True]


def test_a_mistake_in_the_kings_configuration_is_the_kings(home: Path, machine: Machine) -> None:
    quick = {"intervals": {"vitals_seconds": 0.0001}}
    ours = services(home, "chamberlain", Clock(), chamberlain=quick, king={"concurrency": {"max_soldiers": 7}})
    role = ChamberlainJob(ours)
    role.turn(None)
    (ours.places.config / "king.yaml").write_text("concurrency: {max_soldiers: none}\n")
    for _ in range(3):
        ours.places.resources.unlink()
        ours.places.dashboard.unlink(missing_ok=True)
        role.turn(None)
        assert read_json(ours.places.resources)["sessions"]["soldiers_max"] == 7, "what the king keeps"
    ours.log.flush()
    assert ours.places.role_log("chamberlain").read_text().count("cannot read max_soldiers") == 1
    ChamberlainJob(ours).turn(None)
    assert read_json(ours.places.resources)["sessions"]["soldiers_max"] is None, "nobody knows"


def test_the_first_measurement_knows_nothing_of_the_processor(home: Path) -> None:
    meter = Meter()
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        pass
    assert meter.measure(home).cpu_percent == 0
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        pass
    assert meter.measure(home).cpu_percent > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk")
def test_a_disk_without_inodes_is_full(tmp_path: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,nr_inodes=20", "tmpfs", tmp_path], check=False)
    if mounted.returncode:
        pytest.skip("NO SMALL DISK: nothing may be mounted here")
    try:
        for number in range(18):
            (tmp_path / str(number)).touch()
        assert Meter().measure(tmp_path).disk_percent > 90
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
