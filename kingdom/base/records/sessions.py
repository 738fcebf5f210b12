"""`sessions.json`: the running soldiers. Generals write it, the chamberlain cleans it, under a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import parse_json, read_bytes, to_list
from kingdom.base.disk.lock import held
from kingdom.base.errors import BadFile
from kingdom.base.home.places import Places

if TYPE_CHECKING:
    from kingdom.base.records.messages import SessionRow

LOCK_WAIT_SECONDS = 5.0
Rows = list[dict[str, Any]]
"""As they stand in the file: what another program wrote is kept as it is."""


class Sessions:
    """The file as its writers change it: under a lock, and many changes at once."""

    def __init__(self, places: Places, disk: Disk) -> None:
        self._path = places.sessions
        self._disk = disk
        #: By task: its new row, or None when its row is to go.
        self._changes: dict[str, SessionRow | None] = {}

    def add(self, row: SessionRow) -> None:
        """Note a row for the next `write`, in place of the one of the same task."""
        self._changes.pop(row.task_id, None)
        self._changes[row.task_id] = row

    def remove(self, task: str) -> None:
        """Note for the next `write` that a task's soldier has ended."""
        self._changes[task] = None

    def write(self) -> None:
        """Write what was noted. What could not be written stays noted."""
        if self._changes:
            new = [row.to_json() for row in self._changes.values() if row is not None]
            self._change(lambda rows: [*(row for row in rows if row["task_id"] not in self._changes), *new])
            self._changes.clear()

    def repair(self) -> None:
        """Make the file readable again after a power cut: whole rows stay."""
        self._change(lambda rows: rows)

    def keep_only(self, is_out: Callable[[str], bool], has_ended: Callable[[str], bool]) -> list[str]:
        """Remove the rows of our soldiers that are not out any more, and foreign rows of tasks that have ended.

        Return their tasks.
        """
        from kingdom.base.records.messages import SessionRow

        gone: list[str] = []

        def is_right(row: dict[str, Any]) -> bool:
            task = row["task_id"]
            return is_out(task) if is_ours(SessionRow.from_json(row)) else not has_ended(task)

        def remove_gone(rows: Rows) -> Rows:
            left = [row for row in rows if is_right(row)]
            gone.extend(row["task_id"] for row in rows if row not in left)
            return left

        self._change(remove_gone)
        return gone

    def _change(self, change: Callable[[Rows], Rows]) -> None:
        with held(self._path.with_suffix(".lock"), "sessions", LOCK_WAIT_SECONDS):
            written = self._read()
            changed = to_list(change(_whole(written)))
            if changed != written:
                self._disk.rewrite(self._path, changed)

    def _read(self) -> bytes:
        """Return what is there, fit or not: after a power cut it may be an empty file."""
        try:
            return read_bytes(self._path)
        except FileNotFoundError:
            return to_list([])
        except BadFile:
            return b""


def is_ours(row: SessionRow) -> bool:
    """Return whether one of our generals wrote the row: a foreign one does not name our kind of soldier."""
    return (row.soldier or "").startswith(f"soldier-{row.task_id}-")


def read(places: Places) -> list[SessionRow]:
    """Return the rows that name a task; damaged ones are left out."""
    from kingdom.base.records.messages import SessionRow

    return [SessionRow.from_json(row) for row in as_written(places)]


def as_written(places: Places) -> Rows:
    """Return the same rows as plain JSON, for commands that only look: they load no records."""
    try:
        return _whole(read_bytes(places.sessions))
    except (FileNotFoundError, BadFile):
        return []


def _whole(data: bytes) -> Rows:
    """Return the rows in a file that name a task."""
    try:
        rows: Any = parse_json(data)
    except ValueError:
        return []
    found = rows if isinstance(rows, list) else []
    return [row for row in found if isinstance(row, dict) and isinstance(row.get("task_id"), str)]
