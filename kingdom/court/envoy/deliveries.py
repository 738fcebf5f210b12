"""Messages for slow channels: one at a time for each room, the most urgent first.

A room is left alone for a moment after each post, a channel that cannot be reached for longer and longer. Nothing is
given up because of that: only what a channel refuses is.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from kingdom.base.records.messages import Message, Queued
from kingdom.base.runtime.role import Services
from kingdom.court.envoy.channels import Channels
from kingdom.court.envoy.channels.base import ChannelDown, ChannelLocked, ChannelRefused, Post, PostDraft, RoomBusy
from kingdom.court.envoy.conversations import THREAD_RULES, Address
from kingdom.court.envoy.locked_out import LockedOut
from kingdom.court.envoy.poster import Poster

STUCK_SECONDS = 90.0
CLOSE_SECONDS = 5.0


class Room(NamedTuple):
    channel: str
    name: str


class Delivered(NamedTuple):
    """A message that was posted whole."""

    message: Message
    address: Address
    #: The first of its posts.
    post: Post


class RefusedMessage(NamedTuple):
    """A message that its channel will not have."""

    message: Message
    why: str


class DeliveryOutcomes(NamedTuple):
    """What has become of messages."""

    delivered: list[Delivered]
    refused: list[RefusedMessage]
    #: They may have been posted, and wait to be looked for.
    uncertain: list[Message]


@dataclass
class _UnderWay:
    message: Message
    address: Address
    drafts: list[PostDraft]
    #: The drafts may have been posted by an earlier attempt.
    look_first: bool
    posts: list[Post] = field(default_factory=list)
    #: The channel's thread is at the draft after the last post.
    is_asked: bool = False

    def next_draft(self) -> PostDraft:
        """Return the draft after the last post: all others hang under the first, or beside it in its thread."""
        draft = self.drafts[len(self.posts)]
        if not self.posts:
            return draft
        return draft._replace(room=self.posts[0].room, thread=self.address.thread or self.posts[0].id)


class Deliveries:
    def __init__(self, services: Services, channels: Channels, locked_out: LockedOut) -> None:
        self._services = services
        self._locked_out = locked_out
        self._channels = channels
        self._posters: dict[str, Poster] = {}
        self._waiting: dict[Room, list[Queued]] = {}
        self._under_way: dict[Room, _UnderWay] = {}
        self._openings: dict[str, Room] = {}
        self._free_at: dict[Room, float] = {}
        self._down: dict[str, float] = {}
        self._pauses: dict[str, float] = {}

    @property
    def is_calling(self) -> bool:
        """Whether a channel is being called now."""
        return any(delivery.is_asked for delivery in self._under_way.values())

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values())) + len(self._under_way)

    def room(self, address: Address) -> Room:
        """Return the room of an address, by the name that its channel has for it."""
        try:
            return Room(address.channel, self._channels.get(address.channel).room(address.room))
        except ChannelRefused:
            return Room(address.channel, address.room)

    def add(self, queued: Queued, room: Room) -> None:
        """Let a message wait for its room."""
        waiting = self._waiting.setdefault(room, [])
        if queued not in waiting:
            insort(waiting, queued)
        if queued.type == "thread_start" and queued.about:
            self._openings[queued.about] = room

    def take_due(self) -> list[tuple[Room, Queued]]:
        """Take out what may be posted now, the next message of each room."""
        now = self._services.monotonic()
        free = [room for room in self._waiting if room not in self._under_way and self._free(room) <= now]
        # First all of them: what is taken out of one room may open the thread that another one waits for.
        found = [(room, queued) for room in free if (queued := self._next(room)) is not None]
        for room, queued in found:
            self._waiting[room].remove(queued)
            if not self._waiting[room]:
                del self._waiting[room]
        return found

    def next_due(self) -> float:
        """Return when something can be posted, by the monotonic clock; inf while only the channels' answers count."""
        waiting = [room for room in self._waiting if room not in self._under_way]
        resting = [room for room, delivery in self._under_way.items() if not delivery.is_asked]
        return min(map(self._free, [*waiting, *resting]), default=inf)

    def rest(self, room: Room, until: float) -> None:
        """Post nothing in a room until then."""
        self._free_at[room] = max(until, self._free_at.get(room, 0.0))

    def begin(
        self, room: Room, message: Message, address: Address, drafts: list[PostDraft], *, look_first: bool
    ) -> None:
        """Hand a message to its channel's thread."""
        self._under_way[room] = _UnderWay(message, address, drafts, look_first)
        self._ask(room)

    def collect(self) -> DeliveryOutcomes:
        """Return what has become of messages since the last call, and go on with those of several parts.

        Stuck when a channel's thread does not move any more.
        """
        for poster in self._posters.values():
            poster.check(STUCK_SECONDS)
        outcomes = self._outcomes()
        now = self._services.monotonic()
        for room, delivery in self._under_way.items():
            if not delivery.is_asked and self._free(room) <= now:
                self._ask(room)
        return outcomes

    def close(self) -> DeliveryOutcomes:
        """Start nothing more. Return what has become of messages, after a moment for what is being posted."""
        until = self._services.monotonic() + CLOSE_SECONDS
        for poster in self._posters.values():
            poster.close(max(0.0, until - self._services.monotonic()))
        return self._outcomes()

    def mark(self, address: Address, post: str, code: str) -> None:
        """Show a task's state on its post."""
        if address.channel in self._posters:
            self._posters[address.channel].mark(address.room, post, code)

    def down(self, channel: str, error: ChannelDown) -> None:
        """Pause a channel that cannot be reached, longer each time; log it once."""
        if channel not in self._pauses:
            self._services.log.error(f"{error}; its messages wait")
        if isinstance(error, ChannelLocked):
            self._locked_out.note(channel, str(error))
        pause = min(error.longest_pause, 2 * self._pauses.get(channel, 0.5))
        self._pauses[channel] = pause
        self._down[channel] = self._services.monotonic() + max(pause, error.after)

    def _outcomes(self) -> DeliveryOutcomes:
        outcomes = DeliveryOutcomes([], [], [])
        for poster in self._posters.values():
            for attempt in poster.attempts():
                room = next(
                    room for room, delivery in self._under_way.items() if delivery.message.id == attempt.message_id
                )
                self._under_way[room].is_asked = False
                self._take(room, attempt.outcome, outcomes)
        return outcomes

    def _take(self, room: Room, outcome: Post | Exception, outcomes: DeliveryOutcomes) -> None:
        delivery, channel = self._under_way[room], self._channels.get(room.channel)
        now = self._services.monotonic()
        if isinstance(outcome, OSError):  # a full disk, say, after the post: it passes, and is looked for then
            outcome = ChannelDown(channel=room.channel, why=f"{type(outcome).__name__}: {outcome}")
        if isinstance(outcome, RoomBusy):
            self.rest(room, now + max(outcome.after, channel.seconds_between_posts))
        elif isinstance(outcome, ChannelDown):
            self._end(room)
            self.down(room.channel, outcome)
            self.add(delivery.message.queued(), room)
            outcomes.uncertain.append(delivery.message)
        elif isinstance(outcome, ChannelRefused):
            self._is_up(room.channel)
            self._end(room)
            outcomes.refused.append(RefusedMessage(delivery.message, str(outcome)))
        elif isinstance(outcome, Post):
            self._is_up(room.channel)
            self.rest(room, now + channel.seconds_between_posts)
            delivery.posts.append(outcome)
            if len(delivery.posts) == len(delivery.drafts):
                self._end(room)
                address = delivery.address._replace(room=delivery.posts[0].room)
                outcomes.delivered.append(Delivered(delivery.message, address, delivery.posts[0]))
        else:
            raise outcome

    def _ask(self, room: Room) -> None:
        delivery = self._under_way[room]
        if room.channel not in self._posters:
            channel = self._channels.get(room.channel)
            self._posters[room.channel] = Poster(channel, self._services.alarm, self._services.monotonic)
        delivery.is_asked = True
        self._posters[room.channel].post(delivery.message.id, delivery.next_draft(), look_first=delivery.look_first)

    def _end(self, room: Room) -> None:
        self._openings.pop(self._under_way.pop(room).message.task_id or "", None)

    def _next(self, room: Room) -> Queued | None:
        """Return the most urgent message, or the one that opens its thread; while another room opens that, it waits."""
        for queued in self._waiting[room]:
            if queued.type == "thread_start" or not THREAD_RULES[queued.type].in_thread:
                return queued
            opened_in = self._openings.get(queued.about or "")
            opening = self._opening(queued.about, opened_in) if opened_in is not None else None
            if opening is None:
                return queued
            if opened_in == room and isinstance(opening, Queued):
                return opening
        return None

    def _opening(self, task: str | None, room: Room) -> Queued | _UnderWay | None:
        """Return the message that opens a task's thread, while it waits or is being posted."""
        delivery = self._under_way.get(room)
        if delivery and delivery.message.type == "thread_start" and delivery.message.task_id == task:
            return delivery
        waiting = self._waiting.get(room, ())
        return next((queued for queued in waiting if queued.type == "thread_start" and queued.about == task), None)

    def _free(self, room: Room) -> float:
        return max(self._free_at.get(room, 0.0), self._down.get(room.channel, 0.0))

    def _is_up(self, channel: str) -> None:
        self._down.pop(channel, None)
        if self._pauses.pop(channel, None) is not None:
            self._services.log.info(f"{channel} can be reached again")
        self._locked_out.over(channel)
