"""What a task that is with the council waits for."""

from __future__ import annotations

from contextlib import suppress

from kingdom.base.disk.codec import read_json_or
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadName
from kingdom.base.home.places import Places, check_name
from kingdom.base.records.lookup import Found
from kingdom.base.words import Said
from kingdom.court.reasons import Reasons


def has_task(reasons: Reasons, task: Found) -> str | None:
    """Return that the council works on a task, or that it does not run; None when the task is none of the council's."""
    if (thread := _goal_of(reasons.places, task)) is None:
        return None
    if not is_locked(reasons.places.lock("council")):
        return reasons.is_off("council")
    command = f"{reasons.command} council thread {thread}"
    return Said("council_works", f"the council works on it; `{command}` shows what was done", command=command)


def _goal_of(places: Places, task: Found) -> str | None:
    """Return the council's thread in which a task is worked on; None when it is none of the council's."""
    for thread in (task.id, (task.get("payload") or {}).get("session_id")):
        with suppress(BadName):
            if read_json_or(places.council_goal(check_name("thread", thread)), {}).get("task") == task.id:
                return str(thread)
    return None
