"""The machine's health: thresholds, smoothing, alerts on transitions, and what is done when memory runs out."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.court.chamberlain import job
from kingdom.court.chamberlain.job import ChamberlainJob
from kingdom.court.chamberlain.vitals import Health, MachineReading, Meter, memory_pressure
from tests.fixtures import Clock, all_of, services

THRESHOLDS = {"yellow": 60.0, "orange": 80.0, "red": 90.0}
THRESHOLDS |= {"memory_orange_mb": 400.0, "memory_red_mb": 200.0, "memory_pressure_percent": 10.0}


def reading(
    cpu: float = 5.0,
    memory: float = 5.0,
    disk: float = 5.0,
    available: float = 9000.0,
    pressure: float | None = 0.0,
) -> MachineReading:
    return MachineReading(cpu, memory, available, pressure, disk, (0.1, 0.1, 0.1))


def judged(**figures: float | None) -> str:
    judge = Health()
    return [judge.judge(reading(**figures), THRESHOLDS) for _ in range(3)][-1]


@pytest.mark.parametrize(
    ("percent", "health"),
    [(0, "green"), (59.9, "green"), (60, "yellow"), (80, "yellow"), (80.1, "orange"), (90, "orange"), (90.1, "red")],
)
def test_the_health_by_cpu(percent: float, health: str) -> None:
    assert judged(cpu=percent) == health


@pytest.mark.parametrize(
    ("memory", "available", "pressure", "health"),
    [
        (59.9, 9000, 90, "green"),
        (60, 9000, 90, "yellow"),
        (99, 9000, 90, "yellow"),
        (99, 400, 90, "yellow"),
        (99, 399, 10, "yellow"),
        (99, 399, 10.1, "orange"),
        (99, 200, 90, "orange"),
        (99, 199, 10, "yellow"),
        (99, 199, 10.1, "red"),
        (20, 199, 90, "red"),
        (20, 399, 0, "green"),
        # not measured by this kernel
        (99, 400, None, "yellow"),
        (99, 399, None, "orange"),
        (99, 199, None, "red"),
    ],
)
def test_the_health_by_memory(memory: float, available: float, pressure: float | None, health: str) -> None:
    assert judged(memory=memory, available=available, pressure=pressure) == health


def test_the_worse_of_cpu_and_memory_is_the_health() -> None:
    assert judged(cpu=85, available=100, pressure=50) == "red"
    assert judged(cpu=95, memory=70) == "red"


def test_a_threshold_of_101_switches_its_level_off() -> None:
    off = THRESHOLDS | {"yellow": 101.0, "orange": 101.0, "red": 101.0}
    judge = Health()
    assert {judge.judge(reading(100, 100, available=0, pressure=100), off) for _ in range(3)} == {"green"}


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        ("some avg10=12.50 avg60=3.00 avg300=1.00 total=1\nfull avg10=1.00 avg60=0 avg300=0 total=0\n", 12.5),
        ("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", 0.0),
        ("some avg10=? total=0\n", None),
        ("", None),
        (None, None),
    ],
)
def test_the_pressure_on_memory(tmp_path: Path, text: str | None, percent: float | None) -> None:
    if text is not None:
        (tmp_path / "memory").write_text(text)
    assert memory_pressure(tmp_path / "memory") == percent


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

    def measure(self, home: Path) -> MachineReading:
        return self.now


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    stand_in = Machine()
    monkeypatch.setattr(job, "Meter", lambda: stand_in)
    return stand_in


def messages(home: Path) -> list[str]:
    return [message["content"] for message in all_of(home, "messages", "pending")]


def test_resources_json_says_what_was_measured(home: Path, machine: Machine) -> None:
    machine.now = reading(cpu=7.04, memory=8.06)
    ours = services(home, "chamberlain", Clock())
    ChamberlainJob(ours).turn(None)
    vitals = read_json(ours.places.resources)
    assert vitals["timestamp"] == "2026-02-07T10:00:00Z"
    assert (vitals["system"]["cpu_percent"], vitals["system"]["memory_percent"]) == (7.0, 8.1)
    assert (vitals["system"]["memory_available_mb"], vitals["system"]["memory_pressure_percent"]) == (9000, 0.0)
    assert vitals["sessions"] == {"soldiers_active": 0, "soldiers_max": 3, "list": []}
    assert vitals["health"] == "green"
    assert vitals["judged_by"]["cpu_percent"] == round(vitals["system"]["cpu_percent"] / 3, 1)


def test_a_red_machine_is_one_alert_however_long_it_stays_red(home: Path, machine: Machine) -> None:
    machine.now = reading(available=100, pressure=50)
    ours = services(home, "chamberlain", Clock(), chamberlain={"intervals": {"vitals_seconds": 0.0001}})
    role = ChamberlainJob(ours)
    for _ in range(6):
        role.turn(None)
    assert len(messages(home)) == 1
    assert "red" in messages(home)[0]


def test_a_full_disk_is_one_alert(home: Path, machine: Machine) -> None:
    machine.now = reading(disk=86)
    ours = services(home, "chamberlain", Clock(), chamberlain={"intervals": {"vitals_seconds": 0.0001}})
    role = ChamberlainJob(ours)
    for _ in range(4):
        role.turn(None)
    assert [("86 % full" in text) for text in messages(home)] == [True]


def test_a_disk_that_gets_room_and_is_full_again_is_told_again(home: Path, machine: Machine) -> None:
    clock = Clock()
    ours = services(home, "chamberlain", clock, chamberlain={"intervals": {"vitals_seconds": 0.0001}})
    role = ChamberlainJob(ours)
    for percent in (86, 86, 50, 86):
        machine.now = reading(disk=percent)
        role.turn(None)
        clock.pass_(4000)
    ours.log.flush()
    assert [("86 % full" in text) for text in messages(home)] == [True, True]
    assert ours.places.events_log.read_text().count('"system.resource_warning"') == 2


def test_a_machine_that_recovers_is_told_of_when_it_is_red_again(home: Path, machine: Machine) -> None:
    clock = Clock()
    ours = services(home, "chamberlain", clock, chamberlain={"intervals": {"vitals_seconds": 0.0001}})
    role = ChamberlainJob(ours)
    for available in (100, 9000, 100):
        machine.now = reading(available=available, pressure=50)
        for _ in range(3):
            role.turn(None)
            clock.pass_(1300)
    assert len(messages(home)) == 2


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


def test_memory_that_is_available_is_measured_in_megabytes(home: Path) -> None:
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    measured = Meter().measure(home)
    used = 1 - measured.memory_available_mb * 1024 / int(total.split()[1])
    assert used * 100 == pytest.approx(measured.memory_percent, abs=10)


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
