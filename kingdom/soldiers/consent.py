"""Whether a soldier may work on text from outside where it cannot be caged: only a person can say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kingdom.disk.codec import read_json
from kingdom.errors import BadInput, KingdomError
from kingdom.home.places import Places
from kingdom.records.messages import Task

OWN_WORDS = "console.message"
"""Who types at the machine may do there what they like; their words are not from outside."""
ASKS = "consent"
"""What the checkpoint of our own question asks for; only the serving part can say so, no program of a general."""
YES = frozenset(["yes", "y", "ok", "sure", "네", "예", "응", "はい"])


class Refused(KingdomError):
    """a person answered {answer!r} to whether it may be done without a cage"""


def question(general: str) -> str:
    return f"May {general} work on text from outside without a cage, yes or no? (`sandbox: off` says yes for good)"


def settled(places: Places, general: str, task: Task) -> tuple[Task, bool]:
    """The task to do, and whether its words come from outside and still need a cage or a person's word.

    A yes takes up the task that was held; Refused is raised for anything else that was answered.
    """
    held = _held(places, task)
    if held is None:
        return task, task.scheduled_for is None and task.type != OWN_WORDS
    answer = str(task.payload.get("human_response", ""))
    if answer.strip(" .!").lower() not in YES:
        raise Refused(answer=answer[:80])
    return task.evolve(type=held["type"], payload=held["payload"]), False


def _held(places: Places, task: Task) -> Mapping[str, Any] | None:
    """What our own question was about, when this task is the answer to it."""
    original = task.payload.get("original_task_id")
    if task.type != "resume" or not isinstance(original, str):
        return None
    try:
        checkpoint = read_json(places.checkpoint(original))
    except (FileNotFoundError, BadInput):
        return None
    return checkpoint if checkpoint.get("asks") == ASKS and "type" in checkpoint else None
