"""Leader: takes the goal, asks for a plan, tells people how it goes, and reports at the end."""

from __future__ import annotations

from typing import Any

from kingdom.base.words import one_line
from kingdom.council.team.context import Context, TeamMessage

STEP = 25
"""Percent of progress between two reports to people."""


def goal(context: Context, message: TeamMessage) -> None:
    """Ask strategist for a plan; a further word of the person is kept for the report."""
    words = message.text("goal")
    if context.recall("goal") is not None:
        context.remember(words=[*context.recall("words", []), words])
        _tell(context, "heard", f"noted, and it will be in the report: {words}")
        return
    context.remember(goal=words, goal_id=message.id)
    about = {name: message.body[name] for name in ("context", "workspace") if name in message.body}
    context.send(["strategist"], "strategy_request", {"goal": words, "requirements": [], **about})
    _tell(context, "strategy", f"strategist makes a plan for: {words}", percent=0)


def plan(context: Context, message: TeamMessage) -> None:
    if message.body.get("feasible") is False:
        _end(context, "refused", message.text("reason"))
        return
    tasks, strategy = message.body.get("task_count", 0), message.body.get("strategy")
    what = one_line(strategy.get("approach") or "", 80) if isinstance(strategy, dict) else ""
    context.remember(recommendations=message.body.get("recommendations", []), what=what)
    _tell(context, "plan", f"the plan has {tasks} tasks" + (f": {what}" if what else ""), percent=10)


def progress(context: Context, message: TeamMessage) -> None:
    """Tell people of progress now and then, and report when everything is accepted."""
    if why := message.body.get("failed"):
        _end(context, "failed", str(why))
        return
    done, total = (_number(message.body.get(name)) for name in ("completed", "total_tasks"))
    percent = 10 + 85 * done // max(1, total)
    if total and done >= total:
        _end(context, "success", _report(context, message), message.body.get("deliverables", []))
    elif percent - context.recall("percent", 10) >= STEP:
        context.remember(percent=percent)
        _tell(context, "work", message.text("summary"), percent=percent)


def verdict(context: Context, message: TeamMessage) -> None:
    """Note what evaluator says. Of a failure people are told: the work goes on with an improvement."""
    if message.body.get("overall_status") == "pass":
        return
    context.remember(improved=context.recall("improved", 0) + 1)
    _tell(
        context,
        "improvement",
        f"{message.text('title')!r} is improved: {message.body.get('summary', 'it failed a check')}",
    )


def suggestion(context: Context, message: TeamMessage) -> None:
    context.remember(suggestions=[*context.recall("suggestions", []), message.text("title")])


def improved(context: Context, message: TeamMessage) -> None:
    """Have the improved work checked again."""
    body = {"task_id": message.text("task_id"), "deliverables": message.body.get("deliverables", [])}
    context.send(["coordinator"], "revision_request", {**body, "reason": "it was improved; have it evaluated again"})


def escalation(context: Context, message: TeamMessage) -> None:
    """End a goal whose work was given up; what is only late will be told again."""
    if not message.body.get("dlq_path"):
        return
    if context.recall("goal") is None:
        print("an escalation of no goal of ours")
        return
    who, why = message.body.get("original_assignee", "an agent"), message.body.get("failure_reason", "unknown")
    _end(context, "failed", f"{who} did not take {message.body.get('title', 'a message')!r}: {why}")


def _report(context: Context, message: TeamMessage) -> str:
    what, goal = context.recall("what"), context.recall("goal")
    lines = [f"done: {what}, for {goal!r}" if what else f"done: {goal}"]
    if summary := message.body.get("result"):
        lines.append(str(summary))
    if times := context.recall("improved", 0):
        lines.append(
            f"evaluator sent back {times} of {_number(message.body.get('total_tasks'))} tasks, which innovator improved"
        )
    lines += [f"suggested: {title}" for title in context.recall("suggestions", [])]
    lines += [f"you also said: {words}" for words in context.recall("words", [])]
    return "\n".join(lines)


def _end(context: Context, status: str, summary: str, deliverables: Any = ()) -> None:
    if context.recall("ended"):
        return
    context.remember(ended=status)
    body: dict[str, Any] = {"status": status, "percent": 100, "final": True}
    _tell(context, "final", summary, **body, deliverables=deliverables if isinstance(deliverables, list) else [])


def _tell(context: Context, stage: str, summary: str, **more: Any) -> None:
    body = {"repository": context.repository, "stage": stage, "summary": summary, **more}
    context.send(["user"], "progress_update", body, f"user {stage}", answers=context.recall("goal_id", ""))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


ANSWERS = {
    "user_goal": goal,
    "strategy_response": plan,
    "progress_update": progress,
    "evaluation_result": verdict,
    "improvement_suggestion": suggestion,
    "improvement_completed": improved,
    "escalation": escalation,
}
