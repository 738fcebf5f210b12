"""One soldier as its general sees it: its folder, its lock, its start and its end."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

from kingdom.atomic import Disk, Lock, is_locked, make_folder, read_json, to_json
from kingdom.errors import BadFile, Locked
from kingdom.places import Places
from kingdom.processes import age, end_carriers, send

MARKER = "KINGDOM_TASK_ID"


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    start: int
    attempt: int


class Barrack:
    """The folder `state/soldiers/<task>/`. The soldier holds its lock from before its birth to its end."""

    def __init__(self, places: Places, task: str) -> None:
        self.task = task
        self.room = places.soldier(task)
        self.result_path = self.room / "result.json"
        self._raw = places.raw_result(task)
        self._home = places.home

    @property
    def lock_path(self) -> Path:
        return self.room / "lock"

    def lives(self) -> bool:
        return is_locked(self.lock_path)

    def started(self) -> Started | None:
        noted = _read(self.room / "started")
        try:
            return Started(int(noted["pid"]), int(noted["start"]), int(noted["attempt"])) if noted else None
        except (KeyError, TypeError, ValueError):
            return None

    def raw(self, attempt: int) -> Mapping[str, Any] | None:
        """The raw report of this very attempt; one of an earlier attempt comes too late."""
        report = _read(self._raw)
        return report if report and report.get("attempt") == attempt else None

    def march(self, disk: Disk, order: Mapping[str, Any], environment: Mapping[str, str]) -> Popen[bytes] | None:
        """Start a soldier under the lock, which it inherits; None when another one holds it."""
        make_folder(self.room)
        with suppress(FileNotFoundError):
            os.unlink(self.result_path)
        lock = Lock(self.lock_path, self.task)
        try:
            lock.acquire(0.5)
        except Locked:
            return None
        try:
            disk.rewrite(self.room / "order.json", to_json(order))
            return Popen(
                [sys.executable, "-m", "kingdom.soldier", self.task],
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=os.open(self.room / "trouble.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600),
                env=dict(environment),
                cwd=self._home,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )
        finally:
            lock.release()

    def seconds_served(self) -> float:
        started = self.started()
        return age(started.start) if started else 0.0

    def last_sign(self, logs: list[Path]) -> float:
        """When the soldier last said anything, by the files' times."""
        times = [path.stat().st_mtime for path in logs if path.exists()]
        return max(times, default=0.0)

    def told_to_end(self) -> Mapping[str, Any] | None:
        return _read(self.room / "stopping")

    def tell_to_end(self, disk: Disk, why: str, now: float) -> None:
        """Noted first, so that a restarted general knows why the soldier ended."""
        disk.rewrite(self.room / "stopping", to_json({"why": why, "since": now}))
        if (started := self.started()) is not None:
            send([(started.pid, started.start)], signal.SIGTERM)

    def end(self) -> int:
        """The whole tree, wherever it hid: whoever carries the task's marker and is not older than its soldier."""
        started = self.started()
        return end_carriers(f"{MARKER}={self.task}".encode(), started.start if started else 0)

    def trouble(self) -> str:
        with suppress(OSError):
            return (self.room / "trouble.txt").read_text("utf-8", "replace").strip()[-500:]
        return ""

    def clear(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._raw)
        shutil.rmtree(self.room, ignore_errors=True)


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        return read_json(path)
    except (FileNotFoundError, NotADirectoryError, BadFile):
        return None
