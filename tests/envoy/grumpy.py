"""A channel that says no as often as it is told to. Its transcript is a list that tests read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kingdom.disk.atomic import Disk
from kingdom.envoy.channels.base import ChannelRefused

refusals: list[str] = []
said: list[tuple[str, str, str | None]] = []


class Grumpy:
    name = "grumpy"

    def __init__(self, folder: Path, disk: Disk, clock: Callable[[], float]) -> None:
        """It keeps nothing."""

    def post(self, letter_id: str, room: str, text: str, thread: str | None) -> str:
        if refusals:
            raise ChannelRefused(channel="grumpy", why=refusals.pop(0))
        said.append((letter_id, room, thread))
        return f"post-{len(said)}"

    def find(self, letter_id: str) -> str | None:
        return next((f"post-{n}" for n, (known, _, _) in enumerate(said, 1) if known == letter_id), None)
