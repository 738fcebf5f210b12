"""Split a message into the posts of a channel: one, or several if it is too long."""

from __future__ import annotations

from kingdom.base.records.messages import Message, code_of
from kingdom.base.words import choices_in, one_line
from kingdom.court.envoy.channels.base import Channel, PostDraft
from kingdom.court.envoy.conversations import Address, asking_task

LONGEST_SUBJECT = 100


def drafts_of(message: Message, address: Address, channel: Channel) -> list[PostDraft]:
    """Return the posts that say what a message says, in order."""
    text = message.content
    if failed_task := message.context.get("failed_task"):
        text = f"{text}\n`kingdom why {failed_task}` shows more"
    texts = [text] if channel.longest is None else parts(text, channel.longest)
    drafts = [
        PostDraft(message.id if n == 1 else f"{message.id}.{n}", address.room, part, address.thread)
        for n, part in enumerate(texts, 1)
    ]
    asks = message.type == "human_input_request"
    choices = choices_in(message.content) if asks else ()
    opens = _subject(message) if message.type == "thread_start" and message.task_id else ""
    return [
        draft._replace(
            choices=choices if draft is drafts[-1] else (),
            task=asking_task(message) if asks else message.task_id,
            code=code_of(message.code, message.content),
            written_at=message.created_at,
            opens=opens if draft is drafts[0] else "",
        )
        for draft in drafts
    ]


def _subject(start: Message) -> str:
    """Return what a task's thread is about: its id, and a person's words, or what its first post says of it."""
    first, _, about = start.content.partition("\n")
    said = (start.source_ref or {}).get("said")
    return one_line(f"{start.task_id}: {said or about or first.removeprefix('[start] ')}", LONGEST_SUBJECT)


def parts(text: str, longest: int) -> list[str]:
    """Return a text in pieces of at most so many characters, cut at the end of a line or a word where there is one."""
    found = []
    while len(text) > longest:
        head = text[:longest]
        cut = max(head.rfind("\n"), 0) or max(head.rfind(" "), 0)
        cut = cut if cut > longest // 2 else longest
        found.append(text[:cut])
        text = text[cut:].removeprefix("\n" if text[cut : cut + 1] == "\n" else " ")
    return [*found, text] if text or not found else found
