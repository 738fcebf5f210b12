"""Orders that owners give on the page: files for the king, as `kingdom tasks retry` writes them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from kingdom.errors import NoSuchThing
from kingdom.hall.base import Row
from kingdom.hall.ids import new_uuid
from kingdom.home.places import Places
from kingdom.records.lookup import find
from kingdom.records.messages import Order
from kingdom.records.queues import Queues
from kingdom.times import stamp

ACTIONS = ("retry", "cancel", "requeue", "discard")


class Orders:
    def __init__(self, places: Places, queues: Queues, clock: Callable[[], float]) -> None:
        self._places = places
        self._queues = queues
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
            return {"orderId": found.id, **{key: found.get(key) for key in ("action", "target", "outcome", "code")}}
        return None
