"""Leader: takes the goal, asks for a plan, tells people how it goes, and reports at the end."""

from __future__ import annotations

from typing import Any

from kingdom.team.desk import Desk, Letter

STEP = 25
"""Percent of progress between two reports to people."""


def goal(desk: Desk, letter: Letter) -> None:
    """Ask strategist for a plan; a further word of the person is kept for the report."""
    words = letter.text("goal")
    if desk.recall("goal") is not None:
        desk.remember(words=[*desk.recall("words", []), words])
        _tell(desk, "heard", f"noted, and it will be in the report: {words}")
        return
    desk.remember(goal=words, goal_id=letter.id)
    about = {name: letter.body[name] for name in ("context", "workspace") if name in letter.body}
    desk.send(["strategist"], "strategy_request", {"goal": words, "requirements": [], **about})
    _tell(desk, "strategy", f"strategist makes a plan for: {words}", percent=0)


def plan(desk: Desk, letter: Letter) -> None:
    if letter.body.get("feasible") is False:
        _end(desk, "refused", letter.text("reason"))
        return
    tasks = letter.body.get("task_count", 0)
    desk.remember(recommendations=letter.body.get("recommendations", []))
    _tell(desk, "plan", f"the plan has {tasks} tasks", percent=10)


def progress(desk: Desk, letter: Letter) -> None:
    """Tell people of progress now and then, and report when everything is accepted."""
    if why := letter.body.get("failed"):
        _end(desk, "failed", str(why))
        return
    done, total = (_number(letter.body.get(name)) for name in ("completed", "total_tasks"))
    percent = 10 + 85 * done // max(1, total)
    if total and done >= total:
        _end(desk, "success", _report(desk, letter), letter.body.get("deliverables", []))
    elif percent - desk.recall("percent", 10) >= STEP:
        desk.remember(percent=percent)
        _tell(desk, "work", letter.text("summary"), percent=percent)


def verdict(desk: Desk, letter: Letter) -> None:
    """Note what evaluator says. Of a failure people are told: the work goes on with an improvement."""
    if letter.body.get("overall_status") == "pass":
        return
    desk.remember(improved=desk.recall("improved", 0) + 1)
    _tell(desk, "improvement", f"{letter.text('title')} is improved: {letter.body.get('summary', 'it failed a check')}")


def suggestion(desk: Desk, letter: Letter) -> None:
    desk.remember(suggestions=[*desk.recall("suggestions", []), letter.text("title")])


def improved(desk: Desk, letter: Letter) -> None:
    """Have the improved work checked again."""
    body = {"task_id": letter.text("task_id"), "deliverables": letter.body.get("deliverables", [])}
    desk.send(["coordinator"], "revision_request", {**body, "reason": "it was improved; have it evaluated again"})


def escalation(desk: Desk, letter: Letter) -> None:
    """End a goal whose work was given up; what is only late will be told again."""
    if not letter.body.get("dlq_path"):
        return
    if desk.recall("goal") is None:
        print("an escalation of no goal of ours")
        return
    who, why = letter.body.get("original_assignee", "an agent"), letter.body.get("failure_reason", "unknown")
    _end(desk, "failed", f"{who} did not take {letter.body.get('title', 'a message')!r}: {why}")


def _report(desk: Desk, letter: Letter) -> str:
    lines = [f"done: {desk.recall('goal')}"]
    if summary := letter.body.get("result"):
        lines.append(str(summary))
    if times := desk.recall("improved", 0):
        lines.append(
            f"evaluator sent back {times} of {_number(letter.body.get('total_tasks'))} tasks, which innovator improved"
        )
    lines += [f"suggested: {title}" for title in desk.recall("suggestions", [])]
    lines += [f"you also said: {words}" for words in desk.recall("words", [])]
    return "\n".join(lines)


def _end(desk: Desk, status: str, summary: str, deliverables: Any = ()) -> None:
    if desk.recall("ended"):
        return
    desk.remember(ended=status)
    body: dict[str, Any] = {"status": status, "percent": 100, "final": True}
    _tell(desk, "final", summary, **body, deliverables=deliverables if isinstance(deliverables, list) else [])


def _tell(desk: Desk, stage: str, summary: str, **more: Any) -> None:
    body = {"repository": desk.repository, "stage": stage, "summary": summary, **more}
    desk.send(["user"], "progress_update", body, f"user {stage}", answers=desk.recall("goal_id", ""))


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
