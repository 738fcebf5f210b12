"""Whether a question of a task is still open: one answer for the king, `say`, `why`, `report`, `status` and retention.

A general asks by leaving a checkpoint. The king notes whose answer he took before anything follows from it.
"""

from __future__ import annotations

from contextlib import suppress

from kingdom.disk.atomic import Disk, is_there, make_folder
from kingdom.disk.codec import read_json, to_json
from kingdom.errors import BadFile, BadName, Collision
from kingdom.home.places import Places


def is_open(places: Places, task: str) -> bool:
    """Asked, and not answered: everything of it has to be kept."""
    return is_there(places.checkpoint(task)) and not is_there(places.answered(task))


def all_open(places: Places) -> list[str]:
    """The tasks whose questions wait, by name."""
    try:
        return sorted(task for task in places.asking_tasks() if is_open(places, task))
    except FileNotFoundError:
        return []


def answer_of(places: Places, task: str) -> str | None:
    """The event that answered it, nameless when the note is damaged; None while nobody has."""
    try:
        return str(read_json(places.answered(task))["event_id"])
    except (FileNotFoundError, BadName):
        return None
    except (BadFile, KeyError):
        return ""


def note_answer(places: Places, disk: Disk, task: str, event: str) -> None:
    """Of each question the first answer alone is noted, for good."""
    path = places.answered(task)
    make_folder(path.parent)
    with suppress(Collision):
        disk.create(path, to_json({"task_id": task, "event_id": event}))
