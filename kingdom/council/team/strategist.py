"""Strategist: makes a plan, has it looked over by three others at once, and hands it over."""

from __future__ import annotations

from typing import Any

from kingdom.council.team import goals
from kingdom.council.team.context import Context, TeamMessage
from kingdom.council.team.goals.repository import Repository

ASKED = ("design", "quality", "insight")


def request(context: Context, message: TeamMessage) -> None:
    """Make a plan and have it looked over; refuse a goal that nobody here has rules for."""
    goal, workspace = message.text("goal"), str(message.body.get("workspace") or ".")
    kind, repository = goals.kind_of(goal), Repository(workspace)
    if kind is None:
        hint = "set `team` in config/council.yaml for other goals"
        _refuse(context, goal, f"without a model this team can do only {goals.all_titles()}; {hint}")
        return
    if not repository.files:
        hint = "`kingdom council plan` in the folder of a repository, or with --repo, says which is meant"
        _refuse(context, goal, f"there is nothing to look at in {repository.folder}; {hint}")
        return
    tasks = goals.tasks_of(kind, repository, workspace)
    context.remember(goal=goal, kind=kind, tasks=tasks, asked_by=message.id)
    proposal = {"goal": goal, "proposed_strategy": _strategy(kind, tasks)}
    context.send(["architect"], "design_review_request", {**proposal, "tasks": tasks})
    context.send(["evaluator"], "quality_plan_request", {"goal": goal, "tasks": tasks})
    context.send(["innovator"], "insight_request", {**proposal, "workspace": workspace})


def _refuse(context: Context, goal: str, why: str) -> None:
    refusal = {"goal": goal, "strategy": {"approach": "none"}, "feasible": False, "reason": why}
    context.send(["leader"], "strategy_response", refusal)


def reviewed(context: Context, message: TeamMessage) -> None:
    _take(context, design=message.body.get("review_result"))


def criteria(context: Context, message: TeamMessage) -> None:
    _take(context, quality=message.body.get("quality_criteria"))


def insights(context: Context, message: TeamMessage) -> None:
    _take(context, insight=message.body.get("insights"))


def _take(context: Context, **said: Any) -> None:
    """Note one of the three answers; after the last hand the plan over."""
    context.remember(**{name: value or [] for name, value in said.items()})
    answers = {name: context.recall(name) for name in ASKED}
    tasks = context.recall("tasks")
    if tasks is None or any(answer is None for answer in answers.values()):
        return
    goal, kind, asked_by = context.recall("goal"), context.recall("kind"), context.recall("asked_by")
    plan = {
        "goal": goal,
        "strategy": _strategy(kind, tasks),
        "task_count": len(tasks),
        "estimated_duration": sum(task["estimated_time"] for task in tasks),
        "risks": [f"architect: {answers['design']}"],
        "recommendations": answers["insight"],
    }
    context.send(["leader"], "strategy_response", plan, answers=asked_by)
    listed = [{**task, "criteria": answers["quality"]} for task in tasks]
    summary = f"{goals.title(kind)}: parts side by side, then put together"
    body = {"goal": goal, "strategy_summary": summary, "tasks": listed}
    context.send(["coordinator"], "task_list", body, answers=asked_by)


def _strategy(kind: str, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    phases = [
        {"phase": 1, "name": "parts", "description": f"{len(tasks) - 1} parts, each from the files themselves"},
        {"phase": 2, "name": "whole", "description": "the accepted parts are put together"},
    ]
    return {"approach": goals.title(kind), "phases": phases}


ANSWERS = {
    "strategy_request": request,
    "design_review_response": reviewed,
    "quality_plan_response": criteria,
    "insight_response": insights,
}
