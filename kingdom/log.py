"""What a role tells: sentences for people, and the kingdom's internal events for machines.

Secrets are struck out by value before anything is written, and what would steer a terminal is left out.
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
"""Shorter values would strike out ordinary words."""

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
    """One role's voice. Lines are collected and written together by `flush`, at the end of a step."""

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
        """From now on these values are struck out. The longest first, as one may hold another."""
        long_enough = [each for each in secrets if len(each) >= SHORTEST_SECRET]
        as_json = [json.dumps(each, ensure_ascii=False)[1:-1] for each in long_enough]
        self._hidden = sorted({*long_enough, *as_json, *map(printable, long_enough)}, key=len, reverse=True)

    def info(self, sentence: str, level: str = "info") -> None:
        one_line = self.clean(sentence).replace("\n", " ⏎ ")
        self._text.append(f"{stamp(self._clock())} {level:<5} {self._actor}: {one_line}\n")

    def warn(self, sentence: str) -> None:
        self.info(sentence, "warn")

    def error(self, sentence: str) -> None:
        self.info(sentence, "error")

    def event(self, type: str, /, **data: Any) -> None:
        """An internal event: counted by the chamberlain, so its type stands in the table above."""
        assert type in EVENT_TYPES, type
        record = {"ts": stamp(self._clock()), "type": type, "actor": self._actor, "data": data}
        line = self.clean(json.dumps(record, ensure_ascii=False))
        self._events.append(f"{line}\n".encode("utf-8", "replace"))

    def flush(self) -> None:
        """A disk that is full or broken must not stop a role from working: then these lines are lost."""
        text, self._text = "".join(self._text), []
        events, self._events = b"".join(self._events), []
        if text:
            for path in (self._own_file, self._system_file):
                self._append(path, text.encode("utf-8", "replace"))
            _show(text)
        if events:
            self._append(self._events_file, events)

    def clean(self, text: str) -> str:
        """As it may be told, here or by whoever passes a foreign word on to people. What is put together by
        leaving out control characters may be a secret: so these go first."""
        text = printable(text)
        for secret in self._hidden:
            text = text.replace(secret, "[hidden]")
        return text

    def _append(self, path: Path, data: bytes) -> None:
        with suppress(OSError):
            self._disk.append(path, data)


def _show(text: str) -> None:
    """To the pane that a person may be watching, but never waiting for it: a stopped terminal would hang us."""
    try:
        if sys.stderr is not None and sys.stderr.isatty() and select.select([], [sys.stderr], [], 0)[1]:
            os.write(sys.stderr.fileno(), text.encode("utf-8", "replace")[:1024])
    except (OSError, ValueError):
        return
