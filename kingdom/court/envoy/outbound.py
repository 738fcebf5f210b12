"""Post the kingdom's messages: each once, in its conversation, also after an interruption."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from kingdom.base.errors import KingdomError
from kingdom.base.records.backlog import Backlog
from kingdom.base.records.messages import Message, code_of
from kingdom.base.retry import may_retry, pause
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.court.envoy.channels import Channels
from kingdom.court.envoy.channels.base import ChannelDown, ChannelRefused, Post
from kingdom.court.envoy.conversations import Address, Conversations, Posted
from kingdom.court.envoy.deliveries import Deliveries, DeliveryOutcomes, RefusedMessage, Room
from kingdom.court.envoy.drafts import drafts_of
from kingdom.court.envoy.intents import Intents


class Outbound:
    def __init__(
        self,
        services: Services,
        channels: Channels,
        conversations: Conversations,
        backlog: Backlog[Message],
        deliveries: Deliveries,
    ) -> None:
        self._services = services
        self._channels = channels
        self._conversations = conversations
        self._backlog = backlog
        self._intents = Intents(services)
        self._deliveries = deliveries
        self._earlier = set(services.queues.messages.ids("pending"))
        """Messages that an earlier process may have posted on a channel that posts at once."""

    def queue_if_slow(self, message: Message) -> bool:
        """Queue a message whose channel posts from a thread of its own. Return whether its channel does."""
        address = self._address(message)
        try:
            waits = self._channels.get(address.channel).waits
        except ChannelDown as error:
            self._deliveries.down(address.channel, error)
            waits = True
        except ChannelRefused:
            waits = False
        if waits:
            room = self._deliveries.room(address)
            self._deliveries.add(message.queued(), room)
            self._let_settle(message, room)
        return waits

    def send(self, messages: list[Message]) -> None:
        """Post each message once, in its conversation, on a channel that does it at once; file it: sent/ or failed/."""
        with self._uncertain_on_error(messages):
            self._send(messages)

    def clear_filed(self) -> None:
        """Remove the traces of messages that were filed just before an earlier process, or turn, ended."""
        self._intents.remove_filed()

    def deliver(self, *, begin: bool) -> bool:
        """File what the other channels have posted, and hand them what is next if that may begin.

        Return whether anything was filed.
        """
        filed = self._settle_all(self._deliveries.collect())
        if begin:
            self._begin()
        return filed

    def close(self) -> None:
        """Wait a moment for what is being posted, and file it."""
        self._settle_all(self._deliveries.close())

    def _settle_all(self, outcomes: DeliveryOutcomes) -> bool:
        for message in outcomes.uncertain:
            self._intents.mark_uncertain([message])
            self._let_settle(message, self._deliveries.room(self._address(message)))
        posted = [_posted(*delivered) for delivered in outcomes.delivered]
        messages = [delivered.message for delivered in outcomes.delivered]
        messages += [refused.message for refused in outcomes.refused]
        if not messages:
            return False
        try:
            with self._uncertain_on_error(messages):
                self._settle(posted, outcomes.refused)
        except (KingdomError, OSError):
            for message in messages:
                self.queue_if_slow(message)
            raise
        self._backlog.drop([f"{message.id}.json" for message in messages])
        return True

    @contextmanager
    def _uncertain_on_error(self, messages: list[Message]) -> Iterator[None]:
        """Mark these messages uncertain when posting or filing them fails."""
        try:
            yield
        except (KingdomError, OSError):
            # It is open which of them were posted: next time their channels are asked first.
            self._intents.mark_uncertain(messages)
            raise

    def _send(self, messages: list[Message]) -> None:
        posted: list[Posted] = []
        refused: list[RefusedMessage] = []
        for message in messages:
            address = self._address(message)
            try:
                post = self._post(message, address)
            except ChannelRefused as refusal:
                refused.append(RefusedMessage(message, str(refusal)))
                continue
            posted.append(_posted(message, address, post))
            self._conversations.note(posted[-1])
        self._file_all(posted, refused)

    def _settle(self, posted: list[Posted], refused: list[RefusedMessage]) -> None:
        for post in posted:
            self._conversations.note(post)
        if posted:
            self._intents.write_receipts(posted)
        self._file_all(posted, refused)
        for post in posted:
            self._mark(post)

    def _file_all(self, posted: list[Posted], refused: list[RefusedMessage]) -> None:
        for message, why in refused:
            self._retry_or_fail(message, why)
        self._file("sent", [_sent(post) for post in posted])
        for message, address, _ in posted:
            said = f"posted {message.id} ({message.type}) on {address.channel} in {address.room}"
            data = {"msg_id": message.id, "type": message.type}
            self._services.log.info(said, event="message.sent", **data, task_id=message.task_id, channel=address.room)

    def _begin(self) -> None:
        """Hand over the next message of every room that is free."""
        due = [(room, self._backlog.take(queued.filename)) for room, queued in self._deliveries.take_due()]
        if not due:
            return
        messages = [(room, message) for room, message in due if message is not None]
        try:
            starting = [(room, message, self._address(message)) for room, message in messages]
            here = [(message, address) for room, message, address in starting if self._is_room_of(room, address)]
            self._intents.create(here)
        except (KingdomError, OSError):
            for room, message in messages:
                self._deliveries.add(message.queued(), room)
            raise
        for room, message, address in starting:
            if not self._is_room_of(room, address):
                self._deliveries.add(message.queued(), self._deliveries.room(address))
                continue
            try:
                self._hand_over(room, message, address)
            except ChannelDown as error:
                self._deliveries.down(address.channel, error)
                self._deliveries.add(message.queued(), room)

    def _hand_over(self, room: Room, message: Message, address: Address) -> None:
        drafts = drafts_of(message, address, self._channels.get(address.channel))
        is_uncertain = message.id in self._intents.uncertain
        self._deliveries.begin(room, message, address, drafts, look_first=is_uncertain)

    def _is_room_of(self, room: Room, address: Address) -> bool:
        return self._deliveries.room(address) == room

    def _let_settle(self, message: Message, room: Room) -> None:
        """Look for an interrupted post only when it has had the time to appear."""
        if (since := self._intents.uncertain.get(message.id)) is not None:
            with suppress(ChannelRefused):
                self._deliveries.rest(room, since + self._channels.get(room.channel).settle_seconds)

    def _address(self, message: Message) -> Address:
        intended = self._intents.intended(message) if message.id in self._intents.uncertain else None
        return intended or self._conversations.address(message)

    def _post(self, message: Message, address: Address) -> Post:
        channel = self._channels.get(address.channel)
        is_uncertain = message.id in self._intents.uncertain or message.id in self._earlier
        if is_uncertain and (before := self._intents.receipt(message)) is not None:
            return before
        drafts = drafts_of(message, address, channel)
        posts = [(channel.find(draft) if is_uncertain else None) or channel.post(draft) for draft in drafts]
        return posts[0]

    def _mark(self, posted: Posted) -> None:
        """Show how a task stands on the post that its thread hangs under, and on the person's that began it."""
        message, thread, source = posted.message, posted.thread, posted.message.source_ref or {}
        code = code_of(message.code, message.content)
        if code is None:
            return
        places = {(thread.room, str(thread.thread))}
        if source.get("source") == thread.channel and source.get("channel") and source.get("message_ts"):
            places.add((str(source["channel"]), str(source["message_ts"])))
        for room, post in sorted(places):
            self._deliveries.mark(thread._replace(room=room), post, code)

    def _retry_or_fail(self, message: Message, why: str) -> None:
        """Wait longer after each refusal; after the last one file the message under failed/."""
        rules = self._services.config["retry"]
        tries = (message.tries or 0) + 1
        later = stamp(self._services.clock() + pause(rules, tries))
        refused = replace(message, tries=tries, refused_because=why, not_before=later)
        self._services.log.warn(f"{message.id} was refused ({tries} of {rules['attempts']}): {why}")
        self._intents.mark_uncertain([message])
        if may_retry(tries, rules["attempts"]):
            self._services.queues.messages.update("pending", [refused])
            return
        self._services.log.event("message.failed", msg_id=message.id, error=why)
        self._file("failed", [replace(refused, status="failed")])

    def _file(self, state: str, messages: list[Message]) -> None:
        """File messages, after what they mean for their threads; before that their posts become durable."""
        disk, queue, ids = self._services.disk, self._services.queues.messages, [message.id for message in messages]
        threads, files = self._conversations.files, queue.files("pending", messages)
        with disk.drafts(threads.unsaved(), files, logs=self._channels.unsynced()) as (saving, filing):
            disk.show_changed(saving)
            threads.note_saved()
            disk.show_changed(filing, sync=False)
        queue.move(ids, "pending", state)
        self._intents.remove(ids)
        self._earlier.difference_update(ids)


def _posted(message: Message, address: Address, post: Post) -> Posted:
    return Posted(message, address._replace(room=post.room or address.room), post.id)


def _sent(post: Posted) -> Message:
    return replace(post.message, status="sent", posted=post.address._asdict() | {"post": post.id})
