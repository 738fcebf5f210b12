"""What the kingdom says: each message is posted once, in its conversation, whatever was interrupted before."""

from __future__ import annotations

from kingdom.envoy.channels import Channels
from kingdom.envoy.channels.base import ChannelRefused
from kingdom.envoy.conversations import Address, Conversations, Posted
from kingdom.envoy.intents import Intents
from kingdom.errors import KingdomError
from kingdom.records.messages import Message
from kingdom.rules.retry import may_retry, pause
from kingdom.runtime.role import Services
from kingdom.times import stamp


class Outbound:
    def __init__(self, services: Services, channels: Channels, conversations: Conversations) -> None:
        self._services = services
        self._channels = channels
        self._conversations = conversations
        self._intents = Intents(services)

    def send(self, messages: list[Message]) -> None:
        """Post each message once, in its conversation, and file it under sent/ or failed/."""
        try:
            self._send(messages)
        except (KingdomError, OSError):
            # It is open which of them were posted: next time their channels are asked first.
            self._intents.mark_uncertain(messages)
            raise
        self._intents.remove_filed()

    def _send(self, messages: list[Message]) -> None:
        self._intents.create(messages)
        posted: list[Posted] = []
        for message in messages:
            address = self._conversations.address(message)
            try:
                post = self._post(message, address)
            except ChannelRefused as refusal:
                self._retry_or_fail(message, str(refusal))
                continue
            posted.append(Posted(message, address, post))
            self._conversations.note(posted[-1])
        self._intents.write_receipts(posted)
        self._conversations.save()
        self._file("sent", [_sent(post) for post in posted])
        for message, address, _ in posted:
            said = f"posted {message.id} ({message.type}) on {address.channel} in {address.room}"
            self._services.log.info(said, event="message.sent", message_id=message.id, type=message.type)

    def _post(self, message: Message, address: Address) -> str:
        channel = self._channels.get(address.channel)
        if (before := self._intents.posted_before(message, channel)) is not None:
            return before
        text = message.content
        if failed_task := message.context.get("failed_task"):
            text = f"{text}\n`kingdom why {failed_task}` shows more"
        return channel.post(message.id, address.room, text, address.thread)

    def _retry_or_fail(self, message: Message, why: str) -> None:
        """Wait longer after each refusal; after the last one file the message under failed/."""
        rules = self._services.config["retry"]
        tries = (message.tries or 0) + 1
        later = stamp(self._services.clock() + pause(rules, tries))
        refused = message.evolve(tries=tries, refused_because=why, not_before=later)
        self._services.log.warn(f"{message.id} was refused ({tries} of {rules['attempts']}): {why}")
        self._intents.mark_uncertain([message])
        if may_retry(tries, rules["attempts"]):
            self._services.queues.messages.update("pending", [refused])
            return
        self._services.log.event("message.failed", message_id=message.id, error=why)
        self._file("failed", [refused.evolve(status="failed")])

    def _file(self, state: str, messages: list[Message]) -> None:
        queue, ids = self._services.queues.messages, [message.id for message in messages]
        queue.update("pending", messages)
        queue.move(ids, "pending", state)
        self._intents.remove(ids)


def _sent(post: Posted) -> Message:
    return post.message.evolve(status="sent", posted=post.address._asdict() | {"post": post.id})
