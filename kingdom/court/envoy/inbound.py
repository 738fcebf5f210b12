"""Turn people's messages into events for the king, then acknowledge them to the channel."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kingdom.base.home.places import as_filename
from kingdom.base.home.states import MOVES
from kingdom.base.records.messages import Event, Message
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.court.envoy.channels import Channels
from kingdom.court.envoy.channels.base import IN_THREAD, ChannelLocked, ChannelRefused, Heard
from kingdom.court.envoy.conversations import Address, Conversations
from kingdom.court.envoy.locked_out import LockedOut

AT_WORK = "this task has not ended yet, so what you wrote was not passed on; write it again when it has"
ENDED = "this conversation has ended"


class Inbound:
    """A channel delivers again what was not acknowledged. Events have ids made of the channel's, so none is doubled."""

    def __init__(
        self, services: Services, channels: Channels, conversations: Conversations, locked_out: LockedOut
    ) -> None:
        self._services = services
        self._locked_out = locked_out
        self._channels = channels
        self.names = channels.switched_on()
        """The channels that it listens to."""
        self._conversations = conversations
        self._down: dict[str, str] = {}

    def folders(self) -> Iterable[Path]:
        """Return the folders whose new files are for channels."""
        for name in self.names:
            with suppress(ChannelRefused, OSError):  # it is tried again, and told, at the next turn
                yield from self._channels.get(name).folders()

    def take_in(self) -> bool:
        """Turn people's messages into events. Return whether there were any."""
        heard = [self._take_in(name) for name in self.names]
        return any(heard)

    def _take_in(self, name: str) -> bool:
        try:
            channel = self._channels.get(name)
            said = channel.read()
            if said:
                self._answer([(words, self._event(name, words)) for words in map(_encodable, said)], name)
                channel.acknowledge(said)
        except ChannelRefused as error:
            if isinstance(error, ChannelLocked) and self._down.get(name) != str(error):
                self._locked_out.note(name, str(error))
            self._note_down(name, str(error))
            return False
        if self._down.pop(name, None) is not None:
            self._locked_out.over(name)
            self._services.log.info(f"{name} can be read again")
        return bool(said)

    def _answer(self, heard: list[tuple[Heard, Event | None]], channel: str) -> None:
        """Create the events. People who reply where nobody listens get a notice: each time while a task is at work, and
        once in a conversation that has ended."""
        events, messages = self._services.queues.events, self._services.queues.messages
        # Who was told that something was not passed on may have said it again: it stays so when it is delivered again.
        heard = [
            (words, event)
            for words, event in heard
            if words.thread is None or not messages.was_made(self._notice_id(event_id(channel, words)))
        ]
        self._create([event for _, event in heard if event is not None])
        new = [words for words, event in heard if event is None and not events.was_made(event_id(channel, words))]
        lost = {notice.id: notice for words in new if (notice := self._nobody_listens(channel, words)) is not None}
        notices = list(lost.values())
        messages.create([notice for notice in notices if not messages.was_made(notice.id)])
        self._conversations.files.save()

    def _create(self, events: list[Event]) -> None:
        """Create those events that an earlier delivery has not led to."""
        queue = self._services.queues.events
        new = {event.id: event for event in events if not queue.has(event.id, *MOVES["events"])}
        queue.create(new.values())
        for event in new.values():
            payload, what = event.payload, "event.detected"
            data: dict[str, Any] = {"event_id": event.id, "source": event.source, "event_type": event.type}
            if event.answers_question:
                what = "message.human_response"
                data |= {"task_id": payload["task_id"], "thread_ts": payload.get("thread_ts")}
            self._services.log.info(f"{event.id} ({event.type}) was said by {payload['user']}", event=what, **data)

    def _event(self, channel: str, said: Heard) -> Event | None:
        """Return what this becomes: an answer, a reply in a conversation, or what its channel calls it.

        None for a reply in a thread where nobody listens.
        """
        payload: dict[str, Any] = {"user_id": said.user, "user": said.user, "text": said.text}
        payload |= {"channel": said.room, "message_ts": said.id}
        kind, thread = said.type, _address(channel, said)
        if said.thread is not None:
            payload["thread_ts"] = said.thread
        if (question := self._conversations.question_in(thread)) is not None:
            payload["reply_context"] = dict(question.reply_context)
            kind = IN_THREAD
            if question.has_checkpoint or not question.reply_context.get("general"):
                kind = "human_response"
                payload |= {"task_id": question.task, "human_response": said.text}
        elif (settled := self._conversations.answered_by_choice(thread, said.text)) is not None:
            kind = "human_response"
            payload["reply_context"] = dict(settled.reply_context)
            payload |= {"task_id": settled.task, "human_response": said.text}
        elif (context := self._conversations.reply_in(thread)) is not None:
            kind = IN_THREAD
            payload["reply_context"] = dict(context)
        elif kind == IN_THREAD:
            return None
        return Event(
            id=event_id(channel, said),
            type=f"{channel}.{kind}",
            source=channel,
            payload=payload,
            priority="high" if kind != said.type or kind == IN_THREAD else "normal",
            created_at=stamp(self._services.clock()),
        )

    def _nobody_listens(self, channel: str, said: Heard) -> Message | None:
        """Return what tells a person so; None in a thread that is none of ours."""
        thread = _address(channel, said)
        if self._conversations.is_at_work(thread):
            return self._notice(thread, event_id(channel, said), AT_WORK)
        if not self._conversations.knows(thread):
            return None
        where = self._channels.get(channel).new_ones
        return self._notice(thread, f"{channel}-{thread.thread}", f"{ENDED}; write a new message {where}")

    def _notice(self, thread: Address, cause: str, content: str) -> Message:
        """Return a notice in a thread, one for each cause."""
        return Message(
            id=self._notice_id(cause),
            type="notification",
            channel=thread.room,
            thread_ts=thread.thread,
            content=content,
            source_ref={"source": thread.channel},
            created_at=stamp(self._services.clock()),
            dedup_key=f"{cause}:nobody",
            code="unanswerable",
        )

    def _notice_id(self, cause: str) -> str:
        day = stamp(self._services.clock())[:10].replace("-", "")
        return f"msg-{day}-envoy-{as_filename(cause)}"

    def _note_down(self, name: str, why: str) -> None:
        if self._down.get(name) != why:
            self._services.log.error(why)
        self._down[name] = why


def _address(channel: str, said: Heard) -> Address:
    return Address(channel, said.room, said.thread)


def _encodable(said: Heard) -> Heard:
    """Return it without what UTF-8 cannot hold, which could not be written."""
    texts = {field: text for field, text in said._asdict().items() if text is not None}
    return said._replace(**{field: text.encode("utf-8", "replace").decode() for field, text in texts.items()})


def event_id(channel: str, said: Heard) -> str:
    """Return the id of the event that this becomes: the same at every delivery, whatever happened in between."""
    if said.thread is not None:
        parts = ["reply", said.thread, said.id]
    else:
        parts = ["mention" if said.type.endswith("mention") else "msg", said.id]
    return f"evt-{channel}-{as_filename('-'.join(parts).replace('.', '-'))}"
