"""Measure the machine and judge its health. The only file that uses psutil."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

SMOOTHED_OVER = 3
"""Readings. One busy moment must not hold new work."""
MEGABYTE = 1 << 20
PRESSURE = Path("/proc/pressure/memory")
LEVELS = ("green", "yellow", "orange", "red")


@dataclass(frozen=True, slots=True)
class MachineReading:
    cpu_percent: float
    memory_percent: float
    #: What programs could still get.
    memory_available_mb: float
    #: How much of the last 10 s some program waited for memory; None where the kernel does not measure it.
    memory_pressure_percent: float | None
    disk_percent: float
    load_average: tuple[float, float, float]

    def to_json(self) -> dict[str, Any]:
        pressure = self.memory_pressure_percent
        return {
            "cpu_percent": round(self.cpu_percent, 1),
            "memory_percent": round(self.memory_percent, 1),
            "memory_available_mb": round(self.memory_available_mb),
            **({} if pressure is None else {"memory_pressure_percent": round(pressure, 1)}),
            "disk_percent": round(self.disk_percent, 1),
            "load_average": [round(load, 2) for load in self.load_average],
        }


class Meter:
    """Measure the machine. CPU is what was used since the last time; the first time says 0.

    psutil would compare the first time with the moment at which it was imported: a start is always busy.
    """

    def __init__(self) -> None:
        self._has_begun = False

    def measure(self, home: Path) -> MachineReading:
        used, has_begun, self._has_begun = psutil.cpu_percent(interval=None), self._has_begun, True
        memory = psutil.virtual_memory()
        return MachineReading(
            cpu_percent=used if has_begun else 0.0,
            memory_percent=memory.percent,
            memory_available_mb=memory.available / MEGABYTE,
            memory_pressure_percent=memory_pressure(),
            disk_percent=max(psutil.disk_usage(str(home)).percent, _inodes_percent(home)),
            load_average=psutil.getloadavg(),
        )


def _inodes_percent(home: Path) -> float:
    """Return how many of the disk's inodes are used: without one no file can be made, however much room there is."""
    disk = os.statvfs(home)
    return 100.0 * (1.0 - disk.f_favail / disk.f_files) if disk.f_files else 0.0


def memory_pressure(path: Path = PRESSURE) -> float | None:
    """Return the share of the last 10 s in which some program waited for memory, in percent; None if not measured."""
    try:
        some = path.read_text("ascii").partition("\n")[0]
        return float(dict(part.split("=") for part in some.split()[1:])["avg10"])
    except (OSError, ValueError, KeyError):
        return None


class Health:
    """The health of the machine by the worse of CPU and memory, each smoothed over the last readings."""

    def __init__(self) -> None:
        self._recent: deque[MachineReading] = deque(maxlen=SMOOTHED_OVER)

    def judge(self, reading: MachineReading, thresholds: Mapping[str, float]) -> str:
        """Return green, yellow, orange or red, with this reading as the newest."""
        self._recent.append(reading)
        seen = self.judged_by()
        memory = memory_level(seen["memory_available_mb"], seen.get("memory_pressure_percent"), thresholds)
        if memory == "green" or thresholds[memory] > 100:  # 101 switches a level off
            memory = "yellow" if seen["memory_percent"] >= thresholds["yellow"] else "green"
        return max(_level(seen["cpu_percent"], thresholds), memory, key=LEVELS.index)

    def judged_by(self) -> dict[str, float]:
        """Return the smoothed figures."""
        # Missing readings count as 0 % of CPU: the start of a kingdom is always busy.
        cpu = sum(reading.cpu_percent for reading in self._recent) / SMOOTHED_OVER
        figures = {"cpu_percent": round(cpu, 1)}
        for name in ("memory_percent", "memory_available_mb", "memory_pressure_percent"):
            known = [value for reading in self._recent if (value := getattr(reading, name)) is not None]
            if known:
                figures[name] = round(sum(known) / len(known), 1)
        return figures


def memory_level(available_mb: float, pressure: float | None, thresholds: Mapping[str, float]) -> str:
    """Return red or orange when little memory is available and programs wait for it; else green.

    A full memory alone says little: most of it may be a cache that is given back in time.
    """
    if pressure is not None and pressure <= thresholds["memory_pressure_percent"]:
        return "green"
    if available_mb < thresholds["memory_red_mb"]:
        return "red"
    return "orange" if available_mb < thresholds["memory_orange_mb"] else "green"


def _level(percent: float, thresholds: Mapping[str, float]) -> str:
    if percent > thresholds["red"]:
        return "red"
    if percent > thresholds["orange"]:
        return "orange"
    return "green" if percent < thresholds["yellow"] else "yellow"
