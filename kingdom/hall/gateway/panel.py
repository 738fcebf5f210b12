"""What the kingdom does now, for the page's panel: the picture that `kingdom status` shows, with why things wait."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kingdom.base.disk.codec import parse_json, read_bytes
from kingdom.base.errors import BadFile
from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.base.times import moment
from kingdom.base.words import Said, choices_in, one_line, printable
from kingdom.hall.database.base import Row
from kingdom.hall.database.ids import iso

if TYPE_CHECKING:
    from kingdom.court.picture import Picture

FRESH_SECONDS = 1.0
"""The picture is taken at most so often, however many look at it."""
COMMAND = "kingdom"
HALL = "hall"
"""What the envoy calls this channel."""
LOAD = ("cpu", "memory", "disk")
LONGEST_QUESTION = 5_000
REQUEUED = ("events", "tasks", "messages")
"""Kinds of files that owners may put back into their queue."""


class Panel:
    def __init__(self, places: Places, threads: Executor, clock: Callable[[], float]) -> None:
        self._places = places
        self._threads = threads
        self._clock = clock
        self._look: asyncio.Future[bytes] | None = None
        self._looked_at = 0.0

    async def look(self) -> bytes:
        """Return what the kingdom does as JSON, at most a second old."""
        now = time.monotonic()
        if self._look is None or (self._look.done() and now - self._looked_at >= FRESH_SECONDS):
            self._looked_at = now
            self._look = asyncio.get_running_loop().run_in_executor(self._threads, self._take)
        return await asyncio.shield(self._look)

    def _take(self) -> bytes:
        # Not UTF-8 but escaped: what others wrote into their files may hold half a surrogate pair.
        return json.dumps(panel(self._places, self._clock())).encode("ascii")


def panel(places: Places, now: float) -> Row:
    """Return what the kingdom does."""
    # Loaded when somebody looks: this is more than the rest of the gateway needs.
    from kingdom.court import picture
    from kingdom.court.reasons import Reasons, read_reason

    view = picture.of(places, config.for_looking(places, "system")[0], now)
    reasons, rooms = Reasons(places, COMMAND), _rooms(places)
    waiting = list(reasons.waiting(view))
    does = reasons.now(view, waiting)
    running = list(_running(view, reasons.worked_on(view)))
    return {
        "takenAt": iso(now),
        "state": does.state,
        "line": does.line,
        **_says(does.line),
        "health": view.health,
        "load": {name: _number(view.vitals.get(f"{name}_percent")) for name in LOAD},
        "asking": [_asking(asked, rooms) for asked in view.asking],
        "askingMore": len(view.questions) - len(view.asking),
        "failed": [_failed(row, read_reason(row.get("why") or "")) for row in view.failures],
        "running": [{**row, **_room(rooms, row["taskId"])} for row in running],
        "runningMore": max(0, view.queues["tasks"]["in_progress"] - len(view.under_way)),
        "waiting": [
            {"id": row.id, "kind": row.kind, "what": one_line(row.what), "seconds": row.seconds}
            | {"why": row.why, **_says(row.why), **(_room(rooms, row.id) if row.kind == "tasks" else {})}
            for row in waiting
        ],
        "waitingMore": max(0, sum(states["pending"] for states in view.queues.values()) - len(view.waiting)),
        "roles": [
            {"name": role.name, "state": role.state, "restarts": role.restarts}
            | {"beatSeconds": _number(role.beat_age), "upSeconds": _number(role.up_seconds)}
            | {"restarting": os.path.lexists(places.restart(role.name))}
            for role in view.roles
        ],
        "queues": view.queues,
        "dead": view.dead,
        "nextRun": view.next_run
        and {"schedule": one_line(view.next_run.get("schedule")), "at": str(view.next_run["next"])},
    }


def _asking(asked: Mapping[str, Any], rooms: Mapping[str, str]) -> Row:
    question = printable(asked.get("question") or "")[:LONGEST_QUESTION]
    return {
        "taskId": asked["id"],
        "general": _name(asked.get("target_general")),
        "about": _name(asked.get("about")),
        "question": question,
        "choices": list(choices_in(question)),
        "seconds": asked["seconds"],
        **_room(rooms, asked["id"]),
    }


def _says(sentence: str) -> Row:
    """Return what a sentence of ours says as data, so that the page can tell it in another language."""
    return {"says": sentence.to_json()} if isinstance(sentence, Said) else {}


def _failed(row: Mapping[str, Any], why: str) -> Row:
    told = {"what": one_line(row["what"]), "why": why, **_says(why), "at": iso(row["at"])}
    if "task" in row:
        return {**told, "taskId": row["task"]}
    kind, name = str(row["what"]).partition("/")[0], str(row["what"]).rpartition("/")[2]
    return {**told, "requeues": name.removesuffix(".json")} if kind in REQUEUED else told


def _running(view: Picture, worked_on: Iterable[Row]) -> Iterator[Row]:
    """Yield the tasks that are worked on: those in progress, then what else soldiers are at."""
    soldiers = {str(row.get("task_id")): row for row in view.soldiers}
    tasks = {str(task["id"]): task for task in worked_on}
    for id in dict.fromkeys([*tasks, *soldiers]):
        task, soldier = tasks.get(id, {}), soldiers.get(id)
        since = soldier.get("started_at") if soldier else task.get("created_at")
        yield {
            "taskId": id,
            "general": _name(task.get("target_general")),
            "type": _name(task.get("type")),
            "repo": _name(task.get("repo")),
            "attempt": task["attempt"] if isinstance(task.get("attempt"), int) else 0,
            "hasSoldier": soldier is not None,
            "seconds": _seconds_since(since, view.taken_at),
        }


def _rooms(places: Places) -> dict[str, str]:
    """Return the room of each task that speaks or asks in the hall, as the envoy notes it."""
    found: dict[str, str] = {}
    for path in (places.threads, places.questions):
        with suppress(FileNotFoundError, BadFile, ValueError):
            written = parse_json(read_bytes(path))
            rows = written.items() if isinstance(written, dict) else ((_get(row, "task_id"), row) for row in written)
            found |= {str(task): str(_get(row, "channel")) for task, row in rows if _get(row, "on") == HALL}
    return found


def _get(row: object, key: str) -> object:
    return row.get(key) if isinstance(row, dict) else None


def _room(rooms: Mapping[str, str], task: object) -> Row:
    room = rooms.get(str(task))
    return {} if room is None else {"roomId": room}


def _name(text: object) -> str | None:
    return None if text is None else one_line(text)


def _number(value: object) -> float | None:
    return round(value, 1) if isinstance(value, int | float) else None


def _seconds_since(stamped: object, now: float) -> float | None:
    try:
        return round(max(0.0, now - moment(str(stamped))), 1)
    except (ValueError, OverflowError):
        return None
