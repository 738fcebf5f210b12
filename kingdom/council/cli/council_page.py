"""A thread of the council as one HTML file that needs nothing else, runs no script and loads nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING

from kingdom.base.words import printable

if TYPE_CHECKING:
    from kingdom.council.cli.council_thread import Node

STYLE = """
:root { color-scheme: light dark; --line: #8886; --dim: #767676; --good: #1a7f37; --bad: #cf222e; --wait: #9a6700 }
@media (prefers-color-scheme: dark) { :root { --dim: #9a9a9a; --good: #3fb950; --bad: #ff7b72; --wait: #d29922 } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
li, h1 { overflow-wrap: anywhere }
h1 { font-size: 1.2rem }
ul { list-style: none; margin: 0; padding-left: 1.1rem; border-left: 1px solid var(--line) }
li { margin: .35rem 0 }
b { font-weight: 600 }
small { color: var(--dim) }
time { white-space: nowrap }
.good { color: var(--good) } .bad { color: var(--bad) } .wait { color: var(--wait) }
"""
CLASSES = {
    **dict.fromkeys(("done", "completed"), "over"),
    **dict.fromkeys(("pass", "success"), "good"),
    **dict.fromkeys(("dead letter", "dropped", "error", "fail", "failed", "refused"), "bad"),
}
"""The colour of a state at one agent, and of the end of work or an evaluation; other states are shown as waiting."""
FRAME = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{digest}'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p><small>{summary}</small></p>
{tree}
</body>
</html>
"""


def page_of(roots: Sequence[Node], summary: str) -> str:
    """Return the page of a thread, called by its first message. Whatever agents have written is text in it."""
    digest = base64.b64encode(sha256(STYLE.encode()).digest()).decode()
    first = roots[0].row
    day = f"{first['at'][:10]} UTC" if first.get("at") else ""
    return FRAME.format(
        digest=digest,
        style=STYLE,
        title=_text(first.get("about") or first["type"]),
        summary=_text(", ".join(filter(None, (summary, day)))),
        tree="\n".join(_list(roots)),
    )


def _list(nodes: Sequence[Node]) -> Iterator[str]:
    if nodes:
        yield "<ul>"
        for node in nodes:
            yield f"<li>{_line(node)}"
            yield from _list(node.children)
            yield "</li>"
        yield "</ul>"


def _line(node: Node) -> str:
    row = node.row
    to = ", ".join(
        f'{_text(agent)} <small class="{CLASSES.get(state, "wait")}">{_text(state)}</small>'
        for agent, state in node.states.items()
    )
    said = _text(row.get("about") or "")
    if end := row.get("outcome"):
        said += f' — <span class="{CLASSES.get(end, "")}">{_text(end)}</span>'
    if at := row.get("at"):
        said += f' <small><time title="{_text(at)}">{_text(at[11:19])}</time></small>'
    return f"<b>{_text(row['type'])}</b> {_text(row['from'])} → {to}<br>{said}"


def _text(value: object) -> str:
    return escape(printable(str(value)))
