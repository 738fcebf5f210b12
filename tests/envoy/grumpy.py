"""A channel that refuses as often as it is told to. What is posted there is a list that tests read."""

from __future__ import annotations

from kingdom.envoy.channels.base import Channel, ChannelRefused, Kit

refusals: list[str] = []
posted: list[tuple[str, str, str | None]] = []


class Grumpy(Channel):
    def __init__(self, kit: Kit) -> None:
        """It keeps nothing."""

    def post(self, message_id: str, room: str, text: str, thread: str | None) -> str:
        if refusals:
            raise ChannelRefused(channel="grumpy", why=refusals.pop(0))
        posted.append((message_id, room, thread))
        return f"post-{len(posted)}"

    def find(self, message_id: str) -> str | None:
        return next((f"post-{n}" for n, (known, _, _) in enumerate(posted, 1) if known == message_id), None)
