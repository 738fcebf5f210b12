"""One soldier as its general sees it: its folders, its lock, its start and its end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

from kingdom.disk.atomic import Disk, make_folder
from kingdom.disk.codec import read_json_or, to_json
from kingdom.disk.lock import Lock, is_locked
from kingdom.errors import Locked
from kingdom.home.places import Places
from kingdom.runtime.cgroup import Cgroup
from kingdom.runtime.processes import age, carriers, end_carriers, send, soldier_markers, started_at
from kingdom.soldiers.cleanup import clear_away


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    start: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Stopping:
    why: str
    since: float


class Barrack:
    """Two folders: the camp, where the general notes what it knows, and the room, which is the soldier's own.

    The soldier holds the camp's lock from before its birth to its end.
    """

    def __init__(self, places: Places, general: str, task: str) -> None:
        self.task = task
        self.camp = places.control_folder(general, task)
        self.room = places.soldier_folder(task)
        self.result_path = self.room / "result.json"
        self._raw = places.raw_result(task)
        self._home = places.home
        self._marker = soldier_markers(places.home, task)

    def lives(self) -> bool:
        return is_locked(self.camp / "lock")

    def started(self) -> Started | None:
        noted = read_json_or(self.camp / "started", {})
        try:
            return Started(int(noted["pid"]), int(noted["start"]), int(noted["attempt"])) if noted else None
        except (KeyError, TypeError, ValueError):
            return None

    def account(self) -> str | None:
        """Whose quota it was sent out with: the manifest and the default engine may be others by now."""
        order = read_json_or(self.camp / "order.json", {})
        return str(order["account"]) if order and "account" in order else None

    def raw(self, attempt: int) -> Mapping[str, Any] | None:
        """The raw report of this very attempt; one of an earlier attempt comes too late."""
        report = read_json_or(self._raw, {})
        return report if report and report.get("attempt") == attempt else None

    def march(self, disk: Disk, order: Mapping[str, Any], environment: Mapping[str, str]) -> Popen[bytes] | None:
        """Start a soldier under the lock, which it inherits; None when another one holds it."""
        make_folder(self.camp)
        make_folder(self.room)
        lock = Lock(self.camp / "lock", self.task)
        try:
            lock.acquire(0.5)
        except Locked:
            return None
        try:
            with suppress(FileNotFoundError):
                os.unlink(self.result_path)
            path = self.camp / "order.json"
            disk.rewrite(path, to_json(order))
            with open(self.camp / "trouble.txt", "wb") as trouble:
                child = Popen(
                    [sys.executable, "-P", "-m", "kingdom.soldier", self.task],
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=trouble,
                    env={**environment, "KINGDOM_ORDER": str(path)},
                    cwd=self._home,
                    pass_fds=(lock.fileno(),),
                    start_new_session=True,
                )
            self._note_start(disk, child.pid, int(order["attempt"]))
            return child
        finally:
            lock.release()

    def adopt(self, disk: Disk, attempt: int) -> None:
        """A soldier that an earlier life of its general sent, without living to note it."""
        if self.started() is not None:
            return
        oldest = min(carriers(self._marker), key=lambda pair: pair[1], default=None)
        if oldest is not None:
            self._note_start(disk, oldest[0], attempt)

    def seconds_served(self) -> float:
        started = self.started()
        return age(started.start) if started else 0.0

    def told_to_end(self) -> Stopping | None:
        noted = read_json_or(self.camp / "stopping", {})
        try:
            return Stopping(str(noted["why"]), float(noted["since"])) if noted else None
        except (KeyError, TypeError, ValueError):
            return None

    def tell_to_end(self, disk: Disk, why: str, now: float) -> None:
        """Noted first, so that a restarted general knows why the soldier ended."""
        disk.rewrite(self.camp / "stopping", to_json({"why": why, "since": now}))
        send(carriers(self._marker), signal.SIGTERM)

    def end(self) -> int:
        """The whole tree, wherever it hid: who carries its markers and is not older than it, and who is penned."""
        started = self.started()
        return end_carriers(self._marker, started.start if started else 0) + Cgroup(self._home, self.task).kill_all()

    def trouble(self) -> str:
        with suppress(OSError):
            return (self.camp / "trouble.txt").read_text("utf-8", "replace").strip()[-500:]
        return ""

    def left_traces(self) -> bool:
        return self.camp.exists() or self.room.exists() or self._raw.exists()

    def clear(self, disk: Disk) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._raw)
        clear_away(disk, self.room)
        clear_away(disk, self.camp)

    def _note_start(self, disk: Disk, pid: int, attempt: int) -> None:
        """Also of one that has ended already: it was a try, and must not be made again and again."""
        note = {"pid": pid, "start": started_at(pid) or 0, "attempt": attempt}
        disk.rewrite(self.camp / "started", to_json(note))


def last_sign(logs: list[Path]) -> float:
    """When a soldier last said anything, by the files' times."""
    times = [path.stat().st_mtime for path in logs if path.exists()]
    return max(times, default=0.0)
