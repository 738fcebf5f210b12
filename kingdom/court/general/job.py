"""A general's turn: claim its tasks, start one soldier for each, take what comes back, try again or report.

The state of every task lies in the directories, so a restarted general goes on where the last one was:
a running soldier is known by its lock, an ended one by its raw report under the current attempt.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kingdom.base.disk.atomic import is_there, make_folder
from kingdom.base.errors import BadInput, BadName
from kingdom.base.records import load, notes, sessions
from kingdom.base.records.backlog import Backlog, refresh_due
from kingdom.base.records.messages import ACCOUNT, Queued, Result, SessionRow, Task
from kingdom.base.records.soldiers import SoldierOrder
from kingdom.base.runtime.role import Services, Turn
from kingdom.base.times import rests_until
from kingdom.court.general import report
from kingdom.court.general.context import GeneralContext
from kingdom.court.rules import gate
from kingdom.court.soldiers import engine_homes, prepare
from kingdom.court.soldiers.cleanup import finish_removals
from kingdom.court.soldiers.consent import ConsentRefused
from kingdom.court.soldiers.engines.base import NeedsSetUp
from kingdom.court.soldiers.handle import Look, SoldierHandle, Starting, last_output
from kingdom.court.soldiers.results import BUDGETS, SPENT, Retryable, budget_reached
from kingdom.court.soldiers.starter import Starter
from kingdom.court.soldiers.workspace import NoWorkspace

BATCH = 16
"""So many are claimed at once, that the soldiers of the first need not wait for the last."""
BUDGET_SECONDS = 10.0
"""Between two looks at what a soldier with a budget has used."""
LOOK_SECONDS = 1.0
"""Between two looks at the soldiers that run, for their time and their budgets."""
LARGEST_LOOKED_AT = 4 << 20
"""Of an engine's output: reading more would make a turn long. Such a soldier keeps to its engine's own bound."""


class _TaskStarting(NamedTuple):
    """A task whose soldier is being started."""

    filename: str
    task: Task
    soldier: SoldierHandle
    #: The soldier's name.
    name: str
    starting: Starting


class GeneralJob:
    def __init__(self, services: Services) -> None:
        self._general = GeneralContext(services)
        self._pending, self._in_progress = (
            Backlog(services.queues.tasks, state, period=self._period, mine=self._is_mine, owner=False)
            for state in ("pending", "in_progress")
        )
        self._resting: set[str] = set()
        """Tasks in progress whose time has not come: they need no soldier yet."""
        self._asked: dict[str, object] = {}
        """How budgets and accounts stood when these tasks were told to wait for them."""
        self._last_looks: dict[str, tuple[Task, Look]] = {}
        """What was last seen of running soldiers."""
        self._next_look = 0.0
        """When all tasks in progress are looked at again; until then only those with news."""
        self._watched: dict[str, int] = {}
        """The processes that serve running soldiers: their ends wake us."""
        self._out: list[tuple[str, str]] | None = None
        """The soldiers of all generals that run, once somebody has looked in this turn."""
        self._next_budget_look: dict[str, float] = {}
        self._starter = Starter(services.places.home, services.log, services.alarm)
        self._done: set[int] = set()
        """The serving processes that are done with their tasks, and go on to others."""
        self._starting: list[_TaskStarting] = []
        """Soldiers that are being started: the next is prepared meanwhile."""
        self._starts_again = False
        """Whether a task that has had its step may have another one at once."""
        self._claims_are_durable = True
        self._clear_what_ended()
        if not self._general.manifest.sandbox:
            services.log.warn("NO SANDBOX for its soldiers: its manifest says `sandbox: off`")

    def folders(self) -> dict[Path, tuple[str, ...]]:
        places = self._general.services.places
        folders = [places.folder("tasks", "pending"), places.manifests]
        if (steps := self._general.steps) is not None:
            folders.append(steps.news(places))
        return dict.fromkeys(folders, ())

    def reload(self, services: Services) -> None:
        self._general.take_over(services)
        self._general.reread_manifest()

    def close(self) -> None:
        """Let soldiers go on: the next process of this general finds them by their locks."""
        self._starter.close()

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        failed: list[OSError] = []
        try:
            self._refresh(arrivals)
        except OSError as error:
            failed.append(error)
        self._done = self._starter.reap()
        self._resting.clear()
        self._starts_again = False
        self._out = None
        worked = self._step_all(self._with_news(arrivals), failed)
        self._end_abandoned()
        claimed = self._claim()
        worked |= self._step_all(claimed, failed) or bool(claimed)
        self._general.sessions.write()
        more = self._starts_again or (worked and bool(self._pending.waiting))
        return Turn(worked, wait=self._sleep(), busy=bool(self._in_progress.waiting), settled=not more)

    def _with_news(self, arrivals: dict[Path, list[str]] | None) -> list[Queued]:
        """Return the tasks in progress to be looked at: all of them now and then, else those with news."""
        services, waiting = self._general.services, self._in_progress.waiting
        ended, now = services.exits.take_ended() | self._done, services.monotonic()
        if arrivals is None or now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            ended = set(self._watched.values())
        self._watched = {name: pid for name, pid in self._watched.items() if pid not in ended}
        return [queued for queued in waiting if queued.filename not in self._watched]

    def _refresh(self, arrivals: dict[Path, list[str]] | None) -> None:
        now = self._general.services.monotonic()
        if arrivals is None:
            self._general.sessions.repair()
        look = refresh_due((self._pending, self._in_progress), arrivals, now)
        if look or (arrivals and self._general.services.places.manifests in arrivals):
            self._general.reread_manifest()

    def _claim(self) -> list[Queued]:
        """Claim what there is room for. Return what was claimed."""
        free = BATCH
        if (most := self._general.manifest.max_soldiers) is not None:
            free = min(BATCH, most - sum(queued.filename not in self._resting for queued in self._in_progress.waiting))
        chosen = self._pending.waiting[: max(0, free)]
        if not chosen:
            return []
        tasks, ids = self._general.services.queues.tasks, [queued.filename.removesuffix(".json") for queued in chosen]
        stuck = set(tasks.move(ids, "pending", "in_progress", sync=False))
        self._claims_are_durable = False
        claimed = [queued for queued, task_id in zip(chosen, ids, strict=True) if task_id not in stuck]
        self._pending.give([queued.filename for queued in claimed], self._in_progress)
        if stuck:
            self._pending.drop([f"{task_id}.json" for task_id in stuck])
        return claimed

    def _is_mine(self, task: Task) -> bool:
        return task.target_general == self._general.name

    def _step_all(self, tasks: list[Queued], failed: list[OSError]) -> bool:
        """Do the next step of each task. Return whether anything was done. The first of the errors is raised."""
        worked = False
        for queued in tasks:
            try:
                worked |= self._step(queued)
            except OSError as error:
                failed.append(error)
                self._enforce_known_timeout(queued)
            if len(self._starting) == BATCH:
                self._finish_starts(failed)
            if len(self._general.endings) == BATCH:
                self._write_results(failed)
        if self._general.endings:
            self._write_results(failed)
        self._finish_starts(failed)
        if failed:
            raise failed[0]
        return worked

    def _enforce_known_timeout(self, queued: Queued) -> None:
        """Enforce a soldier's time by what was last seen of it, while its files cannot be read."""
        if (known := self._last_looks.get(queued.filename)) is not None:
            task, look = known
            soldier = self._general.handle(task.id)
            if soldier.is_running():
                self._enforce_timeout(task, soldier, look)

    def _step(self, queued: Queued) -> bool:
        """Do what is next for one task in progress. Return whether anything was done."""
        general, services = self._general, self._general.services
        task = self._in_progress.take(queued.filename)
        if task is None:
            self._in_progress.drop([queued.filename])
            return False
        if is_there(services.places.results / queued.filename):
            self._in_progress.drop([queued.filename])
            self._last_looks.pop(queued.filename, None)
            self._end_and_clear(task)
            return False
        soldier = general.handle(task.id)
        if general.steps is not None:
            done = general.steps.take(general, task, soldier)
            return done is not None and self._go_on(queued, done)
        look = soldier.look(task.attempt)
        by = None if look.report is not None else notes.cancelled_by(services.places, task.id)
        if look.report is not None or by is not None or look.has_ended(task.attempt):
            return self._receive(queued, task, soldier, look, by)
        if look.is_running:
            if look.started is None:
                look = replace(look, started=soldier.note_unrecorded_start(services.unsynced, task.attempt))
            self._watch(queued.filename, task, look)
            return self._enforce_timeout(task, soldier, look) or self._enforce_budget(task, soldier, look)
        self._last_looks.pop(queued.filename, None)
        rests = task.not_before is not None and rests_until(task.not_before, services.clock()) is not None
        if rests and not self._may_be_free(task):
            self._resting.add(queued.filename)
            return False
        return self._may_start(task) and self._start(queued, task, soldier)

    def _receive(self, queued: Queued, task: Task, soldier: SoldierHandle, look: Look, by: str | None) -> bool:
        """Take what a soldier leaves, once it is known whether its workspace holds work. Return whether that was so."""
        general = self._general
        if look.report is None:
            general.end(soldier)
        if general.work_left(task) is None:
            return False
        if look.report is not None:
            return self._go_on(queued, report.receive(general, task, soldier, look, look.report))
        if by is not None:
            return self._go_on(queued, report.cancel(general, task, soldier, look, by))
        return self._go_on(queued, report.died(general, task, soldier, look))

    def _watch(self, filename: str, task: Task, look: Look) -> None:
        """Remember a running soldier, and wake when it ends. One that cannot be watched is looked at in each turn."""
        self._last_looks[filename] = task, look
        if look.started is not None and self._general.services.exits.watch(look.started.pid):
            self._watched[filename] = look.started.pid

    def _end_abandoned(self) -> None:
        """End the soldiers of tasks that somebody else has ended or taken away: nobody watches their time any more."""
        for filename in self._last_looks.keys() - {queued.filename for queued in self._in_progress.waiting}:
            task, _ = self._last_looks.pop(filename)
            self._end_and_clear(task)

    def _end_and_clear(self, task: Task) -> None:
        general = self._general
        soldier = general.handle(task.id)
        if soldier.is_running():
            why = "its task was ended by somebody else"
            general.services.log.warn(f"{task.id}: its soldier is ended, as {why}")
            report.log_killed(general.services.log, task, why)
            general.end(soldier)
        general.clear_traces(soldier, general.workspaces.inherited(task))

    def _go_on(self, queued: Queued, has_ended: bool) -> bool:
        """Leave an ended task to the king; let another have its next step at once. Return True: something was done."""
        if has_ended:
            self._in_progress.drop([queued.filename])
            self._last_looks.pop(queued.filename, None)
            self._next_budget_look.pop(queued.filename.removesuffix(".json"), None)
        else:
            self._starts_again = True
        return True

    def _may_be_free(self, task: Task) -> bool:
        """Return whether what a task waits for has changed since it asked: a budget was raised, an account is back."""
        return task.waits_for == ACCOUNT and self._asked.get(task.id) != self._general.budgets.state()

    def _period(self) -> float:
        return float(self._general.config["intervals"]["task_check_seconds"])

    def _may_start(self, task: Task) -> bool:
        """Return whether one more soldier may start. An answer may always start one."""
        general = self._general
        most, own_most = general.king_config["concurrency"]["max_soldiers"], general.manifest.max_soldiers
        if self._out is None:
            self._out = load.soldiers_out(general.services.places)
        return gate.no_soldier_because(self._out, general.name, task.type == "resume", own_most, most) is None

    def _start(self, queued: Queued, task: Task, soldier: SoldierHandle) -> bool:
        """Start a soldier, or skip, postpone or fail a task that cannot have one. Return whether anything was done."""
        general, services, manifest = self._general, self._general.services, self._general.manifest
        try:
            chosen = prepare.choose_engine(services, manifest)
            self._asked[task.id] = general.budgets.state()
            asked = _is_asked_by_a_person(task)
            wait = general.budgets.wait_for(general.name, chosen.account, task.id, services.clock(), for_person=asked)
            if wait is not None:
                report.postpone(general, task, wait)
                return True
            del self._asked[task.id]
            answers = notes.checkpoint_answered_by(services.places, task)
            workspace = general.workspaces.prepare(task, answers)
            if workspace is None:
                return False
            left = general.budgets.left_usd(general.name, services.clock(), for_person=asked)
            order = prepare.order(services, manifest, task, answers, soldier, chosen, workspace, left)
        except (NeedsSetUp, ConsentRefused) as error:
            if general.work_left(task) is None:
                return False
            skipped = Result(task_id=task.id, status="skipped", reason=str(error))
            return self._go_on(queued, report.finish(general, task, soldier, skipped))
        except NoWorkspace as error:
            return self._go_on(queued, report.failed(general, task, soldier, Retryable(str(error))))
        general.workspaces.forget(workspace)
        environment = prepare.environment(services, manifest, soldier, chosen.engine)
        starting = soldier.start(services.unsynced, order, environment, self._starter)
        if starting is not None:
            self._starting.append(_TaskStarting(queued.filename, task, soldier, order.soldier, starting))
        if self._out is not None:
            self._out.append((general.name, task.id))
        return True

    def _write_results(self, failed: list[OSError]) -> None:
        try:
            report.write_results(self._general)
        except OSError as error:
            failed.append(error)

    def _sync_claims(self, failed: list[OSError]) -> None:
        """Make claims durable while soldiers start: until then a power cut takes back both."""
        if self._claims_are_durable:
            return
        try:
            self._general.services.queues.tasks.sync("in_progress", "pending")
            self._claims_are_durable = True
        except OSError as error:
            failed.append(error)

    def _finish_starts(self, failed: list[OSError]) -> None:
        """Wait for those that are being started, and note them."""
        self._sync_claims(failed)
        while self._starting:
            filename, task, soldier, name, starting = self._starting.pop(0)
            try:
                started = soldier.finish_start(self._general.services.unsynced, starting, self._starter)
            except OSError as error:
                failed.append(error)
                continue
            if started is not None:
                self._watch(filename, task, Look(True, started, None, None))
                self._enlist(task, name, started.pid)

    def _enlist(self, task: Task, soldier: str, pid: int) -> None:
        general, services = self._general, self._general.services
        general.sessions.add(
            SessionRow(
                id=soldier,
                soldier=soldier,
                task_id=task.id,
                general=general.name,
                pid=pid,
                started_at=general.now(),
                priority=task.priority,
            )
        )
        notes.note_soldier(services.places, services.unsynced, task.id, soldier)
        services.log.event("task.started", soldier_id=soldier, task_id=task.id, attempt=task.attempt)
        said = f"starts {soldier} for {task.type}"
        services.log.info(said, event="soldier.spawned", soldier_id=soldier, task_id=task.id)

    def _enforce_timeout(self, task: Task, soldier: SoldierHandle, look: Look) -> bool:
        """Ask a soldier that is out of time to end, and kill it when it does not."""
        services = self._general.services
        if look.stopping is not None:
            # Either way: a clock that was set back must not give it an hour.
            since = abs(services.clock() - look.stopping.since)
            if since > services.config["timeouts"]["term_seconds"] + 1:
                report.log_killed(services.log, task, "it did not end when it was out of time")
                return soldier.kill() > 0
            return False
        seconds = look.seconds
        allowed = self._allowed_seconds(task, seconds)
        if seconds < allowed:
            return False
        said = f"the soldier of {task.id} has taken {seconds:.0f} s and is asked to end"
        name = prepare.soldier_name(task.id, task.attempt)
        data = {"soldier_id": name, "task_id": task.id, "timeout_seconds": round(allowed)}
        services.log.warn(said, event="soldier.timeout", **data)
        soldier.request_stop(services.disk, self._timeout_reason(seconds, allowed), services.clock())
        return True

    def _enforce_budget(self, task: Task, soldier: SoldierHandle, look: Look) -> bool:
        """Ask a soldier that has used up its budget to end: not every engine keeps to it by itself.

        What other soldiers have spent since it was started leaves it less.
        """
        services, order = self._general.services, soldier.order
        now = services.monotonic()
        if look.stopping is not None or order is None or now < self._next_budget_look.get(task.id, 0.0):
            return False
        self._next_budget_look[task.id] = now + BUDGET_SECONDS
        limits = self._limits_now(task, order)
        if all(most is None for most in limits.values()) or _size(order.out) > LARGEST_LOOKED_AT:
            return False
        used = soldier.used()
        spent = {note: used.get(name, 0.0) for note, name in SPENT.items()}
        why = budget_reached(limits, spent)
        if why is None:
            return False
        services.log.warn(f"the soldier of {task.id} is asked to end: {why}")
        soldier.request_stop(services.disk, f"budget: {why}", services.clock())
        return True

    def _limits_now(self, task: Task, order: SoldierOrder) -> dict[str, Any]:
        """Return what a running soldier may use: what it was started with, and no more than is left of all budgets."""
        general, limits = self._general, {limit: order.limits.get(limit) for limit in BUDGETS}
        now, asked = general.services.clock(), _is_asked_by_a_person(task)
        bounds = [limits["budget_usd"], general.budgets.left_usd(general.name, now, for_person=asked)]
        return {**limits, "budget_usd": min((bound for bound in bounds if bound is not None), default=None)}

    def _timeout_reason(self, seconds: float, allowed: float) -> str:
        base = self._general.manifest.timeout_seconds
        rule = f"timeout_seconds of {self._general.name} is {base}"
        extended = f", extended to {allowed:.0f} while it was active" if allowed > base else ""
        return f"timeout: it took {seconds:.0f} s ({rule}{extended})"

    def _allowed_seconds(self, task: Task, seconds: float) -> float:
        """Return the manifest's time, and a little more at a time while the soldier is visibly at work."""
        services = self._general.services
        rules = services.config["timeouts"]
        base = float(self._general.manifest.timeout_seconds)
        if seconds < base:
            return base
        name = prepare.soldier_name(task.id, task.attempt)
        silent = services.clock() - last_output([services.places.session_log(name, part) for part in ("out", "err")])
        if silent > rules["active_within_seconds"]:
            return base
        return float(min(base * rules["most"], max(base, seconds + rules["extension_seconds"])))

    def _clear_what_ended(self) -> None:
        """Clear the traces of tasks that ended while no general of this name was running."""
        general, services = self._general, self._general.services
        control_folders = services.places.control_folder(general.name, "any").parent
        workspaces = services.places.workspace(general.name, "any").parent
        for folder in (workspaces, services.places.soldiers):
            finish_removals(folder)
        engine_homes.remove_old(services.places, services.unsynced, general.name)
        make_folder(control_folders)
        for task_id in (folder.name for folder in control_folders.iterdir()):
            if not services.queues.tasks.has(task_id, "in_progress", "pending"):
                soldier = general.handle(task_id)
                general.end(soldier)
                general.clear_traces(soldier, self._inherited_by(task_id))
        for task_id in (folder.name for folder in workspaces.glob("task-*")):
            with suppress(BadName):
                general.workspaces.clear_if_done(task_id)
        for row in sessions.read(services.places):
            with suppress(BadName):
                if row.general == general.name and not general.handle(row.task_id).is_running():
                    general.sessions.remove(row.task_id)

    def _inherited_by(self, task_id: str) -> str | None:
        """Return the workspace that an ended task went on in."""
        try:
            return self._general.workspaces.inherited(self._general.services.queues.tasks.read("completed", task_id))
        except (FileNotFoundError, BadInput):
            return None

    def _sleep(self) -> float:
        """Return the seconds until the next look; at most one while tasks are in progress, as time-outs are due."""
        quiet = self._pending.next_look - self._general.services.monotonic()
        return min(quiet, LOOK_SECONDS) if self._in_progress.waiting else quiet


def _is_asked_by_a_person(task: Task) -> bool:
    return task.reply_to is not None or task.type == "resume"


def _size(path: str) -> int:
    with suppress(FileNotFoundError):
        return os.stat(path).st_size
    return 0
