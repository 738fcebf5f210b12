"""Innovator: looks for what a plan misses, and improves what failed a check."""

from __future__ import annotations

import os

from kingdom.team import goals
from kingdom.team.desk import Desk, Letter, NotUnderstood
from kingdom.team.goals.repository import Repository
from kingdom.team.work import deliverable, read_work


def insights(desk: Desk, letter: Letter) -> None:
    files = Repository(str(letter.body.get("workspace") or ".")).files
    found = [f"{len(files)} files can be read, so each part is small enough for one agent"]
    found += [] if any(path.startswith("README") for path in files) else ["there is no README yet"]
    desk.send(["strategist"], "insight_response", {"goal": letter.text("goal"), "insights": found})


def improve(desk: Desk, letter: Letter) -> None:
    """Make the work anew by what evaluator found, and suggest how to avoid it."""
    task, title, target = letter.text("task_id"), letter.text("title"), letter.text("target")
    inputs = [read_work(given) for given in letter.body.get("inputs", ())]
    if "work" not in letter.body:
        raise NotUnderstood(type=letter.type, sender=letter.sender, why="it follows no rules of ours")
    text = goals.made(letter.body["work"], inputs, title)
    location = deliverable(desk.folder, letter.thread, task, os.path.basename(target), text)
    fixes = [str(issue.get("suggested_fix")) for issue in letter.body.get("issues", ()) if isinstance(issue, dict)]
    file = {"file": os.path.basename(target), "description": f"{title}, improved", "location": str(location)}
    desk.send(
        ["leader"], "improvement_completed", {"task_id": task, "improvements_made": fixes, "deliverables": [file]}
    )
    suggestion = {
        "title": f"let ignitians count the lines of {title!r} before they report",
        "category": "quality",
        "proposed_improvement": {"description": "a task is reported when its number of lines is that of the facts"},
        "priority": "low",
    }
    desk.send(["leader"], "improvement_suggestion", suggestion)


ANSWERS = {"insight_request": insights, "improvement_request": improve}
