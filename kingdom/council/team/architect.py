"""Architect: looks at how the tasks of a plan hang together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kingdom.council.team.context import Context, TeamMessage


def review(context: Context, message: TeamMessage) -> None:
    tasks = [task for task in message.body.get("tasks", ()) if isinstance(task, dict)]
    faults = list(_faults(tasks))
    result = "; ".join(faults) if faults else f"approved: {len(tasks)} tasks, no circle, nothing before what it needs"
    context.send(["strategist"], "design_review_response", {"goal": message.text("goal"), "review_result": result})


def propose(context: Context, message: TeamMessage) -> None:
    goal, question = message.text("goal"), message.text("question")
    proposal = "the simplest that can be checked: one file for each part, and one task that puts them together"
    body = {"goal": goal, "proposed_architecture": proposal, "answers": question}
    context.send(["leader"], "architecture_response", body)


def _faults(tasks: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what is wrong: names that are not there, tasks before what they need. That excludes circles too."""
    done: set[str] = set()
    for task in tasks:
        for needed in task.get("dependencies", ()):
            if needed not in done:
                yield f"{task.get('task_id')} needs {needed}, which does not come before it"
        done.add(str(task.get("task_id")))


ANSWERS = {"design_review_request": review, "architecture_request": propose}
