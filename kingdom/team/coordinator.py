"""Coordinator: gives tasks to ignitians by their dependencies, phases, skills and load, and follows them to the end.

Every step touches the rows that it is about, not the whole plan: with many tasks it would not keep up.
"""

from __future__ import annotations

import os
from typing import Any

from kingdom.team.desk import Desk, Letter, NotUnderstood
from kingdom.team.plan import MOST_ROUNDS, Plan
from kingdom.team.work import first


def begin(desk: Desk, letter: Letter) -> None:
    """Take a plan, and give out what needs nothing."""
    tasks = letter.body.get("tasks")
    if not isinstance(tasks, list) or not all(isinstance(task, dict) and task.get("task_id") for task in tasks):
        raise NotUnderstood(type=letter.type, sender=letter.sender, why="its tasks are no list of tasks")
    plan = Plan(desk.memory, letter.thread)
    desk.remember(goal=letter.body.get("goal", ""), asked_by=letter.id)
    plan.add(tasks)
    if why := plan.fault():
        _report(desk, letter, plan, "the plan cannot be followed", failed=why)
        return
    _go_on(desk, letter, plan)


def completed(desk: Desk, letter: Letter) -> None:
    """Have a task's work evaluated, and give out what it was needed for. One that failed is given to another once."""
    plan = Plan(desk.memory, letter.thread)
    task = letter.text("task_id")
    if not plan.is_out(task, letter.sender):
        print(f"{letter.sender} has no task {task} now")
        return
    if letter.body.get("status") != "success":
        error = letter.body.get("error")
        said = error.get("message") if isinstance(error, dict) else error
        if not plan.try_again(task):
            _report(desk, letter, plan, f"{task} failed", failed=f"{task} failed twice: {said}")
            return
        _go_on(desk, letter, plan)
        return
    plan.is_done(task, letter.body.get("deliverables", []))
    _ask_for_evaluation(desk, plan, task)
    _go_on(desk, letter, plan)


def judged(desk: Desk, letter: Letter) -> None:
    """Note a verdict. After a failure innovator improves the work, up to a few times."""
    plan = Plan(desk.memory, letter.thread)
    task = letter.text("task_id")
    verdict = letter.body.get("overall_status") or letter.body.get("verdict")
    if verdict == "pass":
        if plan.accept(task):
            _go_on(desk, letter, plan)
            _report(desk, letter, plan, f"{task} is accepted")
    elif plan.rounds(task) >= MOST_ROUNDS:
        _report(desk, letter, plan, f"{task} failed", failed=f"{task} failed {MOST_ROUNDS} evaluations")


def revised(desk: Desk, letter: Letter) -> None:
    """Have improved work evaluated again."""
    plan = Plan(desk.memory, letter.thread)
    task = letter.text("task_id")
    if plan.revise(task, letter.body.get("deliverables", [])):
        _ask_for_evaluation(desk, plan, task)


def _ask_for_evaluation(desk: Desk, plan: Plan, task: str) -> None:
    found = plan.task(task)
    body = {name: found.body[name] for name in ("title", "criteria", "work") if name in found.body}
    more = {"requirements": found.body.get("requirements", []), "inputs": plan.inputs(task), "round": found.rounds}
    desk.send(
        ["evaluator"], "evaluation_request", {"task_id": task, **body, "deliverables": found.deliverables, **more}, task
    )


def _go_on(desk: Desk, letter: Letter, plan: Plan) -> None:
    """Give tasks to ignitians that have room."""
    for task, worker in plan.assign(_workers()):
        body = {**plan.task(task).body, "inputs": plan.inputs(task)}
        body.setdefault("title", task)
        desk.send([worker], "task_assignment", body, task, answers=desk.recall("asked_by", ""))


def _report(desk: Desk, letter: Letter, plan: Plan, summary: str, failed: str = "") -> None:
    counts = plan.counts()
    body: dict[str, Any] = {
        "repository": desk.repository,
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
    desk.send(["leader"], "progress_update", body, f"progress {summary}")


def _workers() -> list[str]:
    """Return the ignitians that there are: each has a folder."""
    queue = os.path.join(os.environ["KINGDOM_HOME"], "workspace", "queue")
    found = [name for name in os.listdir(queue) if name.startswith("ignitian_") and name[9:].isdigit()]
    return sorted(found, key=lambda name: int(name[9:]))


ANSWERS = {
    "task_list": begin,
    "task_completed": completed,
    "evaluation_result": judged,
    "revision_request": revised,
}
