"""The sockets of this gateway: their users, their rooms, and how to write to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import orjson
from engineio.async_socket import AsyncSocket
from engineio.packet import MESSAGE, NOOP, Packet

from kingdom.hall.gateway.frames import FrameProtocol, text_frame
from kingdom.hall.gateway.tokens import Caller

LOOK_AT_QUEUE_FROM = 64


class Outgoing:
    """An event for any number of sockets, encoded once."""

    __slots__ = ("_payload", "frame")

    def __init__(self, event: str, data: object) -> None:
        self._encode(b"42" + orjson.dumps([event, data]))

    @classmethod
    def answer(cls, number: int, data: object) -> Outgoing:
        """Return the answer to a call."""
        outgoing = cls.__new__(cls)
        outgoing._encode(b"43%d" % number + orjson.dumps([data]))
        return outgoing

    def _encode(self, payload: bytes) -> None:
        self._payload = payload
        self.frame = text_frame(payload)

    @property
    def packet(self) -> Packet:
        """What goes through the queue of a pipe."""
        return Packet(MESSAGE, self._payload[1:].decode())


class Client:
    """One socket."""

    __slots__ = ("caller", "frames", "is_marked", "pipe", "rooms", "sid", "since")

    def __init__(self, pipe: AsyncSocket) -> None:
        #: By the monotonic clock.
        self.since = time.monotonic()
        self.pipe = pipe
        self.sid: str = ""
        self.caller: Caller | None = None
        self.rooms: set[str] = set()
        #: Takes frames directly, once nothing is left on the way through the pipe's queue.
        self.frames: FrameProtocol | None = None
        self.is_marked = False

    def put(self, outgoing: Outgoing) -> int:
        """Send something, and return how many bytes wait for this client now."""
        if self.frames is not None:
            return self.frames.put(outgoing.frame)
        queue = self.pipe.queue
        queue.put_nowait(outgoing.packet)
        if self.pipe.upgraded and not self.is_marked:
            # When this comes out of the queue, all before it has: see `HallSocket.send`.
            self.is_marked = True
            queue.put_nowait(Packet(NOOP))
        if queue.qsize() < LOOK_AT_QUEUE_FROM:
            return 0
        waiting: Iterable[Any] = queue._queue
        return sum(len(packet.data or "") for packet in waiting if packet is not None)


class Clients:
    """All sockets of this gateway."""

    def __init__(self, most_queued: Callable[[], int], cut: Callable[[Client], None]) -> None:
        """`cut` ends the connection of a client that lets more than `most_queued` bytes wait."""
        self._most_queued = most_queued
        self._cut = cut
        self.by_pipe: dict[str, Client] = {}
        self.of_user: dict[str, set[Client]] = {}
        self._in_room: dict[str, set[Client]] = {}

    def signed_in(self, client: Client, caller: Caller) -> None:
        """Note whose socket this is."""
        client.caller = caller
        self.of_user.setdefault(caller.user, set()).add(client)

    def join(self, client: Client, room: str) -> None:
        """Let a client have what comes into a room."""
        client.rooms.add(room)
        self._in_room.setdefault(room, set()).add(client)

    def leave(self, client: Client, room: str) -> None:
        """End that."""
        client.rooms.discard(room)
        _discard(self._in_room, room, client)

    def forget(self, client: Client) -> None:
        """Remove a disconnected client."""
        for room in list(client.rooms):
            self.leave(client, room)
        if client.caller is not None:
            _discard(self.of_user, client.caller.user, client)
        self.by_pipe.pop(client.pipe.sid, None)

    def has_room(self, room: str) -> bool:
        """Return whether a client here has joined a room."""
        return room in self._in_room

    def of_user_in(self, user: str, room: str) -> list[Client]:
        """Return the sockets of a user that have joined a room."""
        return [client for client in self.of_user.get(user, ()) if room in client.rooms]

    def of_user_outside(self, user: str, room: str) -> list[Client]:
        """Return the sockets of a user that have not joined a room."""
        return [client for client in self.of_user.get(user, ()) if room not in client.rooms]

    def send(self, client: Client, outgoing: Outgoing) -> None:
        """Send something to one client; cut it if it does not read."""
        if client.put(outgoing) > self._most_queued():
            self._cut(client)

    def send_to_room(self, room: str, outgoing: Outgoing, but: Client | None = None) -> int:
        """Send something to everybody in a room; return to how many."""
        members = self._in_room.get(room)
        if not members:
            return 0
        most = self._most_queued()
        slow = [client for client in members if client is not but and client.put(outgoing) > most]
        for client in slow:
            self._cut(client)
        return len(members)


def _discard(groups: dict[str, set[Client]], key: str, client: Client) -> None:
    group = groups.get(key)
    if group is not None:
        group.discard(client)
        if not group:
            del groups[key]
