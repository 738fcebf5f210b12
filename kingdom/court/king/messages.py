"""The king's messages to people: what each says and where it goes. Pure: they return drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kingdom.base.errors import BadName
from kingdom.base.home.places import check_name
from kingdom.base.records import kept
from kingdom.base.records.messages import Event, Message, Result, Task
from kingdom.base.words import one_line

TYPES = {
    "start": "thread_start",
    "update": "thread_update",
    "final": "notification",
    "question": "human_input_request",
    "proclamation": "notification",
}
LONGEST_ABOUT = 300
"""Characters of a headline and of an address: longer ones are cut."""


@dataclass(frozen=True, slots=True)
class MessageDraft:
    """A message before it has an id."""

    #: Unique within its cause, so that a repeat finds its id again: start, update, final, question, proclamation.
    part: str
    task_id: str
    #: The room it goes to; None: the default one.
    channel: str | None
    content: str
    urgency: str = "normal"
    #: What the envoy needs to know besides the text.
    context: Mapping[str, Any] | None = None
    #: Where its cause came from, so that it can be answered there.
    source_ref: Mapping[str, Any] | None = None
    #: The post under which it hangs, when its cause names one.
    thread_ts: str | None = None
    dedup_key: str = ""
    #: What it says of its task: one of CODES.
    code: str = ""

    def message(self, id: str, written_at: str) -> Message:
        return Message(
            id=id,
            type=TYPES[self.part],
            task_id=self.task_id,
            channel=self.channel,
            urgency=self.urgency,
            content=self.content,
            context=self.context or {},
            source_ref=self.source_ref,
            created_at=written_at,
            dedup_key=self.dedup_key,
            code=self.code,
            thread_ts=self.thread_ts,
            reply_context=(self.context or {}).get("reply_context"),
        )


def reply_address(event: Event) -> Mapping[str, Any] | None:
    """Return where a person who wrote to us expects the answer; None for events that no person wrote."""
    if not (event.is_chat or event.is_answer):
        return None
    said = dict(event.payload)
    if said.setdefault("user", said.get("user_id")) is None:
        del said["user"]
    known = ("user", "channel", "message_ts", "thread_ts")
    words = {"said": one_line(said["text"], LONGEST_ABOUT)} if said.get("text") else {}
    return {"source": event.source, "event_id": event.id, **{key: said[key] for key in known if key in said}, **words}


def started(task: Task, default_channel: str) -> MessageDraft:
    """Announce a task. Its event may name what it is about, and where that lies: a second line says so."""
    scheduled = task.scheduled_for is not None
    what = f"schedule.{task.type}" if scheduled else task.type
    first = f"[start] {what}" + (f" — {task.repo}" if task.repo else "")
    about = [one_line(words, LONGEST_ABOUT) for name in ("headline", "url") if (words := task.payload.get(name))]
    second = " ".join(filter(None, about))
    return _draft("start", "started", task, default_channel, "\n".join(filter(None, (first, second))))


def resumed(task: Task, default_channel: str) -> MessageDraft:
    """Announce, in the question's thread, that an answer has come; it names the task that had asked."""
    update = _draft("update", "resumed", task, default_channel, "answer received, resuming")
    return replace(update, context={"answers": task.original})


def unanswerable(event: Event, default_channel: str, why: str, thread: str | None = None) -> MessageDraft:
    """Tell a person that no question is open for the answer."""
    address = reply_address(event)
    channel = str(event.payload.get("channel") or default_channel)
    return MessageDraft(
        "final",
        _named(thread) or _named(event.payload.get("task_id")) or event.id,
        channel,
        f"[failed] {why}",
        source_ref=address,
        thread_ts=_thread(address, begins=False),
        dedup_key=f"{event.id}:lost_answer",
        code="unanswerable",
    )


def nobody_takes(event: Event, default_channel: str) -> MessageDraft:
    """Tell a person that no general takes what was said."""
    why = "no general handles this; `kingdom generals` lists them"
    draft = unanswerable(event, default_channel, why)
    return replace(draft, thread_ts=_thread(reply_address(event)), dedup_key=f"{event.id}:untaken")


def _thread(address: Mapping[str, Any] | None, *, begins: bool = True) -> str | None:
    """Return the post under which a person's thread hangs; their own post when it begins one."""
    known = address or {}
    found = known.get("thread_ts") or (known.get("message_ts") if begins else None)
    return str(found) if found and known.get("channel") else None


def _named(task_id: object) -> str | None:
    """Return the task that a person's answer names, if it can be the name of one at all."""
    try:
        return check_name("task", task_id)
    except BadName:
        return None


def lost_task(event: Event, default_channel: str, why: str) -> MessageDraft:
    """Tell the people who wait for a task that its file was lost."""
    address = reply_address(event)
    channel = str((address or {}).get("channel") or default_channel)
    task = event.task_id or event.id
    key = f"{task}:notification:lost"
    lost = MessageDraft("final", task, channel, f"[failed] {why}", source_ref=address, dedup_key=key, code="failed")
    return replace(lost, thread_ts=_thread(address))


def completed(task: Task, result: Result, default_channel: str) -> list[MessageDraft]:
    final = _final(
        "completed", task, result, default_channel, f"[complete] {_what(task)} — {result.summary or 'completed'}"
    )
    return [final, *_proclaimed(task, result)]


def failed(task: Task, result: Result, default_channel: str) -> list[MessageDraft]:
    """Return the error as a message. Its context names the task, so that the envoy can say how to look further."""
    final = _final("failed", task, result, default_channel, f"[failed] {result.error or 'unknown'}")
    context = {"failed_task": task.id, **(final.context or {})}
    return [replace(final, context=context), *_proclaimed(task, result)]


def cancelled(task: Task, default_channel: str, by: str) -> MessageDraft:
    """Tell that a task was cancelled before it started."""
    final = _draft("final", "failed", task, default_channel, f"[failed] cancelled by {by}")
    return replace(final, context={"failed_task": task.id})


def skipped(task: Task, result: Result, default_channel: str) -> list[MessageDraft]:
    """Say nothing, unless the soldier names a channel or a person waits for an answer."""
    if result.notify_channel is None and task.reply_to is None:
        return _proclaimed(task, result)
    final = _final("skipped", task, result, default_channel, f"[skipped] {result.reason or 'out of scope'}")
    return [final, *_proclaimed(task, result)]


def asked(task: Task, result: Result, default_channel: str) -> list[MessageDraft]:
    """Ask the question. The task ends at once, and the answer becomes a new one; nothing is proclaimed before that."""
    context = {"checkpoint_path": result.checkpoint_path, "reply_context": _reply_context(task, result)}
    question = _draft("question", "question", task, default_channel, f"[question] {result.question}")
    return [replace(question, urgency="high", context=context)]


def _reply_context(task: Task, result: Result) -> dict[str, Any]:
    """Return the context that a reply to this task's last message needs: an envoy hands it back with the reply."""
    return {
        "general": task.target_general,
        "session_id": result.session_id,
        "repo": task.repo,
        "task_id": task.id,
        "thread_task_id": task.thread,
        "matter": task.subject,
    }


def _proclaimed(task: Task, result: Result) -> list[MessageDraft]:
    if result.proclamation is None:
        return []
    words = result.proclamation
    return [
        MessageDraft(
            "proclamation",
            f"proclamation-{task.id}",
            str(words["channel"]),
            str(words["message"]),
            dedup_key=f"{task.id}:proclamation",
            code="proclamation",
        )
    ]


def _what(task: Task) -> str:
    return f"resume of {task.subject}" if task.type == "resume" != task.subject else task.type


def _final(code: str, task: Task, result: Result, default_channel: str, content: str) -> MessageDraft:
    content = "\n".join(filter(None, (content, kept.sentence(task.id, result.kept or ()))))
    final = replace(
        _draft("final", code, task, default_channel, content), context={"reply_context": _reply_context(task, result)}
    )
    if result.notify_channel in (None, final.channel):
        return final
    return replace(final, channel=result.notify_channel, thread_ts=None)


def _draft(part: str, code: str, task: Task, default_channel: str, content: str) -> MessageDraft:
    address = task.reply_to
    channel = str(address["channel"]) if address and address.get("channel") else default_channel
    key = f"{task.id}:{TYPES[part]}:{task.outcome or 'open'}"
    thread = _thread(address, begins=task.thread_task_id is None)
    draft = MessageDraft(part, task.thread, channel, content, source_ref=address, dedup_key=key, code=code)
    return replace(draft, thread_ts=thread)
