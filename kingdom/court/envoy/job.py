"""The envoy's turn: take in people's messages, post the kingdom's."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from math import inf
from pathlib import Path

from kingdom.base.errors import BadInput
from kingdom.base.records.backlog import Backlog
from kingdom.base.records.messages import Message, Queued
from kingdom.base.runtime.role import Services, Turn
from kingdom.base.times import stamp
from kingdom.court.envoy.channels import Channels, with_products
from kingdom.court.envoy.conversations import THREAD_RULES, Conversations
from kingdom.court.envoy.deliveries import Deliveries
from kingdom.court.envoy.inbound import Inbound
from kingdom.court.envoy.locked_out import LockedOut
from kingdom.court.envoy.outbound import Outbound
from kingdom.court.envoy.reminders import Reminders

BATCH = 32


class EnvoyJob:
    def __init__(self, services: Services) -> None:
        self._renewed: Services | None = None
        self._begin(services)

    def folders(self) -> dict[Path, tuple[str, ...]]:
        return dict.fromkeys([self._services.places.folder("messages", "pending"), *self._inbound.folders()], ())

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        if self._renewed is not None and not self._deliveries.is_calling:
            self.close()
            self._begin(self._renewed)
        heard = bool(self._inbound.names) and self._inbound.take_in()
        if self._backlog.refresh(arrivals, self._services.monotonic()):
            self._conversations.close_silent()
            self._reminders.write_due()
        messages = self._next_messages()
        if messages:
            self._outbound.send(messages)
        if arrivals is None:
            self._outbound.clear_filed()
        is_delivering = len(self._deliveries) > 0
        filed = is_delivering and self._outbound.deliver(begin=self._renewed is None)
        more = heard or filed or bool(self._backlog.waiting)
        due = min(self._backlog.next_look, self._deliveries.next_due() if is_delivering else inf)
        return Turn(
            more or bool(messages),
            wait=max(0.0, due - self._services.monotonic()),
            busy=self._backlog.unsettled or is_delivering,
            settled=not more,
        )

    def reload(self, services: Services) -> None:
        """Begin anew with what is in the files, as a new process would; not while a channel is being called."""
        if self._deliveries.is_calling:
            self._renewed = services
        else:
            self.close()
            self._begin(services)

    def close(self) -> None:
        self._outbound.close()
        self._channels.close()

    def _begin(self, services: Services) -> None:
        services = replace(services, config=with_products(services.config, services.system))
        period = float(services.config["intervals"]["message_check_seconds"])
        self._services = services
        self._renewed = None
        self._backlog = Backlog(services.queues.messages, period=lambda: period)
        self._channels, self._conversations = Channels(services), Conversations(services)
        locked_out = LockedOut(services, self._channels)
        self._deliveries = Deliveries(services, self._channels, locked_out)
        self._outbound = Outbound(services, self._channels, self._conversations, self._backlog, self._deliveries)
        self._inbound = Inbound(services, self._channels, self._conversations, locked_out)
        self._reminders = Reminders(services, self._conversations)

    def _next_messages(self) -> list[Message]:
        """Take the next messages off the backlog, but those that wait for their channel.

        What is not due yet comes back with the next rescan.
        """
        batch = self._next_batch()
        if not batch:
            return []
        waiting = [self._backlog.take(queued.filename) for queued in batch]
        due = [message for message in waiting if message and self._is_due(message) and self._is_new(message)]
        held = {f"{message.id}.json" for message in due if self._outbound.queue_if_slow(message)}
        if held:
            self._backlog.hold(held)
        self._backlog.drop({queued.filename for queued in batch} - held)
        return [message for message in due if f"{message.id}.json" not in held]

    def _next_batch(self) -> list[Queued]:
        """Return the most urgent messages, each after the one that opens its task's thread."""
        first = self._backlog.waiting[:BATCH]
        tasks = {queued.about for queued in first if THREAD_RULES[queued.type].in_thread}
        opening = {
            queued.about: queued
            for queued in self._backlog.waiting
            if queued.type == "thread_start" and queued.about in tasks
        }
        in_order = (queued for due in first for queued in (opening.get(due.about), due) if queued is not None)
        return list(dict.fromkeys(in_order))

    def _is_due(self, message: Message) -> bool:
        return message.not_before is None or message.not_before <= stamp(self._services.clock())

    def _is_new(self, message: Message) -> bool:
        """Return whether its id is new. A repetition moves to dead, or it is posted for ever.

        A foreign writer may use an id again for another message, which gets an id of its own.
        """
        queue = self._services.queues.messages
        if not queue.has(message.id, "sent", "failed"):
            return True
        state = "sent" if queue.has(message.id, "sent") else "failed"
        again = replace(message, id=_own_id(message))
        if self._says_the_same(message, state) or queue.has(again.id, "sent", "failed"):
            queue.move_to_dead("pending", f"{message.id}.json", f"{state}/ has a message of this id already")
        else:
            queue.create([again])
            self._services.disk.remove(self._services.places.queue_file("messages", "pending", message.id))
        return False

    def _says_the_same(self, message: Message, state: str) -> bool:
        try:
            return _what_is_said(self._services.queues.messages.read(state, message.id)) == _what_is_said(message)
        except (FileNotFoundError, BadInput):
            return True


def _what_is_said(message: Message) -> tuple[object, ...]:
    return message.type, message.task_id, message.channel, message.content


def _own_id(message: Message) -> str:
    """Return an id that is the same whenever this very message comes again."""
    digest = sha256(repr(_what_is_said(message)).encode()).hexdigest()[:8]
    return f"{message.id[:180]}-{digest}"
