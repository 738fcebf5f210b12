"""What the king does with a finished task: one function per outcome. Pure: they return the letters to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kingdom.king import letters
from kingdom.king.letters import Draft
from kingdom.messages import Result, Task

Verdict = Callable[[Task, Result, str, str], list[Draft]]


def _success(task: Task, result: Result, channel: str, checkpoint: str) -> list[Draft]:
    return [*letters.completed(task, result, channel), *letters.proclaimed(task, result)]


def _failed(task: Task, result: Result, channel: str, checkpoint: str) -> list[Draft]:
    return [*letters.failed(task, result, channel), *letters.proclaimed(task, result)]


def _skipped(task: Task, result: Result, channel: str, checkpoint: str) -> list[Draft]:
    return [*letters.skipped(task, result, channel), *letters.proclaimed(task, result)]


def _needs_human(task: Task, result: Result, channel: str, checkpoint: str) -> list[Draft]:
    """The task ends at once; the answer becomes a new one. Nothing is proclaimed before that."""
    return [letters.asked(task, result, channel, checkpoint)]


JUDGE: Mapping[str, Verdict] = {
    "success": _success,
    "failed": _failed,
    "skipped": _skipped,
    "needs_human": _needs_human,
}

STATUS = {"success": "completed", "failed": "failed", "skipped": "skipped", "needs_human": "needs_human"}
"""What stands in `status` of a task and its event once they have ended."""

INTERNAL_EVENT = {
    "success": "task.completed",
    "failed": "task.failed",
    "skipped": "task.skipped",
    "needs_human": "task.needs_human",
}
