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


@dataclass(frozen=True, slots=True)
class Reading:
    cpu_percent: float
    memory_percent: float
    disk_percent: float
    load_average: tuple[float, float, float]

    def to_json(self) -> dict[str, Any]:
        return {
            "cpu_percent": round(self.cpu_percent, 1),
            "memory_percent": round(self.memory_percent, 1),
            "disk_percent": round(self.disk_percent, 1),
            "load_average": [round(load, 2) for load in self.load_average],
        }


class Meter:
    """Measure the machine. CPU is what was used since the last time; the first time says 0.

    psutil would compare the first time with the moment at which it was imported: a start is always busy.
    """

    def __init__(self) -> None:
        self._has_begun = False

    def measure(self, home: Path) -> Reading:
        used, has_begun, self._has_begun = psutil.cpu_percent(interval=None), self._has_begun, True
        return Reading(
            cpu_percent=used if has_begun else 0.0,
            memory_percent=psutil.virtual_memory().percent,
            disk_percent=max(psutil.disk_usage(str(home)).percent, _inodes_percent(home)),
            load_average=psutil.getloadavg(),
        )


def _inodes_percent(home: Path) -> float:
    """Return how many of the disk's inodes are used: without one no file can be made, however much room there is."""
    disk = os.statvfs(home)
    return 100.0 * (1.0 - disk.f_favail / disk.f_files) if disk.f_files else 0.0


class Health:
    """The health of the machine by the worse of CPU and memory, each smoothed over the last readings."""

    def __init__(self) -> None:
        self._recent: deque[Reading] = deque(maxlen=SMOOTHED_OVER)

    def judge(self, reading: Reading, thresholds: Mapping[str, float]) -> str:
        """Return green, yellow, orange or red, with this reading as the newest."""
        self._recent.append(reading)
        return _level(max(self.judged_by().values()), thresholds)

    def judged_by(self) -> dict[str, float]:
        """Return the smoothed figures."""
        # Missing readings count as 0 % of CPU: the start of a kingdom is always busy.
        cpu = sum(reading.cpu_percent for reading in self._recent) / SMOOTHED_OVER
        memory = sum(reading.memory_percent for reading in self._recent) / max(1, len(self._recent))
        return {"cpu_percent": round(cpu, 1), "memory_percent": round(memory, 1)}


def _level(percent: float, thresholds: Mapping[str, float]) -> str:
    if percent > thresholds["red"]:
        return "red"
    if percent > thresholds["orange"]:
        return "orange"
    return "green" if percent < thresholds["yellow"] else "yellow"
