"""Run a worker of the hall beside an envoy, both in this process, with people in its database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kingdom.court.envoy.job import EnvoyJob
from kingdom.hall.database import accounts
from kingdom.hall.database.ids import iso
from kingdom.hall.database.own_rooms import THRONE_ROOM, join_all
from kingdom.hall.worker.job import WorkerJob
from tests.court.envoy.envoys import Envoy
from tests.fixtures import Clock, services
from tests.hall.worker.hall import Hall
from tests.waiting import SOON, wait_until

LOOK_SECONDS = 0.01
BOTH_ON = {"roles": {"gateway": True, "worker": True}}


class Busy:
    """A worker at work in a thread."""

    def __init__(self, hall: Hall) -> None:
        self._job = WorkerJob(hall.of("worker"))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._job.turn(None)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._job.close()


@contextmanager
def working(hall: Hall) -> Iterator[None]:
    worker = Busy(hall)
    try:
        yield
    finally:
        worker.close()


def hall_envoy(home: Path, clock: Clock, **more: Any) -> Envoy:
    """Return an envoy of a home with gateway and worker."""
    given = services(home, "envoy", clock, system=BOTH_ON, envoy={"retry": {"backoff_seconds": 0}, **more})
    return Envoy(given, EnvoyJob(given))


def turn_until(envoy: Envoy, seen: Callable[[], Any], what: str) -> Any:
    """Run turns, as its loop would, until the condition holds; return what was seen."""

    def turned() -> Any:
        envoy.job.turn(None)
        envoy.services.log.flush()
        return seen()

    return wait_until(turned, SOON, what)


def owner(hall: Hall) -> str:
    """Return a new owner, who is in all rooms of the kingdom that there are."""
    user = hall.user()
    hall.database.run(lambda db: accounts.give_role(db, user, accounts.OWNER))
    hall.database.run(lambda db: join_all(db, user, iso(hall.clock())))
    return user


def throne_room(hall: Hall) -> list[dict[str, Any]]:
    return hall.history(THRONE_ROOM)


def rooms(hall: Hall) -> dict[str, str]:
    """Return the rooms that there are besides the throne room: their ids by name."""
    found = hall.database.read(lambda db: db.all("rooms"))
    return {row["name"]: row["id"] for row in found if row["id"] != THRONE_ROOM}


def members(hall: Hall, room: str) -> set[str]:
    return {row["user_id"] for row in hall.database.read(lambda db: db.all("members", room_id=room))}


def contents(hall: Hall, room: str) -> list[str]:
    return [row["content"] for row in hall.history(room)]
