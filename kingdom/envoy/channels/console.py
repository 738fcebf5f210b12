"""The channel that is always there: a transcript in the home, one JSON line for each post."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kingdom.disk.atomic import Disk, make_folder
from kingdom.disk.codec import to_line
from kingdom.envoy.channels.base import ChannelRefused
from kingdom.times import stamp

DAYS_LOOKED_BACK = 3
"""How far back an interrupted post is looked for."""
THE_MACHINES_FAULT = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""No refusal: it passes, and the letter is said then."""


class Console:
    name = "console"

    def __init__(self, folder: Path, disk: Disk, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._disk = disk
        self._clock = clock
        self._latest = 0.0
        make_folder(folder)

    def post(self, letter_id: str, room: str, text: str, thread: str | None) -> str:
        now = self._clock()
        self._latest = max(now, self._latest + 0.000_001)
        post_id = f"{self._latest:.6f}"
        line = {"ts": post_id, "time": stamp(now), "room": room, "thread": thread, "letter": letter_id, "text": text}
        path = self._folder / f"{stamp(now)[:10]}.jsonl"
        try:
            self._disk.append(path, to_line(line), sync=True)
        except OSError as trouble:
            if trouble.errno in THE_MACHINES_FAULT:
                raise
            raise ChannelRefused(channel="the console", why=trouble.strerror) from None
        return post_id

    def find(self, letter_id: str) -> str | None:
        return next((str(post["ts"]) for post in self._posts() if post.get("letter") == letter_id), None)

    def _posts(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self._folder.glob("*.jsonl"))[-DAYS_LOOKED_BACK:]:
            for line in path.read_text("utf-8", "replace").split("\n"):
                try:
                    post = json.loads(line)
                except ValueError:
                    continue
                if isinstance(post, dict) and "ts" in post:
                    yield post
