"""What a person's answer resumes: the task with the question, or the conversation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kingdom.base.errors import BadFile, BadMessage, BadName
from kingdom.base.home import schemas
from kingdom.base.home.places import LONGEST_NAME, Places
from kingdom.base.records import notes
from kingdom.base.records.messages import Checkpoint, Event, Task
from kingdom.court.king.messages import reply_address


class Unanswerable(Exception):
    """No task waits for this answer; the person who gave it is told the reason, in the question's thread."""

    def __init__(self, why: str, thread: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.thread = thread


def resume(event: Event, places: Places, generals: Collection[str], task_id: str, now: str) -> Task:
    """Return the task that this answer becomes; Unanswerable if no question is open."""
    context = _context(event)
    original = _original(event)
    checkpoint = _asked(event, places)
    asked = checkpoint or Checkpoint()
    general = asked.target_general if checkpoint else context.get("general")
    thread = str(asked.thread_task_id or context.get("thread_task_id") or original) or None
    if checkpoint and notes.answered_by(places, original) not in (None, event.id):
        why = f"the question of {original} is already answered; `kingdom why {original}` shows by whom"
        raise Unanswerable(why, thread)
    if not isinstance(general, str) or general not in generals:
        why = f"there is no general {str(general)[:60]!r}" if general else "it names no general"
        raise Unanswerable(f"nobody can continue it: {why}")
    payload: dict[str, Any] = {
        "original_task_id": original,
        "checkpoint_path": str(places.checkpoint(original)) if checkpoint else None,
        "human_response": str(event.payload.get("human_response") or event.payload.get("text") or ""),
        "reply_context": dict(context),
        "session_id": asked.session_id or notes.session_id(places, original) or context.get("session_id"),
        "channel": event.payload.get("channel"),
        "thread_ts": event.payload.get("thread_ts"),
    }
    task = Task(
        id=task_id,
        event_id=event.id,
        target_general=general,
        type="resume",
        repo=asked.repo or context.get("repo"),
        payload=payload,
        priority="high",
        created_at=now,
        thread_task_id=thread,
        reply_to=reply_address(event),
        matter=_matter(asked, context),
    )
    try:
        schemas.check(Task.kind, task.to_json())
    except BadMessage as error:
        raise Unanswerable(f"nobody can continue it: {error}") from None
    return task


def general_of(event: Event, places: Places) -> str | None:
    """Return the general that goes on with an answer; None when there is none, or no question is open."""
    try:
        checkpoint = _asked(event, places)
    except Unanswerable:
        return None
    general = checkpoint.target_general if checkpoint else _context(event).get("general")
    return general if isinstance(general, str) else None


def _asked(event: Event, places: Places) -> Checkpoint | None:
    return None if question_of(event, places) is None else _checkpoint(places, _original(event))


def question_of(event: Event, places: Places) -> str | None:
    """Return the task whose question an event answers; None for a reply in a conversation.

    Newer envoys turn every answer into a reply: it answers when the task that it names has asked.
    """
    original = _original(event)
    if event.answers_question or notes.has_asked(places, original):
        return original
    return None


def _context(event: Event) -> Mapping[str, Any]:
    context = event.payload.get("reply_context")
    return context if isinstance(context, Mapping) else {}


def _original(event: Event) -> str:
    return str(event.payload.get("task_id") or _context(event).get("task_id") or "")


def _matter(checkpoint: Checkpoint, context: Mapping[str, Any]) -> str:
    """Return what the conversation is about; a foreign checkpoint names its task's type alone."""
    return str(checkpoint.matter or checkpoint.type or context.get("matter") or "resume")[:LONGEST_NAME]


def _checkpoint(places: Places, task_id: str) -> Checkpoint:
    try:
        return notes.checkpoint(places, task_id)
    except FileNotFoundError:
        why = "its checkpoint is missing"
    except (BadFile, BadName) as error:
        why = str(error)
    raise Unanswerable(f"the question of {task_id or 'an unnamed task'} is no longer open ({why})")
