"""Orders that owners give on the page: files for the king, as `kingdom tasks retry` writes them, and for roll calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import to_json
from kingdom.base.disk.lock import holder_pid, is_locked
from kingdom.base.errors import NoSuchThing
from kingdom.base.home import config, roster
from kingdom.base.home.places import Places
from kingdom.base.records.lookup import find
from kingdom.base.records.messages import Order
from kingdom.base.records.queues import Queues
from kingdom.base.runtime.processes import started_at
from kingdom.base.times import stamp
from kingdom.hall.database.base import Row
from kingdom.hall.database.ids import new_uuid
from kingdom.hall.gateway.refusals import HttpRefusal

ACTIONS = ("retry", "cancel", "requeue", "discard")


class PageOrders:
    def __init__(self, places: Places, queues: Queues, disk: Disk, clock: Callable[[], float]) -> None:
        self._places = places
        self._queues = queues
        self._disk = disk
        self._clock = clock

    def give(self, action: str, target: str, by: str) -> str:
        """Return the id of a new order when it is durable."""
        order = Order(id=f"ord-hall-{new_uuid()}", action=action, target=target, by=by, created_at=stamp(self._clock()))
        self._queues.orders.create([order])
        return order.id

    def look(self, order: str) -> Row | None:
        """Return an order with its outcome, which is null until the king has come to it; None when there is none."""
        with suppress(NoSuchThing):
            found = find(self._places, order, ("orders",))
            return {
                "orderId": found.id,
                **{key: found.get(key) for key in ("action", "target", "outcome", "code", "says")},
            }
        return None

    def restart(self, role: str, by: str) -> None:
        """Ask for a restart of the process that plays a role now; this is durable when it returns."""
        places = self._places
        system, _ = config.for_looking(places, "system")
        if role not in [row.name for row in roster.roles_of(places, system)]:
            raise HttpRefusal(404, "There is no such role")
        pid = holder_pid(places.lock(role)) if is_locked(places.lock(role)) else None
        if pid is None or roster.desired_state(places, role) != "up":
            raise HttpRefusal(409, f"{role} does not run; `kingdom start {role}` starts it")
        self._disk.rewrite(places.restart(role), to_json({"pid": pid, "started": started_at(pid), "by": by}))
