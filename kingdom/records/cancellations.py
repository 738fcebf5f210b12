"""What people have given up while its general was at it: noted by the king alone, obeyed by the general.

A note of its own, because the task's file has one writer while its general is at it: the general.
"""

from __future__ import annotations

from kingdom.disk.atomic import Disk, is_there, make_folder
from kingdom.disk.codec import read_json, to_json
from kingdom.errors import BadFile
from kingdom.home.places import Places


def note(places: Places, disk: Disk, task: str, by: str) -> None:
    path = places.cancelled(task)
    make_folder(path.parent)
    disk.rewrite(path, to_json({"task_id": task, "by": by}))


def who(places: Places, task: str) -> str | None:
    """Who gave it up; nameless when the note is damaged, None when nobody has."""
    try:
        return str(read_json(places.cancelled(task)).get("by") or "somebody")
    except FileNotFoundError:
        return None
    except BadFile:
        return "somebody"


def forget(places: Places, disk: Disk, task: str) -> None:
    if is_there(places.cancelled(task)):
        disk.remove(places.cancelled(task))
