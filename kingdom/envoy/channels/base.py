"""What a channel is: it is spoken to, and may be listened to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from kingdom.disk.atomic import Disk
from kingdom.errors import KingdomError
from kingdom.home.config import Config
from kingdom.runtime.wake import Alarm


class ChannelRefused(KingdomError):
    """{channel} did not take the message: {why}"""


class ChannelDown(ChannelRefused):
    """{channel} cannot be reached: {why}"""


@dataclass(frozen=True)
class Kit:
    """What a channel is made of."""

    #: The channel's own folder, for what it has to remember.
    folder: Path
    #: Writes as durably as the envoy.
    disk: Disk
    #: Seconds since the epoch.
    clock: Callable[[], float]
    #: Its own part of envoy.yaml.
    config: Config
    #: Wakes the envoy: `alarm.add(descriptor)`, or `alarm.ring()` from a thread.
    alarm: Alarm
    #: What `.env` holds.
    secrets: Mapping[str, str] = field(repr=False)


class Said(NamedTuple):
    """What a person wrote on a channel."""

    #: The channel's id of it: the same at every delivery, and a post's own id where threads hang under posts.
    id: str
    #: The event it becomes unless it answers a question, without the channel's name: message, app_mention.
    type: str
    #: Who wrote it, as the channel knows them.
    user: str
    #: What they wrote.
    text: str
    #: Where.
    room: str
    #: The post under which it hangs, if any.
    thread: str | None = None


class Channel(Protocol):
    """What a row of CHANNELS makes of a kit; ChannelDown when it cannot. One that only speaks has `post` and `find`."""

    def post(self, message_id: str, room: str, text: str, thread: str | None) -> str:
        """Return the id of the new post, under which threads hang, once people can read it.

        ChannelRefused when nothing was posted.
        """

    def find(self, message_id: str) -> str | None:
        """Return the id of the post of this message, if an earlier process has made it."""

    def folders(self) -> Iterable[Path]:
        """Return folders whose arrivals wake the envoy, for a channel that is told by files."""
        return ()

    def read(self) -> Sequence[Said]:
        """Return what people have said, without waiting. ChannelDown when it cannot be known now.

        It is called at every turn of the envoy. Only those are heard who may speak here: the channel's
        configuration says who. What was returned and never acknowledged is returned again by a later process.
        """
        return ()

    def acknowledge(self, said: Sequence[Said]) -> None:
        """Take note that this is safe: it will not be read again. ChannelDown when that cannot be noted now."""

    def close(self) -> None:
        """Let go of connections and threads."""
