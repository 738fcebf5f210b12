"""What people say: it becomes events for the king, and then the channel is told that it is safe."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kingdom.envoy.channels import Channels
from kingdom.envoy.channels.base import ChannelRefused, Said
from kingdom.envoy.conversations import Conversations
from kingdom.home.places import as_filename
from kingdom.home.states import MOVES
from kingdom.records.messages import Event
from kingdom.runtime.role import Services
from kingdom.times import stamp


class Inbound:
    """A channel delivers again what was not acknowledged. Events have ids made of the channel's, so none is doubled."""

    def __init__(self, services: Services, channels: Channels, conversations: Conversations) -> None:
        self._services = services
        self._channels = channels
        self.names = channels.switched_on()
        """The channels that it listens to."""
        self._conversations = conversations
        self._down: dict[str, str] = {}

    def folders(self) -> Iterable[Path]:
        """Return the folders by which channels are told."""
        for name in self.names:
            try:
                yield from self._channels.get(name).folders()
            except (ChannelRefused, OSError) as error:  # it is tried again at the next turn
                self._note_down(name, str(error))

    def take_in(self) -> bool:
        """Turn what people have said into events. Return whether anybody has said anything."""
        heard = [self._take_in(name) for name in self.names]
        return any(heard)

    def _take_in(self, name: str) -> bool:
        try:
            channel = self._channels.get(name)
            said = channel.read()
            if said:
                self._create([self._event(name, _encodable(one)) for one in said])
                channel.acknowledge(said)
        except ChannelRefused as error:
            self._note_down(name, str(error))
            return False
        self._down.pop(name, None)
        return bool(said)

    def _create(self, events: list[Event]) -> None:
        """Create those events that an earlier delivery has not led to."""
        queue = self._services.queues.events
        new = [event for event in events if not queue.has(event.id, *MOVES["events"])]
        queue.create(new)
        for event in new:
            said = f"{event.id} ({event.type}) was said by {event.payload['user']}"
            what = "message.human_response" if event.answers_question else "event.detected"
            self._services.log.info(said, event=what, event_id=event.id)

    def _event(self, channel: str, said: Said) -> Event:
        payload: dict[str, Any] = {"user_id": said.user, "user": said.user, "text": said.text}
        payload |= {"channel": said.room, "message_ts": said.id}
        if said.thread is not None:
            payload["thread_ts"] = said.thread
        question = self._conversations.question_in(channel, said.room, said.thread)
        if question is not None:
            payload |= {
                "task_id": question.task,
                "human_response": said.text,
                "reply_context": dict(question.reply_context),
            }
        return Event(
            id=event_id(channel, said),
            type=f"{channel}.{said.type if question is None else 'human_response'}",
            source=channel,
            repo=None,
            payload=payload,
            priority="normal" if question is None else "high",
            created_at=stamp(self._services.clock()),
            status="pending",
        )

    def _note_down(self, name: str, why: str) -> None:
        if self._down.get(name) != why:
            self._services.log.error(why)
        self._down[name] = why


def _encodable(said: Said) -> Said:
    """Return it without what UTF-8 cannot hold, which could not be written."""
    texts = {field: text for field, text in said._asdict().items() if text is not None}
    return said._replace(**{field: text.encode("utf-8", "replace").decode() for field, text in texts.items()})


def event_id(channel: str, said: Said) -> str:
    """Return the id of the event that this becomes: the same at every delivery, whatever happened in between."""
    if said.thread is not None:
        parts = ["reply", said.thread, said.id]
    else:
        parts = ["mention" if said.type.endswith("mention") else "msg", said.id]
    return f"evt-{channel}-{as_filename('-'.join(parts).replace('.', '-'))}"
