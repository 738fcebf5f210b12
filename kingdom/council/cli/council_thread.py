"""What agents have written each other in one thread, as a tree, and what became of each message."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kingdom.base.disk.atomic import is_there
from kingdom.base.disk.codec import read_bytes, read_json_or
from kingdom.base.errors import BadFile, BadName, NoSuchThing
from kingdom.base.home.places import Places, as_filename
from kingdom.base.records.lookup import find
from kingdom.base.words import one_line
from kingdom.council import mime
from kingdom.council.bodies import listed_rows
from kingdom.council.cli.council_dead_letters import ENDING, letters, messages_in

DEEPEST = 100


@dataclass
class Node:
    """One message in a thread; it may have gone to several agents."""

    id: str
    row: dict[str, Any]
    #: By agent: what became of it there.
    states: dict[str, str] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)


def rows_of_thread(places: Places, id: str) -> list[dict[str, Any]]:
    """Return the messages of a thread, oldest first: those that the council has taken, and those that wait."""
    waiting = list(waiting_rows(places))
    rows = [
        *listed_rows(places.council_threads / f"{as_filename(id)}.jsonl"),
        *(row for row in waiting if row["thread"] == id),
    ]
    if rows:
        return rows
    if (conversation := _conversation(places, id)) is not None:
        return rows_of_thread(places, conversation)
    for path in sorted(places.council_threads.glob("*.jsonl")):
        listed = list(listed_rows(path))
        if any(is_named(row, id) for row in listed):
            return listed if not path.name.startswith("without-") else [row for row in listed if is_named(row, id)]
    named = next((row for row in waiting if is_named(row, id)), None)
    if named is None:
        return []
    return [row for row in waiting if row["thread"] == named["thread"]] if named["thread"] else [named]


def _conversation(places: Places, id: str) -> str | None:
    """Return the thread that a person's words belong to, by the task that they have become."""
    try:
        thread = find(places, id, ("tasks",)).content["payload"]["session_id"]
    except (NoSuchThing, LookupError, TypeError):
        return None
    return thread if isinstance(thread, str) and thread != id else None


def is_named(row: dict[str, Any], id: str) -> bool:
    return id in (row["id"], row["id"].strip("<>"), row["file"], row["file"].removesuffix(ENDING))


def waiting_rows(places: Places, agents: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the messages that wait in the folders of these agents, or of all, and were not taken yet."""
    for agent in agents or agents_of(places):
        for name in sorted(messages_in(places.agent(agent))):
            with suppress(FileNotFoundError, BadFile):
                found = mime.parse_message(read_bytes(places.agent(agent) / name).decode("utf-8", "replace"))
                row = {"at": "", "agent": agent, "file": name, "about": "", "thread": found["thread_id"]}
                yield {
                    **row,
                    "id": found["message_id"],
                    "in_reply_to": found["in_reply_to"],
                    "from": found["from"],
                    "to": found["to"],
                    "type": found["type"],
                }


def roots_of(places: Places, rows: list[dict[str, Any]]) -> list[Node]:
    """Return the messages that answer none, each with its answers. What answers a later one, as in a circle, is a root.

    Where it would be too deep to be read, an answer is a root too.
    """
    dead = letters(places)
    titles = {row.get("task_id"): row["about"] for row in rows if row.get("task_id") != row["about"]}
    nodes: dict[str, Node] = {}
    depths: dict[str, int] = {}
    roots: list[Node] = []
    for row in sorted(rows, key=_micros):
        key = row["id"] or row["file"]
        if key not in nodes:
            above = nodes.get(row["in_reply_to"])
            depth = depths.get(row["in_reply_to"], -1) + 1
            if depth > DEEPEST:
                above, depth = None, 0
            named = {**row, "about": titles.get(row.get("task_id"), row["about"])} if row.get("task_id") else row
            nodes[key], depths[key] = Node(row["id"], named), depth
            (roots if above is None else above.children).append(nodes[key])
        nodes[key].states[row["agent"]] = state_of(places, row, dead)
    return roots


def _micros(row: dict[str, Any]) -> str:
    return str(row["file"].removesuffix(ENDING)[-16:])


def tree(roots: list[Node]) -> Iterator[str]:
    for root in roots:
        yield from _branch(root, "", "")


def _branch(node: Node, lead: str, below: str) -> Iterator[str]:
    to = ", ".join(f"{agent} ({state})" for agent, state in node.states.items())
    about = " — ".join(filter(None, (one_line(node.row.get("about") or "", 60), node.row.get("outcome"))))
    what = f"{one_line(node.row['type'], 40)}: {one_line(node.row['from'], 40)} → {to}"
    yield f"{lead}{what}{f': {about}' if about else ''}"
    for child in node.children:
        is_last = child is node.children[-1]
        yield from _branch(child, f"{below}{'└─ ' if is_last else '├─ '}", f"{below}{'   ' if is_last else '│  '}")


def state_of(places: Places, row: dict[str, Any], dead: list[str]) -> str:
    """Return what became of a message at one agent."""
    try:
        waits, told = places.agent(row["agent"]) / row["file"], places.told(row["agent"]) / row["file"]
        if is_there(waits):
            return "waits for a yes" if needs_yes(places, row) else "waiting"
        head = mime.parse_message(read_bytes(told).decode("utf-8", "replace"))
        return one_line(head["status"] or "waiting", 20)
    except (FileNotFoundError, BadFile, BadName):
        start = f"{as_filename(row['file'].removesuffix(ENDING))}_dlq_"
        return "dead letter" if any(name.startswith(start) for name in dead) else "done"


def needs_yes(places: Places, row: dict[str, Any]) -> bool:
    """Return whether a message is a plan that a person has not approved yet."""
    if row["type"] != "task_list" or not row.get("thread"):
        return False
    try:
        goal = read_json_or(places.council_goal(row["thread"]), {})
    except BadName:
        return False
    return bool(goal.get("approve")) and not goal.get("approved") and not goal.get("over")


def agents_of(places: Places) -> list[str]:
    with suppress(FileNotFoundError):
        names = os.listdir(places.council)
        return sorted(name for name in names if mime.folder_of(name) == name and places.agent(name).is_dir())
    return []
