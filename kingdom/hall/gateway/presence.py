"""Who is in which room now, over all gateways, by repeated signals of their sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

TTL_SECONDS = 60.0
"""A socket that has not said so for so long is taken to be gone."""


class PresenceChange(NamedTuple):
    """Somebody who was not in a room is there now, or the other way round."""

    room: str
    user: str
    on: bool


class Presence:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._where: dict[str, tuple[str, frozenset[str]]] = {}
        self._there: dict[str, dict[str, int]] = {}

    def seen(self, socket: str, user: str, rooms: Iterable[str]) -> list[PresenceChange]:
        """Note that a socket of a user is in these rooms, and in no others."""
        self._until[socket] = self._clock() + TTL_SECONDS
        before = self._where.get(socket, (user, frozenset()))[1]
        now = frozenset(rooms)
        self._where[socket] = (user, now)
        return [*self._count(user, before - now, -1), *self._count(user, now - before, 1)]

    def gone(self, socket: str) -> list[PresenceChange]:
        """Forget a socket."""
        self._until.pop(socket, None)
        user, rooms = self._where.pop(socket, ("", frozenset()))
        return self._count(user, rooms, -1)

    def expire(self) -> list[PresenceChange]:
        """Forget the sockets that have been silent for too long."""
        now = self._clock()
        silent = [socket for socket, until in self._until.items() if until <= now]
        return [change for socket in silent for change in self.gone(socket)]

    def users_in(self, room: str) -> list[str]:
        """Return who is in a room."""
        return list(self._there.get(room, ()))

    def _count(self, user: str, rooms: Iterable[str], step: int) -> list[PresenceChange]:
        changes = []
        for room in rooms:
            users = self._there.setdefault(room, {})
            before = users.get(user, 0)
            users[user] = before + step
            if not users[user]:
                del users[user]
            if not users:
                del self._there[room]
            if not before or not before + step:
                changes.append(PresenceChange(room, user, step > 0))
        return changes
