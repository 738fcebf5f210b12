"""The chronicle: count internal events, each line once, by day and by general.

`chronicle.json` holds the counts together with how far the log was read, and is replaced as a whole: a kill between
reading and saving reads the same lines again, and counts them for the first time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import parse_json, to_json
from kingdom.base.disk.json_file import JsonFile
from kingdom.base.home import config
from kingdom.base.runtime.role import Services
from kingdom.base.times import moment, stamp
from kingdom.court.chamberlain import event_log
from kingdom.court.chamberlain.alerts import Alerts

HOUR = 3600.0
DAYS_KEPT = 62
FAILURES_KEPT = 200
MOST_TIMES = 100
"""Moments of an hour that are remembered at most; more would change nothing."""
DAY = "day "
UNREADABLE = "unreadable"
ALWAYS_SHOWN = ("task.completed", "task.failed", "soldier.spawned", "soldier.timeout")
FAILURES = ("task.failed", "task.retried", "soldier.timeout", "message.failed", "file.buried")


class Chronicle:
    """The file's entries: `cursors`; `totals`, by type; `day …`, by type and by general and type; and what the
    anomalies are found by: `streaks`, failed tasks in a row by general; `timeouts`, when soldiers ran out of time in
    the last hour; `crashes`, when a role started that had not stopped; `running`, roles that have started;
    `first_due`, by schedule when it should have run first.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._zone = config.zone(services.places, services.system)
        path = services.places.own("chamberlain") / "chronicle.json"
        self._file = JsonFile(path, services.disk, services.log.error, _is_sound)
        make_folder(services.places.analysis)
        self._are_shown = False

    def read(self, alerts: Alerts) -> bool:
        """Count what is new. Return whether there is more to count at once."""
        self._file.save()  # what could not be written while the disk was full
        services = self._services
        reading = event_log.read(services.places.events_log, self._file.get("cursors", []), services.disk)
        count = _Count(self._file, self._zone, services.clock())
        for line in reading.lines:
            count.add(line)
        count.note()
        self._file.set("cursors", reading.cursors)
        self._file.save()
        for gap in reading.gaps:
            services.log.warn(gap.what)
            alerts.tell(gap.cause, gap.what)
        if reading.lines or not self._are_shown:
            self._show()
        return reading.has_more

    def totals(self) -> dict[str, int]:
        """Return how often each event has happened, by its name as stats.json has it."""
        return _plain({**dict.fromkeys(ALWAYS_SHOWN, 0), **self._file.get("totals", {})})

    def days(self) -> dict[str, Mapping[str, Any]]:
        """Return what was counted by local day: `types`, and `generals`, each with its types."""
        return {name.removeprefix(DAY): self._file.get(name) for name in sorted(self._file) if name.startswith(DAY)}

    def streaks(self) -> Mapping[str, int]:
        """Return how many tasks in a row have failed, by general."""
        return dict(self._file.get("streaks", {}))

    def first_due(self, plans: Iterable[Mapping[str, Any]]) -> Mapping[str, float]:
        """Return by schedule when it should have run first since it is known; forget those that are gone."""
        known, due = self._file.get("first_due", {}), {}
        for plan in plans:
            key = str(plan.get("schedule"))
            with suppress(ValueError, OverflowError):
                due[key] = known[key] if key in known else moment(str(plan.get("next")))
        self._file.set("first_due", due)
        return due

    def times_of(self, what: str, now: float) -> dict[str, list[float]]:
        """Return the moments of the last hour, by role or general: of `timeouts` or `crashes`."""
        rows: Mapping[str, list[float]] = self._file.get(what, {})
        recent = {name: [at for at in times if abs(now - at) < HOUR] for name, times in rows.items()}
        return {name: times for name, times in recent.items() if times}

    def _show(self) -> None:
        """Write what others read: stats.json and failures.json."""
        services, now = self._services, stamp(self._services.clock())
        days = self.days()
        stats = {
            "updated_at": now,
            "totals": self.totals(),
            "days": {
                day: {
                    "totals": _plain(row["types"]),
                    "generals": {name: _plain(types) for name, types in row["generals"].items()},
                }
                for day, row in days.items()
            },
        }
        failures = {
            "updated_at": now,
            "days": {
                day: {
                    name: _plain(failed) for name, types in row["generals"].items() if (failed := _failures_of(types))
                }
                for day, row in days.items()
            },
            "recent": self._file.get("failures", []),
        }
        services.unsynced.rewrite(services.places.analysis / "stats.json", to_json(stats))
        services.unsynced.rewrite(services.places.analysis / "failures.json", to_json(failures))
        self._are_shown = True


class _Count:
    """Counts some lines into copies of the file's entries, which `note` puts back."""

    def __init__(self, file: JsonFile, zone: Any, now: float) -> None:
        self._file, self._zone, self._now = file, zone, now
        self._days: dict[str, dict[str, Any]] = {}
        self._minutes: dict[str, str] = {}
        self._totals = Counter(file.get("totals", {}))
        self._streaks = dict(file.get("streaks", {}))
        self._failures = list(file.get("failures", []))
        self._running = set(file.get("running", []))
        self._times = {what: {name: list(at) for name, at in file.get(what, {}).items()} for what in TIMED}

    def add(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            record = parse_json(line)
            type, actor, data, at = record["type"], record["actor"], record["data"], record["ts"]
            if not (isinstance(type, str) and isinstance(actor, str) and isinstance(data, dict)):
                raise TypeError
            day = self._day(at)
        except (ValueError, KeyError, TypeError, OverflowError):
            self._totals[UNREADABLE] += 1
            return
        general = _general(type, actor, data)
        row = self._days[day] if day in self._days else self._days.setdefault(day, self._copy(day))
        self._totals[type] += 1
        row["types"][type] = row["types"].get(type, 0) + 1
        if general:
            types = row["generals"].setdefault(general, {})
            types[type] = types.get(type, 0) + 1
        self._note_trouble(type, actor, general, data, at)

    def note(self) -> None:
        """Put what was counted back into the file's entries, and drop what is old."""
        for day, row in self._days.items():
            self._file.set(DAY + day, row)
        for old in sorted(name for name in self._file if name.startswith(DAY))[:-DAYS_KEPT]:
            self._file.remove(old)
        self._file.set("totals", dict(self._totals))
        self._file.set("streaks", self._streaks)
        self._file.set("failures", self._failures[-FAILURES_KEPT:])
        self._file.set("running", sorted(self._running))
        for what, rows in self._times.items():
            kept = {
                name: [at for at in times if abs(self._now - at) < HOUR][-MOST_TIMES:] for name, times in rows.items()
            }
            self._file.set(what, {name: times for name, times in kept.items() if times})

    def _note_trouble(self, type: str, actor: str, general: str, data: Mapping[str, Any], at: str) -> None:
        if type == "task.completed":
            self._streaks.pop(general, None)
        elif type == "task.failed":
            self._streaks[general] = self._streaks.get(general, 0) + 1
        elif type == "soldier.timeout":
            self._times["timeouts"].setdefault(general, []).append(moment(at))
        elif type == "system.shutdown":
            self._running.discard(actor)
        elif type == "system.startup":
            if actor in self._running:
                self._times["crashes"].setdefault(actor, []).append(moment(at))
            self._running.add(actor)
        if type in FAILURES:
            named = {key: data[key] for key in ("task_id", "msg_id", "file", "error", "reason") if key in data}
            self._failures.append({"ts": at, "type": type, "general": general or None, **named})

    def _copy(self, day: str) -> dict[str, Any]:
        row = self._file.get(DAY + day, {"types": {}, "generals": {}})
        return {"types": dict(row["types"]), "generals": {name: dict(types) for name, types in row["generals"].items()}}

    def _day(self, at: Any) -> str:
        """Return the local day of a moment. Lines of one minute share it: parsing each would take most of the time."""
        minute = at[:16]
        if minute not in self._minutes:
            self._minutes[minute] = datetime.fromtimestamp(moment(at), self._zone).date().isoformat()
        return self._minutes[minute]


TIMED = ("timeouts", "crashes")


def _general(type: str, actor: str, data: Mapping[str, Any]) -> str:
    """Return whose event it is; empty for those of no general."""
    named = data.get("target_general")
    if isinstance(named, str):
        return named
    return actor if type.startswith(("task.", "soldier.")) else ""


def _failures_of(types: Mapping[str, int]) -> dict[str, int]:
    return {type: number for type, number in types.items() if type in FAILURES}


def _plain(types: Mapping[str, int]) -> dict[str, int]:
    """Return counts under the names that other readers of stats.json know: task_completed."""
    return {type.replace(".", "_"): number for type, number in sorted(types.items())}


def _is_sound(name: str, value: Any) -> bool:
    if name.startswith(DAY):
        return (
            isinstance(value, dict)
            and _are_counts(value.get("types"))
            and isinstance(value.get("generals"), dict)
            and all(_are_counts(types) for types in value["generals"].values())
        )
    if name == "cursors":
        return isinstance(value, list) and all(_is_cursor(row) for row in value)
    if name in TIMED:
        return isinstance(value, dict) and all(_are_moments(times) for times in value.values())
    if name in ("totals", "streaks"):
        return _are_counts(value)
    if name == "first_due":
        return isinstance(value, dict) and _are_moments(list(value.values()))
    known = {"failures": dict, "running": str}
    return name in known and isinstance(value, list) and all(isinstance(row, known[name]) for row in value)


def _is_cursor(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("name"), str)
        and all(isinstance(row.get(key), int) and row[key] >= 0 for key in ("inode", "first", "last", "offset"))
        and isinstance(recent := row.get("recent", []), list)
        and all(isinstance(checksum, int) for checksum in recent)
    )


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(number, int) and number >= 0 for number in value.values())


def _are_moments(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(at, int | float) for at in value)
