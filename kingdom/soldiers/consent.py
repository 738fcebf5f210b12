"""Ask a person whether a soldier may work on text from outside if this kernel has no whole sandbox."""

from __future__ import annotations

from dataclasses import replace

from kingdom.errors import KingdomError
from kingdom.records.messages import Checkpoint, Task
from kingdom.records.soldiers import CONSENT

TYPED_HERE = "console.message"
"""People may do what they like at their own machine: what they type there is not from outside."""
YES = frozenset(["yes", "y", "ok", "sure", "네", "예", "응", "はい"])


class ConsentRefused(KingdomError):
    """a person answered {answer!r} to whether it may be done without a sandbox"""


def question(general: str) -> str:
    return f"May {general} work on text from outside without a sandbox, yes or no? (`sandbox: off` says yes for good)"


def task_and_trust(asked: Checkpoint | None, general: str, task: Task) -> tuple[Task, bool]:
    """Return the task to do, and whether its words come from outside and still need a whole sandbox or a person's yes.

    `asked` is what the task left behind whose question this one answers, if any.
    A yes brings back the task that waited for it; ConsentRefused is raised for any other answer.
    """
    if asked is None or asked.asks != CONSENT or asked.target_general != general or asked.type is None:
        return task, task.scheduled_for is None and task.type != TYPED_HERE
    answer = str(task.payload.get("human_response", ""))
    if answer.strip(" .!").lower() not in YES:
        raise ConsentRefused(answer=answer[:80])
    return replace(task, type=asked.type, payload=asked.payload), False
