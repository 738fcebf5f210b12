"""Why something in a queue has to wait, and why nothing runs: read from the files, told in a sentence.

`why` and `status` show it, and the hall's page, which tells it in the reader's language: so every sentence is `Said`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kingdom import wings
from kingdom.base import tables
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadInput, KingdomError, NoSuchThing
from kingdom.base.home import config, manifests, roster
from kingdom.base.home.places import Places
from kingdom.base.records import foreign, heartbeats, load, notes, refusals
from kingdom.base.records.lookup import Found, find
from kingdom.base.records.messages import Event
from kingdom.base.times import clock_of, rests_until
from kingdom.base.words import Said, count, duration, one_line, time_apart
from kingdom.court.picture import Picture
from kingdom.court.rules import gate, routing
from kingdom.court.rules.gate import Gate, Work

LONGEST = 300
LEAST_WAIT_SECONDS = 2.0
"""What has waited for less is not worth a line."""
MOST_NAMED = 3
SHAPES = (
    ("attempt_failed", re.compile(r"attempt (?P<attempt>\d+) failed: (?P<why>.+)", re.DOTALL)),
    ("attempt_over", re.compile(r"attempt (?P<attempt>\d+) failed")),
    ("an_attempt", re.compile(r"an attempt failed")),
    ("account_rests", re.compile(r"the account (?P<account>\S+) has reached its limit and pauses until (?P<at>\S+)")),
    ("account_probed", re.compile(r"(?P<task>\S+) tests whether the account (?P<account>\S+) works again")),
    ("budget_used", re.compile(r"its budget of (?P<most>\S+) (?P<unit>\S+) is used up")),
    ("cancelled_by", re.compile(r"cancelled by (?P<by>\S+)")),
    ("timeout", re.compile(r"timeout: it took (?P<seconds>\d+) s \((?P<rule>.+)\)")),
    ("no_result", re.compile(r"no result \((?P<how>[^)]*)\): (?P<said>.+)")),
    ("no_reason", re.compile(r"failed without a reason")),
)
"""Our own sentences that files hold as text, each with the form by which it is recognised."""


class Waits(NamedTuple):
    """Something that has to wait."""

    kind: str
    id: str
    #: The type of an event or a message, the general of a task.
    what: str
    #: For how long it has been there, or until it may go on.
    seconds: float
    why: str


class Now(NamedTuple):
    """What a kingdom does at this moment."""

    #: working, asking, waiting, idle, or stopped.
    state: str
    line: str


class Reasons:
    def __init__(self, places: Places, command: str) -> None:
        """`command` is how the reader types `kingdom`."""
        self.places = places
        self.command = command

    def now(self, view: Picture, waiting: list[Waits]) -> Now:
        """Return what the kingdom does; if nothing runs, why."""
        missing = [role.name for role in view.roles if role.name in ("king", "chamberlain") and not role.beats]
        others = [str(row.get("task_id")) for row in view.soldiers]
        if working := list(dict.fromkeys([*others, *(str(task["id"]) for task in self.worked_on(view))])):
            named = ", ".join(one_line(task) for task in working[:MOST_NAMED])
            more = f" and {len(working) - MOST_NAMED} more" if len(working) > MOST_NAMED else ""
            line = f"{count(len(working), 'task is', 'tasks are')} worked on: {named}{more}"
            return Now("working", Said("works", line, count=len(working), tasks=named))
        if missing:
            does_not = "do not run" if len(missing) > 1 else "does not run"
            line = f"nothing runs: {' and '.join(missing)} {does_not}; {self._starts(missing[0])}"
            return Now("stopped", Said("stopped", line, roles=", ".join(missing), command=self._how_to(missing[0])))
        if waiting:
            first = waiting[0]
            line = f"nothing runs: {one_line(first.id)} waits: {first.why}"
            return Now("waiting", Said("held", line, id=one_line(first.id), why=first.why))
        if view.questions:
            asked = f"{one_line(view.questions[0])} asks" if len(view.questions) == 1 else f"{len(view.questions)} ask"
            line = f"nothing runs: {asked} a person"
            return Now("asking", Said("asks", line, count=len(view.questions), task=one_line(view.questions[0])))
        if view.next_run is not None:
            run = view.next_run
            schedule, at = one_line(run.get("schedule")), run["next"]
            line = f"nothing runs, and nothing waits; {schedule} runs in {time_apart(at, view.taken_at)}"
            return Now("idle", Said("idle_until", line, schedule=schedule, at=str(at)))
        return Now("idle", Said("idle", "nothing runs, and nothing waits"))

    def waiting(self, view: Picture) -> Iterator[Waits]:
        """Yield what has to wait: the first tasks that nobody works on, then what has been longest in pending."""
        working = self.worked_on(view)
        for task in view.under_way:
            if task not in working:
                later = rests_until(task.get("not_before"), view.taken_at)
                if later is None:
                    why = self.because("tasks", task["id"])
                else:
                    held, seconds = read_reason(task.get("waits_because") or "an attempt failed"), later - view.taken_at
                    why = Said("goes_on", f"{held}; it goes on in {duration(seconds)}", why=held, seconds=seconds)
                yield Waits("tasks", task["id"], str(task["target_general"]), 0.0, why)
        for waits in view.waiting:
            if waits["seconds"] >= LEAST_WAIT_SECONDS:
                why = self.because(waits["kind"], waits["id"])
                yield Waits(waits["kind"], waits["id"], str(waits.get("type") or ""), waits["seconds"], why)

    def worked_on(self, view: Picture) -> list[dict[str, Any]]:
        """Return the first tasks in progress that are worked on, or are about to be. The others wait."""
        return [task for task in view.under_way if view.is_at_work(task) and not self._lacks_a_soldier(view, task)]

    def _lacks_a_soldier(self, view: Picture, task: Mapping[str, Any]) -> bool:
        if view.has_soldier(task):
            return False
        with suppress(NoSuchThing):
            held = self.holds_task(find(self.places, str(task["id"]), ("tasks",)))
            return isinstance(held, Said) and held.code == "no_soldier"
        return False

    def because(self, kind: str, name: str) -> str:
        """Return what something in a pending folder, or a task in progress, waits for."""
        try:
            found = find(self.places, name, (kind,))
        except NoSuchThing:
            return Said("taken", "it has just been taken")
        if kind == "events":
            return self.of_event(found)
        if kind == "tasks":
            return self.of_task(found)
        role = "envoy" if kind == "messages" else "king"
        nobody = self.keeps_messages() if kind == "messages" else self.does_not_run("king")
        if nobody is None and (refused := found.get("refused_because")):
            return read_reason(refused)
        return nobody or Said("not_yet", f"the {role} has not come to it yet", role=role)

    def keeps_messages(self) -> str | None:
        """Return what keeps all messages from being posted; None when nothing does."""
        if nobody := self.does_not_run("envoy"):
            return nobody
        rows = (wing.keeps_messages for wing in wings.rows() if wing.keeps_messages)
        return next(filter(None, (tables.load(row)(self) for row in rows)), None)

    def of_event(self, found: Found) -> str:
        """Return what an event in pending waits for."""
        if nobody := self.does_not_run("king"):
            return nobody
        event = valid_event(found)
        if event is None:
            bad = "the king has not read it yet, and will move it to dead/, because it is not a valid event"
            return Said("bad_event", bad)
        free = Said("free", "the king has not come to it yet; nothing holds it")
        if event.is_answer or event.task_id is not None:
            return free
        known = manifests.in_force(self.places)
        table = routing.table(known.manifests)
        if (route := table.route(event)) is None:
            return _until_mended(known) or free
        work = Work(event.priority, event.is_chat, table.needs_model(route))
        held = gate_now(self.places).holds_because(work) or self._is_full(route.general, table.limits)
        if held is None:
            return free
        said = f"{held} (its own priority is {event.priority})"
        return Said("held_event", said, why=held, priority=event.priority)

    def _is_full(self, general: str, limits: Mapping[str, int]) -> str | None:
        if (most := limits.get(general)) is None:
            return None
        count = load.under_way_of_each(self.places, time.time())[general]
        return gate.full_because(general, count, most) if count >= most else None

    def of_task(self, found: Found) -> str:
        """Return what a task waits for, or who works on it."""
        general = one_line(found.get("target_general"))
        about_to = f"{general} is about to start a soldier or to report"
        return self.holds_task(found) or Said("about_to", about_to, general=general)

    def holds_task(self, found: Found) -> str | None:
        """Return what a task waits for, or who works on it; None when its general is about to act."""
        places = self.places
        general = str(found.get("target_general"))
        if general not in places.installed_generals():
            named, command = one_line(general), f"{self.command} generals"
            missing = f"{named} is not installed; `{command}` lists what is"
            return Said("not_installed", missing, general=named, command=command)
        if not self._is_played(general):
            return self.is_off(general, general)
        if found.state == "pending":
            others = _no_soldier_because(places, found, general)
            not_taken = Said("not_taken", f"{general} has not taken it yet", general=general)
            return _for_a_soldier(others) if others else not_taken
        if (by := notes.cancelled_by(places, found.id)) is not None:
            ends = f"{one_line(by)} has cancelled it, and {general} ends it"
            return Said("cancelled", ends, by=one_line(by), general=general)
        for wing in wings.rows():
            if wing.has_task and (said := tables.load(wing.has_task)(self, found)) is not None:
                return str(said)
        if is_locked(places.control_folder(general, found.id) / "lock"):
            command = f"{self.command} attach {found.id}"
            return Said("soldier_works", f"a soldier works on it; `{command}` follows what it prints", command=command)
        if (later := rests_until(found.get("not_before"), time.time())) is not None:
            held = read_reason(found.get("waits_because") or f"attempt {found.get('attempt')} failed")
            at = clock_of([later])(later)
            return Said("goes_on_at", f"{held}; it goes on at {at}", why=held, at=at)
        if (others := _no_soldier_because(places, found, general)) is not None:
            return _for_a_soldier(others)
        return None

    def does_not_run(self, role: str) -> str | None:
        return None if self._is_played(role) else self.is_off(role)

    def _is_played(self, role: str) -> bool:
        system, _ = config.for_looking(self.places, "system")
        hang_seconds = float(system["heartbeat"]["threshold_seconds"])
        return heartbeats.is_played(self.places, role, lambda: hang_seconds, time.time())

    def is_off(self, role: str, subject: str = "") -> str:
        off = f"{subject or f'the {role}'} does not run"
        if roster.was_stopped(self.places, role):
            command = f"{self.command} start {role}"
            said = f"{off}: its launcher was asked to stop it; `{command}` starts it"
            return Said("role_stopped", said, role=role, command=command)
        if why := one_line(refusals.why(self.places, role), LONGEST):
            watcher = roster.watcher(role)
            then = "it comes back by itself" if self._is_played(watcher) else self._starts(role)
            return Said("role_refuses", f"{off}: {why}; once that is corrected {then}", role=role, why=why)
        return Said("role_off", f"{off}; {self._starts(role)}", role=role, command=self._how_to(role))

    def _starts(self, role: str) -> str:
        return f"`{self._how_to(role)}` starts it"

    def _how_to(self, role: str) -> str:
        return roster.how_to_start(self.places, role, self.command)


def read_reason(text: object) -> str:
    """Return a reason that a file holds as one line, with code and values where it is a sentence of ours."""
    line = one_line(text, LONGEST)
    for code, shape in SHAPES:
        if (found := shape.fullmatch(line)) is not None:
            values = {name: read_reason(part) if name == "why" else part for name, part in found.groupdict().items()}
            return Said(code, line, **values)
    return line


def _for_a_soldier(why: str) -> str:
    return Said("no_soldier", f"it waits for a soldier: {why}", why=why)


def _until_mended(known: manifests.InForce) -> Said | None:
    """Say that a manifest which cannot be read keeps what nobody else takes; None when there is none."""
    if not known.unknown:
        return None
    error = one_line(known.broken[min(known.unknown)], LONGEST)
    said = f"no general that is known takes it, and a manifest cannot be read: {error}; it goes on when that is mended"
    return Said("unknown_general", said, why=error)


def gate_now(places: Places) -> Gate:
    """Return the gate as the king would see it now."""
    king, _ = config.for_looking(places, "king")
    at_most = king["concurrency"]["max_soldiers"]
    return Gate(load.read(places, time.time(), king["resources"]["stale_seconds"], at_most), at_most)


def valid_event(found: Found) -> Event | None:
    """Return the event in a file; None when it is none."""
    try:
        return Event.from_json(foreign.checked("event", dict(found.content)))
    except BadInput:
        return None


def _no_soldier_because(places: Places, found: Found, general: str) -> str | None:
    try:
        own = manifests.of(places, general).max_soldiers
        most = config.load(places, "king")["concurrency"]["max_soldiers"]
    except KingdomError:
        return None
    running = load.soldiers_out(places, min(most, own or most))
    return gate.no_soldier_because(running, general, found.get("type") == "resume", own, most)
