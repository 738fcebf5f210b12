"""Evaluator: says by what work will be judged, and judges it: each line is computed anew and compared."""

from __future__ import annotations

from typing import Any

from kingdom.base.errors import BadInput
from kingdom.council.team import goals
from kingdom.council.team.context import Context, TeamMessage
from kingdom.council.team.work import first, read_work

CRITERIA = ["every line is a fact of the repository", "no fact is missing", "the file is where it is said to be"]
MOST_NAMED = 20


def criteria(context: Context, message: TeamMessage) -> None:
    context.send(["strategist"], "quality_plan_response", {"goal": message.text("goal"), "quality_criteria": CRITERIA})


def judge(context: Context, message: TeamMessage) -> None:
    """Judge one task's work; what is wrong with it goes to innovator at once.

    Of work that follows no rules of ours we can only tell whether it is there.
    """
    task, title = message.text("task_id"), message.text("title")
    work, inputs = message.body.get("work"), message.body.get("inputs", [])
    try:
        text = read_work(first(message.body))
        found = [] if text.strip() else [("it is empty", "make it again")]
        if work is not None:
            found = goals.faults(work, text, [read_work(given) for given in inputs], title)
    except (OSError, BadInput) as error:
        found = [(f"it cannot be read: {error}", "make it again")]
    location = str(first(message.body).get("location"))
    issues = [
        {"severity": "major", "issue": issue, "description": issue, "location": location, "suggested_fix": fix}
        for issue, fix in found[:MOST_NAMED]
    ]
    result: dict[str, Any] = {
        "repository": context.repository,
        "task_id": task,
        "title": title,
        "round": message.body.get("round", 0),
        "overall_status": "fail" if issues else "pass",
        "score": max(0, 100 - 10 * len(found)),
        "summary": found[0][0] if found else "every line is a fact, and none is missing" if work else "it is there",
        "checks_performed": [{"check": check, "status": "fail" if issues else "pass"} for check in CRITERIA],
        "issues_found": issues,
        "next_action": "improve" if issues else "approve",
    }
    context.send(["leader"], "evaluation_result", result, cc=["coordinator"])
    if issues:
        body = {"task_id": task, "title": title, "target": location, "issues": issues}
        context.send(["innovator"], "improvement_request", {**body, "work": work, "inputs": inputs})


ANSWERS = {"quality_plan_request": criteria, "evaluation_request": judge}
