"""Whether a soldier may work on text from outside where this kernel has no whole sandbox: only a person can say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kingdom.disk.codec import read_json
from kingdom.errors import BadInput, KingdomError
from kingdom.home.places import Places
from kingdom.records.messages import Task
from kingdom.records.soldiers import CONSENT

TYPED_HERE = "console.message"
"""People may do what they like at their own machine: what they type there is not from outside."""
YES = frozenset(["yes", "y", "ok", "sure", "네", "예", "응", "はい"])


class ConsentRefused(KingdomError):
    """a person answered {answer!r} to whether it may be done without a sandbox"""


def question(general: str) -> str:
    return f"May {general} work on text from outside without a sandbox, yes or no? (`sandbox: off` says yes for good)"


def task_and_trust(places: Places, general: str, task: Task) -> tuple[Task, bool]:
    """Return the task to do, and whether its words come from outside and still need a whole sandbox or a person's yes.

    A yes brings back the task that waited for it; ConsentRefused is raised for any other answer.
    """
    waiting = _waiting_for_consent(places, general, task)
    if waiting is None:
        return task, task.scheduled_for is None and task.type != TYPED_HERE
    answer = str(task.payload.get("human_response", ""))
    if answer.strip(" .!").lower() not in YES:
        raise ConsentRefused(answer=answer[:80])
    return task.evolve(type=waiting["type"], payload=waiting["payload"]), False


def _waiting_for_consent(places: Places, general: str, task: Task) -> Mapping[str, Any] | None:
    """Return the checkpoint of the task that asked, when this one answers that very question of ours."""
    original = task.payload.get("original_task_id")
    if task.type != "resume" or not isinstance(original, str):
        return None
    try:
        checkpoint = read_json(places.checkpoint(original))
    except (FileNotFoundError, BadInput):
        return None
    is_ours = checkpoint["asks"] == CONSENT if "asks" in checkpoint else _asked_before(checkpoint, general)
    return checkpoint if is_ours and checkpoint.get("target_general") == general and "type" in checkpoint else None


def _asked_before(checkpoint: Mapping[str, Any], general: str) -> bool:
    """Return whether an older general of ours asked this, which told its own question by the words alone."""
    words = f"May {general} work on text from outside without a cage, yes or no? (`sandbox: off` says yes for good)"
    return str(checkpoint.get("question")).endswith(words)
