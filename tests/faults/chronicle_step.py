"""Count internal events while roles log and the log is rotated: `chronicle_step.main(HOME)`."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from kingdom.base.disk.atomic import Disk
from kingdom.base.log import Log
from kingdom.court.chamberlain.alerts import Alerts
from kingdom.court.chamberlain.chronicle import Chronicle
from tests.fixtures import Clock, services

ROUNDS = 3
EVENTS = 4


def main(home: Path) -> None:
    """Log, count, log and rotate, three times, so that new lines are partly in the rotated log."""
    plain = services(home, "chamberlain", Clock())
    power = Disk(plain.places.scratch("chamberlain"))
    power.sweep_scratch()
    ours = replace(plain, disk=power)
    chronicle, alerts = Chronicle(ours), Alerts(ours)
    log = Log(ours.places, "gen-pr", Disk(ours.places.scratch("chamberlain"), durability="process"), ours.clock)
    for _ in range(ROUNDS):
        _events(log)
        while chronicle.read(alerts):
            pass
        _events(log)
        ours.places.events_log.rename(f"{ours.places.events_log}.{time.time_ns()}")
    _events(log)
    while chronicle.read(alerts):
        pass


def _events(log: Log) -> None:
    for _ in range(EVENTS):
        log.event("task.completed", task_id=f"task-{time.monotonic_ns()}", status="success")
    log.flush()
