"""A channel over a folder: it posts and receives, and wakes the envoy by a descriptor.

What people say is in `said/` until it is acknowledged; a writer adds a byte to `bell`.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kingdom.base.disk.codec import read_json, to_json, to_line
from kingdom.court.envoy.channels.base import Channel, ChannelDown, ChannelKit, ChannelLocked, Heard, Post, PostDraft


class Pigeon(Channel):
    def __init__(self, kit: ChannelKit) -> None:
        self._kit = kit
        loft(kit.folder)
        self._bell = os.open(kit.folder / "bell", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        kit.alarm.add(self._bell)

    def post(self, draft: PostDraft) -> Post:
        post_id = f"post-{draft.id}"
        line = {"id": post_id, "message": draft.id, "room": draft.room, "thread": draft.thread, "text": draft.text}
        self._kit.disk.append(self._kit.folder / "posts", to_line(line), sync=True)
        return Post(post_id, draft.room)

    def find(self, draft: PostDraft) -> Post | None:
        found = (post["id"] for post in posts(self._kit.folder) if post["message"] == draft.id)
        return next((Post(id, draft.room) for id in found), None)

    def read(self) -> Sequence[Heard]:
        with suppress(BlockingIOError):
            os.read(self._bell, 4096)
        if (self._kit.folder / "locked").exists():
            raise ChannelLocked(channel="the loft", why="no such pigeon")
        if (self._kit.folder / "gone").exists():
            raise ChannelDown(channel="the loft", why="the pigeons are out")
        return [Heard(**read_json(path)) for path in sorted((self._kit.folder / "said").glob("*.json"))]

    def acknowledge(self, said: Sequence[Heard]) -> None:
        if (self._kit.folder / "deadly").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        for one in said:
            (self._kit.folder / "said" / f"{one.id}.json").unlink()

    def close(self) -> None:
        os.close(self._bell)


def loft(folder: Path) -> Path:
    (folder / "said").mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.mkfifo(folder / "bell")
    return folder


def say(folder: Path, said: Heard) -> None:
    """Write as a person."""
    path = loft(folder) / "said" / f"{said.id}.json"
    path.with_suffix(".draft").write_bytes(to_json(said._asdict()))
    path.with_suffix(".draft").rename(path)
    bell = os.open(folder / "bell", os.O_RDWR | os.O_NONBLOCK)
    os.write(bell, b"!")
    os.close(bell)


def posts(folder: Path) -> list[dict[str, str]]:
    """Return the posts."""
    try:
        return [json.loads(line) for line in (folder / "posts").read_text().split("\n") if line]
    except FileNotFoundError:
        return []
