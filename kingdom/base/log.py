"""A role's log: lines for people, and internal events for machines.

Secrets are replaced by value before anything is written, and terminal control characters are left out.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kingdom.base.disk.atomic import Disk
from kingdom.base.home import dotenv
from kingdom.base.home.places import Places
from kingdom.base.times import stamp
from kingdom.base.words import printable

_SOLDIER = ("soldier_id", "task_id")
EVENTS: Mapping[str, tuple[str, ...]] = {
    "event.detected": ("event_id", "source", "event_type"),
    "event.dispatched": ("event_id", "task_id", "target_general"),
    "event.discarded": ("event_id", "event_type", "reason"),
    "task.created": ("task_id", "event_type", "target_general", "priority"),
    "task.started": _SOLDIER,
    "task.retried": ("task_id", "attempt", "error"),
    "task.completed": ("task_id", "status"),
    "task.failed": ("task_id", "error"),
    "task.needs_human": ("task_id", "question"),
    "task.resumed": ("task_id", "original_task_id"),
    "soldier.spawned": _SOLDIER,
    "soldier.completed": _SOLDIER,
    "soldier.timeout": (*_SOLDIER, "timeout_seconds"),
    "soldier.killed": (*_SOLDIER, "reason"),
    "system.startup": ("role",),
    "system.shutdown": ("role",),
    "system.health_changed": ("from", "to"),
    "system.heartbeat_missed": ("target", "threshold_seconds"),
    "system.session_orphaned": _SOLDIER,
    "system.resource_warning": ("disk_percent",),
    "recovery.session_restarted": ("target",),
    "recovery.session_killed": ("target",),
    "recovery.log_rotated": ("file", "size_mb"),
    "recovery.files_cleaned": ("deleted_count",),
    "recovery.sessions_cleaned": ("removed_count",),
    "message.sent": ("msg_id", "task_id", "channel"),
    "message.failed": ("msg_id", "error"),
    "message.human_response": ("task_id", "thread_ts"),
    "file.buried": ("kind", "file", "reason"),
}
"""The internal events, each with what it says at least. Who reads `events.log` counts on both."""


class Log:
    """The log of one role. Lines are collected and written together by `flush`, at the end of a turn."""

    def __init__(
        self, places: Places, actor: str, disk: Disk, clock: Callable[[], float], secrets: Iterable[str] = ()
    ) -> None:
        self._actor = actor
        self._disk = disk
        self._clock = clock
        self._own_file = places.role_log(actor)
        self._system_file = places.system_log
        self._events_file = places.events_log
        self._text: list[str] = []
        self._lines_of_json: list[str] | None = None
        self._events: list[str] = []
        self.redact(secrets)

    def redact(self, secrets: Iterable[str]) -> None:
        """Replace these values from now on."""
        self._hidden = dotenv.forms(secrets)

    def also_as_json(self, wanted: bool) -> None:
        """Write each sentence to standard error too, as one JSON object a line, for collectors of logs."""
        if wanted != (self._lines_of_json is not None):
            self._lines_of_json = [] if wanted else None

    def info(self, sentence: str, level: str = "info", /, *, event: str = "", **data: Any) -> None:
        """Add a line for people, and the internal event that it tells of, if any."""
        now = stamp(self._clock())
        one_line = self.clean(sentence).replace("\n", " ⏎ ")
        self._text.append(f"{now} {level:<5} {self._actor}: {one_line}\n")
        if self._lines_of_json is not None:
            record: dict[str, Any] = {"ts": now, "level": level.strip(), "role": self._actor, "message": one_line}
            record |= {"event": event, "data": data} if event else {}
            self._lines_of_json.append(self.clean(json.dumps(record, ensure_ascii=False)) + "\n")
        if event:
            self._add_event(event, now, dict(data))

    def warn(self, sentence: str, /, *, event: str = "", **data: Any) -> None:
        self.info(sentence, "warn", event=event, **data)

    def error(self, sentence: str, /, *, event: str = "", **data: Any) -> None:
        self.info(sentence, "error", event=event, **data)

    def event(self, type: str, /, **data: Any) -> None:
        """Add an internal event of a type in EVENTS. Its actor is this role, unless `actor` names another."""
        self._add_event(type, stamp(self._clock()), data)

    def flush(self) -> None:
        """Write what was added. On a full or broken disk these lines are lost: it must not stop a role from working."""
        text, self._text = "".join(self._text), []
        events, self._events = "".join(self._events), []
        if text or events:
            lines = {self._own_file: text, self._system_file: text, self._events_file: events}
            self._disk.append_where_possible(
                [(path, part.encode("utf-8", "replace")) for path, part in lines.items() if part]
            )
            if self._lines_of_json is None:
                _show(text)
        if self._lines_of_json:
            lines_of_json, self._lines_of_json = "".join(self._lines_of_json), []
            _write_to_stderr(lines_of_json)

    def clean(self, text: str) -> str:
        """Return the text without control characters and secrets, as people may see it.

        Control characters go first: leaving them out may put a secret together.
        """
        if not text.isprintable():
            text = printable(text)
        for secret in self._hidden:
            text = text.replace(secret, "[hidden]")
        return text

    def clean_json(self, value: Any) -> Any:
        """Return JSON with every text in it cleaned, names included: whoever wrote it chose them as well."""
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, Mapping):
            return {self.clean(name): self.clean_json(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean_json(part) for part in value]
        return value

    def _add_event(self, type: str, now: str, data: dict[str, Any]) -> None:
        assert type in EVENTS, type
        record = {"ts": now, "type": type, "actor": data.pop("actor", self._actor), "data": data}
        self._events.append(f"{self.clean(json.dumps(record, ensure_ascii=False))}\n")


def as_json(line: str) -> str:
    """Return a line of a log for people as JSON, like those that roles write to standard error."""
    found = re.fullmatch(r"(\S+) +(\S+) +(\S+): (.*)", line)
    known = dict(zip(("ts", "level", "role", "message"), found.groups(), strict=True)) if found else {"message": line}
    return json.dumps(known, ensure_ascii=False)


def _show(text: str) -> None:
    """Print to the terminal that a person may be watching, without waiting: a stopped terminal would hang the role."""
    try:
        if sys.stderr is not None and sys.stderr.isatty() and select.select([], [sys.stderr], [], 0)[1]:
            os.write(sys.stderr.fileno(), text.encode("utf-8", "replace")[:1024])
    except (OSError, ValueError):
        return


def _write_to_stderr(text: str) -> None:
    """Write whole lines, as far as whoever reads them takes them at once: a full pipe would hang the role."""
    try:
        if sys.stderr is not None and select.select([], [sys.stderr], [], 0)[1]:
            os.write(sys.stderr.fileno(), text.encode("utf-8", "replace"))
    except (OSError, ValueError):
        return
