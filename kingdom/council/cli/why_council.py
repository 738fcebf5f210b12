"""What became of a message of the council: by its ID or the name of its file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadFile
from kingdom.base.home.places import Places, as_filename
from kingdom.base.program import home
from kingdom.base.program.story import Detail, Story
from kingdom.base.times import moment
from kingdom.base.words import one_line
from kingdom.council import mime
from kingdom.council.bodies import listed_rows
from kingdom.council.cli.council_dead_letters import facts_of, letters
from kingdom.council.cli.council_thread import is_named, state_of, waiting_rows

SENTENCES = {
    "waiting": "waits until {agent} is free",
    "waits for a yes": "it waits until a person says yes to the plan; `kingdom status` shows the question",
    "processing": "{agent} is about to be told",
    "delivered": "{agent} was told, and has not deleted it yet",
    "retrying": "{agent} failed, and will be told of it again",
    "done": "{agent} has done with it",
    "dead letter": "it was given up",
}


def find(places: Places, id: str) -> list[Story]:
    """Return what became of a message at each agent that it went to; nothing when it is the ID of none."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted(places.council_threads.glob("*.jsonl")):
        found.update({(row["agent"], row["file"]): row for row in listed_rows(path) if is_named(row, id)})
    found.update({(row["agent"], row["file"]): row for row in waiting_rows(places) if is_named(row, id)})
    return [_story(places, row) for row in found.values()]


def _story(places: Places, row: dict[str, Any]) -> Story:
    state = state_of(places, row, letters(places))
    agent = one_line(row["agent"], 40)
    what = f"{one_line(row['type'], 40)} from {one_line(row['from'], 40)}"
    said = SENTENCES.get(state, "{agent} says: " + state).format(agent=agent)
    at = moment(row["at"]) if row["at"] else None
    return Story(row["id"], state, at, f"{what}: {said}", tuple(_details(places, row, state)))


def _details(places: Places, row: dict[str, Any], state: str) -> Iterator[Detail]:
    if state == "dead letter":
        start = f"{as_filename(row['file'].removesuffix('.mime'))}_dlq_"
        for name in letters(places):
            if name.startswith(start):
                facts = facts_of(places, name)
                yield Detail(f"{one_line(facts['reason'], 200)}, after {facts['retry_count']} retries", None)
                yield Detail(f"`{home.command()} council dlq retry {name}` puts it back", None)
        return
    try:
        told = places.told(row["agent"]) / row["file"]
        head = mime.parse_message(read_bytes(told).decode("utf-8", "replace"))
    except (FileNotFoundError, BadFile):
        return
    if head.get("retry_count"):
        yield Detail(f"{one_line(head.get('error_reason'), 200)}; retried {one_line(head['retry_count'])} times", None)
    if state == "retrying":
        yield Detail(f"not before {one_line(head.get('next_retry_after'))}", None)
