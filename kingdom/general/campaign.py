"""A general's turn: claim its tasks, send one soldier for each, judge what comes back, try again or report.

The state of every task lies in the directories, so a restarted general goes on where the last one was:
a living soldier is known by its lock, a finished one by its raw report under the current attempt.
"""

from __future__ import annotations

import os
import secrets as dice
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from subprocess import Popen
from typing import Any

from kingdom import config, manifests, schemas
from kingdom.atomic import make_folder, to_json
from kingdom.errors import BadConfig, BadInput, Collision, NoSuchThing
from kingdom.general import ground, memory, prompt, roll
from kingdom.general.barrack import MARKER, Barrack, last_sign
from kingdom.messages import Result, Task, moment, stamp
from kingdom.places import check_name
from kingdom.policy import may_retry
from kingdom.post import Shelf, Waiting
from kingdom.role import Kit, Turn

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "USER", "LOGNAME", "SHELL")
"""What every soldier may see of our environment; a manifest's `env` adds to it."""
KEEPS_GROUND = ("failed", "needs_human")
FINAL = ("success", "skipped", "needs_human")
BATCH = 16


class Campaign:
    def __init__(self, kit: Kit) -> None:
        self.name = check_name("general", kit.name)
        self._take_over(kit)
        self._manifest = manifests.of(kit.places, self.name)
        self._tasks = Shelf(kit.post, "tasks", mine=self._is_mine, buries=False)
        self._mine_in_progress = Shelf(kit.post, "tasks", "in_progress", mine=self._is_mine, buries=False)
        self._children: dict[str, Popen[bytes]] = {}
        self._seen_manifest: object = None
        self._next_look = 0.0
        self._clear_what_ended()

    def folders(self) -> Iterable[Path]:
        places = self._kit.places
        return (places.folder("tasks", "pending"), places.results)

    def reload(self, kit: Kit) -> None:
        self._manifest = manifests.of(kit.places, self.name)
        self._take_over(kit)

    def close(self) -> None:
        """Soldiers fight on; the next life of this general finds them by their locks."""

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        self._look(arrivals)
        for child in [task for task, child in self._children.items() if child.poll() is not None]:
            del self._children[child]
        steps = [self._step(each) for each in list(self._mine_in_progress)]
        claimed = self._claim()
        return Turn(any(steps) or claimed, wait=self._sleep(), busy=len(self._mine_in_progress) > 0)

    # --- claiming

    def _look(self, arrivals: dict[Path, list[str]] | None) -> None:
        now = time.monotonic()
        if arrivals is None or now >= self._next_look:
            self._follow_manifest()
            self._tasks.rescan()
            self._mine_in_progress.rescan()
            self._next_look = now + self._config["intervals"]["task_check_seconds"]
        else:
            self._tasks.note(arrivals.get(self._kit.places.folder("tasks", "pending"), ()))

    def _claim(self) -> bool:
        most = self._manifest.max_soldiers or BATCH
        room = max(0, min(BATCH, most - len(self._mine_in_progress)))
        chosen = list(self._tasks)[:room]
        if not chosen:
            return False
        post = self._kit.post
        stuck = set(
            post.move("tasks", [each.filename.removesuffix(".json") for each in chosen], "pending", "in_progress")
        )
        self._tasks.drop(each.filename for each in chosen)
        taken = [each.filename for each in chosen if each.filename.removesuffix(".json") not in stuck]
        self._mine_in_progress.note(taken)
        for name in taken:
            self._kit.log.say(f"claims {name.removesuffix('.json')}")
        return bool(taken)

    def _is_mine(self, task: Task) -> bool:
        return task.target_general == self.name

    # --- one task, one step

    def _step(self, waiting: Waiting) -> bool:
        """Whatever is next for this task. Returns whether anything was done."""
        task = self._task(waiting.filename)
        if task is None:
            self._mine_in_progress.drop([waiting.filename])
            return False
        barrack = Barrack(self._kit.places, self.name, task.id)
        if os.path.lexists(self._kit.places.result(task.id)):
            self._mine_in_progress.drop([waiting.filename])
            self._clear_traces(task.id, barrack)
            return False
        report = barrack.raw(task.attempt)
        if report is not None:
            return self._receive(task, barrack, report)
        if "cancelled_by" in task.extra:
            return self._give_up(task, barrack)
        if barrack.lives():
            barrack.adopt(self._kit.light, task.attempt)
            return self._watch(task, barrack)
        started = barrack.started()
        if started is not None and started.attempt == task.attempt:
            return self._fell(task, barrack)
        if task.not_before is not None and moment(task.not_before) > self._kit.clock():
            return False
        return self._send(task, barrack)

    def _task(self, filename: str) -> Task | None:
        task: Task | None = self._kit.post.open("tasks", "in_progress", filename, buries=False)
        return task

    def _send(self, task: Task, barrack: Barrack) -> bool:
        executable = self._kit.places.package(self.name) / "run"
        engine = self._manifest.engine or str(self._kit.system["default_engine"])
        if engine != "command" or not os.access(executable, os.X_OK):
            why = (
                f"needs set-up: engine {engine!r} is not there"
                if engine != "command"
                else f"needs set-up: {executable} cannot be run"
            )
            self._report(
                task, barrack, Result(task_id=task.id, status="skipped", reason=why, notify_channel=self._asker(task))
            )
            return True
        soldier = f"soldier-{task.id}-{task.attempt}"
        order = self._order(task, barrack, soldier, engine, executable)
        child = barrack.march(self._kit.light, order, self._environment(task, barrack))
        if child is None:
            return False
        self._children[task.id] = child
        row = {
            "soldier": soldier,
            "task_id": task.id,
            "general": self.name,
            "pid": child.pid,
            "started_at": self._now(),
        }
        roll.enlist(self._kit.light, self._kit.places, row)
        self._kit.log.say(f"sends {soldier} for {task.type}")
        self._kit.log.event("task.started", task_id=task.id, general=self.name, attempt=task.attempt)
        self._kit.log.event("soldier.spawned", soldier=soldier, task_id=task.id)
        return True

    def _order(self, task: Task, barrack: Barrack, soldier: str, engine: str, executable: Path) -> dict[str, Any]:
        places = self._kit.places
        workspace = ground.prepare(places, self.name, task.id)
        paper = places.prompt(task.id)
        template = (places.package(self.name) / "prompt.md").read_text("utf-8")
        text = prompt.write(
            template,
            task,
            memory=memory.recall(places, self.name),
            boundary=dice.token_hex(8),
            largest_bytes=self._config["prompt"]["largest_bytes"],
        )
        self._kit.disk.rewrite(paper, text.encode())
        task_file = barrack.camp / "task.json"
        make_folder(barrack.camp)
        self._kit.light.rewrite(task_file, to_json(task.to_json()))
        return {
            "soldier": soldier,
            "task_id": task.id,
            "general": self.name,
            "attempt": task.attempt,
            "engine": engine,
            "executable": str(executable),
            "workspace": str(workspace),
            "prompt": str(paper),
            "result_path": str(barrack.result_path),
            "out": str(places.session_log(soldier, "out")),
            "err": str(places.session_log(soldier, "err")),
            "limits": dict(self._manifest.limits),
            "sandbox": self._manifest.sandbox,
            "external": task.scheduled_for is None,
            "may_write": [str(workspace), str(barrack.room)],
            "may_not_read": [str(places.env_file), str(places.own("gateway"))],
            "env": {"KINGDOM_TASK_FILE": str(task_file), "TMPDIR": str(barrack.room)},
        }

    def _environment(self, task: Task, barrack: Barrack) -> dict[str, str]:
        """Only what is named: a soldier holds no token that it was not given."""
        ours = {**os.environ, **config.secrets(self._kit.places)}
        passed = {name: ours[name] for name in (*PASSED_ON, *self._manifest.env) if name in ours}
        passed["PATH"] = f"{Path(sys.executable).parent}:{passed.get('PATH', '/usr/bin:/bin')}"
        return {
            **passed,
            "KINGDOM_HOME": str(self._kit.places.home),
            MARKER: task.id,
            "KINGDOM_RESULT_PATH": str(barrack.result_path),
        }

    def _give_up(self, task: Task, barrack: Barrack) -> bool:
        """A person has cancelled it: no grace, no retry."""
        barrack.end()
        self._kit.log.event("soldier.killed", task_id=task.id)
        self._report(
            task, barrack, Result(task_id=task.id, status="failed", error=f"cancelled by {task.extra['cancelled_by']}")
        )
        return True

    # --- while a soldier is out

    def _watch(self, task: Task, barrack: Barrack) -> bool:
        stopping = barrack.told_to_end()
        patience = self._config["timeouts"]["term_seconds"]
        if stopping is not None:
            if self._kit.clock() - float(stopping["since"]) > patience + 1:
                self._kit.log.event("soldier.killed", task_id=task.id)
                return barrack.end() > 0
            return False
        if barrack.seconds_served() < self._allowed(task, barrack):
            return False
        self._kit.log.warn(f"the soldier of {task.id} has taken {barrack.seconds_served():.0f} s and is told to end")
        self._kit.log.event("soldier.timeout", task_id=task.id)
        barrack.tell_to_end(self._kit.disk, "timeout", self._kit.clock())
        return True

    def _allowed(self, task: Task, barrack: Barrack) -> float:
        """The manifest's time, and a little more at a time while the soldier is visibly at work."""
        rules = self._config["timeouts"]
        base = float(self._manifest.timeout_seconds)
        soldier = f"soldier-{task.id}-{task.attempt}"
        logs = [self._kit.places.session_log(soldier, stream) for stream in ("out", "err")]
        silent = self._kit.clock() - last_sign(logs)
        if silent > rules["active_within_seconds"]:
            return base
        return float(min(base * rules["most"], max(base, barrack.seconds_served() + rules["extension_seconds"])))

    # --- what comes back

    def _receive(self, task: Task, barrack: Barrack, report: Mapping[str, Any]) -> bool:
        self._kit.log.event("soldier.completed", task_id=task.id, attempt=task.attempt)
        stopping = barrack.told_to_end()
        if stopping is not None:
            return self._failed(task, barrack, f"{stopping['why']}: it took longer than it may", report)
        if report.get("result") is None:
            return self._failed(task, barrack, _what_was_seen(report), report)
        try:
            fields = schemas.check("result", {**report["result"], "task_id": task.id})
        except BadInput as trouble:
            return self._failed(task, barrack, f"no valid result: {trouble}", report)
        result = Result.from_json(fields)
        if result.status not in FINAL:
            return self._failed(task, barrack, result.error or "failed without a reason", report, result)
        self._report(task, barrack, result.but(metrics=self._metrics(task, report, result)))
        return True

    def _fell(self, task: Task, barrack: Barrack) -> bool:
        """It started and left no report: killed, or the machine went down."""
        barrack.end()
        self._kit.log.event("soldier.killed", task_id=task.id)
        return self._failed(task, barrack, f"its soldier died without a report {barrack.trouble()}".strip(), {})

    def _failed(
        self, task: Task, barrack: Barrack, why: str, report: Mapping[str, Any], result: Result | None = None
    ) -> bool:
        if may_retry(task.attempt + 1, self._retry["max_attempts"]):
            later = stamp(self._kit.clock() + self._retry["backoff_seconds"])
            again = task.but(attempt=task.attempt + 1, not_before=later)
            self._kit.post.annotate("tasks", "in_progress", [again])
            roll.dismiss(self._kit.light, self._kit.places, task.id)
            barrack.clear()
            self._kit.log.warn(f"{task.id} failed ({why}); tries again after {later}")
            self._kit.log.event("task.retried", task_id=task.id, attempt=again.attempt, error=why)
            return True
        final = (result or Result(task_id=task.id, status="failed")).but(error=why)
        self._report(task, barrack, final.but(metrics=self._metrics(task, report, final)))
        return True

    def _report(self, task: Task, barrack: Barrack, result: Result) -> None:
        """What others need first (checkpoint, memory), then the result, then the traces are cleared."""
        if result.status == "needs_human":
            self._kit.disk.rewrite(self._kit.places.checkpoint(task.id), to_json(self._checkpoint(task, result)))
        memory.learn(
            self._kit.disk, self._kit.places, self.name, result.memory_updates, self._config["memory"]["largest_bytes"]
        )
        try:
            self._kit.disk.create(self._kit.places.result(task.id), to_json(result.to_json()))
        except Collision:
            self._kit.log.warn(f"{task.id} has a result already; it stands")
        self._kit.log.say(f"{task.id}: {result.status}")
        self._clear_traces(task.id, barrack)
        if result.status not in KEEPS_GROUND:
            ground.clear(self._kit.places, self.name, task.id)

    def _checkpoint(self, task: Task, result: Result) -> dict[str, Any]:
        return {
            "task_id": task.id,
            "thread_task_id": task.thread,
            "target_general": self.name,
            "repo": task.repo,
            "session_id": result.extra.get("session_id"),
            "workspace": str(self._kit.places.workspace(self.name, task.id)),
            "payload": dict(task.payload),
            "question": result.question,
            "asked_at": self._now(),
        }

    def _metrics(self, task: Task, report: Mapping[str, Any], result: Result) -> dict[str, Any]:
        seconds = {"duration_seconds": report["seconds"]} if "seconds" in report else {}
        return {**seconds, **result.metrics, "retry_count": task.attempt}

    # --- shared

    def _asker(self, task: Task) -> str | None:
        """A person who waits for an answer is told even what would otherwise pass in silence."""
        return str(task.reply_to["channel"]) if task.reply_to and task.reply_to.get("channel") else None

    def _clear_what_ended(self) -> None:
        """Traces of tasks that ended while no general of this name was awake."""
        camps = self._kit.places.camp(self.name, "any").parent
        make_folder(camps)
        for task in (folder.name for folder in camps.iterdir()):
            if not self._kit.post.has("tasks", task, "in_progress", "pending"):
                barrack = Barrack(self._kit.places, self.name, task)
                barrack.end()
                self._clear_traces(task, barrack)

    def _clear_traces(self, task_id: str, barrack: Barrack) -> None:
        if barrack.left_traces():
            roll.dismiss(self._kit.light, self._kit.places, task_id)
            barrack.clear()

    def _follow_manifest(self) -> None:
        try:
            self._manifest = manifests.of(self._kit.places, self.name)
        except (BadConfig, NoSuchThing) as trouble:
            if str(trouble) != self._seen_manifest:
                self._kit.log.error(f"keeps its old manifest: {trouble}")
            self._seen_manifest = str(trouble)

    def _take_over(self, kit: Kit) -> None:
        self._kit = kit
        self._config = kit.config
        self._retry = config.load(kit.places, "king")["retry"]

    def _sleep(self) -> float:
        """A soldier's timeout and a retry are checked once a second; otherwise arrivals and children wake us."""
        quiet = self._next_look - time.monotonic()
        return min(quiet, 1.0) if len(self._mine_in_progress) else quiet

    def _now(self) -> str:
        return stamp(self._kit.clock())


def _what_was_seen(report: Mapping[str, Any]) -> str:
    code, seen = report.get("code"), str(report.get("seen") or "nothing was said")
    how = f"ended with code {code}" if code is not None else str(report.get("ended"))
    return f"no result ({how}): {seen}"
