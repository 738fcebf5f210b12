"""End processes that outlived their soldier, and keep the list of running soldiers true.

Processes of a soldier are known by the markers in their environment and by their start time, never by a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadName
from kingdom.base.records import notes, sessions
from kingdom.base.records.messages import URGENCY
from kingdom.base.records.sessions import Sessions
from kingdom.base.runtime.processes import end_carriers, soldier_markers, tasks_at_work
from kingdom.base.runtime.role import Services


@dataclass(frozen=True, slots=True)
class Orphans:
    """Processes of a task whose soldier has ended."""

    task: str
    #: The soldier; empty when its general has not noted it.
    soldier: str
    ended: int


def kill(services: Services) -> Iterator[Orphans]:
    """Kill processes that outlived their soldier, and yield them. A running soldier holds its control folder's lock.

    Processes are listed before the locks are looked at: whose lock is free then cannot have just begun.
    """
    for task in tasks_at_work(services.places.home):
        if not _soldier_runs(services, task):
            ended = end_carriers(soldier_markers(services.places.home, task))
            yield Orphans(task, notes.soldier(services.places, task), ended)
    rows = Sessions(services.places, services.unsynced)
    dropped = rows.keep_only(partial(_soldier_runs, services), partial(_has_ended, services))
    if dropped:
        services.log.event("recovery.sessions_cleaned", removed_count=len(dropped), tasks=dropped)


def _has_ended(services: Services, task: str) -> bool:
    with suppress(BadName):
        return services.queues.tasks.has(task, "completed", "dead")
    return False


def _soldier_runs(services: Services, task: str) -> bool:
    folders = services.places.control_folders()
    return any(folder.name == task and is_locked(folder / "lock") for folder in folders)


def stop_newest(services: Services) -> str | None:
    """End the soldier whose loss costs least and return its task: the lowest priority, then the newest.

    Its general tries the task again.
    """
    rows = [row for row in sessions.read(services.places) if sessions.is_ours(row)]
    if not rows:
        return None
    victim = max(rows, key=lambda row: (URGENCY.get(str(row.priority), 2), str(row.started_at)))
    end_carriers(soldier_markers(services.places.home, victim.task_id))
    return victim.task_id
