"""What agents write to `user`: people read it as messages of the kingdom, which the envoy posts."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from kingdom.base.errors import BadMessage
from kingdom.base.home.states import MOVES
from kingdom.base.records.messages import Message as Post
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.base.words import one_line, printable
from kingdom.council.bodies import read_body
from kingdom.council.monitor.messages import CouncilMessage

USER = "user"
LONGEST = 4000
MOST_A_MINUTE, MINUTE = 20, 60.0
FIELDS = ("summary", "message", "title", "goal", "question")
"""Of a body: what people are told, the first that is there."""


def post_of(message: CouncilMessage, now: float, goal: Mapping[str, Any] | None = None) -> Post:
    """Return what people read of a message. Its id is made of the message's own, so that a repetition is the same.

    What is said of a general's goal goes to the conversation of its task, and may be answered there.
    """
    try:
        body: Mapping[str, Any] = read_body(message.body)
    except BadMessage:
        body = {}
    key = crc32(message.id.encode("utf-8", "replace"))
    day = stamp(message.named_at)[:10].replace("-", "")
    id = f"msg-{day}-council-{key:010d}"
    asked_by = goal.get("reply_to") if goal is not None else None
    channel = str(asked_by["channel"]) if asked_by and asked_by.get("channel") else None
    answers = {"reply_context": goal["reply_context"]} if goal is not None else None
    return Post(
        id=id,
        type="notification" if goal is None else "thread_reply",
        task_id=None if goal is None else str(goal["root"]),
        channel=channel,
        urgency="high" if message.priority in ("critical", "high") else "normal",
        content=_text(message, body),
        context={"thread": message.thread, "from": message.sender},
        source_ref=asked_by,
        created_at=stamp(now),
        dedup_key=id,
        track_conversation=answers,
    )


class People:
    """Hands messages over to people, so many a minute: the others wait."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._told_at: deque[float] = deque(maxlen=MOST_A_MINUTE)

    def take_over(self, services: Services) -> None:
        """Use new configuration."""
        self._services = services

    @property
    def seconds_to_wait(self) -> float:
        """Seconds until people may be told more."""
        if len(self._told_at) < MOST_A_MINUTE:
            return 0.0
        return max(0.0, self._told_at[0] + MINUTE - self._services.monotonic())

    def tell(self, message: CouncilMessage, goal: Mapping[str, Any] | None) -> None:
        """Write what people are to read of a message, once."""
        post, messages = post_of(message, self._services.clock(), goal), self._services.queues.messages
        if not messages.has(post.id, *MOVES["messages"]):
            messages.create([post])
        self._told_at.append(self._services.monotonic())


def _text(message: CouncilMessage, body: Mapping[str, Any]) -> str:
    said = next((str(body[name]) for name in FIELDS if isinstance(body.get(name), str) and body[name].strip()), "")
    percent = body.get("percent")
    marks = [one_line(body["repository"], 80)] if body.get("repository") else []
    marks += [one_line(body["stage"], 40)] if body.get("stage") else []
    marks += [f"{percent:g} %"] if isinstance(percent, int | float) and not isinstance(percent, bool) else []
    marks += ["done"] if body.get("final") is True else []
    head = f"[council] {one_line(message.sender, 40)}" + (f" ({', '.join(marks)})" if marks else "")
    lines = (said or message.type).strip().splitlines()
    if body.get("final") is True and isinstance(listed := body.get("deliverables"), list):
        lines += [f"deliverable: {one['location']}" for one in listed if isinstance(one, Mapping) and "location" in one]
    text = "\n".join(map(printable, lines))
    return f"{head}: {text}"[:LONGEST]
