"""The posts of a channel that keeps them itself: a file a day in its folder, one JSON line for each post."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kingdom.base.disk.codec import to_line
from kingdom.base.times import stamp
from kingdom.court.envoy.channels.base import ChannelKit, Post, PostDraft

MOST_FOUND = 10_000
"""More posts are not held in memory: the files are read again."""
DAYS_SEARCHED = 3
"""How far back an interrupted post is looked for."""


class PostJournal:
    def __init__(self, kit: ChannelKit) -> None:
        self._kit = kit
        self._latest = 0.0
        self._found: dict[str, tuple[str, str | None]] | None = None
        """The posts and rooms of messages, once somebody has looked for one."""
        self.files: list[Path] = []
        """Those that may hold posts which are not durable."""

    def add(self, draft: PostDraft, post_id: str = "", *, durable: bool = True) -> Post:
        """Note a post and return it. One without an id gets the time, later than any before it.

        If not `durable`, it becomes so when `files` are synced.
        """
        now = self._kit.clock()
        if not post_id:
            self._latest = max(now, self._latest + 0.000_001)
            post_id = f"{self._latest:.6f}"
        time = stamp(now)
        where = {"room": draft.room, "thread": draft.thread, "letter": draft.id}
        line = {"ts": post_id, "time": time, **where, "text": draft.text}
        path = self._kit.folder / f"{time[:10]}.jsonl"
        self._kit.disk.append(path, to_line(line), sync=durable)
        if path not in self.files:
            self.files = [*self.files[-1:], path]
        if self._found is not None:
            self._found[draft.id] = post_id, draft.room
            if len(self._found) > MOST_FOUND:
                self._found = None
        return Post(post_id, draft.room)

    def find(self, draft: PostDraft) -> Post | None:
        """Return the post of this draft, if there is a line about it."""
        if self._found is None:
            self._found = {}
            self.files = sorted(self._kit.folder.glob("*.jsonl"))[-DAYS_SEARCHED:]
            for post in self._posts():
                self._found.setdefault(str(post.get("letter")), (str(post["ts"]), post.get("room")))
        if (found := self._found.get(draft.id)) is None:
            return None
        return Post(found[0], draft.room if found[1] is None else str(found[1]))

    def _posts(self) -> Iterator[dict[str, Any]]:
        for path in self.files:
            for line in path.read_text("utf-8", "replace").split("\n"):
                try:
                    post = json.loads(line)
                except ValueError:
                    continue
                if isinstance(post, dict) and "ts" in post:
                    yield post
