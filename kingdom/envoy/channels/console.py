"""The channel that is always there: a transcript in the home, one JSON line for each post."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from typing import Any

from kingdom.disk.codec import to_line
from kingdom.envoy.channels.base import Channel, ChannelRefused, Kit
from kingdom.times import stamp

DAYS_SEARCHED = 3
"""How far back an interrupted post is looked for."""
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Not refusals: they pass, and then the message is posted."""


class Console(Channel):
    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._latest = 0.0

    def post(self, message_id: str, room: str, text: str, thread: str | None) -> str:
        now = self._kit.clock()
        self._latest = max(now, self._latest + 0.000_001)
        post_id, time = f"{self._latest:.6f}", stamp(now)
        line = {"ts": post_id, "time": time, "room": room, "thread": thread, "letter": message_id, "text": text}
        path = self._kit.folder / f"{time[:10]}.jsonl"
        try:
            self._kit.disk.append(path, to_line(line), sync=True)
        except OSError as error:
            if error.errno in DISK_ERRORS:
                raise
            raise ChannelRefused(channel="the console", why=error.strerror) from None
        return post_id

    def find(self, message_id: str) -> str | None:
        return next((str(post["ts"]) for post in self._posts() if post.get("letter") == message_id), None)

    def _posts(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self._kit.folder.glob("*.jsonl"))[-DAYS_SEARCHED:]:
            for line in path.read_text("utf-8", "replace").split("\n"):
                try:
                    post = json.loads(line)
                except ValueError:
                    continue
                if isinstance(post, dict) and "ts" in post:
                    yield post
