"""Which task speaks in which thread, and which questions wait for an answer: what each type of letter does to both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kingdom.disk.json_file import JsonFile
from kingdom.records.messages import Message

OTHER_NEWS = ("unanswerable", "proclamation", "alert")
"""Codes of notifications that are not a task's last word; foreign ones without a code are."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A letter that people can read now."""

    letter: Message
    channel: str
    room: str
    post_id: str
    thread: str | None


def is_page(_task: str, page: Any) -> bool:
    return isinstance(page, dict)


@dataclass(frozen=True, slots=True)
class Sender:
    """What one type of letter means for threads."""

    in_thread: bool
    remember: Callable[[JsonFile, JsonFile, Spoken, str], None]


def _nothing(threads: JsonFile, awaiting: JsonFile, said: Spoken, now: str) -> None:
    """No thread begins or ends with it."""


def _begins_thread(threads: JsonFile, awaiting: JsonFile, said: Spoken, now: str) -> None:
    if said.letter.task_id:
        page = {"channel": said.channel, "room": said.room, "thread": said.post_id}
        threads.set(said.letter.task_id, page)


def _asks(threads: JsonFile, awaiting: JsonFile, said: Spoken, now: str) -> None:
    """The question's thread is where its answer will come from; it stays open until then.

    Under the task that asked: others have asked in the same thread before it.
    """
    thread = said.thread or said.post_id
    page = {"channel": said.channel, "room": said.room, "thread": thread, "question": said.letter.content}
    awaiting.set(asker(said.letter), {**page, "asked_at": now, **said.letter.context})


def asker(question: Message) -> str:
    way_back = question.context.get("reply_context")
    return str((way_back if isinstance(way_back, Mapping) else {}).get("task_id") or question.task_id)


def _goes_on(threads: JsonFile, awaiting: JsonFile, said: Spoken, now: str) -> None:
    """An answer has come: nobody is reminded of the question any more."""
    if (asked := said.letter.context.get("answers")) is not None:
        awaiting.remove(str(asked))


def _ends_thread(threads: JsonFile, awaiting: JsonFile, said: Spoken, now: str) -> None:
    """With a task's last word alone: other news may stand in its thread too."""
    if said.letter.task_id and said.letter.code not in OTHER_NEWS:
        threads.remove(said.letter.task_id)


SENDERS: Mapping[str, Sender] = {
    "thread_start": Sender(in_thread=False, remember=_begins_thread),
    "thread_update": Sender(in_thread=True, remember=_goes_on),
    "thread_reply": Sender(in_thread=True, remember=_nothing),
    "human_input_request": Sender(in_thread=True, remember=_asks),
    "notification": Sender(in_thread=True, remember=_ends_thread),
    "report": Sender(in_thread=False, remember=_nothing),
}
