"""Room events besides messages, sent to the sockets here and, by signals, to the other gateways."""

from __future__ import annotations

from typing import Any

from kingdom.hall.database.records import Signal
from kingdom.hall.gateway.clients import ChatClient, Clients, Outgoing
from kingdom.hall.gateway.membership import Membership
from kingdom.hall.gateway.presence import Presence, PresenceChange
from kingdom.hall.topics.base import Producer, PublishOutcome
from kingdom.hall.topics.names import SIGNALS


class Rooms:
    def __init__(
        self, gateway: str, clients: Clients, membership: Membership, presence: Presence, producer: Producer
    ) -> None:
        """`gateway` is the name that this gateway chose at its start: its own signals come back to it."""
        self._gateway = gateway
        self._clients = clients
        self._membership = membership
        self._presence = presence
        self._producer = producer

    # What happens here

    def enter(self, client: ChatClient, room: str) -> None:
        """Let a client have what comes into a room, and tell it who is there."""
        for user in self._presence.users_in(room):
            self._clients.send(client, Outgoing("presence", {"roomId": room, "userId": user, "on": True}))
        self._clients.join(client, room)
        self.seen(client)

    def seen(self, client: ChatClient) -> None:
        """Note that a client is there, in all the rooms that it has joined."""
        if client.rooms:
            self._tell_presence(self._presence.seen(client.sid, client.caller.user, client.rooms))
            self._signal("presence", client.caller.user, socket=client.sid, rooms=sorted(client.rooms))

    def gone(self, client: ChatClient) -> None:
        """Forget a client whose connection has ended."""
        was_present = bool(client.rooms)
        self._clients.forget(client)
        self._tell_presence(self._presence.gone(client.sid))
        if was_present:
            self._signal("presence", client.caller.user, socket=client.sid, rooms=[])

    def expire(self) -> None:
        """Tell of those who have been silent for too long."""
        self._tell_presence(self._presence.expire())

    def typing(self, client: ChatClient, room: str, on: bool) -> None:
        """Tell the others in a room that somebody types, or no longer does."""
        self._tell_typing(room, client.caller.user, on, but=client)
        self._signal("typing", client.caller.user, roomId=room, on=on)

    def joined(self, room: str, user: str) -> None:
        """Note a new member, who still has to join with each socket."""
        self._membership.begins(room, user)
        self._tell_membership(room, user, True)
        self._signal("joined", user, roomId=room)

    def left(self, room: str, user: str) -> None:
        """End the delivery of a room to somebody who is no longer a member."""
        self._remove(room, user)
        self._signal("left", user, roomId=room)

    def sessions_ended(self, user: str, sessions: list[str]) -> None:
        """Tell every gateway, this one too, that sessions of somebody have ended."""
        self._signal("session_ended", user, sessions=sessions)

    def read(self, room: str, user: str, message: str) -> None:
        """Tell a room how far somebody has read."""
        self._tell_read(room, user, message)
        self._signal("read", user, roomId=room, lastReadMessageId=message)

    # What other gateways tell

    def hear(self, signal: Signal) -> None:
        """Take over what another gateway, or the worker, tells. What does not fit is no news."""
        if signal.gateway == self._gateway:
            return
        facts = signal.facts
        user, room = facts.get("userId"), facts.get("roomId")
        if not isinstance(user, str):
            return
        if signal.kind == "presence":
            self._hear_presence(user, facts.get("socket"), facts.get("rooms"))
        elif not isinstance(room, str):
            return
        elif signal.kind == "left":
            self._remove(room, user)
        elif signal.kind == "joined":
            self._tell_membership(room, user, True)
        elif signal.kind == "typing":
            self._tell_typing(room, user, facts.get("on") is True)
        elif signal.kind == "read" and isinstance(facts.get("lastReadMessageId"), str):
            self._tell_read(room, user, facts["lastReadMessageId"])

    def _hear_presence(self, user: str, socket: Any, rooms: Any) -> None:
        if isinstance(socket, str) and isinstance(rooms, list) and all(isinstance(room, str) for room in rooms):
            changes = self._presence.seen(socket, user, rooms) if rooms else self._presence.gone(socket)
            self._tell_presence(changes)

    def _remove(self, room: str, user: str) -> None:
        self._membership.ends(room, user)
        for client in self._clients.of_user_in(user, room):
            self._clients.leave(client, room)
            self._tell_presence(self._presence.seen(client.sid, user, client.rooms))
            self._signal("presence", user, socket=client.sid, rooms=sorted(client.rooms))
        self._tell_membership(room, user, False)

    def _tell_membership(self, room: str, user: str, on: bool) -> None:
        """Tell those in a room, and everybody's own sockets, that somebody is a member now or no longer."""
        told = Outgoing("membership", {"roomId": room, "userId": user, "on": on})
        self._clients.send_to_room(room, told)
        for client in self._clients.of_user_outside(user, room):
            self._clients.send(client, told)

    def _tell_presence(self, changes: list[PresenceChange]) -> None:
        for room, user, on in changes:
            self._clients.send_to_room(room, Outgoing("presence", {"roomId": room, "userId": user, "on": on}))

    def _tell_typing(self, room: str, user: str, on: bool, but: ChatClient | None = None) -> None:
        self._clients.send_to_room(room, Outgoing("typing", {"roomId": room, "userId": user, "on": on}), but)

    def _tell_read(self, room: str, user: str, message: str) -> None:
        facts = {"roomId": room, "userId": user, "lastReadMessageId": message}
        self._clients.send_to_room(room, Outgoing("read", facts))

    def _signal(self, kind: str, user: str, **facts: object) -> None:
        signal = Signal(kind, self._gateway, {"userId": user, **facts})
        self._producer.append(SIGNALS, user, signal.to_json(), _ignore)


def _ignore(outcome: PublishOutcome, why: str) -> None:
    """Do nothing: a signal that is lost is not sent again."""
