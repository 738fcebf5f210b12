"""Which thread a task's messages belong in, which questions wait for an answer there, and who may still reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from kingdom.base.disk.json_file import JsonFile, JsonFiles
from kingdom.base.errors import BadInput
from kingdom.base.records import notes
from kingdom.base.records.messages import Json, Message, alert
from kingdom.base.runtime.role import Services
from kingdom.base.times import moment, stamp
from kingdom.base.words import choices_in, one_line
from kingdom.court.envoy.channels import CHANNELS, default_channel, default_room, usable_channels

KEEP_THREAD_OPEN = ("unanswerable", "proclamation", "alert")
"""Codes of notifications after which their task's thread stays open; foreign ones without a code end it."""
SILENT_ENDS = ("skipped", "discarded")
"""Outcomes of tasks that may end without a message."""
MOST_CLOSED = 1000
"""So many closed threads are remembered: a task that is tried again speaks in its old one."""
DAY = 86_400.0
ALERT_AFTER_DAYS = 7


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

    @property
    def thread(self) -> Address:
        """Where replies to it hang."""
        return self.address._replace(thread=self.address.thread or self.id)


class Question(NamedTuple):
    """A question that waits for its answer."""

    #: The task that asked.
    task: str
    #: What the king needs in order to go on with the task.
    reply_context: Json
    #: Its task has ended with a checkpoint; if not, an answer is one more reply in a conversation.
    has_checkpoint: bool


class WaitingQuestion(NamedTuple):
    """A question that has been open for days."""

    task: str
    thread: Address
    #: What was asked.
    text: str
    asked_at: str
    #: How many whole days ago.
    days: int
    #: After how many days people were reminded last.
    reminded_days: int


class Conversations:
    """Kept in files that other envoys read and write too: a thread for each task, a question for each task that has
    asked, the threads in which people may reply for a while. The threads of ended tasks, and the choices of questions
    that have their answer, are ours alone."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._usable = usable_channels(services.config)
        self._threads = self._file("thread-mappings.json")
        self._closed = self._file("closed-threads.json")
        self._awaiting = self._file("awaiting-responses.json", "[]")
        self._answered = self._file("answered-questions.json")
        self._replies = self._file("conversation-threads.json")
        # What has ended comes first: it must never be in neither file.
        in_order = self._closed, self._answered, self._threads, self._awaiting, self._replies
        self.files = JsonFiles(services.disk, *in_order)

    def _file(self, name: str, brackets: str = "{}") -> JsonFile:
        """Open a file that an envoy of another kingdom may have written."""
        services = self._services

        def complain(text: str) -> None:
            services.log.error(text)
            now = services.clock()
            id = f"msg-{stamp(now)[:10].replace('-', '')}-envoy-{name.partition('-')[0]}-{int(now)}"
            services.queues.messages.create([alert(id, services.log.clean(text), None, stamp(now))])

        def translate(written: Any) -> Any:
            return _translated(written, default_channel(services.config))

        return JsonFile(services.places.own("envoy") / name, services.disk, complain, _is_object, translate, brackets)

    def address(self, message: Message) -> Address:
        """Return where to post a message: where it says, else in its task's thread, else where its cause came from.

        News for a room that is neither the thread's nor that of the person who asked leave the thread. What belongs on
        a channel that is not set up goes to the default one.
        """
        config = self._services.config
        source = str((message.source_ref or {}).get("source", ""))
        asked_in = (message.source_ref or {}).get("channel")
        channel = source if source in self._usable else default_channel(config)
        if message.type == "notification" and asked_in and message.channel not in (None, asked_in):
            channel = default_channel(config)
        elsewhere = Address(channel, message.channel or default_room(config, channel), None)
        if message.channel and message.thread_ts and (source == channel or source not in CHANNELS):
            return elsewhere._replace(thread=message.thread_ts)
        row = self._threads.get(message.task_id, self._closed.get(message.task_id)) if message.task_id else None
        thread = _address(row)
        if row is None or thread is None or not THREAD_RULES[message.type].in_thread:
            return elsewhere
        if thread.channel not in self._usable:
            return elsewhere
        if message.type == "notification" and message.channel not in (None, thread.room, row.get("named"), asked_in):
            return elsewhere
        return thread

    def note(self, posted: Posted) -> None:
        """Remember what a post means for its thread."""
        if (rule := THREAD_RULES[posted.message.type].note) is not None:
            rule(self, posted)

    def question_in(self, thread: Address) -> Question | None:
        """Return the latest question that waits in a thread."""
        rows = _rows_in(thread, self._awaiting)
        if not rows:
            return None
        row = max(rows, key=lambda row: (str(row.get("asked_at")), str(row["task_id"])))
        task = str(row["task_id"])
        has_checkpoint = bool(row.get("checkpoint_path")) or notes.has_asked(self._services.places, task)
        return Question(task, _reply_context(row) or {"task_id": task}, has_checkpoint)

    def answered_by_choice(self, thread: Address, text: str) -> Question | None:
        """Return the answered question of a thread that had offered this text as another answer."""
        for row in reversed(_rows_in(thread, self._answered)):
            if _as_choice(text) in map(_as_choice, row.get("choices") or ()):
                return Question(str(row["task_id"]), _reply_context(row), has_checkpoint=True)
        return None

    def is_at_work(self, thread: Address) -> bool:
        """Return whether the task of a thread has not ended."""
        return bool(_rows_in(thread, self._threads))

    def reply_in(self, thread: Address) -> Json | None:
        """Return what a reply in this thread continues; None if the conversation has ended.

        While they reply, people may go on: each reply renews the conversation's time.
        """
        row = self._replies.get(str(thread.thread))
        now = self._services.clock()
        if (
            row is None
            or _address({**row, "thread_ts": thread.thread}) != thread
            or (_seconds(row.get("expires_at")) or 0.0) <= now
        ):
            return None
        lasts = float(row.get("ttl_seconds") or self._services.config["intervals"]["conversation_ttl_seconds"])
        renewed = {**row, "last_reply_ts": stamp(now), "expires_at": stamp(now + lasts)}
        self._replies.set(str(thread.thread), renewed)
        return _reply_context(row)

    def knows(self, thread: Address) -> bool:
        """Return whether a thread is, or was, one of ours."""
        was_replied_in = _address({**self._replies.get(str(thread.thread), {}), "thread_ts": thread.thread})
        return thread == was_replied_in or bool(_rows_in(thread, self._threads, self._closed, self._awaiting))

    def open_thread(self, posted: Posted) -> None:
        """Note the thread, and by which name its room was addressed: the channel itself may have another one."""
        if posted.message.task_id:
            named = posted.message.channel
            is_renamed = named not in (None, posted.address.room)
            self._threads.set(posted.message.task_id, _row(posted.thread) | ({"named": named} if is_renamed else {}))

    def await_answer(self, posted: Posted) -> None:
        """Note the question under the task that asked: others have asked in the same thread before it.

        One that its channel refused for a while may have been answered before it is asked.
        """
        message, task = posted.message, asking_task(posted.message)
        context = {"reply_context": _reply_context({"reply_context": message.reply_context}), **message.context}
        asked = {"task_id": task, **_row(posted.thread), "asked_at": stamp(self._services.clock())}
        self._awaiting.set(task, {**context, **asked, "question": message.content})
        if notes.answered_by(self._services.places, task) is not None:
            self._wait_no_longer(task)

    def close_question(self, posted: Posted) -> None:
        """Wait no longer for the answer that this message says has come."""
        if (task := posted.message.context.get("answers")) is not None:
            self._wait_no_longer(str(task))

    def _wait_no_longer(self, task: str) -> None:
        """Forget a question that has its answer, but for its choices: another of them would contradict that answer."""
        row = self._awaiting.remove(task)
        if row is not None and (choices := choices_in(str(row.get("question", "")))):
            kept = {key: row[key] for key in ("task_id", "thread_ts", "channel", "on", "reply_context") if key in row}
            self._answered.put_last(task, {**kept, "choices": list(choices)}, MOST_CLOSED)

    def end(self, posted: Posted) -> None:
        """Close the thread with its task's final message alone: other news may stand in it too.

        For a while people may still go on with it by a reply.
        """
        message = posted.message
        if message.task_id and message.code not in KEEP_THREAD_OPEN:
            self._close(message.task_id)
            if context := _reply_context(message.context):
                self._await_replies(posted, context)

    def track(self, posted: Posted) -> None:
        """Open the conversation that a reply in a person's thread asks for."""
        tracked = posted.message.track_conversation
        if isinstance(tracked, Mapping) and (context := _reply_context(tracked)):
            self._await_replies(posted, context, tracked.get("ttl_seconds"))

    def _await_replies(self, posted: Posted, context: Json, lasts: object = None) -> None:
        now, seconds = self._services.clock(), self._services.config["intervals"]["conversation_ttl_seconds"]
        row: dict[str, Any] = {"task_id": str(context.get("task_id") or posted.message.task_id)}
        row |= {key: part for key, part in _row(posted.thread).items() if key != "thread_ts"}
        if isinstance(lasts, int | float) and lasts > 0:
            row["ttl_seconds"] = seconds = lasts
        row |= {"last_reply_ts": None, "expires_at": stamp(now + float(seconds)), "reply_context": dict(context)}
        self._replies.put_last(str(posted.thread.thread), row, MOST_CLOSED)

    def overdue(self) -> Iterator[WaitingQuestion]:
        """Yield the questions that have waited for another day since people were reminded of them."""
        now = self._services.clock()
        for task in list(self._awaiting):
            row = self._awaiting.get(task)
            thread, asked_at = _address(row), _seconds(row.get("asked_at"))
            reminded = row.get("reminded_days")
            reminded = reminded if isinstance(reminded, int) else 0
            if thread is None or (days := int((now - asked_at) // DAY) if asked_at else 0) <= reminded:
                continue
            if notes.answered_by(self._services.places, task) is not None:
                self._wait_no_longer(task)
            else:
                yield WaitingQuestion(
                    task, thread, str(row.get("question", "")), stamp(asked_at or now), days, reminded
                )

    def note_reminder(self, task: str, days: int) -> None:
        """Remember that people were reminded of a question after so many days."""
        if row := self._awaiting.get(task):
            self._awaiting.set(task, {**row, "reminded_days": days})

    def close_silent(self) -> None:
        """Close the threads of tasks that have ended without a message."""
        for task in list(self._threads):
            with suppress(FileNotFoundError, BadInput):
                if self._services.queues.tasks.read("completed", task).outcome in SILENT_ENDS:
                    self._close(task)
                    self.files.save()

    def _close(self, task: str) -> None:
        if (thread := self._threads.remove(task)) is not None:
            self._closed.put_last(task, thread, MOST_CLOSED)


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
    "thread_reply": ThreadRule(in_thread=True, note=Conversations.track),
    "human_input_request": ThreadRule(in_thread=True, note=Conversations.await_answer),
    "notification": ThreadRule(in_thread=True, note=Conversations.end),
    "report": ThreadRule(in_thread=False),
}


def asking_task(question: Message) -> str:
    """Return the task that asked. The message's own task is the one whose thread it belongs in."""
    return str(_reply_context(question.context).get("task_id") or question.task_id)


def _reply_context(context: Json) -> Json:
    reply_context = context.get("reply_context")
    return reply_context if isinstance(reply_context, Mapping) else {}


def _row(thread: Address) -> dict[str, str | None]:
    """Return a thread as the files hold it: what other envoys call channel is a room here."""
    return {"thread_ts": thread.thread, "channel": thread.room, "on": thread.channel}


def _address(row: Any) -> Address | None:
    """Return the thread of a file's row; None when it names none."""
    if not isinstance(row, dict) or not row.keys() >= {"thread_ts", "channel", "on"} or row["thread_ts"] is None:
        return None
    return Address(str(row["on"]), str(row["channel"]), str(row["thread_ts"]))


def _rows_in(thread: Address, *files: JsonFile) -> list[Json]:
    """Return the rows of a thread."""
    return [row for file in files for key in file if _address(row := file.get(key)) == thread]


def _as_choice(text: str) -> str:
    return one_line(text).casefold()


def _seconds(written: Any) -> float | None:
    """Return a moment of a state file as seconds, which other envoys may write; None when it is none."""
    if isinstance(written, int | float):
        return float(written)
    try:
        return moment(str(written))
    except (ValueError, OverflowError):
        return None


def _translated(written: Any, channel: str) -> Any:
    """Return a state file's content by task or thread, each row with its channel; None when its form is not known."""
    value = written
    if isinstance(written, list) and all(isinstance(row, dict) and "task_id" in row for row in written):
        value = {str(row["task_id"]): row for row in written}
    if not isinstance(value, dict) or (value and not any(isinstance(row, dict) for row in value.values())):
        return None
    return {key: _with_channel(row, channel) for key, row in value.items()}


def _with_channel(row: Any, channel: str) -> Any:
    """Return a row in which `on` names our channel. Our earlier ones said channel, room and thread."""
    if not isinstance(row, dict) or "on" in row:
        return row
    if "room" in row and "thread" in row:
        rest = {key: part for key, part in row.items() if key not in ("room", "thread", "channel")}
        return {**rest, "thread_ts": row["thread"], "channel": row["room"], "on": row.get("channel", channel)}
    return {**row, "channel": str(row["channel"]) if row.get("channel") else channel, "on": channel}


def _is_object(_key: str, value: Any) -> bool:
    return isinstance(value, dict)
