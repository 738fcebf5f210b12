"""Which thread a task's messages belong in, and which questions wait for an answer there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from kingdom.disk.json_file import JsonFile
from kingdom.envoy.channels import CHANNELS
from kingdom.errors import BadInput
from kingdom.records import notes
from kingdom.records.messages import Json, Message, alert
from kingdom.runtime.role import Services
from kingdom.times import stamp

KEEP_THREAD_OPEN = ("unanswerable", "proclamation", "alert")
"""Codes of notifications after which their task's thread stays open; foreign ones without a code end it."""
SILENT_ENDS = ("skipped", "discarded")
"""Outcomes of tasks that may end without a message."""
MOST_CLOSED = 1000
"""So many closed threads are remembered: a task that is tried again speaks in its old one."""


class Address(NamedTuple):
    """Where a message is posted."""

    channel: str
    room: str
    #: The post under which it hangs, if any.
    thread: str | None


class Posted(NamedTuple):
    """A message that people can read now."""

    message: Message
    address: Address
    #: The post's own id.
    id: str


class Question(NamedTuple):
    """A question that waits for its answer."""

    #: The task that asked.
    task: str
    #: What the king needs in order to go on with the task.
    reply_context: Json


class Conversations:
    """Kept in files: a thread for each task, the threads of ended tasks, a question for each task that has asked."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._threads = self._file("thread-mappings.json")
        self._closed = self._file("closed-threads.json")
        self._awaiting = self._file("awaiting-responses.json")

    def _file(self, name: str) -> JsonFile:
        """Open a file that an envoy of another kingdom may have written."""
        services, channel = self._services, str(self._services.config["channel"])

        def complain(text: str) -> None:
            services.log.error(text)
            now = services.clock()
            id = f"msg-{stamp(now)[:10].replace('-', '')}-envoy-{name.partition('-')[0]}-{int(now)}"
            services.queues.messages.create([alert(id, services.log.clean(text), None, stamp(now))])

        path = services.places.own("envoy") / name
        return JsonFile(path, services.disk, complain, _is_object, lambda value: _translated(value, channel))

    def address(self, message: Message) -> Address:
        """Return where to post a message: where it says, else in its task's thread, else where its cause came from.

        News for a room that is neither the thread's nor that of the person who asked leave the thread.
        """
        source = str((message.source_ref or {}).get("source", ""))
        channel = source if source in CHANNELS else str(self._services.config["channel"])
        elsewhere = Address(channel, message.channel or channel, None)
        if message.channel and message.thread_ts:
            return elsewhere._replace(thread=message.thread_ts)
        thread = self._threads.get(message.task_id, self._closed.get(message.task_id)) if message.task_id else None
        if thread is None or not THREAD_RULES[message.type].in_thread or not thread.keys() >= set(Address._fields):
            return elsewhere
        asked_in = (message.source_ref or {}).get("channel")
        if message.type == "notification" and message.channel not in (None, thread["room"], asked_in):
            return elsewhere
        return Address(str(thread["channel"]), str(thread["room"]), str(thread["thread"]))

    def note(self, posted: Posted) -> None:
        """Remember what a post means for its thread."""
        if (rule := THREAD_RULES[posted.message.type].note) is not None:
            rule(self, posted)

    def question_in(self, channel: str, room: str, thread: str | None) -> Question | None:
        """Return the latest question that waits in a thread."""
        here = (channel, room, thread)
        asked = [
            (str(entry.get("asked_at")), task)
            for task in self._awaiting
            if (entry := self._awaiting.get(task)) and tuple(entry.get(part) for part in Address._fields) == here
        ]
        if thread is None or not asked:
            return None
        _, task = max(asked)
        return Question(task, _reply_context(self._awaiting.get(task)) or {"task_id": task})

    def save(self) -> None:
        """Write what has changed."""
        self._closed.save()
        self._threads.save()
        self._awaiting.save()

    def open_thread(self, posted: Posted) -> None:
        if posted.message.task_id:
            thread = {**posted.address._asdict(), "thread": posted.address.thread or posted.id}
            self._threads.set(posted.message.task_id, thread)

    def await_answer(self, posted: Posted) -> None:
        """Note the question under the task that asked: others have asked in the same thread before it.

        One that its channel refused for a while may have been answered before it is asked.
        """
        message, task = posted.message, asking_task(posted.message)
        if notes.answered_by(self._services.places, task) is not None:
            self._awaiting.remove(task)
            return
        where = {**posted.address._asdict(), "thread": posted.address.thread or posted.id}
        asked_at = stamp(self._services.clock())
        self._awaiting.set(task, {**where, "question": message.content, "asked_at": asked_at, **message.context})

    def close_question(self, posted: Posted) -> None:
        """Wait no longer for the answer that this message says has come."""
        if (task := posted.message.context.get("answers")) is not None:
            self._awaiting.remove(str(task))

    def close_thread(self, posted: Posted) -> None:
        """Close the thread with its task's final message alone: other news may stand in it too."""
        if posted.message.task_id and posted.message.code not in KEEP_THREAD_OPEN:
            self._close(posted.message.task_id)

    def close_silent(self) -> None:
        """Close the threads of tasks that have ended without a message."""
        for task in list(self._threads):
            with suppress(FileNotFoundError, BadInput):
                if self._services.queues.tasks.read("completed", task).outcome in SILENT_ENDS:
                    self._close(task)
                    self.save()

    def _close(self, task: str) -> None:
        if (thread := self._threads.get(task)) is not None:
            self._threads.remove(task)
            self._closed.remove(task)
            self._closed.set(task, thread)
        for oldest in list(self._closed)[:-MOST_CLOSED]:
            self._closed.remove(oldest)


@dataclass(frozen=True, slots=True)
class ThreadRule:
    """What one type of message means for threads."""

    #: It is posted in its task's thread.
    in_thread: bool
    #: What is remembered once it is posted.
    note: Callable[[Conversations, Posted], None] | None = None


THREAD_RULES: Mapping[str, ThreadRule] = {
    "thread_start": ThreadRule(in_thread=False, note=Conversations.open_thread),
    "thread_update": ThreadRule(in_thread=True, note=Conversations.close_question),
    "thread_reply": ThreadRule(in_thread=True),
    "human_input_request": ThreadRule(in_thread=True, note=Conversations.await_answer),
    "notification": ThreadRule(in_thread=True, note=Conversations.close_thread),
    "report": ThreadRule(in_thread=False),
}


def asking_task(question: Message) -> str:
    """Return the task that asked. The message's own task is the one whose thread it belongs in."""
    return str(_reply_context(question.context).get("task_id") or question.task_id)


def _reply_context(context: Json) -> Json:
    reply_context = context.get("reply_context")
    return reply_context if isinstance(reply_context, Mapping) else {}


def _translated(written: Any, channel: str) -> Any:
    """Return a state file's content in our form; None when it has none that is known."""
    value = written
    if isinstance(written, list) and all(isinstance(row, dict) and "task_id" in row for row in written):
        value = {str(row["task_id"]): row for row in written}
    if not isinstance(value, dict) or (value and not any(isinstance(entry, dict) for entry in value.values())):
        return None
    return {task: _entry(entry, channel) for task, entry in value.items()}


def _entry(entry: Any, channel: str) -> Any:
    """Return an entry with our address. What other envoys call channel is a room here."""
    if not isinstance(entry, dict) or "thread_ts" not in entry or "room" in entry:
        return entry
    room = str(entry.get("channel") or channel)
    return {**entry, "channel": channel, "room": room, "thread": str(entry["thread_ts"])}


def _is_object(_task: str, value: Any) -> bool:
    return isinstance(value, dict)
