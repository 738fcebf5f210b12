"""Atlassian's document format as plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

DEEPEST = 40
"""Below that nothing is read: nobody nests so deep by hand."""
LINES = (
    "paragraph heading blockquote codeBlock rule panel expand nestedExpand listItem taskItem decisionItem tableRow "
    "mediaSingle mediaGroup blockCard"
)
BLOCKS = frozenset(LINES.split())
"""Nodes that stand on lines of their own."""
BULLETS = {"listItem": "- ", "taskItem": "[ ] ", "decisionItem": "- "}


def plain(document: Any) -> str:
    """Return the text of a document, a line for each paragraph; what is text already is returned as it is."""
    if isinstance(document, str):
        return document
    lines = "".join(_parts(document, 0)).split("\n")
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _parts(node: Any, depth: int) -> Iterator[str]:
    if not isinstance(node, dict) or depth > DEEPEST:
        return
    kind = str(node.get("type"))
    if kind in BLOCKS:
        yield f"\n{BULLETS.get(kind, '')}"
    yield _own(kind, node)
    for part in _list(node.get("content")):
        inner = "".join(_parts(part, depth + 1))
        # The paragraph of a list item stands behind its bullet; cells stand beside each other.
        yield inner.lstrip("\n") if kind in BULLETS or kind == "tableCell" else inner
        if kind == "tableRow":
            yield " | "


def _own(kind: str, node: dict[str, Any]) -> str:
    """Return what a node says by itself."""
    found = node.get("attrs")
    attrs: dict[str, Any] = found if isinstance(found, dict) else {}
    match kind:
        case "text":
            return f"{node.get('text', '')}{_target(node)}"
        case "hardBreak":
            return "\n"
        case "mention" | "status" | "placeholder":
            return str(attrs.get("text", ""))
        case "emoji":
            return str(attrs.get("text") or attrs.get("shortName", ""))
        case "inlineCard" | "blockCard" | "embedCard":
            return str(attrs.get("url", ""))
        case "date":
            return str(attrs.get("timestamp", ""))
        case "media" | "mediaInline":
            return f"[{attrs.get('alt') or 'attachment'}]"
        case "expand" | "nestedExpand":
            return str(attrs.get("title") or "")
        case "rule":
            return "---"
    return ""


def _target(node: dict[str, Any]) -> str:
    """Return where a linked text leads, unless the text says it."""
    for mark in _list(node.get("marks")):
        if isinstance(mark, dict) and mark.get("type") == "link" and isinstance(mark.get("attrs"), dict):
            href = mark["attrs"].get("href")
            return f" ({href})" if isinstance(href, str) and href != node.get("text") else ""
    return ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
