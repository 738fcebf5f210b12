"""Evaluator: says by what work will be judged, and judges it: each line is computed anew and compared."""

from __future__ import annotations

from typing import Any

from kingdom.errors import BadInput
from kingdom.team import goals
from kingdom.team.desk import Desk, Letter
from kingdom.team.work import first, read_work

CRITERIA = ["every line is a fact of the repository", "no fact is missing", "the file is where it is said to be"]
MOST_NAMED = 20


def criteria(desk: Desk, letter: Letter) -> None:
    desk.send(["strategist"], "quality_plan_response", {"goal": letter.text("goal"), "quality_criteria": CRITERIA})


def judge(desk: Desk, letter: Letter) -> None:
    """Judge one task's work; what is wrong with it goes to innovator at once.

    Of work that follows no rules of ours we can only tell whether it is there.
    """
    task, title = letter.text("task_id"), letter.text("title")
    work, inputs = letter.body.get("work"), letter.body.get("inputs", [])
    try:
        text = read_work(first(letter.body))
        found = [] if text.strip() else [("it is empty", "make it again")]
        if work is not None:
            found = goals.faults(work, text, [read_work(given) for given in inputs], title)
    except (OSError, BadInput) as error:
        found = [(f"it cannot be read: {error}", "make it again")]
    location = str(first(letter.body).get("location"))
    issues = [
        {"severity": "major", "issue": issue, "description": issue, "location": location, "suggested_fix": fix}
        for issue, fix in found[:MOST_NAMED]
    ]
    result: dict[str, Any] = {
        "repository": desk.repository,
        "task_id": task,
        "title": title,
        "round": letter.body.get("round", 0),
        "overall_status": "fail" if issues else "pass",
        "score": max(0, 100 - 10 * len(found)),
        "summary": found[0][0] if found else "every line is a fact, and none is missing" if work else "it is there",
        "checks_performed": [{"check": check, "status": "fail" if issues else "pass"} for check in CRITERIA],
        "issues_found": issues,
        "next_action": "improve" if issues else "approve",
    }
    desk.send(["leader"], "evaluation_result", result, cc=["coordinator"])
    if issues:
        body = {"task_id": task, "title": title, "target": location, "issues": issues}
        desk.send(["innovator"], "improvement_request", {**body, "work": work, "inputs": inputs})


ANSWERS = {"quality_plan_request": criteria, "evaluation_request": judge}
