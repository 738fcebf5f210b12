"""What every channel can do."""

from __future__ import annotations

from typing import Protocol

from kingdom.errors import KingdomError


class ChannelRefused(KingdomError):
    """{channel} did not take the message: {why}"""


class Channel(Protocol):
    """A post returns after people can read it, and answers the post's own id, under which threads hang."""

    name: str

    def post(self, letter_id: str, room: str, text: str, thread: str | None) -> str:
        """Raises ChannelRefused; then nothing was posted."""

    def find(self, letter_id: str) -> str | None:
        """The id of the post that carries this letter, if an earlier life has made it."""
