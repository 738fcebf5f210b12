"""Order among the soldiers: what outlived its task is ended, the roll tells only of those who are out.

A soldier is known by the markers it was born with and by its start time, never by its name.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass

from kingdom.disk.lock import is_locked
from kingdom.records import sessions
from kingdom.records.messages import URGENCY
from kingdom.records.sessions import Sessions
from kingdom.runtime.processes import end_carriers, send, soldier_markers, tasks_at_work
from kingdom.runtime.role import Services


@dataclass(frozen=True, slots=True)
class Orphans:
    """Processes of a task whose soldier is no more."""

    task: str
    ended: int


def clear(services: Services) -> Iterator[Orphans]:
    """One round: the serving part holds its camp's lock as long as it lives; without it nobody may be at work.

    Whom we saw at work first and whose lock is free now cannot have just begun.
    """
    for task, members in tasks_at_work(services.places.home).items():
        if not _is_out(services, task):
            send(members, signal.SIGKILL)
            yield Orphans(task, len(members))
    struck = Sessions(services.places, services.unsynced).keep_only(lambda task: _is_out(services, task))
    if struck:
        services.log.event("recovery.sessions_cleaned", tasks=struck)


def _is_out(services: Services, task: str) -> bool:
    return any(camp.name == task and is_locked(camp / "lock") for camp in services.places.control_folders())


def stop_newest(services: Services) -> str | None:
    """The soldier whose loss costs least: the lowest priority, then the newest. Its general tries the task again."""
    rows = sessions.read(services.places)
    if not rows:
        return None
    victim = max(rows, key=lambda row: (URGENCY.get(str(row.priority), 2), str(row.started_at)))
    end_carriers(soldier_markers(services.places.home, victim.task_id))
    return victim.task_id
