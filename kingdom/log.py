"""A role's log: lines for people, and internal events for machines.

Secrets are replaced by value before anything is written, and terminal control characters are left out.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kingdom.disk.atomic import Disk
from kingdom.home.places import Places
from kingdom.times import stamp
from kingdom.words import printable

SHORTEST_SECRET = 6
"""Shorter values would hide ordinary words."""

EVENT_TYPES = frozenset(
    f"{family}.{name}"
    for family, names in {
        "event": "detected dispatched discarded",
        "task": "created started completed failed needs_human resumed skipped retried",
        "soldier": "spawned completed timeout killed",
        "system": "startup shutdown health_changed heartbeat_missed session_orphaned resource_warning",
        "recovery": "session_restarted session_killed log_rotated files_cleaned sessions_cleaned",
        "message": "sent failed human_response",
        "file": "buried",
    }.items()
    for name in names.split()
)


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
        self._events: list[bytes] = []
        self.redact(secrets)

    def redact(self, secrets: Iterable[str]) -> None:
        """Replace these values from now on, the longest first, as one may contain another."""
        long_enough = [secret for secret in secrets if len(secret) >= SHORTEST_SECRET]
        as_json = [json.dumps(secret, ensure_ascii=False)[1:-1] for secret in long_enough]
        self._hidden = sorted({*long_enough, *as_json, *map(printable, long_enough)}, key=len, reverse=True)

    def info(self, sentence: str, level: str = "info") -> None:
        """Add a line for people."""
        one_line = self.clean(sentence).replace("\n", " ⏎ ")
        self._text.append(f"{stamp(self._clock())} {level:<5} {self._actor}: {one_line}\n")

    def warn(self, sentence: str) -> None:
        self.info(sentence, "warn")

    def error(self, sentence: str) -> None:
        self.info(sentence, "error")

    def event(self, type: str, /, **data: Any) -> None:
        """Add an internal event. The chamberlain counts them by type, so `type` must be in EVENT_TYPES."""
        assert type in EVENT_TYPES, type
        record = {"ts": stamp(self._clock()), "type": type, "actor": self._actor, "data": data}
        line = self.clean(json.dumps(record, ensure_ascii=False))
        self._events.append(f"{line}\n".encode("utf-8", "replace"))

    def flush(self) -> None:
        """Write what was added. On a full or broken disk these lines are lost: it must not stop a role from working."""
        text, self._text = "".join(self._text), []
        events, self._events = b"".join(self._events), []
        if text:
            for path in (self._own_file, self._system_file):
                self._append(path, text.encode("utf-8", "replace"))
            _show(text)
        if events:
            self._append(self._events_file, events)

    def clean(self, text: str) -> str:
        """Return the text without control characters and secrets, as people may see it.

        Control characters go first: leaving them out may put a secret together.
        """
        text = printable(text)
        for secret in self._hidden:
            text = text.replace(secret, "[hidden]")
        return text

    def _append(self, path: Path, data: bytes) -> None:
        with suppress(OSError):
            self._disk.append(path, data)


def _show(text: str) -> None:
    """Print to the terminal that a person may be watching, without waiting: a stopped terminal would hang the role."""
    try:
        if sys.stderr is not None and sys.stderr.isatty() and select.select([], [sys.stderr], [], 0)[1]:
            os.write(sys.stderr.fileno(), text.encode("utf-8", "replace")[:1024])
    except (OSError, ValueError):
        return
