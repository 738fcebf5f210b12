"""The chamberlain's turn: measure the machine, look after every role, end orphans, show and count all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import read_json_or, to_json
from kingdom.base.errors import BadConfig
from kingdom.base.home import config, roster
from kingdom.base.home.roster import RoleRow
from kingdom.base.records import notes, sessions
from kingdom.base.runtime.role import Services, Turn
from kingdom.base.times import stamp
from kingdom.base.words import one_line
from kingdom.court import picture
from kingdom.court.chamberlain import anomalies, orphans
from kingdom.court.chamberlain.alerts import Alerts
from kingdom.court.chamberlain.anomalies import Facts
from kingdom.court.chamberlain.chronicle import Chronicle
from kingdom.court.chamberlain.cleanup import PAUSE_SECONDS, Cleanup
from kingdom.court.chamberlain.ledger import Ledger
from kingdom.court.chamberlain.reports import Reports
from kingdom.court.chamberlain.vitals import Health, MachineReading, Meter, memory_level
from kingdom.court.picture import Picture
from kingdom.court.soldiers import neighbours
from kingdom.court.steward.roll_call import What, log_findings, make_roll_call
from kingdom.court.upkeep.metrics import KingdomFigures, render
from kingdom.court.upkeep.retention import Cleaning

ALARMING = frozenset({What.RESTARTED, What.QUARANTINED, What.REFUSED, What.LAUNCHER_STARTED, What.LAUNCHER_FAILED})
STEP_SECONDS = 10.0
"""When the wall clock and the monotonic one drift so far apart, it was set or the machine slept."""


def _figures(reading: MachineReading) -> str:
    memory = f"memory {reading.memory_percent:.0f} %, {reading.memory_available_mb:.0f} MB available"
    return f"CPU {reading.cpu_percent:.0f} %, {memory}"


class ChamberlainJob:
    def __init__(self, services: Services) -> None:
        self._begin(services, None)
        self._meter = Meter()
        self._health = Health()
        self._last_health = "green"
        self._disk_is_full = False
        self._next_vitals = self._next_roll_call = self._next_count = 0.0
        self._view: Picture | None = None
        self._has_more_events = False
        self._max_soldiers: int | None = None
        self._king_error = ""
        self._has_successor = False
        self._times_short = 0
        self._clock_offset = self._even_from = float("-inf")
        self._roll_call = make_roll_call(services, self._rows)

    def folders(self) -> dict[Path, tuple[str, ...]]:
        # Where the command line asks for a cleaning.
        make_folder(own := self._services.places.cleanup_request.parent)
        return {own: ()}

    def reload(self, services: Services) -> None:
        self._begin(services, self._cleanup.cleaning)

    def close(self) -> None:
        """Do nothing: everything is written already."""

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        if not self._has_more_events:  # else logs might go that have not been counted
            self._cleanup.go_on()  # first: on a full disk all else fails
        now = self._services.monotonic()
        if now >= self._next_vitals:
            self._measure()
            self._next_vitals = now + self._config["intervals"]["vitals_seconds"]
        if now >= self._next_roll_call or (self._roll_call and self._roll_call.someone_ended()):
            self._call_roll()
            self._kill_orphans()
            self._tell_of_watchers()
            self._cleanup.rotate_logs()
            self._write_dashboard()
            neighbours.note(self._services.places, self._services.unsynced)
            self._next_roll_call = now + (self._roll_call.wait if self._roll_call else self._period)
        self._alerts.send(self._services.clock)
        if now >= self._next_count or self._has_more_events:
            self._count_events()
            self._next_count = now + self._config["intervals"]["vitals_seconds"]
        wait = min(self._next_vitals, self._next_roll_call) - self._services.monotonic()
        if self._cleanup.cleaning is not None:
            wait = min(wait, PAUSE_SECONDS)
        return Turn(self._has_more_events, wait, ended=self._has_successor)

    def _call_roll(self) -> None:
        if self._roll_call is None:
            return
        findings = self._roll_call.call(self._threshold, self._period)
        log_findings(findings, self._services.log, self._threshold)
        for finding in findings:
            if finding.what in ALARMING:
                self._alerts.tell(finding.cause, str(finding))
            if finding.what is What.STARTED:
                self._alerts.forget_all_but(f"refused:{finding.role}:", ())
            self._has_successor = self._has_successor or finding.what is What.LAUNCHER_STARTED

    def _measure(self) -> None:
        services = self._services
        reading = self._meter.measure(services.places.home)
        is_full = reading.disk_percent > self._config["thresholds"]["disk_percent"]
        self._cleanup.disk_is_full(reading.disk_percent if is_full else None)
        health = self._health.judge(reading, self._config["thresholds"])
        soldiers = sessions.read(services.places)
        vitals: dict[str, Any] = {
            "timestamp": stamp(services.clock()),
            "system": reading.to_json(),
            "sessions": {
                "soldiers_active": len(soldiers),
                "soldiers_max": self._read_max_soldiers(),
                "list": [row.soldier for row in soldiers],
            },
            "health": health,
            "judged_by": self._health.judged_by(),
        }
        services.unsynced.rewrite(services.places.resources, to_json(vitals))
        self._report_changes(health, reading, is_full)
        self._relieve(reading)

    def _read_max_soldiers(self) -> int | None:
        """Return the king's max_soldiers; the last known while king.yaml is broken, as the king itself keeps it."""
        try:
            self._max_soldiers = config.load(self._services.places, "king")["concurrency"]["max_soldiers"]
            self._king_error = ""
        except BadConfig as error:
            if str(error) != self._king_error:
                self._services.log.warn(f"cannot read max_soldiers: {error}")
            self._king_error = str(error)
        return self._max_soldiers

    def _report_changes(self, health: str, reading: MachineReading, is_full: bool) -> None:
        """Report changes only: a machine that stays red is one alert."""
        services, disk_percent = self._services, reading.disk_percent
        if health != self._last_health:
            said = f"the machine is {health}, was {self._last_health}"
            changed = {"from": self._last_health, "to": health}
            services.log.info(said, event="system.health_changed", **changed)
            if health == "red":
                self._alerts.tell("red", f"the machine is red ({_figures(reading)}): new work that needs a model waits")
            else:
                self._alerts.forget("red")
            self._last_health = health
        if is_full and not self._disk_is_full:
            services.log.event("system.resource_warning", disk_percent=disk_percent)
            self._alerts.tell("disk", f"the disk of {services.places.home} is {disk_percent:.0f} % full")
        if not is_full:
            self._alerts.forget("disk")
        self._disk_is_full = is_full

    def _kill_orphans(self) -> None:
        for left in orphans.kill(self._services):
            self._services.log.warn(f"ended {left.ended} processes that outlived the soldier of {left.task}")
            self._services.log.event(
                "system.session_orphaned", soldier_id=left.soldier, task_id=left.task, processes=left.ended
            )

    def _tell_of_watchers(self) -> None:
        """Report a source that refuses us: nothing of it is found until somebody gives another token."""
        for name, watcher in read_json_or(self._services.places.watchers, {}).items():
            if not isinstance(watcher, dict):
                continue
            if watcher.get("state") == "refused":
                step = f"`kingdom connect {name} --check` tries it"
                why = one_line(watcher.get("why"), 300)
                self._alerts.tell(f"watcher {name}", f"{name} refuses the sentinel: {why}; {step}")
            elif watcher.get("state") in ("ok", "off"):
                self._alerts.forget(f"watcher {name}")

    def _relieve(self, reading: MachineReading) -> None:
        """Stop one soldier when memory stays short, before the kernel ends something at random."""
        available, pressure = reading.memory_available_mb, reading.memory_pressure_percent
        is_short = memory_level(available, pressure, self._config["thresholds"]) == "red"
        self._times_short = self._times_short + 1 if is_short else 0
        if self._times_short < 2:
            return
        self._times_short = 0
        task = orphans.stop_newest(self._services)
        if task is not None:
            self._services.log.warn(f"{available:.0f} MB of memory are left: stopped the soldier of {task}")
            self._services.log.event(
                "recovery.session_killed", target=notes.soldier(self._services.places, task), task_id=task
            )

    def _count_events(self) -> None:
        """Count what the roles have logged, and tell what is out of the ordinary. Last, since nothing waits for it."""
        self._has_more_events = self._chronicle.read(self._alerts)
        self._ledger.read(self._alerts)
        if self._view is not None and not self._has_more_events:
            facts = Facts(self._chronicle, self._view, self._config["anomaly"], self._services.clock())
            anomalies.tell(facts, self._alerts)
            self._write_metrics(self._view)
            if self._has_every_role_had_its_turn():
                self._reports.send(self._view, self._chronicle.days(), self._ledger.spent_since, self._alerts.next_id)

    def _has_every_role_had_its_turn(self) -> bool:
        """Return whether the clock has run on evenly for half the threshold: roles beat at least twice in that.

        After a start, a suspend or a step of the clock every heartbeat looks old: a report would say that nobody works.
        """
        now = self._services.monotonic()
        offset = self._services.clock() - now
        if abs(offset - self._clock_offset) > STEP_SECONDS:
            self._clock_offset, self._even_from = offset, now + self._threshold / 2
        return now >= self._even_from

    def _write_metrics(self, view: Picture) -> None:
        """Write the figures for the node exporter's textfile collector."""
        services = self._services
        budgets = [(share.name, share.general, share.spent, share.budget) for share in self._ledger.shares()]
        figures = KingdomFigures(view, self._chronicle.totals(), budgets, self._ledger.today())
        services.unsynced.rewrite(services.places.metrics, render(figures).encode())

    def _write_dashboard(self) -> None:
        services = self._services
        names = [row.name for row in self._rows()]
        self._view = view = picture.take(services.places, names, services.clock(), self._threshold)
        services.unsynced.rewrite(services.places.dashboard, to_json(view.to_json()))

    def _rows(self) -> list[RoleRow]:
        return roster.roles_of(self._services.places, self._services.system)

    @property
    def _threshold(self) -> float:
        return float(self._services.system["heartbeat"]["threshold_seconds"])

    @property
    def _period(self) -> float:
        return float(self._config["intervals"]["roll_call_seconds"])

    def _begin(self, services: Services, cleaning: Cleaning | None) -> None:
        """Make the parts, which keep in files what they know: all of them anew, or none if the configuration is bad."""
        alerts, cleanup, chronicle = Alerts(services), Cleanup(services, cleaning), Chronicle(services)
        self._ledger, self._reports = Ledger(services), Reports(services)
        self._alerts, self._cleanup, self._chronicle = alerts, cleanup, chronicle
        self._services, self._config = services, services.config
