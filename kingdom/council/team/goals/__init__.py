"""The goals that the team has rules for. Each is made of parts, each part of lines that are facts of the repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from kingdom.base import tables
from kingdom.council.team.goals.base import Goal, GoalPart
from kingdom.council.team.goals.repository import Repository

GOALS = {
    "outline": "kingdom.council.team.goals.outline:OUTLINE",
    "todo": "kingdom.council.team.goals.todo:TODO",
    "gaps": "kingdom.council.team.goals.gaps:GAPS",
}
WHOLE = "whole"
"""The part that is made of all others."""
FLAWED = 1
"""The first part lacks its last line when it is made for the first time: evaluator has to find that."""


@cache
def load(kind: str) -> Goal:
    """Return a kind of goal; KeyError when there is none."""
    goal: Goal = tables.load(GOALS[kind])
    return goal


def kind_of(goal: str) -> str | None:
    """Return which kind of goal is meant; None when the team has no rules for it."""
    said = goal.lower()
    return next(
        (kind for kind in GOALS if any(all(word in said for word in words) for words in load(kind).words)), None
    )


def all_titles() -> str:
    """Return what the team has rules for, as a list in words."""
    *others, last = map(title, GOALS)
    return f"{', '.join(others)} and {last}"


def title(kind: str) -> str:
    return load(kind).title


def tasks_of(kind: str, repository: Repository, workspace: str) -> list[dict[str, Any]]:
    """Return the tasks of a plan: one for each part, and one that puts them together."""
    parts = load(kind).parts(repository)
    tasks = [_task(kind, number, part, workspace) for number, part in enumerate(parts, start=1)]
    needed = [task["task_id"] for task in tasks]
    whole = GoalPart(WHOLE, load(kind).title, "writing")
    return [*tasks, {**_task(kind, len(tasks) + 1, whole, workspace), "phase": 2, "dependencies": needed}]


def _task(kind: str, number: int, part: GoalPart, workspace: str) -> dict[str, Any]:
    file = load(kind).file if part.key == WHOLE else f"part-{number}.md"
    return {
        "task_id": f"task_{number:03d}",
        "title": part.title,
        "description": f"{load(kind).title}: {part.title}",
        "phase": 1,
        "priority": "normal",
        "estimated_time": 1,
        "dependencies": [],
        "skills_required": [part.skill],
        "deliverables": [file],
        "work": {"kind": kind, "part": part.key, "number": number, "workspace": workspace},
    }


def file_of(task: Mapping[str, Any]) -> str:
    """Return the name of the file that a task delivers."""
    return str(task["deliverables"][0])


def draft(task: Mapping[str, Any], inputs: Sequence[str]) -> str:
    """Return what a task delivers. The very first draft has the flaw that is planted for evaluator to find."""
    work = task["work"]
    text = expected(work, inputs, str(task["title"]))
    lines = text.splitlines()
    is_flawed = work["number"] == FLAWED and len(lines) > 2
    return "\n".join(lines[:-1]) + "\n" if is_flawed else text


def expected(work: Mapping[str, Any], inputs: Sequence[str], title: str) -> str:
    """Return what a task should deliver."""
    goal, repository = load(work["kind"]), Repository(work["workspace"])
    if work["part"] == WHOLE:
        return "\n".join([f"# {goal.heading(repository)}\n", *inputs])
    facts = goal.facts(repository, work["part"])
    return "\n".join([f"## {title}", "", *(facts or ["nothing found"])]) + "\n"


def faults(work: Mapping[str, Any], text: str, inputs: Sequence[str], title: str) -> list[tuple[str, str]]:
    """Return what is wrong with a delivered text, each with what would mend it: it is computed anew and compared."""
    wanted, found = expected(work, inputs, title).splitlines(), text.splitlines()
    missing = [(f"a line is missing: {line}", f"add: {line}") for line in wanted if line not in found]
    invented = [(f"no fact of the repository: {line}", f"remove: {line}") for line in found if line not in wanted]
    return [*missing, *invented]
