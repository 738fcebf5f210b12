"""What makes a message be posted once: an intent before its post, a receipt after it.

An intent without a receipt means that the message may have been posted: its channel is asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import read_json_or, to_json
from kingdom.base.records.messages import Message
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.court.envoy.channels.base import Post
from kingdom.court.envoy.conversations import Address, Posted


class Intents:
    def __init__(self, services: Services) -> None:
        self._services = services
        own = services.places.own("envoy")
        self._intents, self._receipts = own / "intents", own / "receipts"
        for folder in (self._intents, self._receipts):
            make_folder(folder)
        now = services.monotonic()
        self._noted = {name.removesuffix(".json") for name in os.listdir(self._intents)}
        self.uncertain = {name.removesuffix(".json"): now for name in os.listdir(self._intents)}
        """Since when it is open whether a message was posted, by its id and the monotonic clock."""

    def create(self, addressed: Sequence[tuple[Message, Address]]) -> None:
        """Note durably that these messages are about to be posted, and where."""
        since = stamp(self._services.clock())
        self._noted.update(message.id for message, _ in addressed)
        self._services.disk.create_all(
            [
                (
                    self._intents / f"{message.id}.json",
                    to_json({"letter": message.id, "since": since, **address._asdict()}),
                )
                for message, address in addressed
            ]
        )

    def mark_uncertain(self, messages: Iterable[Message]) -> None:
        """Note that these messages may have been posted: their channels are asked before they are posted again."""
        now = self._services.monotonic()
        self.uncertain.update({message.id: now for message in messages})

    def intended(self, message: Message) -> Address | None:
        """Return where an uncertain message was going to be posted; None when that was not noted."""
        intent = read_json_or(self._intents / f"{message.id}.json", {})
        return Address(*(intent[part] for part in Address._fields)) if intent.keys() >= set(Address._fields) else None

    def receipt(self, message: Message) -> Post | None:
        """Return the post of an uncertain message that was posted and not filed."""
        receipt: Mapping[str, Any] = read_json_or(self._receipts / f"{message.id}.json", {})
        return Post(str(receipt["post"]), str(receipt.get("room", ""))) if "post" in receipt else None

    def write_receipts(self, posted: Iterable[Posted]) -> None:
        """Note durably where these messages were posted."""
        self._services.disk.create_all(
            [(self._receipts / f"{post.message.id}.json", to_json(_receipt(post))) for post in posted]
        )

    def remove(self, ids: Sequence[str]) -> None:
        """Delete the intents and receipts of messages that have been filed."""
        if noted := [message_id for message_id in ids if message_id in self._noted]:
            paths = [
                folder / f"{message_id}.json" for message_id in noted for folder in (self._receipts, self._intents)
            ]
            self._services.unsynced.remove_all(paths)
            self._noted.difference_update(noted)
        for message_id in ids:
            self.uncertain.pop(message_id, None)

    def remove_filed(self) -> None:
        """Delete the intents and receipts of uncertain messages that have been filed."""
        pending = self._services.queues.messages
        self.remove([message_id for message_id in self.uncertain if not pending.has(message_id, "pending")])


def _receipt(posted: Posted) -> dict[str, str]:
    address = posted.address
    return {"letter": posted.message.id, "channel": address.channel, "room": address.room, "post": posted.id}
