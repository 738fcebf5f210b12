"""`sessions.json`: which soldiers are out. Generals write it, the chamberlain cleans; an flock orders them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kingdom.disk.atomic import Disk
from kingdom.disk.codec import parse_json, read_bytes, to_list
from kingdom.disk.lock import Lock
from kingdom.errors import BadFile
from kingdom.home.places import Places

Rows = list[dict[str, Any]]


def enlist(disk: Disk, places: Places, row: dict[str, Any]) -> None:
    _change(disk, places, lambda rows: [*(each for each in rows if each["task_id"] != row["task_id"]), row])


def dismiss(disk: Disk, places: Places, task: str) -> None:
    _change(disk, places, lambda rows: [each for each in rows if each["task_id"] != task])


def mend(disk: Disk, places: Places) -> None:
    """A power cut may have left half a file: whole rows stay, and the file can be read again."""
    _change(disk, places, lambda rows: rows)


def keep_only(disk: Disk, places: Places, is_out: Callable[[str], bool]) -> list[str]:
    """Strike out every soldier that is not out any more. Returns the tasks struck out."""
    struck = [task for task in (each["task_id"] for each in read(places)) if not is_out(task)]
    _change(disk, places, lambda rows: [each for each in rows if each["task_id"] not in struck])
    return struck


def _change(disk: Disk, places: Places, change: Callable[[Rows], Rows]) -> None:
    lock = Lock(places.sessions.with_suffix(".lock"), "sessions")
    lock.acquire(5.0)
    try:
        rows = read(places)
        changed = to_list(change(rows))
        there = _written(places)
        if changed != (to_list([]) if there is None else there):
            disk.rewrite(places.sessions, changed)
    finally:
        lock.release()


def read(places: Places) -> Rows:
    """The rows that name a task; what is damaged is nobody."""
    try:
        rows = parse_json(read_bytes(places.sessions))
    except (FileNotFoundError, BadFile, ValueError):
        return []
    if not isinstance(rows, list):
        return []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("task_id"), str)]


def _written(places: Places) -> bytes | None:
    """What lies there, fit or not: after a power cut it may be an empty file."""
    try:
        return read_bytes(places.sessions)
    except FileNotFoundError:
        return None
    except BadFile:
        return b""
