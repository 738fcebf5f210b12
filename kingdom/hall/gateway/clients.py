"""The sockets of this gateway: their users, their rooms, and how to write to them."""

from __future__ import annotations

import time
from collections.abc import Callable

import orjson

from kingdom.hall.gateway.engine import Packet, Pipe
from kingdom.hall.gateway.tokens import Caller


class Outgoing(Packet):
    """An event for any number of sockets."""

    __slots__ = ()

    def __init__(self, event: str, data: object) -> None:
        super().__init__(b"42" + orjson.dumps([event, data]))


class ChatClient:
    """One socket of a user."""

    __slots__ = ("caller", "pipe", "rooms", "sid", "since")

    def __init__(self, pipe: Pipe, sid: str, caller: Caller) -> None:
        #: By the monotonic clock.
        self.since = time.monotonic()
        self.pipe = pipe
        self.sid = sid
        self.caller = caller
        self.rooms: set[str] = set()


class Clients:
    """All sockets of this gateway."""

    def __init__(self, most_queued: Callable[[], int], cut: Callable[[ChatClient], None]) -> None:
        """`cut` ends the connection of a client that lets more than `most_queued` bytes wait."""
        self._most_queued = most_queued
        self._cut = cut
        self.by_pipe: dict[str, ChatClient] = {}
        self.of_user: dict[str, set[ChatClient]] = {}
        self._in_room: dict[str, set[ChatClient]] = {}

    def add(self, client: ChatClient) -> None:
        """Note a new socket."""
        self.by_pipe[client.pipe.sid] = client
        self.of_user.setdefault(client.caller.user, set()).add(client)

    def join(self, client: ChatClient, room: str) -> None:
        """Let a client have what comes into a room."""
        client.rooms.add(room)
        self._in_room.setdefault(room, set()).add(client)

    def leave(self, client: ChatClient, room: str) -> None:
        """End that."""
        client.rooms.discard(room)
        _discard(self._in_room, room, client)

    def forget(self, client: ChatClient) -> None:
        """Remove a disconnected client."""
        for room in list(client.rooms):
            self.leave(client, room)
        _discard(self.of_user, client.caller.user, client)
        self.by_pipe.pop(client.pipe.sid, None)

    def has_room(self, room: str) -> bool:
        """Return whether a client here has joined a room."""
        return room in self._in_room

    def of_user_in(self, user: str, room: str) -> list[ChatClient]:
        """Return the sockets of a user that have joined a room."""
        return [client for client in self.of_user.get(user, ()) if room in client.rooms]

    def of_user_outside(self, user: str, room: str) -> list[ChatClient]:
        """Return the sockets of a user that have not joined a room."""
        return [client for client in self.of_user.get(user, ()) if room not in client.rooms]

    def send(self, client: ChatClient, packet: Packet) -> None:
        """Send something to one client; cut it if it does not read."""
        if client.pipe.put(packet) > self._most_queued():
            self._cut(client)

    def send_to_room(self, room: str, packet: Packet, but: ChatClient | None = None) -> int:
        """Send something to everybody in a room; return to how many."""
        members = self._in_room.get(room)
        if not members:
            return 0
        most = self._most_queued()
        slow = [client for client in members if client is not but and client.pipe.put(packet) > most]
        for client in slow:
            self._cut(client)
        return len(members)


def _discard(groups: dict[str, set[ChatClient]], key: str, client: ChatClient) -> None:
    group = groups.get(key)
    if group is not None:
        group.discard(client)
        if not group:
            del groups[key]
