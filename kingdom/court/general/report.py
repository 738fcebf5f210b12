"""Turn a soldier's report into a result, a question, a pause of its account, or another attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kingdom.base import retry
from kingdom.base.disk.codec import to_json
from kingdom.base.log import Log
from kingdom.base.records import notes
from kingdom.base.records.messages import ACCOUNT, Checkpoint, Result, Task
from kingdom.base.records.soldiers import RawReport
from kingdom.base.times import stamp
from kingdom.court.general.context import GeneralContext, TaskEnding
from kingdom.court.soldiers import engine_homes, engines, memory, prepare, results
from kingdom.court.soldiers.budgets import Wait
from kingdom.court.soldiers.handle import Look, SoldierHandle
from kingdom.court.soldiers.results import Final, QuotaReached, Retryable
from kingdom.court.soldiers.workspace import KEPT_AFTER


def receive(general: GeneralContext, task: Task, soldier: SoldierHandle, look: Look, report: RawReport) -> bool:
    """Do what follows from a soldier's report. Return whether the task has ended, as all of these functions do."""
    log = general.services.log
    name = prepare.soldier_name(task.id, task.attempt)
    log.event("soldier.completed", soldier_id=name, task_id=task.id, attempt=task.attempt)
    if report.missing_sandbox:
        log.warn(f"NO WHOLE SANDBOX for the soldier of {task.id}: {report.missing_sandbox}")
    if look.stopping is not None:
        return failed(general, task, soldier, _killed(general, task, soldier, look, look.stopping.why), report.seconds)
    if report.result is None and notes.was_stopped_by_down(general.services.places, soldier.control_folder):
        return begin_again(general, task, soldier)
    account = _account(general, soldier)
    report = engine_homes.keep_session(general.services, general.name, soldier.order, report)
    outcome = results.read(task, report)
    if isinstance(outcome, Retryable) and outcome.result is None:
        outcome = replace(outcome, result=_used(task, soldier, outcome.why))
    if outcome.result is not None:
        _record_cost(general, task, account, outcome.result, look)
    match outcome:
        case QuotaReached(quota, result):
            general.workspaces.renew(task)
            wait = general.budgets.rest_account(account, task.id, quota, general.services.clock())
            postpone(general, replace(task, **_noted(results.spent(task, result))), wait)
            general.dismiss(soldier)
            return False
        case Retryable():
            return failed(general, task, soldier, outcome, report.seconds)
        case Final(result):
            return finish(general, task, soldier, results.with_metrics(task, result, report.seconds), report.asks)


def died(general: GeneralContext, task: Task, soldier: SoldierHandle, look: Look) -> bool:
    """Plan another try: the soldier left no report, because it was killed or the machine went down."""
    log_killed(general.services.log, task, look.stopping.why if look.stopping else "it died without a report")
    why = look.stopping.why if look.stopping else "its soldier died without a report"
    outcome = _killed(general, task, soldier, look, f"{why} {soldier.stderr_tail()}".strip())
    if notes.was_stopped_by_down(general.services.places, soldier.control_folder):
        return begin_again(general, task, soldier)
    return failed(general, task, soldier, outcome)


def cancel(general: GeneralContext, task: Task, soldier: SoldierHandle, look: Look, by: str) -> bool:
    """End a task that a person cancelled, and whose soldier was killed: it is not tried again."""
    why = f"cancelled by {by}"
    log_killed(general.services.log, task, why)
    ended = _killed(general, task, soldier, look, why).result
    return finish(general, task, soldier, ended or Result(task_id=task.id, status="failed", error=why))


def _killed(general: GeneralContext, task: Task, soldier: SoldierHandle, look: Look, why: str) -> Retryable:
    """Note what a killed soldier has cost, as far as its engine had told it, and return it as a failed try."""
    result = _used(task, soldier, why)
    if result is not None:
        _record_cost(general, task, _account(general, soldier), result, look)
    return Retryable(why, result)


def _used(task: Task, soldier: SoldierHandle, why: str) -> Result | None:
    """Return a failure with what the run used by its engine's output so far; None when that says nothing."""
    used = soldier.used()
    return Result(task_id=task.id, status="failed", error=why, metrics=used) if used else None


def log_killed(log: Log, task: Task, reason: str) -> None:
    """Log that a task's soldier was killed."""
    log.event("soldier.killed", soldier_id=prepare.soldier_name(task.id, task.attempt), task_id=task.id, reason=reason)


def begin_again(general: GeneralContext, task: Task, soldier: SoldierHandle) -> bool:
    """Do the same try again: `down --soldiers` ended its soldier, which is not a failure."""
    general.workspaces.renew(task)
    general.services.log.info(f"{task.id} starts again: its soldier was ended by `down --soldiers`")
    general.dismiss(soldier)
    return False


def postpone(general: GeneralContext, task: Task, wait: Wait) -> None:
    """Postpone the task, which is not a failure; the task holds the reason, for `cat` and `why`."""
    waiting = replace(task, not_before=stamp(wait.until), waits_because=wait.why, waits_for=ACCOUNT)
    if waiting == task:
        return
    general.services.queues.tasks.update("in_progress", [waiting])
    general.services.log.warn(f"{task.id} waits: {wait.why}")


def failed(
    general: GeneralContext, task: Task, soldier: SoldierHandle, outcome: Retryable, seconds: float | None = None
) -> bool:
    """Plan another try after a pause, or end the task as failed."""
    rules, log = general.king_config["retry"], general.services.log
    spent: dict[str, Any] = results.spent(task, outcome.result)
    if (end := results.budget_reached(general.manifest.limits, spent)) is not None:
        outcome = replace(outcome, why=outcome.why if end in outcome.why else f"{outcome.why} (and {end})")
    elif retry.may_retry(task.attempt + 1, rules["max_attempts"]):
        later = stamp(general.services.clock() + retry.pause(rules, task.attempt + 1))
        because = f"attempt {task.attempt + 1} failed: {log.clean(outcome.why)}"
        again = replace(
            task, attempt=task.attempt + 1, not_before=later, waits_because=because, waits_for=None, **spent
        )
        # First: a kill in between plans this try again, and the next one must not find what this one has left.
        general.workspaces.renew(task)
        general.services.queues.tasks.update("in_progress", [again])
        general.budgets.release_probe(task.id, general.services.clock())
        general.dismiss(soldier)
        said = f"{task.id} failed ({outcome.why}); retries after {later}"
        log.warn(said, event="task.retried", task_id=task.id, attempt=again.attempt, error=outcome.why)
        return False
    return finish(general, task, soldier, results.final_failure(task, outcome, seconds))


def finish(
    general: GeneralContext, task: Task, soldier: SoldierHandle, result: Result, asks: str | None = None
) -> bool:
    """Write what others need before the result: checkpoint, memory. `write_results` ends the task."""
    services, inherited = general.services, general.workspaces.inherited(task)
    result = results.with_warnings(results.redacted(result, services.log.clean_json), _warnings(general, soldier))
    if result.status == "needs_human":
        checkpoint = _checkpoint(general, task, result, inherited, asks)
        services.disk.rewrite(services.places.checkpoint(task.id), to_json(checkpoint.to_json()))
        # A king of another program reads the path from here alone.
        result = replace(result, checkpoint_path=str(services.places.checkpoint(task.id)))
    folders = general.workspaces.folders(task.id, inherited)
    left = general.work_left(task)
    left = [*(folders if left is None else left), *general.workspaces.earlier(task.id)]
    result = replace(result, kept=[str(folder) for folder in left])
    if result.session_id:
        notes.note_session_id(services.places, services.unsynced, task.id, result.session_id)
    most = general.config["memory"]["largest_bytes"]
    memory.collect(services.disk, services.places, general.name, most)
    if result.memory_updates:
        memory.learn(services.disk, services.places, general.name, task.repo, result.memory_updates, most)
    kept = [*left, *folders] if result.status in KEPT_AFTER else left
    general.endings.append(TaskEnding(task, soldier, result, inherited, kept))
    return True


def write_results(general: GeneralContext) -> None:
    """Write the results of the tasks that have ended, durable together, then clear their traces."""
    endings, general.endings = general.endings, []
    services = general.services
    paths = [services.places.result(ending.task.id) for ending in endings]
    results = [to_json(ending.result.to_json()) for ending in endings]
    taken = services.disk.create_all(zip(paths, results, strict=True))
    for (task, soldier, result, inherited, kept), path in zip(endings, paths, strict=True):
        if path in taken:
            services.log.warn(f"{task.id} has a result already, which is kept")
        general.budgets.release_probe(task.id, services.clock())
        services.log.info(f"{task.id}: {result.status}")
        for warning in result.warnings or ():
            services.log.warn(f"the result of {task.id}: {warning}")
        general.clear_traces(soldier, inherited, None if path in taken else kept)


def _noted(spent: Mapping[str, float]) -> dict[str, Any]:
    return {note: amount for note, amount in spent.items() if amount}


def _checkpoint(
    general: GeneralContext, task: Task, result: Result, inherited: str | None, asks: str | None
) -> Checkpoint:
    return Checkpoint(
        task_id=task.id,
        thread_task_id=task.thread,
        target_general=general.name,
        type=task.type,
        matter=task.subject,
        repo=task.repo,
        session_id=result.session_id,
        workspace=inherited or str(general.services.places.workspace(general.name, task.id)),
        payload=dict(task.payload),
        question=result.question,
        asked_at=general.now(),
        asks=asks,
    )


def _record_cost(general: GeneralContext, task: Task, account: str, result: Result, look: Look) -> None:
    run = f"{task.id}/{task.attempt}/{look.started.pid}-{look.started.start}" if look.started else ""
    now = general.services.clock()
    general.budgets.record_cost(general.name, account, task.id, result.metrics, now, run=run)


def _engine_name(general: GeneralContext, soldier: SoldierHandle) -> str:
    """Return the engine that did the work, or would have: the manifest may name another one by now."""
    return soldier.order.engine if soldier.order else prepare.engine_name(general.services, general.manifest)


def _account(general: GeneralContext, soldier: SoldierHandle) -> str:
    if soldier.order is not None:
        return soldier.order.account
    name = _engine_name(general, soldier)
    return engines.load(name).account(general.name) if name in engines.ENGINES else name


def _warnings(general: GeneralContext, soldier: SoldierHandle) -> list[str]:
    name = _engine_name(general, soldier)
    return engines.load(name).warnings(general.services, general.manifest) if name in engines.ENGINES else []
