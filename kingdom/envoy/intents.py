"""What makes a message be posted once: an intent before its post, a receipt after it.

An intent without a receipt means that the message may have been posted: its channel is asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from kingdom.disk.atomic import make_folder
from kingdom.disk.codec import read_json_or, to_json
from kingdom.envoy.channels.base import Channel
from kingdom.envoy.conversations import Posted
from kingdom.records.messages import Message
from kingdom.runtime.role import Services
from kingdom.times import stamp


class Intents:
    def __init__(self, services: Services) -> None:
        self._services = services
        own = services.places.own("envoy")
        self._intents, self._receipts = own / "intents", own / "receipts"
        for folder in (self._intents, self._receipts):
            make_folder(folder)
        self._uncertain = {name.removesuffix(".json") for name in os.listdir(self._intents)}

    def create(self, messages: Iterable[Message]) -> None:
        """Note durably that these messages are about to be posted."""
        since = stamp(self._services.clock())
        self._services.disk.create_all(
            [
                (self._intents / f"{message.id}.json", to_json({"letter": message.id, "since": since}))
                for message in messages
            ]
        )

    def mark_uncertain(self, messages: Iterable[Message]) -> None:
        """Note that these messages may have been posted: their channels are asked before they are posted again."""
        self._uncertain.update(message.id for message in messages)

    def posted_before(self, message: Message, channel: Channel) -> str | None:
        """Return the id of the message's post, if it was posted already."""
        if message.id not in self._uncertain:
            return None
        receipt = read_json_or(self._receipts / f"{message.id}.json", {})
        return str(receipt["post"]) if "post" in receipt else channel.find(message.id)

    def write_receipts(self, posted: Iterable[Posted]) -> None:
        """Note durably where these messages were posted."""
        self._services.disk.create_all(
            [(self._receipts / f"{post.message.id}.json", to_json(_receipt(post))) for post in posted]
        )

    def remove(self, message_ids: Iterable[str]) -> None:
        """Delete the intents and receipts of messages that have been filed."""
        ids = list(message_ids)
        if ids:
            paths = [folder / f"{message_id}.json" for message_id in ids for folder in (self._receipts, self._intents)]
            self._services.unsynced.remove_all(paths)
        self._uncertain.difference_update(ids)

    def remove_filed(self) -> None:
        """Delete those of messages that were filed just before an earlier process ended."""
        pending = self._services.queues.messages
        self.remove([message_id for message_id in self._uncertain if not pending.has(message_id, "pending")])


def _receipt(posted: Posted) -> dict[str, str]:
    address = posted.address
    return {"letter": posted.message.id, "channel": address.channel, "room": address.room, "post": posted.id}
