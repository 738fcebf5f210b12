"""Ask a person whether a soldier may work on text from outside if this kernel has no whole sandbox."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

from kingdom.base.errors import KingdomError
from kingdom.base.records.messages import Checkpoint, Task
from kingdom.base.records.soldiers import CONSENT

TYPED_HERE = "console.message"
"""People may do what they like at their own machine: what they type there is not from outside."""
YES = frozenset(["yes", "y", "ok", "sure", "yes please", "go on", "go ahead", "네", "예", "응", "はい"])
NO = frozenset(["no", "n", "nope", "stop", "아니", "아니오", "아니요", "いいえ"])


class ConsentRefused(KingdomError):
    """a person answered {answer!r} to whether it may be done without a sandbox"""


def meaning(answer: str) -> bool | None:
    """Return whether an answer is a yes; None when it is neither a yes nor a no."""
    said = unicodedata.normalize("NFKC", answer).replace(",", "").strip(" .!。\n").lower()
    return True if said in YES else False if said in NO else None


def question(general: str) -> str:
    always = f"`trusted: [{general}]` in config/general.yaml says yes for good"
    return f"May {general} work on text from outside without a whole sandbox, yes or no? ({always})"


def task_and_trust(asked: Checkpoint | None, general: str, task: Task) -> tuple[Task, bool]:
    """Return the task to do, and whether its words come from outside and still need a whole sandbox or a person's yes.

    `asked` is what the task left behind whose question this one answers, if any.
    A yes brings back the task that waited for it; ConsentRefused is raised for any other answer.
    """
    if asked is None or asked.asks != CONSENT or asked.target_general != general or asked.type is None:
        return task, task.scheduled_for is None and task.type != TYPED_HERE
    answer = str(task.payload.get("human_response", ""))
    if not meaning(answer):
        raise ConsentRefused(answer=answer[:80])
    return replace(task, type=asked.type, payload=asked.payload), False
