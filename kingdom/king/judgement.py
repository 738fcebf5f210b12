"""What the king does with a finished task: one function per outcome. Pure: they return the letters to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kingdom.king import messages
from kingdom.king.messages import Draft
from kingdom.records.messages import Result, Task

Verdict = Callable[[Task, Result, str], list[Draft]]

JUDGE: Mapping[str, Verdict] = {
    "success": messages.completed,
    "failed": messages.failed,
    "skipped": messages.skipped,
    "needs_human": messages.asked,
}

STATUS = {"success": "completed", "failed": "failed", "skipped": "skipped", "needs_human": "needs_human"}
"""What stands in `status` of a task and its event once they have ended."""

INTERNAL_EVENT = {
    "success": "task.completed",
    "failed": "task.failed",
    "skipped": "task.skipped",
    "needs_human": "task.needs_human",
}
