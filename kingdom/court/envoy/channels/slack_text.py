"""The text of a post in Slack: it cannot notify people, and a question's answers are buttons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kingdom.base.words import printable
from kingdom.court.envoy.channels.base import PostDraft
from kingdom.court.envoy.channels.slack_events import ANSWER

LONGEST = 2_900
"""Characters of one post: a section with buttons takes 3,000."""
LONGEST_SECTION = 3_000
EVENT_TYPE = "kingdom_message"
EMOJI: Mapping[str, tuple[str, str]] = {
    "started": ("eyes", ""),
    "resumed": ("eyes", "raising_hand"),
    "question": ("raising_hand", "eyes"),
    "completed": ("white_check_mark", "eyes"),
    "failed": ("x", "eyes"),
    "skipped": ("", "eyes"),
}
"""By a message's code: the reaction that says so, and the one that no longer holds."""


def text_of(draft: PostDraft) -> str:
    """Return what is posted. `<!channel>` and `<@U1>` in it are text and call nobody; Slack takes no empty post."""
    plain = printable(draft.text)
    escaped = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped if escaped.strip() else "(nothing)"


def blocks_of(draft: PostDraft) -> list[dict[str, Any]] | None:
    """Return the blocks of a question with its answers as buttons; None for what is text alone."""
    text = text_of(draft)
    if not draft.choices or len(text) > LONGEST_SECTION:
        return None
    buttons = [
        {
            "type": "button",
            "action_id": f"{ANSWER}-{n}",
            "text": {"type": "plain_text", "text": choice},
            "value": choice,
        }
        for n, choice in enumerate(draft.choices, 1)
    ]
    return [_section(text), {"type": "actions", "block_id": "kingdom-answers", "elements": buttons}]


def answered(message: Mapping[str, Any], answer: str, user: str) -> list[dict[str, Any]]:
    """Return the blocks of a question whose button was pressed: who answered what, in place of the buttons."""
    blocks: Sequence[Any] = message.get("blocks") or ()
    kept = [block for block in blocks if isinstance(block, dict) and block.get("type") != "actions"]
    said = f"{answer.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')} — <@{user}>"
    return [*kept, {"type": "context", "elements": [{"type": "mrkdwn", "text": said}]}]


def metadata_of(draft: PostDraft) -> dict[str, Any]:
    """Return by what the post is found again."""
    return {"event_type": EVENT_TYPE, "event_payload": {"message": draft.id}}


def is_post_of(draft: PostDraft, message: Mapping[str, Any]) -> bool:
    """Return whether a message in Slack is the post of this draft."""
    metadata = message.get("metadata") or {}
    return metadata.get("event_type") == EVENT_TYPE and metadata.get("event_payload", {}).get("message") == draft.id


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}
