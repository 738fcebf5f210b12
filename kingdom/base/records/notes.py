"""Notes beside tasks: whose answer was taken, who cancelled, which soldier `down --soldiers` stopped.

Each has one writer and a file of its own, because a task's file has one writer too: the general that works on it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kingdom.base.disk.atomic import Disk, is_there, make_folder
from kingdom.base.disk.codec import read_bytes, read_json, read_json_or, to_json
from kingdom.base.errors import BadFile, BadInput, BadName, Collision
from kingdom.base.home.places import Places

if TYPE_CHECKING:
    from kingdom.base.records.messages import Checkpoint, Task

LONGEST_SESSION_ID = 500


def asks(places: Places, task: str) -> bool:
    """Return whether a question of this task is open: it left a checkpoint, and no answer has been taken."""
    return is_there(places.checkpoint(task)) and not is_there(places.answered(task))


def has_asked(places: Places, task: str) -> bool:
    """Return whether a task left a question, answered or not."""
    try:
        return is_there(places.checkpoint(task))
    except BadName:
        return False


def session_id(places: Places, task: str) -> str | None:
    """Return by which session of its engine a task can go on, as its general noted it beside the results."""
    try:
        line = read_bytes(places.session_id(task)).decode("utf-8").strip()
    except (FileNotFoundError, BadFile, BadName, UnicodeDecodeError):
        return None
    return line if line.isprintable() and 0 < len(line) <= LONGEST_SESSION_ID else None


def note_session_id(places: Places, disk: Disk, task: str, session: str) -> None:
    """Note the session of a task's engine, for whoever goes on with the task."""
    disk.rewrite(places.session_id(task), f"{session}\n".encode())


def note_soldier(places: Places, disk: Disk, task: str, soldier: str) -> None:
    """Note which soldier works on a task, for readers that know no `sessions.json`."""
    disk.rewrite(places.soldier_id(task), f"{soldier}\n".encode())


def soldier(places: Places, task: str) -> str:
    """Return the soldier that worked on a task last, as its general noted it; empty when it did not."""
    try:
        line = read_bytes(places.soldier_id(task)).decode("utf-8", "replace").strip()
    except (FileNotFoundError, BadFile, BadName):
        return ""
    return line[:LONGEST_SESSION_ID]


def checkpoint(places: Places, task: str) -> Checkpoint:
    """Return what a task that asked has left behind. FileNotFoundError, BadFile or BadName when there is none.

    A foreign general may have written it: its fields are checked where they are used.
    """
    from kingdom.base.records import foreign  # commands that only look do not pay for the records

    return foreign.checkpoint(read_json(places.checkpoint(task)))


def checkpoint_answered_by(places: Places, task: Task) -> Checkpoint | None:
    """Return the checkpoint of the task whose question this one answers; None when there is nothing to be read."""
    if task.original is None:
        return None
    try:
        return checkpoint(places, task.original)
    except (FileNotFoundError, BadInput):
        return None


def open_questions(places: Places) -> list[str]:
    """Return the tasks whose questions are open, the newest first."""
    dated: list[tuple[float, str]] = []
    with suppress(FileNotFoundError):
        for task in places.asking_tasks():
            with suppress(FileNotFoundError):
                if asks(places, task):
                    dated.append((os.stat(places.checkpoint(task)).st_mtime, task))
    return [task for _, task in sorted(dated, reverse=True)]


def answered_by(places: Places, task: str) -> str | None:
    """Return the event that answered a task's question, "" when the note is damaged; None while nobody has."""
    try:
        return str(read_json(places.answered(task))["event_id"])
    except (FileNotFoundError, BadName):
        return None
    except (BadFile, KeyError):
        return ""


def note_answer(places: Places, disk: Disk, task: str, event: str) -> None:
    """Note, for good, which event answered a task's question. Only the first answer is noted.

    The king does so before anything follows from the answer.
    """
    with suppress(Collision):
        disk.create(_with_folder(places.answered(task)), to_json({"task_id": task, "event_id": event}))


def note_cancelled(places: Places, disk: Disk, task: str, by: str) -> None:
    """Note that a person has cancelled a task: the king writes it, the general that works on the task ends it."""
    disk.rewrite(_with_folder(places.cancelled(task)), to_json({"task_id": task, "by": by}))


def cancelled_by(places: Places, task: str) -> str | None:
    """Return who cancelled a task, "somebody" when the note is damaged; None when nobody has."""
    try:
        return str(read_json(places.cancelled(task)).get("by") or "somebody")
    except FileNotFoundError:
        return None
    except BadFile:
        return "somebody"


def forget_cancelled(places: Places, disk: Disk, task: str) -> None:
    """Delete the note that a task was cancelled; no error if absent."""
    if is_there(places.cancelled(task)):
        disk.remove(places.cancelled(task))


def note_stopped_by_down(places: Places, disk: Disk, control_folder: Path) -> None:
    """Note which soldier `down --soldiers` is about to stop, so that its end does not use up a retry.

    A later soldier of the same task is another one.
    """
    if soldier := _started(control_folder):
        note = {"task_id": control_folder.name, "soldier": soldier}
        disk.rewrite(_with_folder(places.stopped_by_down(control_folder.name)), to_json(note))


def was_stopped_by_down(places: Places, control_folder: Path) -> bool:
    """Return whether the soldier of this control folder is the one that `down --soldiers` stopped."""
    soldier = _started(control_folder)
    return bool(soldier) and read_json_or(places.stopped_by_down(control_folder.name), {}).get("soldier") == soldier


def forget_stopped_by_down(places: Places, disk: Disk) -> None:
    """Delete the notes of earlier times: those soldiers have long been replaced."""
    folder = places.stopped_by_down("any").parent
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        disk.remove(path)


def _started(control_folder: Path) -> dict[str, Any]:
    """Return the general's note of the soldier that it started there; {} when there is none."""
    return read_json_or(control_folder / "started", {})


def _with_folder(path: Path) -> Path:
    """Return the path, in a folder that exists now."""
    make_folder(path.parent)
    return path
