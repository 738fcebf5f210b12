"""The one read-only view of the kingdom: roles, queues, tasks, soldiers, trouble. Status and briefing show it.

It must be quick, so it opens few files and needs no schema: what it cannot read it leaves out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from heapq import nlargest
from pathlib import Path
from typing import Any

from kingdom.disk.codec import read_json_or
from kingdom.disk.lock import is_locked
from kingdom.errors import BadName
from kingdom.home import roster
from kingdom.home.places import Places, is_hidden
from kingdom.home.states import MOVES
from kingdom.records import notes, sessions
from kingdom.times import moment

MOST_SHOWN = 5
NEWEST_LOOKED_AT = 100
"""Of what has ended, by id: a long past must not make a look slow."""
SETTLED_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RoleView:
    name: str
    state: str
    """working, idle, degraded, starting; stopped, quarantined, silent (holds its lock, does not beat), absent."""
    pid: int | None
    beat_age: float | None

    @property
    def beats(self) -> bool:
        return self.state in ("starting", "working", "idle", "degraded")


@dataclass(frozen=True, slots=True)
class Picture:
    home: str
    taken_at: float
    roles: tuple[RoleView, ...]
    queues: dict[str, dict[str, int]]
    oldest: dict[str, Any] | None
    under_way: tuple[dict[str, Any], ...]
    soldiers: tuple[dict[str, Any], ...]
    failures: tuple[dict[str, Any], ...]
    questions: tuple[str, ...]
    """Tasks that wait for a person's answer."""
    dead: int
    health: str
    vitals: dict[str, Any]
    next_run: dict[str, Any] | None
    held_runs: tuple[dict[str, Any], ...]
    """Scheduled runs that are due and may not start yet."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def of(places: Places, system: Mapping[str, Any], now: float) -> Picture:
    """The whole kingdom, by its system.yaml."""
    hang_seconds = float(system["heartbeat"]["threshold_seconds"])
    return take(places, [row.name for row in roster.roles_of(places, system)], now, hang_seconds)


def queues_of(places: Places) -> dict[str, dict[str, int]]:
    return {kind: {state: _count(places.folder(kind, state)) for state in MOVES[kind]} for kind in MOVES}


def take(places: Places, rows: Iterable[str], now: float, hang_seconds: float) -> Picture:
    queues = queues_of(places)
    vitals = read_json_or(places.resources, {})
    plans = _plans(places)
    return Picture(
        home=str(places.home),
        taken_at=now,
        roles=tuple(_role(places, name, now, hang_seconds) for name in rows),
        queues=queues,
        oldest=_oldest(places, now),
        under_way=tuple(_under_way(places)),
        soldiers=tuple(row.to_json() for row in sessions.read(places)),
        failures=tuple(_failures(places)),
        questions=tuple(notes.open_questions(places)),
        dead=sum(states["dead"] for states in queues.values()),
        health=str(vitals.get("health", "unknown")) if _fresh(vitals, now, hang_seconds) else "unknown",
        vitals={**_part(vitals, "system"), **_part(vitals, "judged_by")},
        next_run=min(plans, key=lambda plan: str(plan["next"]), default=None),
        held_runs=tuple(plan for plan in plans if plan.get("held_since")),
    )


def _role(places: Places, name: str, now: float, hang_seconds: float) -> RoleView:
    wanted = roster.desired_state(places, name)
    beat = read_json_or(places.heartbeat(name), {})
    pid = beat.get("pid") if isinstance(beat.get("pid"), int) else None
    try:
        age = max(0.0, now - os.stat(places.heartbeat(name)).st_mtime)
    except FileNotFoundError:
        age = None
    if not is_locked(places.lock(name)):
        return RoleView(name, "absent" if wanted == "up" else wanted, None, age)
    if age is None or age > hang_seconds:
        return RoleView(name, "silent", pid, age)
    return RoleView(name, str(beat.get("state", "idle")), pid, age)


def _count(folder: Path) -> int:
    return _counted(str(folder), _last_change(folder))


@lru_cache(maxsize=64)
def _counted(folder: str, _changed: int) -> int:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return 0
    return sum(1 for name in names if name[0] != "." and not name.endswith((".tmp", ".reason")))


def _last_change(folder: Path) -> int:
    """A number that stays while nothing comes or goes. What has just changed may change again under the same time."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0
    settled = abs(time.time_ns() - changed) > SETTLED_SECONDS * 1e9
    return changed if settled else time.monotonic_ns()


def _oldest(places: Places, now: float) -> dict[str, Any] | None:
    """What has waited longest in any pending folder, by its file's time."""
    found: list[tuple[float, str, str]] = []
    for kind in MOVES:
        with suppress(FileNotFoundError), os.scandir(places.folder(kind, "pending")) as entries:
            for entry in entries:
                if not is_hidden(entry.name):
                    with suppress(FileNotFoundError):
                        found.append((entry.stat(follow_symlinks=False).st_mtime, kind, entry.name))
    if not found:
        return None
    since, kind, name = min(found)
    return {"kind": kind, "id": Path(name).stem, "seconds": round(max(0.0, now - since), 1)}


def _under_way(places: Places) -> Iterable[dict[str, Any]]:
    for path in sorted(_visible(places.folder("tasks", "in_progress")))[:MOST_SHOWN]:
        task = read_json_or(path, {})
        if task:
            keys = ("id", "target_general", "type", "repo", "attempt", "not_before", "waits_because")
            yield {key: task.get(key) for key in keys}


def _failures(places: Places) -> list[dict[str, Any]]:
    """The newest that went wrong: failed tasks, messages nobody took, and what had to be buried."""
    found: list[tuple[float, dict[str, Any]]] = []
    for kind in MOVES:
        for when, path in _newest(places.folder(kind, "dead"), ".reason"):
            what = f"{kind}/dead/{path.name.removesuffix('.reason')}"
            found.append((when, {"what": what, "why": read_json_or(path, {}).get("reason")}))
    for when, path in _newest(places.folder("messages", "failed"), ".json"):
        why = read_json_or(path, {}).get("refused_because")
        found.append((when, {"what": f"messages/failed/{path.name}", "why": why}))
    for when, path in _newest(places.folder("tasks", "completed"), ".json"):
        if read_json_or(path, {}).get("outcome") == "failed":
            with suppress(BadName):
                found.append(
                    (when, {"what": path.stem, "why": read_json_or(places.result(path.stem), {}).get("error")})
                )
    return [{**each, "at": when} for when, each in sorted(found, key=lambda pair: -pair[0])[:MOST_SHOWN]]


def _newest(folder: Path, ending: str) -> list[tuple[float, Path]]:
    """With their times; a file may move on while we look."""
    dated: list[tuple[float, Path]] = []
    for name in _last_names(str(folder), ending, _last_change(folder)):
        path = folder / name
        with suppress(FileNotFoundError):
            dated.append((os.lstat(path).st_mtime, path))
    return sorted(dated, reverse=True)[: 4 * MOST_SHOWN]


@lru_cache(maxsize=64)
def _last_names(folder: str, ending: str, _changed: int) -> list[str]:
    try:
        names = [name for name in os.listdir(folder) if name.endswith(ending) and not is_hidden(name)]
    except FileNotFoundError:
        return []
    if len(names) <= NEWEST_LOOKED_AT:
        return names
    return nlargest(NEWEST_LOOKED_AT, names, key=_by_day_and_number)


def _by_day_and_number(name: str) -> tuple[str, int, str]:
    """`task-20261118-1000` follows `task-20261118-999`."""
    day, _, number = name.rpartition("-")
    return day, len(number), number


def _plans(places: Places) -> list[dict[str, Any]]:
    plans = read_json_or(places.own("king") / "schedules.json", {}).get("schedules")
    return [plan for plan in plans if isinstance(plan, dict) and plan.get("next")] if isinstance(plans, list) else []


def _part(vitals: dict[str, Any], name: str) -> dict[str, Any]:
    part = vitals.get(name)
    return part if isinstance(part, dict) else {}


def _fresh(vitals: dict[str, Any], now: float, hang_seconds: float) -> bool:
    """Vitals that nobody takes any more tell nothing of now."""
    try:
        return abs(now - moment(str(vitals.get("timestamp")))) <= hang_seconds
    except ValueError:
        return False


def _visible(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if not is_hidden(entry.name)]
    except FileNotFoundError:
        return []
