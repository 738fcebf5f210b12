"""One soldier as its general sees it: its folders, its lock, its start and its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import read_json, to_json
from kingdom.base.disk.lock import Lock, is_locked
from kingdom.base.errors import BadFile, BadInput, Locked
from kingdom.base.home import schemas
from kingdom.base.home.places import Places
from kingdom.base.records.soldiers import RawReport, SoldierOrder, Started, Stopping
from kingdom.base.runtime.cgroup import Cgroup
from kingdom.base.runtime.processes import (
    Markers,
    age,
    carriers,
    end_carriers,
    seconds_suspended,
    send,
    since_boot,
    soldier_markers,
    started_at,
)
from kingdom.court.soldiers import engines
from kingdom.court.soldiers.cleanup import remove_tree
from kingdom.court.soldiers.starter import ServingProcess, Starter

STDERR_TAIL = 500

Record = TypeVar("Record", SoldierOrder, RawReport, Started, Stopping)


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a soldier at one moment."""

    #: It holds its lock.
    is_running: bool
    #: What was noted at its start.
    started: Started | None
    #: That it was asked to end, and why.
    stopping: Stopping | None
    #: The raw report of this very attempt; one of an earlier attempt comes too late.
    report: RawReport | None

    @property
    def seconds(self) -> float:
        """Seconds for which it has run, without those while the machine was suspended."""
        if self.started is None:
            return 0.0
        began, was_slept = self.started.begun, self.started.slept
        since = 0.0 if was_slept is None else seconds_suspended() - was_slept
        return (age(self.started.start) if began is None else since_boot() - began) - max(0.0, since)

    def has_ended(self, attempt: int) -> bool:
        """Return whether this attempt's soldier was started and is no more."""
        return not self.is_running and self.started is not None and self.started.attempt == attempt


class Starting(NamedTuple):
    """A soldier that is being started."""

    attempt: int
    environment: Mapping[str, str]
    lock: Lock
    #: None: by a Python of its own.
    serving: ServingProcess | None


class SoldierHandle:
    """Two folders: the control folder, where the general notes what it knows, and the soldier's own.

    The soldier holds the lock in the control folder from before its birth to its end.
    """

    def __init__(self, places: Places, general: str, task: str) -> None:
        self.task = task
        self.control_folder = places.control_folder(general, task)
        self.folder = places.soldier_folder(task)
        self.result_path = self.folder / "result.json"
        self._lock = self.control_folder / "lock"
        self._order = self.control_folder / "order.json"
        self._started = self.control_folder / "started"
        self._stopping = self.control_folder / "stopping"
        self._stderr = self.control_folder / "trouble.txt"
        self._report = places.raw_result(task)
        self._home = places.home

    def is_running(self) -> bool:
        return is_locked(self._lock)

    def look(self, attempt: int) -> Look:
        """Read all there is to know, once. The lock first: a soldier that has ended has written its report by then."""
        if not self.control_folder.exists():
            return Look(False, None, None, None)
        is_running = self.is_running()
        report = _read(RawReport, self._report, "raw-report")
        return Look(
            is_running,
            _read(Started, self._started),
            _read(Stopping, self._stopping),
            report if report and report.attempt == attempt else None,
        )

    @cached_property
    def _markers(self) -> Markers:
        return soldier_markers(self._home, self.task)

    @cached_property
    def order(self) -> SoldierOrder | None:
        """What it was started with: the manifest and the default engine may be others by now."""
        return _read(SoldierOrder, self._order, "soldier-order")

    def used(self) -> dict[str, float]:
        """Return what this run has used so far, by what its engine has printed: cost_usd, tokens_used."""
        if self.order is None or self.order.engine not in engines.ENGINES:
            return {}
        with suppress(BadFile):
            metrics = (engines.load(self.order.engine).result(self.order, -signal.SIGKILL) or {}).get("metrics")
            if isinstance(metrics, dict):
                amounts = {name: metrics.get(name) for name in ("cost_usd", "tokens_used")}
                return {name: value for name, value in amounts.items() if isinstance(value, int | float) and value > 0}
        return {}

    def start(
        self, disk: Disk, order: SoldierOrder, environment: Mapping[str, str], starter: Starter
    ) -> Starting | None:
        """Start a soldier under the lock, which it inherits. None when one is at work.

        `finish_start` has to be called: we hold the lock until then.
        """
        make_folder(self.folder)
        lock = Lock(self._lock, self.task)
        try:
            lock.acquire(0.5)
        except Locked:
            return None
        try:
            with suppress(FileNotFoundError):
                os.unlink(self.result_path)
            disk.rewrite(self._order, to_json(order.to_json()))
            self.order = order
            environment = {**environment, "KINGDOM_ORDER": str(self._order)}
            return Starting(order.attempt, environment, lock, starter.start(environment, self._stderr, lock))
        except BaseException:
            lock.release()
            raise

    def finish_start(self, disk: Disk, starting: Starting, starter: Starter) -> Started | None:
        """Wait until a soldier runs, and note it. None when it has been started before, or has ended already."""
        attempt, environment, lock, serving = starting
        try:
            pid = None if serving is None else starter.wait(serving)
            if pid is None:
                lock.release()  # our hold alone: a soldier that was started all the same has its own
                lock.acquire()
                if self.look(attempt).report is not None:
                    return None
                pid = starter.start_slowly(self.task, environment, self._stderr, lock)
            return self._note_start(disk, pid, attempt)
        except Locked:
            return None
        finally:
            lock.release()

    def note_unrecorded_start(self, disk: Disk, attempt: int) -> Started | None:
        """Note the start of a soldier whose general was killed before it could; None when there is no process."""
        oldest = min(carriers(self._markers), key=lambda pair: pair[1], default=None)
        return self._note_start(disk, oldest[0], attempt) if oldest is not None else None

    def request_stop(self, disk: Disk, why: str, now: float) -> None:
        """Ask it to end. Noted first, so that a restarted general knows why the soldier ended."""
        disk.rewrite(self._stopping, to_json(Stopping(why, now).to_json()))
        send(carriers(self._markers), signal.SIGTERM)

    def kill(self) -> int:
        """Kill the whole tree, wherever it hid, and return how many processes that were.

        They are those that carry its markers and are not older than it, and those in its control group.
        """
        started = _read(Started, self._started)
        return end_carriers(self._markers, started.start if started else 0) + Cgroup(self._home, self.task).kill_all()

    def stderr_tail(self) -> str:
        """Return the end of what the serving process wrote to its standard error."""
        with suppress(OSError):
            return self._stderr.read_text("utf-8", "replace").strip()[-STDERR_TAIL:]
        return ""

    def left_traces(self) -> bool:
        return self.control_folder.exists() or self.folder.exists() or self._report.exists()

    def clear(self, disk: Disk) -> None:
        """Remove its raw report and its folders, the control folder last."""
        with suppress(FileNotFoundError):
            os.unlink(self._report)
        remove_tree(disk, self.folder)
        remove_tree(disk, self.control_folder)

    def _note_start(self, disk: Disk, pid: int, attempt: int) -> Started:
        """Note the start also of a process that has ended already: it counts as a try."""
        started = Started(pid, started_at(pid) or 0, attempt, round(seconds_suspended(), 3), round(since_boot(), 3))
        disk.rewrite(self._started, to_json(started.to_json()))
        return started


def last_output(logs: list[Path]) -> float:
    """Return when a soldier last printed anything, by its logs' times; 0 when it never did."""
    times = [path.stat().st_mtime for path in logs if path.exists()]
    return max(times, default=0.0)


def _read(kind: type[Record], path: Path, schema: str = "") -> Record | None:
    """Return what stands in a file; None when it is gone or damaged. What a soldier could have written has a schema."""
    try:
        value = read_json(path)
        return kind.from_json(schemas.check(schema, value) if schema else value)
    except (FileNotFoundError, NotADirectoryError, BadInput, KeyError, TypeError, ValueError):
        return None
