"""A channel that refuses a given number of times, and lists its posts for tests."""

from __future__ import annotations

from kingdom.court.envoy.channels.base import Channel, ChannelKit, ChannelRefused, Post, PostDraft

refusals: list[str] = []
posted: list[tuple[str, str, str | None]] = []


class Grumpy(Channel):
    def __init__(self, kit: ChannelKit) -> None:
        """Keep no state."""

    def post(self, draft: PostDraft) -> Post:
        if refusals:
            raise ChannelRefused(channel="grumpy", why=refusals.pop(0))
        posted.append((draft.id, draft.room, draft.thread))
        return Post(f"post-{len(posted)}", draft.room)

    def find(self, draft: PostDraft) -> Post | None:
        found = (f"post-{n}" for n, (known, _, _) in enumerate(posted, 1) if known == draft.id)
        return next((Post(id, draft.room) for id in found), None)
