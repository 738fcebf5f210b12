"""The channel that is always available: files in the home, one JSON line for each post."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

from kingdom.court.envoy.channels.base import Channel, ChannelKit, ChannelRefused, Post, PostDraft
from kingdom.court.envoy.channels.journal import PostJournal

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Not refusals: they pass, and then the message is posted."""


class Console(Channel):
    def __init__(self, kit: ChannelKit) -> None:
        self._journal = PostJournal(kit)

    def post(self, draft: PostDraft) -> Post:
        try:
            return self._journal.add(draft, durable=False)
        except OSError as error:
            if error.errno in DISK_ERRORS:
                raise
            raise ChannelRefused(channel="the console", why=error.strerror) from None

    def find(self, draft: PostDraft) -> Post | None:
        return self._journal.find(draft)

    def unsynced(self) -> Iterable[Path]:
        return self._journal.files
