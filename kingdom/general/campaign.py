"""A general's turn: claim its tasks, send one soldier for each, take what comes back, try again or report.

The state of every task lies in the directories, so a restarted general goes on where the last one was:
a living soldier is known by its lock, a finished one by its raw report under the current attempt.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import Popen

from kingdom.disk.atomic import is_there, make_folder
from kingdom.disk.codec import to_json
from kingdom.errors import BadConfig, BadInput, BadName, Collision, NoSuchThing
from kingdom.home import config, manifests
from kingdom.home.places import check_name
from kingdom.records import load, notes
from kingdom.records.backlog import Backlog
from kingdom.records.messages import Checkpoint, Queued, Result, SessionRow, Task
from kingdom.records.sessions import Sessions
from kingdom.rules import gate, retry
from kingdom.runtime.role import Services, Turn
from kingdom.soldiers import memory, prepare, results
from kingdom.soldiers.budgets import Purse, Wait
from kingdom.soldiers.cleanup import finish
from kingdom.soldiers.consent import Refused
from kingdom.soldiers.handle import Barrack, last_sign
from kingdom.soldiers.prepare import NeedsSetUp
from kingdom.soldiers.results import Done, Failed, Limited, Report
from kingdom.soldiers.workspace import Ground, NoGround
from kingdom.times import rests_until, stamp

BATCH = 16
"""So many are claimed at once, that the soldiers of the first need not wait for the last."""


class Campaign:
    def __init__(self, services: Services) -> None:
        self.name = check_name("general", services.name)
        self._purse = Purse(services.places, services.unsynced, services.log, {})
        self._ground = Ground(services.places, self.name, services.unsynced, {})
        self._take_over(services)
        self._manifest = manifests.of(services.places, self.name)
        self._tasks, self._mine_in_progress = (
            Backlog(services.queues.tasks, state, period=self._period, mine=self._is_mine, owner=False)
            for state in ("pending", "in_progress")
        )
        self._sessions = Sessions(services.places, services.unsynced)
        self._resting: set[str] = set()
        """Tasks in progress whose time has not come: they need no soldier yet."""
        self._children: dict[str, Popen[bytes]] = {}
        self._told_of_manifest = ""
        self._clear_what_ended()
        if not self._manifest.sandbox:
            services.log.warn("NO CAGE for its soldiers: its manifest says `sandbox: off`")

    def folders(self) -> Iterable[Path]:
        places = self._services.places
        return (places.folder("tasks", "pending"), places.results)

    def reload(self, services: Services) -> None:
        self._take_over(services)
        self._follow_manifest()

    def close(self) -> None:
        """Soldiers fight on; the next life of this general finds them by their locks."""

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        self._look(arrivals)
        for task in [task for task, child in self._children.items() if child.poll() is not None]:
            del self._children[task]
        self._resting.clear()
        steps = [self._step(each) for each in list(self._mine_in_progress)]
        claimed = self._claim()
        return Turn(any(steps) or claimed, wait=self._sleep(), busy=len(self._mine_in_progress) > 0)

    def _look(self, arrivals: dict[Path, list[str]] | None) -> None:
        now = self._services.monotonic()
        if arrivals is None:
            self._sessions.repair()
        if self._tasks.follow(arrivals, now):
            self._follow_manifest()
        self._mine_in_progress.follow(arrivals, now)

    def _claim(self) -> bool:
        room = BATCH
        if (most := self._manifest.max_soldiers) is not None:
            room = min(BATCH, most - sum(each.filename not in self._resting for each in self._mine_in_progress))
        chosen = list(self._tasks)[: max(0, room)]
        if not chosen:
            return False
        queues = self._services.queues
        stuck = set(
            queues.tasks.move([each.filename.removesuffix(".json") for each in chosen], "pending", "in_progress")
        )
        taken = [each.filename for each in chosen if each.filename.removesuffix(".json") not in stuck]
        self._tasks.give(taken, self._mine_in_progress)
        self._tasks.drop(each.filename for each in chosen)
        for name in taken:
            self._services.log.info(f"claims {name.removesuffix('.json')}")
        return bool(taken)

    def _is_mine(self, task: Task) -> bool:
        return task.target_general == self.name

    def _step(self, waiting: Queued) -> bool:
        """Whatever is next for this task. Returns whether anything was done."""
        task = self._mine_in_progress.take(waiting.filename)
        if task is None:
            self._mine_in_progress.drop([waiting.filename])
            return False
        barrack = Barrack(self._services.places, self.name, task.id)
        if is_there(self._services.places.result(task.id)):
            self._mine_in_progress.drop([waiting.filename])
            self._clear_traces(task.id, barrack, self._ground.kept(task))
            return False
        # Asked before the report is looked for: a soldier that has ended has written it, if it ever will.
        lives = barrack.lives()
        report = barrack.raw(task.attempt)
        if report is not None:
            return self._receive(task, barrack, report)
        if (by := notes.cancelled_by(self._services.places, task.id)) is not None:
            return self._give_up(task, barrack, by)
        if lives:
            barrack.adopt(self._services.unsynced, task.attempt)
            return self._watch(task, barrack)
        started = barrack.started()
        if started is not None and started.attempt == task.attempt:
            return self._fell(task, barrack)
        if rests_until(task.not_before, self._services.clock()) is not None:
            self._resting.add(waiting.filename)
            return False
        most, own_most = self._king["concurrency"]["max_soldiers"], self._manifest.max_soldiers
        running = load.soldiers_out(self._services.places, min(most, own_most or most))
        if gate.no_soldier_because(running, self.name, task.type == "resume", own_most, most) is not None:
            return False
        return self._send(task, barrack)

    def _send(self, task: Task, barrack: Barrack) -> bool:
        """Money, ground and engine first; whatever is missing makes the task wait or end in words."""
        try:
            engine, program = prepare.engine(self._services, self._manifest)
            account = prepare.account(self._manifest, engine)
            wait = self._purse.may_start(self.name, account, task.id, self._services.clock())
            if wait is not None:
                return self._postpone(task, wait)
            workspace = self._ground.ready(task, self._ground.kept(task))
            if workspace is None:
                return False
            order = prepare.order(self._services, self._manifest, task, barrack, engine, program, workspace)
        except (NeedsSetUp, Refused) as why:
            self._report(task, barrack, Result(task_id=task.id, status="skipped", reason=str(why)))
            return True
        except NoGround as trouble:
            return self._failed(task, barrack, Failed(str(trouble)), {})
        child = barrack.march(
            self._services.unsynced, order, prepare.environment(self._services, self._manifest, task, barrack)
        )
        if child is None:
            return False
        self._children[task.id] = child
        self._enlist(task, order["soldier"], child.pid)
        return True

    def _enlist(self, task: Task, soldier: str, pid: int) -> None:
        row = SessionRow(
            soldier=soldier,
            task_id=task.id,
            general=self.name,
            pid=pid,
            started_at=self._now(),
            priority=task.priority,
        )
        self._sessions.add(row)
        self._services.log.info(f"sends {soldier} for {task.type}")
        self._services.log.event("task.started", task_id=task.id, general=self.name, attempt=task.attempt)
        self._services.log.event("soldier.spawned", soldier=soldier, task_id=task.id)

    def _postpone(self, task: Task, wait: Wait) -> bool:
        """Not a try: the task waits with its reason in it, for `cat` and `why`."""
        waiting = task.evolve(not_before=stamp(wait.until), waits_because=wait.why)
        self._services.queues.tasks.update("in_progress", [waiting])
        self._services.log.warn(f"{task.id} waits: {wait.why}")
        return True

    def _kept_ground_of(self, task_id: str) -> str | None:
        """Of a task that has ended."""
        try:
            return self._ground.kept(self._services.queues.tasks.read("completed", task_id))
        except (FileNotFoundError, BadInput):
            return None

    def _give_up(self, task: Task, barrack: Barrack, by: str) -> bool:
        """A person has cancelled it: no grace, no retry."""
        barrack.end()
        self._services.log.event("soldier.killed", task_id=task.id)
        self._report(task, barrack, Result(task_id=task.id, status="failed", error=f"cancelled by {by}"))
        return True

    def _watch(self, task: Task, barrack: Barrack) -> bool:
        stopping = barrack.told_to_end()
        patience = self._config["timeouts"]["term_seconds"]
        if stopping is not None:
            # Either way: a clock that was set back must not give it an hour.
            if abs(self._services.clock() - stopping.since) > patience + 1:
                self._services.log.event("soldier.killed", task_id=task.id)
                return barrack.end() > 0
            return False
        served, allowed = barrack.seconds_served(), self._allowed(task, barrack)
        if served < allowed:
            return False
        self._services.log.warn(f"the soldier of {task.id} has taken {served:.0f} s and is told to end")
        self._services.log.event("soldier.timeout", task_id=task.id)
        barrack.tell_to_end(self._services.disk, self._overtime(served, allowed), self._services.clock())
        return True

    def _overtime(self, served: float, allowed: float) -> str:
        base = self._manifest.timeout_seconds
        rule = f"timeout_seconds of {self.name} is {base}"
        at_work = f", and it was given {allowed:.0f} while it was at work" if allowed > base else ""
        return f"timeout: it took {served:.0f} s ({rule}{at_work})"

    def _allowed(self, task: Task, barrack: Barrack) -> float:
        """The manifest's time, and a little more at a time while the soldier is visibly at work."""
        rules = self._config["timeouts"]
        base = float(self._manifest.timeout_seconds)
        soldier = prepare.soldier_name(task)
        logs = [self._services.places.session_log(soldier, stream) for stream in ("out", "err")]
        silent = self._services.clock() - last_sign(logs)
        if silent > rules["active_within_seconds"]:
            return base
        return float(min(base * rules["most"], max(base, barrack.seconds_served() + rules["extension_seconds"])))

    def _receive(self, task: Task, barrack: Barrack, report: Report) -> bool:
        self._services.log.event("soldier.completed", task_id=task.id, attempt=task.attempt)
        if report.get("lacking"):
            self._services.log.warn(f"NO WHOLE CAGE for the soldier of {task.id}: {report['lacking']}")
        if (stopping := barrack.told_to_end()) is not None:
            return self._failed(task, barrack, Failed(stopping.why), report)
        if report.get("result") is None and notes.was_stopped_by_down(self._services.places, barrack.camp):
            return self._begin_again(task, barrack)
        account = barrack.account() or prepare.account(
            self._manifest, prepare.engine_name(self._services, self._manifest)
        )
        match results.judge(task, report):
            case Limited(quota):
                return self._rest(task, barrack, self._purse.limited(account, quota, self._services.clock()))
            case Failed() as failed:
                if failed.result is not None:
                    self._book(task, account, failed.result)
                return self._failed(task, barrack, failed, report)
            case Done(result):
                self._book(task, account, result)
                self._report(task, barrack, results.measured(task, report, result), report.get("asks"))
        return True

    def _book(self, task: Task, account: str, result: Result) -> None:
        self._purse.spent(self.name, account, task.id, result.metrics, self._services.clock())

    def _rest(self, task: Task, barrack: Barrack, wait: Wait) -> bool:
        """A limit is no failure: the same try is made again when the account has rested."""
        self._postpone(task, wait)
        self._dismiss(task.id, barrack)
        return True

    def _begin_again(self, task: Task, barrack: Barrack) -> bool:
        """The same try: its soldier was called back when the kingdom went down."""
        self._services.log.info(f"{task.id} begins again: its soldier was called back")
        self._dismiss(task.id, barrack)
        return True

    def _fell(self, task: Task, barrack: Barrack) -> bool:
        """It started and left no report: killed, or the machine went down."""
        barrack.end()
        self._services.log.event("soldier.killed", task_id=task.id)
        if notes.was_stopped_by_down(self._services.places, barrack.camp):
            return self._begin_again(task, barrack)
        stopping = barrack.told_to_end()
        why = stopping.why if stopping else "its soldier died without a report"
        return self._failed(task, barrack, Failed(f"{why} {barrack.trouble()}".strip()), {})

    def _failed(self, task: Task, barrack: Barrack, failed: Failed, report: Report) -> bool:
        """Another try after a pause, or this was the last word."""
        spent = results.spent(task, failed.result)
        if (end := results.used_up(self._manifest, spent)) is not None:
            failed = replace(failed, why=f"{failed.why} (and {end})")
        elif retry.may_retry(task.attempt + 1, self._king["retry"]["max_attempts"]):
            later = stamp(self._services.clock() + self._king["retry"]["backoff_seconds"])
            because = f"try {task.attempt + 1} failed: {self._services.log.clean(failed.why)}"
            again = task.evolve(attempt=task.attempt + 1, not_before=later, waits_because=because, **spent)
            self._services.queues.tasks.update("in_progress", [again])
            self._purse.let_go(task.id, self._services.clock())
            self._dismiss(task.id, barrack)
            self._services.log.warn(f"{task.id} failed ({failed.why}); tries again after {later}")
            self._services.log.event("task.retried", task_id=task.id, attempt=again.attempt, error=failed.why)
            return True
        self._report(task, barrack, results.last_word(task, report, failed))
        return True

    def _report(self, task: Task, barrack: Barrack, result: Result, asks: str | None = None) -> None:
        """What others need first (checkpoint, memory), then the result, then the traces are cleared."""
        result = results.fit_to_tell(result, self._services.log.clean, self._manifest)
        if result.status == "needs_human":
            checkpoint = self._checkpoint(task, result).evolve(asks=asks)
            self._services.disk.rewrite(self._services.places.checkpoint(task.id), to_json(checkpoint.to_json()))
        most = self._config["memory"]["largest_bytes"]
        memory.learn(self._services.disk, self._services.places, self.name, task.repo, result.memory_updates, most)
        try:
            self._services.disk.create(self._services.places.result(task.id), to_json(result.to_json()))
        except Collision:
            self._services.log.warn(f"{task.id} has a result already; it stands")
        self._purse.let_go(task.id, self._services.clock())
        self._services.log.info(f"{task.id}: {result.status}")
        self._clear_traces(task.id, barrack, self._ground.kept(task))

    def _checkpoint(self, task: Task, result: Result) -> Checkpoint:
        return Checkpoint(
            task_id=task.id,
            thread_task_id=task.thread,
            target_general=self.name,
            type=task.type,
            matter=task.subject,
            repo=task.repo,
            session_id=result.session_id,
            workspace=self._ground.kept(task) or str(self._services.places.workspace(self.name, task.id)),
            payload=dict(task.payload),
            question=result.question,
            asked_at=self._now(),
        )

    def _clear_what_ended(self) -> None:
        """Traces of tasks that ended while no general of this name was awake."""
        places = self._services.places
        camps, grounds = places.control_folder(self.name, "any").parent, places.workspace(self.name, "any").parent
        for folder in (grounds, places.soldiers):
            finish(folder)
        make_folder(camps)
        for task in (camp.name for camp in camps.iterdir()):
            if not self._services.queues.tasks.has(task, "in_progress", "pending"):
                barrack = Barrack(places, self.name, task)
                barrack.end()
                self._clear_traces(task, barrack, self._kept_ground_of(task))
        for task in (ground.name for ground in grounds.glob("task-*")):
            with suppress(BadName):
                self._ground.clear_if_done(task)

    def _clear_traces(self, task_id: str, barrack: Barrack, kept_ground: str | None = None) -> None:
        """The ground first and the camp last: while it stands, a next life knows that something is left to clear."""
        self._ground.clear_if_done(task_id, kept_ground)
        if barrack.left_traces():
            self._dismiss(task_id, barrack)

    def _dismiss(self, task_id: str, barrack: Barrack) -> None:
        """Its soldier is out no more, and leaves nothing."""
        self._sessions.remove(task_id)
        barrack.clear(self._services.unsynced)

    def _follow_manifest(self) -> None:
        try:
            self._manifest = manifests.of(self._services.places, self.name)
            self._told_of_manifest = ""
        except (BadConfig, NoSuchThing) as trouble:
            if str(trouble) != self._told_of_manifest:
                self._services.log.error(f"keeps its old manifest: {trouble}")
            self._told_of_manifest = str(trouble)

    def _take_over(self, services: Services) -> None:
        """All of it or nothing: what can be wrong is read first."""
        king = config.load(services.places, "king")
        self._king = king
        self._services = services
        self._config = services.config
        self._purse.rules = {**services.config["budgets"], **services.config["quota"]}
        self._ground.rules = services.config["repositories"]

    def _sleep(self) -> float:
        """A soldier's timeout and a retry are checked once a second; otherwise arrivals and children wake us."""
        quiet = self._tasks.next_look - self._services.monotonic()
        return min(quiet, 1.0) if len(self._mine_in_progress) else quiet

    def _period(self) -> float:
        return float(self._config["intervals"]["task_check_seconds"])

    def _now(self) -> str:
        return stamp(self._services.clock())
