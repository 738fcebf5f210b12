"""Coordinator: gives tasks to ignitians by their dependencies, phases, skills and load, and follows them to the end.

Every step touches the rows that it is about, not the whole plan: with many tasks it would not keep up.
"""

from __future__ import annotations

import os
from typing import Any

from kingdom.base.home.places import Places, find_home
from kingdom.base.words import one_line
from kingdom.council.team.context import Context, NotUnderstood, TeamMessage
from kingdom.council.team.plan import MOST_ROUNDS, TeamPlan
from kingdom.council.team.work import first


def begin(context: Context, message: TeamMessage) -> None:
    """Take a plan, and give out what needs nothing."""
    tasks = message.body.get("tasks")
    if not isinstance(tasks, list) or not all(isinstance(task, dict) and task.get("task_id") for task in tasks):
        raise NotUnderstood(type=message.type, sender=message.sender, why="its tasks are no list of tasks")
    plan = TeamPlan(context.memory, message.thread)
    context.remember(goal=message.body.get("goal", ""), asked_by=message.id)
    plan.add(tasks)
    if why := plan.fault():
        _report(context, plan, "the plan cannot be followed", failed=why)
        return
    _go_on(context, plan)


def completed(context: Context, message: TeamMessage) -> None:
    """Have a task's work evaluated, and give out what it was needed for. One that failed is given to another once."""
    plan = TeamPlan(context.memory, message.thread)
    task = message.text("task_id")
    if not plan.is_out(task, message.sender):
        print(f"{message.sender} has no task {task} now")
        return
    if message.body.get("status") != "success":
        error = message.body.get("error")
        _try_again(context, plan, task, error.get("message") if isinstance(error, dict) else error)
        return
    plan.deliver(task, message.body.get("deliverables", []))
    _ask_for_evaluation(context, plan, task)
    _go_on(context, plan)


def unanswered(context: Context, message: TeamMessage) -> None:
    """Give a task out again whose ignitian has deleted it without a report."""
    plan = TeamPlan(context.memory, message.thread)
    task = str(message.body.get("task_id"))
    if plan.is_out(task, str(message.body.get("original_assignee"))):
        _try_again(context, plan, task, message.body.get("failure_reason"))


def judged(context: Context, message: TeamMessage) -> None:
    """Note a verdict. After a failure innovator improves the work, up to a few times."""
    plan = TeamPlan(context.memory, message.thread)
    task = message.text("task_id")
    verdict = message.body.get("overall_status") or message.body.get("verdict")
    if verdict == "pass":
        if plan.accept(task):
            _go_on(context, plan)
            _report(context, plan, f"{_title(plan, task)} is accepted")
    elif plan.rounds(task) >= MOST_ROUNDS:
        title = _title(plan, task)
        _report(context, plan, f"{title} failed", failed=f"{title} failed {MOST_ROUNDS} evaluations")


def revised(context: Context, message: TeamMessage) -> None:
    """Have improved work evaluated again."""
    plan = TeamPlan(context.memory, message.thread)
    task = message.text("task_id")
    if plan.revise(task, message.body.get("deliverables", [])):
        _ask_for_evaluation(context, plan, task)


def _try_again(context: Context, plan: TeamPlan, task: str, why: object) -> None:
    if plan.try_again(task):
        _go_on(context, plan)
    else:
        title = _title(plan, task)
        _report(context, plan, f"{title} failed", failed=f"{title} failed twice: {why}")


def _title(plan: TeamPlan, task: str) -> str:
    """Return what a task is called, as people read it."""
    return repr(one_line(plan.task(task).body.get("title") or task, 80))


def _ask_for_evaluation(context: Context, plan: TeamPlan, task: str) -> None:
    found = plan.task(task)
    body = {name: found.body[name] for name in ("title", "criteria", "work") if name in found.body}
    more = {"requirements": found.body.get("requirements", []), "inputs": plan.inputs(task), "round": found.rounds}
    context.send(
        ["evaluator"], "evaluation_request", {"task_id": task, **body, "deliverables": found.deliverables, **more}, task
    )


def _go_on(context: Context, plan: TeamPlan) -> None:
    """Give tasks to ignitians that have room."""
    for task, worker in plan.assign(_workers()):
        body = {**plan.task(task).body, "inputs": plan.inputs(task)}
        body.setdefault("title", task)
        context.send([worker], "task_assignment", body, task, answers=context.recall("asked_by", ""))


def _report(context: Context, plan: TeamPlan, summary: str, failed: str = "") -> None:
    counts = plan.counts()
    body: dict[str, Any] = {
        "repository": context.repository,
        "total_tasks": counts.total,
        "completed": counts.accepted,
        "in_progress": counts.out,
        "pending": counts.total - counts.accepted - counts.out,
        "summary": summary,
    }
    if failed:
        body["failed"] = failed
    elif counts.accepted == counts.total:
        last = plan.last()
        body |= {
            "deliverables": last.deliverables,
            "result": first({"deliverables": last.deliverables}).get("file", ""),
        }
    context.send(["leader"], "progress_update", body, f"progress {summary}")


def _workers() -> list[str]:
    """Return the ignitians that there are: each has a folder."""
    found = [
        name for name in os.listdir(Places(find_home()).council) if name.startswith("ignitian_") and name[9:].isdigit()
    ]
    return sorted(found, key=lambda name: int(name[9:]))


ANSWERS = {
    "task_list": begin,
    "task_completed": completed,
    "evaluation_result": judged,
    "revision_request": revised,
    "escalation": unanswered,
}
