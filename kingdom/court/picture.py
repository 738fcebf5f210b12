"""The state of a kingdom at one moment: roles, queues, tasks, soldiers, failures. Status, briefing and doctor show it.

It must be quick, so it opens few files and validates nothing: what cannot be read is left out. One more figure is one
more field of `Picture`, filled in by `take`: `status --json` and the dashboard have it by that, overview.py prints it.

Annotations are no text here (no `from __future__`): a NamedTuple would compile the text of each.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from heapq import nlargest, nsmallest
from pathlib import Path
from typing import Any, NamedTuple

from kingdom import wings
from kingdom.base import tables
from kingdom.base.disk.atomic import names_in
from kingdom.base.disk.codec import read_bytes, read_json_or
from kingdom.base.disk.lock import holder_pid, is_locked
from kingdom.base.errors import BadFile, BadName
from kingdom.base.home import roster
from kingdom.base.home.code import installed_code
from kingdom.base.home.places import Places, is_hidden
from kingdom.base.home.states import MOVES
from kingdom.base.records import heartbeats, notes, refusals, sessions
from kingdom.base.records.ids import by_day_and_number
from kingdom.base.times import moment, rests_until

MOST_SHOWN = 5
NEWEST_LOOKED_AT = 100
"""How many ended files to look at, the highest ids: a long history must not make a look slow."""
SETTLED_SECONDS = 2.0
ENDED = ("stopped", "crashed")
"""States that a role writes as its last."""
LARGE_FOLDER_BYTES = 512 << 10
"""Of the folder itself: some ten thousand names, which take a tenth of a second to list."""
RECENT_SECONDS = 30.0


class RoleView(NamedTuple):
    name: str
    #: working, idle, degraded, starting; foreign: another program plays it;
    #: down, quarantined, absent; silent: it holds its lock and its heartbeat is old.
    state: str
    pid: int | None
    #: Seconds since its last heartbeat.
    beat_age: float | None
    #: Seconds since its process was started.
    up_seconds: float | None = None
    #: How often it came back without having been asked to stop, since it was last started on purpose.
    restarts: int = 0
    #: It runs other code than is installed: it was started before an upgrade.
    outdated: bool = False
    #: Why it refuses to start, until a file that it names is corrected; "" when it does not.
    refuses: str = ""
    #: Somebody asked its launcher to stop it, so it stays down.
    stopped: bool = False

    @property
    def beats(self) -> bool:
        return self.state in ("starting", "working", "idle", "degraded", "foreign")


class Picture(NamedTuple):
    home: str
    taken_at: float
    roles: tuple[RoleView, ...]
    #: Number of files by queue and state.
    queues: dict[str, dict[str, int]]
    #: What has waited longest in any pending folder.
    oldest: dict[str, Any] | None
    #: The event that has waited longest.
    oldest_event: dict[str, Any] | None
    #: The first tasks in progress.
    under_way: tuple[dict[str, Any], ...]
    #: The soldiers that run.
    soldiers: tuple[dict[str, Any], ...]
    #: The newest things that went wrong, each with its reason.
    failures: tuple[dict[str, Any], ...]
    #: Tasks that wait for a person's answer, the newest first.
    questions: tuple[str, ...]
    #: What the first of them ask.
    asking: tuple[dict[str, Any], ...]
    #: What has waited longest in the pending folders.
    waiting: tuple[dict[str, Any], ...]
    #: When folders of queues last changed, by queue and state.
    changed: dict[str, dict[str, int]]
    #: Number of files in all dead/ folders.
    dead: int
    #: green, yellow, orange, red; unknown when nobody measures.
    health: str
    #: The latest measurements of the machine.
    vitals: dict[str, Any]
    #: Every schedule: its next run, its last, and what holds it.
    schedules: tuple[dict[str, Any], ...]
    #: The scheduled run that comes next.
    next_run: dict[str, Any] | None
    #: Scheduled runs that are due and may not start yet.
    held_runs: tuple[dict[str, Any], ...]
    #: What the roles of products say of themselves, each under a key of its own.
    products: dict[str, Any]
    #: How the sentinel's watchers are, those that are not off.
    watchers: tuple[dict[str, Any], ...]
    #: What the chamberlain says of its last cleaning: began_at, why, state, deleted, bytes.
    cleanup: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        whole = {**self._asdict(), "roles": [role._asdict() for role in self.roles]}
        return {**whole, **whole.pop("products")}

    def outdated(self) -> list[str]:
        """Return the roles that run older code than is installed."""
        return [role.name for role in self.roles if role.outdated]

    def beating(self) -> set[str]:
        """Return the roles that have a fresh heartbeat."""
        return {role.name for role in self.roles if role.beats}

    def has_soldier(self, task: Mapping[str, Any]) -> bool:
        return any(row.get("task_id") == task["id"] for row in self.soldiers)

    def is_at_work(self, task: Mapping[str, Any]) -> bool:
        """Return whether a soldier works on a task in progress, or its general may send one."""
        if self.has_soldier(task):
            return True
        rests = rests_until(task.get("not_before"), self.taken_at) is not None
        return not rests and task["target_general"] in self.beating()

    def load(self) -> list[str]:
        """Return how much of the machine is used, for people: `cpu 33 %`."""
        known = {name: self.vitals.get(f"{name}_percent") for name in ("cpu", "memory", "disk")}
        return [f"{name} {value:.0f} %" for name, value in known.items() if isinstance(value, int | float)]


def of(places: Places, system: Mapping[str, Any], now: float) -> Picture:
    """Return the picture of a kingdom with the roles that its system.yaml and manifests name."""
    hang_seconds = float(system["heartbeat"]["threshold_seconds"])
    rows = [row.name for row in roster.roles_of(places, system)]
    return take(places, rows, now, hang_seconds, recent=_recent(places, now))


def _recent(places: Places, now: float) -> dict[str, Any]:
    """Return the chamberlain's latest picture. Of an old one only counts of folders that are as they were then."""
    dashboard = read_json_or(places.dashboard, {})
    taken_at = dashboard.get("taken_at")
    is_recent = isinstance(taken_at, int | float) and abs(now - taken_at) <= RECENT_SECONDS
    return dashboard if is_recent else {"changed": dashboard.get("changed"), "known": dashboard}


def _unchanged(places: Places, recent: Mapping[str, Any], kind: str, state: str) -> bool:
    """Return whether nothing has come into a folder or left it since an old picture was taken."""
    with suppress(KeyError, TypeError, FileNotFoundError):
        return bool(recent["changed"][kind][state] == os.stat(places.folder(kind, state)).st_mtime_ns)
    return False


def _changed(places: Places, now: float) -> dict[str, dict[str, int]]:
    """Return when each folder of a queue last changed; a fresh one may change again under the same time."""
    found: dict[str, dict[str, int]] = {}
    for kind, states in MOVES.items():
        for state in states:
            with suppress(FileNotFoundError):
                at = os.stat(places.folder(kind, state)).st_mtime_ns
                if now - at / 1e9 > SETTLED_SECONDS:
                    found.setdefault(kind, {})[state] = at
    return found


def queues_of(places: Places, recent: Mapping[str, Any] | None = None) -> dict[str, dict[str, int]]:
    """Return the number of files by queue and state; of large folders that in a recent picture, if there is one."""
    return {kind: {state: _known_count(places, recent or {}, kind, state) for state in MOVES[kind]} for kind in MOVES}


def _known_count(places: Places, recent: Mapping[str, Any], kind: str, state: str) -> int:
    folder = places.folder(kind, state)
    known = recent.get("known", recent)
    if "queues" in known and _is_large(folder) and ("queues" in recent or _unchanged(places, recent, kind, state)):
        with suppress(KeyError, TypeError, ValueError):
            return int(known["queues"][kind][state])
    return _count(folder)


def _is_large(folder: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.stat(folder).st_size > LARGE_FOLDER_BYTES
    return False


def take(
    places: Places, rows: Iterable[str], now: float, hang_seconds: float, recent: Mapping[str, Any] | None = None
) -> Picture:
    """Return the picture of these roles and of everything else; a role is silent after `hang_seconds`.

    Whoever looks only once passes a recent picture, so that a long history need not be listed.
    """
    changed = _changed(places, now)  # before the counts, which hold as long as these do
    queues = queues_of(places, recent)
    questions = tuple(_known_questions(places, recent or {}))
    found = _pending(places)
    waiting = tuple(_waits(places, since, kind, name, now) for since, kind, name in nsmallest(MOST_SHOWN, found))
    first_event = min((row for row in found if row[1] == "events"), default=None)
    vitals = read_json_or(places.resources, {})
    schedules, installed = _schedules(places), installed_code()
    return Picture(
        home=str(places.home),
        taken_at=now,
        roles=tuple(_role(places, name, now, hang_seconds, installed) for name in rows),
        queues=queues,
        oldest={key: waiting[0][key] for key in ("kind", "id", "seconds")} if waiting else None,
        oldest_event=_waits(places, *first_event, now) if first_event else None,
        under_way=tuple(_under_way(places)),
        soldiers=tuple(sessions.as_written(places)),
        failures=tuple(_known_failures(places, recent or {})),
        questions=questions,
        asking=tuple(question(places, task, now) for task in questions[:MOST_SHOWN]),
        waiting=waiting,
        changed=changed,
        dead=sum(states["dead"] for states in queues.values()),
        health=str(vitals.get("health", "unknown")) if _fresh(vitals, now, hang_seconds) else "unknown",
        vitals={**_part(vitals, "system"), **_part(vitals, "judged_by")},
        schedules=tuple(schedules),
        next_run=min(schedules, key=lambda schedule: str(schedule["next"]), default=None),
        held_runs=tuple(schedule for schedule in schedules if schedule.get("held_since")),
        products=_products(places),
        watchers=tuple(_watchers(places)),
        cleanup=read_json_or(places.cleanup, {}),
    )


def _products(places: Places) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for wing in wings.rows():
        if wing.figures:
            found |= tables.load(wing.figures)(places)
    return found


def _watchers(places: Places) -> Iterator[dict[str, Any]]:
    """Yield what the sentinel says of each watcher that is not off; nothing while it does not run."""
    if is_locked(places.lock("sentinel")):
        for name, said in read_json_or(places.watchers, {}).items():
            if isinstance(said, dict) and said.get("state") != "off":
                yield {"watcher": name, **said}


def _role(places: Places, name: str, now: float, hang_seconds: float, installed: str) -> RoleView:
    wanted = roster.desired_state(places, name)
    heartbeat = read_json_or(places.heartbeat(name), {})
    pid = heartbeat.get("pid") if isinstance(heartbeat.get("pid"), int) else None
    up_seconds = None if pid is None else heartbeats.process_age(pid)
    restarts = _restarts(places, name)
    try:
        age = max(0.0, now - os.stat(places.heartbeat(name)).st_mtime)
    except FileNotFoundError:
        age = None
    foreign = heartbeats.foreign_age(places, name, now)
    if foreign is not None and foreign <= hang_seconds:
        return RoleView(name, "foreign", pid, age, up_seconds)
    not_running = RoleView(name, "absent" if wanted == "up" else wanted, None, age, restarts=restarts)
    if wanted == "up":
        why, stopped = refusals.why(places, name), roster.was_stopped(places, name)
        not_running = not_running._replace(refuses=why, stopped=stopped)
    if not is_locked(places.lock(name)):
        return not_running
    state = str(heartbeat.get("state", "idle"))
    is_old = age is None or age > hang_seconds
    if is_old or up_seconds is None or state in ENDED:
        holder = holder_pid(places.lock(name))
        running = heartbeats.process_age(holder) if holder is not None and heartbeats.is_ours(holder) else None
        if running is not None and holder == pid and state in ENDED:
            return not_running  # it is ending
        if running is not None and holder != pid and running <= hang_seconds:
            return RoleView(name, "starting", holder, age, running, restarts)
    if is_old:
        return RoleView(name, "silent", pid, age, up_seconds, restarts)
    # Who holds the lock of a role that has stopped, and touches its old heartbeat, is another program.
    if state == "stopped":
        return RoleView(name, "foreign", pid, age, up_seconds, restarts)
    return RoleView(name, state, pid, age, up_seconds, restarts, outdated=heartbeat.get("code") != installed)


def _restarts(places: Places, name: str) -> int:
    """Return the number that bin/role keeps in its ledger."""
    try:
        lines = read_bytes(places.starts(name), 1 << 16).splitlines()
    except (FileNotFoundError, BadFile):
        return 0
    word, _, number = next((line for line in lines if line.startswith(b"restarts ")), b"").partition(b" ")
    return int(number) if word and number.isdigit() else 0


def _count(folder: Path) -> int:
    return _counted(str(folder), _last_change(folder))


@lru_cache(maxsize=64)
def _counted(folder: str, _changed: int) -> int:
    names = names_in(folder)
    return len(names) - len([name for name in names if name[0] == "." or name.endswith((".tmp", ".reason"))])


def _last_change(folder: Path) -> int:
    """Return a number that changes when files come or go; a fresh folder may change again under the same time."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0
    settled = abs(time.time_ns() - changed) > SETTLED_SECONDS * 1e9
    return changed if settled else time.monotonic_ns()


def _pending(places: Places) -> list[tuple[float, str, str]]:
    """Return what lies in the pending folders: since when, its kind and its file's name."""
    found: list[tuple[float, str, str]] = []
    for kind in MOVES:
        with suppress(FileNotFoundError), os.scandir(places.folder(kind, "pending")) as entries:
            for entry in entries:
                if not is_hidden(entry.name):
                    with suppress(FileNotFoundError):
                        found.append((entry.stat(follow_symlinks=False).st_mtime, kind, entry.name))
    return found


def _waits(places: Places, since: float, kind: str, name: str, now: float) -> dict[str, Any]:
    waits = read_json_or(places.folder(kind, "pending") / name, {})
    return {
        "kind": kind,
        "id": Path(name).stem,
        "type": waits.get("type"),
        "seconds": round(max(0.0, now - since), 1),
    }


def question(places: Places, task: str, now: float) -> dict[str, Any]:
    """Return what a task asks, about what, and for how long it has."""
    checkpoint = read_json_or(places.checkpoint(task), {})
    payload = checkpoint.get("payload")
    headline = payload.get("headline") if isinstance(payload, dict) else None
    question = checkpoint.get("question") or read_json_or(places.result(task), {}).get("question")
    try:
        seconds = max(0.0, now - os.stat(places.checkpoint(task)).st_mtime)
    except FileNotFoundError:
        seconds = 0.0
    return {
        "id": task,
        "target_general": checkpoint.get("target_general"),
        "about": headline if isinstance(headline, str) else None,
        "question": question,
        "seconds": round(seconds, 1),
    }


def _under_way(places: Places) -> Iterable[dict[str, Any]]:
    for path in sorted(_visible(places.folder("tasks", "in_progress")))[:MOST_SHOWN]:
        task = read_json_or(path, {})
        if task:
            keys = ("id", "target_general", "type", "repo", "attempt", "not_before", "waits_because", "created_at")
            yield {key: task.get(key) for key in keys}


def _known_questions(places: Places, recent: Mapping[str, Any]) -> list[str]:
    """Return the tasks whose questions are open. Of many results a recent picture says which have left one."""
    known = recent.get("questions")
    if not isinstance(known, list) or not _is_large(places.results):
        return notes.open_questions(places)
    with suppress(BadName):
        return [task for task in known if notes.asks(places, task)]
    return notes.open_questions(places)


def _known_failures(places: Places, recent: Mapping[str, Any]) -> list[dict[str, Any]]:
    known = recent.get("known", recent).get("failures")
    is_known = isinstance(known, list) and all(isinstance(failure, dict) and "what" in failure for failure in known)
    of = [*((kind, "dead") for kind in MOVES), ("messages", "failed"), ("tasks", "completed")]
    if not is_known or not _is_large(places.folder("tasks", "completed")):
        return _failures(places)
    holds = "failures" in recent or all(_unchanged(places, recent, *folder) for folder in of)
    return list(known) if holds else _failures(places)


def _failures(places: Places) -> list[dict[str, Any]]:
    """Return the newest failures: failed tasks, messages that could not be sent, and files in dead/."""
    found: list[tuple[float, dict[str, Any]]] = []
    for kind in MOVES:
        for when, path in _newest(places.folder(kind, "dead"), ".reason"):
            what = f"{kind}/dead/{path.name.removesuffix('.reason')}"
            found.append((when, {"what": what, "why": read_json_or(path, {}).get("reason")}))
    for when, path in _newest(places.folder("messages", "failed"), ".json"):
        why = read_json_or(path, {}).get("refused_because")
        found.append((when, {"what": f"messages/failed/{path.name}", "why": why}))
    for when, path in _newest(places.folder("tasks", "completed"), ".json"):
        task = read_json_or(path, {})
        if task.get("outcome") == "failed" and not task.get("retried_as"):
            with suppress(BadName):
                why = read_json_or(places.result(path.stem), {}).get("error")
                found.append((when, {"what": path.stem, "why": why, "task": path.stem}))
    return [{**failure, "at": when} for when, failure in sorted(found, key=lambda pair: -pair[0])[:MOST_SHOWN]]


def _newest(folder: Path, ending: str) -> list[tuple[float, Path]]:
    """Return the newest files with their times; a file may move away while we look."""
    dated: list[tuple[float, Path]] = []
    for name in _last_names(str(folder), ending, _last_change(folder)):
        path = folder / name
        with suppress(FileNotFoundError):
            dated.append((os.lstat(path).st_mtime, path))
    return sorted(dated, reverse=True)[: 4 * MOST_SHOWN]


@lru_cache(maxsize=64)
def _last_names(folder: str, ending: str, _changed: int) -> list[str]:
    names = [name for name in names_in(folder) if name.endswith(ending) and not is_hidden(name)]
    if len(names) <= NEWEST_LOOKED_AT:
        return names
    # Among names of one length, text and number have the same order, and the text is quicker to compare.
    by_length: defaultdict[int, list[str]] = defaultdict(list)
    for name in names:
        by_length[len(name)].append(name)
    highest = [name for same in by_length.values() for name in nlargest(NEWEST_LOOKED_AT, same)]
    return nlargest(NEWEST_LOOKED_AT, highest, key=by_day_and_number)


def _schedules(places: Places) -> list[dict[str, Any]]:
    found = read_json_or(places.own("king") / "schedules.json", {}).get("schedules")
    rows = found if isinstance(found, list) else []
    return [row for row in rows if isinstance(row, dict) and row.get("next")]


def _part(vitals: dict[str, Any], name: str) -> dict[str, Any]:
    part = vitals.get(name)
    return part if isinstance(part, dict) else {}


def _fresh(vitals: dict[str, Any], now: float, hang_seconds: float) -> bool:
    """Return whether the vitals are recent: old ones say nothing of now."""
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
