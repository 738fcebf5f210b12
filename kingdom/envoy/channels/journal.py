"""The posts of a channel that keeps them itself: a file a day in its folder, one JSON line for each post."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kingdom.disk.codec import to_line
from kingdom.envoy.channels.base import Draft, Kit, Post
from kingdom.times import stamp

DAYS_SEARCHED = 3
"""How far back an interrupted post is looked for."""


class Journal:
    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._latest = 0.0

    def add(self, draft: Draft, post_id: str = "") -> Post:
        """Note a post durably and return it. One without an id gets the time, later than any before it."""
        now = self._kit.clock()
        if not post_id:
            self._latest = max(now, self._latest + 0.000_001)
            post_id = f"{self._latest:.6f}"
        time = stamp(now)
        where = {"room": draft.room, "thread": draft.thread, "letter": draft.id}
        line = {"ts": post_id, "time": time, **where, "text": draft.text}
        self._kit.disk.append(self._kit.folder / f"{time[:10]}.jsonl", to_line(line), sync=True)
        return Post(post_id, draft.room)

    def find(self, draft: Draft) -> Post | None:
        """Return the post of this draft, if there is a line about it."""
        found = (post for post in self._posts() if post.get("letter") == draft.id)
        return next((Post(str(post["ts"]), str(post.get("room", draft.room))) for post in found), None)

    def _posts(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self._kit.folder.glob("*.jsonl"))[-DAYS_SEARCHED:]:
            for line in path.read_text("utf-8", "replace").split("\n"):
                try:
                    post = json.loads(line)
                except ValueError:
                    continue
                if isinstance(post, dict) and "ts" in post:
                    yield post
