"""Innovator: looks for what a plan misses, and improves what failed a check."""

from __future__ import annotations

import os

from kingdom.council.team import goals
from kingdom.council.team.context import Context, NotUnderstood, TeamMessage
from kingdom.council.team.goals.repository import Repository
from kingdom.council.team.work import deliverable, read_work


def insights(context: Context, message: TeamMessage) -> None:
    files = Repository(str(message.body.get("workspace") or ".")).files
    found = [f"{len(files)} files can be read, so each part is small enough for one agent"]
    found += [] if any(path.startswith("README") for path in files) else ["there is no README yet"]
    context.send(["strategist"], "insight_response", {"goal": message.text("goal"), "insights": found})


def improve(context: Context, message: TeamMessage) -> None:
    """Make the work anew by what evaluator found, and suggest how to avoid it."""
    task, title, target = message.text("task_id"), message.text("title"), message.text("target")
    inputs = [read_work(given) for given in message.body.get("inputs", ())]
    if "work" not in message.body:
        raise NotUnderstood(type=message.type, sender=message.sender, why="it follows no rules of ours")
    text = goals.expected(message.body["work"], inputs, title)
    location = deliverable(context.folder, message.thread, task, os.path.basename(target), text)
    fixes = [str(issue.get("suggested_fix")) for issue in message.body.get("issues", ()) if isinstance(issue, dict)]
    file = {"file": os.path.basename(target), "description": f"{title}, improved", "location": str(location)}
    context.send(
        ["leader"], "improvement_completed", {"task_id": task, "improvements_made": fixes, "deliverables": [file]}
    )
    suggestion = {
        "title": f"let ignitians count the lines of {title!r} before they report",
        "category": "quality",
        "proposed_improvement": {"description": "a task is reported when its number of lines is that of the facts"},
        "priority": "low",
    }
    context.send(["leader"], "improvement_suggestion", suggestion)


ANSWERS = {"insight_request": insights, "improvement_request": improve}
