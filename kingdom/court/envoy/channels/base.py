"""The contract of a channel: it posts, and may receive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from kingdom.base.disk.atomic import Disk
from kingdom.base.errors import KingdomError
from kingdom.base.home.config import Config
from kingdom.base.runtime.wake import Alarm

IN_THREAD = "thread.reply"
"""The type of what is of interest only in a thread of ours: people also talk with each other."""


class ChannelRefused(KingdomError):
    """{channel} did not take the message: {why}"""


class ChannelDown(ChannelRefused):
    """{channel} cannot be reached: {why}"""

    longest_pause: float = 60.0
    """Seconds until it is tried again, at the most."""

    def __init__(self, *, after: float = 0.0, **facts: object) -> None:
        super().__init__(**facts)
        self.after = after
        """Seconds for which the channel has asked to be left alone; 0 when it has said nothing of the kind."""


class NeighbourDown(ChannelDown):
    """{channel} cannot be reached: {why}"""

    # A role beside the envoy: asking costs nobody anything, and it comes back within seconds.
    longest_pause = 4.0


class ChannelLocked(ChannelDown):
    """{channel} does not take our token: {why}"""


class RoomBusy(ChannelDown):
    """{channel} takes nothing more in this room for now: {why}"""


class Stuck(Exception):
    """A thread of a channel has not moved for a long time. Not an error to go on from: the envoy has to be replaced."""


@dataclass(frozen=True)
class ChannelKit:
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
    #: The home: paths in the configuration start there.
    home: Path = Path()
    #: Adds a line to the envoy's log; to be called by the envoy's own thread alone.
    tell: Callable[[str], None] = lambda _: None


class Heard(NamedTuple):
    """What a person wrote on a channel."""

    #: The channel's id of it: the same at every delivery, and a post's own id where threads hang under posts.
    id: str
    #: The event it becomes unless it answers a question, without the channel's name: app_mention, IN_THREAD.
    type: str
    #: Who wrote it, as the channel knows them.
    user: str
    #: What they wrote.
    text: str
    #: Where.
    room: str
    #: The post under which it hangs, if any.
    thread: str | None = None


class PostDraft(NamedTuple):
    """A post to be made."""

    #: By which it is found again: the message's id; a later part of a long one has its number behind it.
    id: str
    #: Where, as the channel or the owner calls it.
    room: str
    #: What people read.
    text: str
    #: The post under which it hangs, if any.
    thread: str | None = None
    #: What a question offers as answers: buttons, where the channel has them.
    choices: tuple[str, ...] = ()
    #: The task that it is about, or whose question it asks.
    task: str | None = None
    #: What it says of that task: one of CODES of `records/messages.py`.
    code: str | None = None
    #: When its message was written, so that nobody looks for it before that.
    written_at: str = ""
    #: What the thread under it is about, if it opens one: the name of a room, where threads have rooms.
    opens: str = ""


class Post(NamedTuple):
    """A post that people can read."""

    #: The ID under which threads hang.
    id: str
    #: The room as the channel itself calls it.
    room: str


class Channel(Protocol):
    """What a row of CHANNELS makes of a kit; ChannelDown when it cannot. One that only speaks has `post` and `find`."""

    waits: bool = False
    """Whether a post may take longer than a disk does: then a thread of its own makes the channel's posts.

    If not, `find` knows at once and for certain, and nothing is noted before a post or after it.
    """
    seconds_between_posts: float = 0.0
    """How long a room is left alone after a post."""
    settle_seconds: float = 0.0
    """How long an interrupted post may still take to appear: nobody looks for it before."""
    new_ones: str = "outside this thread"
    """Where a person begins a new conversation, as the end of a sentence."""
    longest: int | None = None
    """How many characters one post takes; a longer message becomes several."""

    def post(self, draft: PostDraft) -> Post:
        """Return the new post once people can read it.

        ChannelRefused when the channel will not have it. ChannelDown when it cannot be known whether it was posted:
        it is tried again without end, after a look for it.
        """

    def find(self, draft: PostDraft) -> Post | None:
        """Return the post of this draft, if an earlier process has made it."""

    def unsynced(self) -> Iterable[Path]:
        """Return files that hold posts which are not durable: the envoy syncs them before it files the messages."""
        return ()

    def room(self, name: str) -> str:
        """Return what the channel itself calls a room, if that is known without asking."""
        return name

    def mark(self, room: str, post: str, code: str) -> None:
        """Show on a post how its task stands, by a message's code. A failure is ignored."""

    def folders(self) -> Iterable[Path]:
        """Return folders whose new files wake the envoy, for a channel that receives by files."""
        return ()

    def read(self) -> Sequence[Heard]:
        """Return what people have said, without waiting. ChannelDown when it cannot be known now.

        It is called at every turn of the envoy. Only those are heard who may speak here: the channel's
        configuration says who. What was returned and never acknowledged is returned again by a later process.
        """
        return ()

    def acknowledge(self, said: Sequence[Heard]) -> None:
        """Take note that this is safe: it will not be read again. ChannelDown when that cannot be noted now."""

    def close(self) -> None:
        """Let go of connections and threads."""
