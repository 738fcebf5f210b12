"""What a person's answer resumes: the task whose question it answers, or the conversation it goes on with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kingdom.disk.codec import read_json
from kingdom.errors import BadFile, BadMessage, BadName
from kingdom.home import schemas
from kingdom.home.places import LONGEST_NAME, Places
from kingdom.king.messages import reply_address
from kingdom.records import notes
from kingdom.records.messages import Event, Task


@dataclass(frozen=True, slots=True)
class Lost:
    """Nobody waits for this answer; its sentence goes to the person who gave it, into the question's thread."""

    why: str
    thread: str | None = None


def resume(event: Event, places: Places, generals: Collection[str], task_id: str, now: str) -> Task | Lost:
    """The task that this answer becomes."""
    context = _context(event)
    original = _original(event)
    if question_of(event) is not None:
        checkpoint = _checkpoint(places, original)
        if isinstance(checkpoint, Lost):
            return checkpoint
        general = checkpoint.get("target_general")
    else:
        checkpoint, general = {}, context.get("general")
    thread = str(checkpoint.get("thread_task_id") or context.get("thread_task_id") or original) or None
    if checkpoint and notes.answered_by(places, original) not in (None, event.id):
        return Lost(f"the question of {original} is already answered; `kingdom why {original}` shows by whom", thread)
    if not isinstance(general, str) or general not in generals:
        return Lost(f"nobody here goes on with it: there is no general {str(general)[:60]!r}")
    session = checkpoint.get("session_id") or context.get("session_id")
    payload: dict[str, Any] = {
        "original_task_id": original,
        "checkpoint_path": str(places.checkpoint(original)) if checkpoint else None,
        "human_response": str(event.payload.get("human_response") or event.payload.get("text") or ""),
        "reply_context": dict(context),
        "session_id": session,
        "channel": event.payload.get("channel"),
        "thread_ts": event.payload.get("thread_ts"),
    }
    task = Task(
        id=task_id,
        event_id=event.id,
        target_general=general,
        type="resume",
        repo=checkpoint.get("repo") or context.get("repo"),
        payload=payload,
        priority="high",
        created_at=now,
        status="pending",
        attempt=0,
        thread_task_id=thread,
        reply_to=reply_address(event),
        matter=_matter(checkpoint, context),
    )
    try:
        schemas.check(Task.kind, task.to_json())
    except BadMessage as trouble:
        return Lost(f"nobody here can go on with it: {trouble}")
    return task


def question_of(event: Event) -> str | None:
    """The task whose question it answers; None for a word in a conversation."""
    return _original(event) if event.type.endswith(".human_response") else None


def _context(event: Event) -> Mapping[str, Any]:
    context = event.payload.get("reply_context")
    return context if isinstance(context, Mapping) else {}


def _original(event: Event) -> str:
    return str(event.payload.get("task_id") or _context(event).get("task_id") or "")


def _matter(checkpoint: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    """What the thread is about; a foreign checkpoint names its task's type alone."""
    named = checkpoint.get("matter") or checkpoint.get("type") or context.get("matter")
    return str(named or "resume")[:LONGEST_NAME]


def _checkpoint(places: Places, task_id: str) -> Mapping[str, Any] | Lost:
    try:
        return read_json(places.checkpoint(task_id))
    except (FileNotFoundError, BadFile, BadName) as trouble:
        return Lost(f"the question of {task_id or 'an unnamed task'} is no longer open ({_said(trouble)})")


def _said(trouble: Exception) -> str:
    return "its checkpoint is missing" if isinstance(trouble, FileNotFoundError) else str(trouble)
