"""What became of a chat message: by its ID, its sender's ID, or the ID of its event in the topic."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kingdom.base.disk.codec import parse_json, read_json_or
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadFile, KingdomError, NoSuchThing
from kingdom.base.home import config, dotenv
from kingdom.base.home.places import Places
from kingdom.base.program import home
from kingdom.base.program.story import Detail, Story
from kingdom.base.times import moment
from kingdom.base.words import count, one_line

MOST = 5
"""Messages with one sender's ID that are shown at most: senders choose these IDs, and may choose the same."""
_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_EVENT_IDS = ("eventId", "clientMsgId")


def find(places: Places, id: str) -> list[Story]:
    """Return the story of every message with this ID; nothing when it is the ID of none.

    NoSuchThing, which says why, when not everything could be asked.
    """
    if not _ID.fullmatch(id):
        return []
    hall, _ = config.for_looking(places, "hall")
    failed = ""
    try:
        if found := _stored(places, hall, id):
            return found
    except KingdomError as error:
        failed = f": {one_line(error, 200)}"
    found = _in_topics(places, hall, id) if hall["transport"] == "files" else []
    if not found and (failed or hall["transport"] != "files"):
        hint = failed or "; one that is not stored yet may lie in Kafka, where this command does not look"
        raise NoSuchThing(what="stored chat message", name=id, hint=hint)
    return found


def _stored(places: Places, hall: config.Config, id: str) -> list[Story]:
    from kingdom.hall.database.opening import is_there, open_database

    secrets = dotenv.secrets(places)
    if not is_there(hall, secrets, places):
        return []
    database = open_database(hall, secrets, places)
    try:
        ids = [id.upper()]
        if "-" in id:
            rows = database.read(lambda db: db.all("messages_by_client_id", id=id.lower(), most=MOST))
            ids = [row["id"] for row in rows]
        found = [database.read(lambda db, id=id: db.one("message_by_id", id=id)) for id in ids]  # type: ignore[misc]
        return [_of_row(row) for row in found if row is not None]
    finally:
        database.close()


def _of_row(row: Mapping[str, Any]) -> Story:
    sender = one_line(row["sender"] or row["sender_id"], 40)
    what = f"{row['id']} ({row['type']}): {one_line(row['content'], 80)!r}"
    whence = "it was imported: no position in a topic is noted"
    if row["topic"]:
        whence = f"its event was at {row['position']} of {row['topic']}, under its sender's ID {row['client_msg_id']}"
    at = moment(row["created_at"])
    sentence = f"{what} of {sender} in {one_line(row['room'], 40)!r} ({row['room_id']}) was stored"
    details = [Detail(whence, at)]
    if row["removed_by"]:
        details.append(Detail(f"it was removed; {row['removed_by']} in its room tells so", None))
    return Story(row["id"], "the chat's database", at, sentence, tuple(details))


def _in_topics(places: Places, hall: config.Config, id: str) -> list[Story]:
    """Return what the files of topics say of a message that is not in the database."""
    from kingdom.hall.topics.names import DEAD, MESSAGES

    id = id.lower()
    for position, letter in _events(places, DEAD):
        head = base64.b64decode(str(letter.get("head")))
        if id.encode() in head.lower():
            why = one_line(letter.get("reason"), 200)
            sentence = f"{id} could not be stored: {why}"
            details = (Detail(f"its event was at {letter.get('position')} of {letter.get('topic')}", None),)
            return [Story(id, f"queue/topics/{DEAD} at {position}", _moment(letter.get("at")), sentence, details)]
    for position, event in _events(places, MESSAGES, id.encode()):
        if id in [str(event.get(key)).lower() for key in _EVENT_IDS]:
            sentence = f"{id} was accepted: {one_line(event.get('content'), 80)!r}"
            detail = Detail(_what_holds(places, hall, int(position)), None)
            at = _moment(event.get("producedAt"))
            return [Story(id, f"queue/topics/{MESSAGES} at {position}", at, sentence, (detail,))]
    return []


def _events(places: Places, topic: str, holds: bytes = b"") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events of a topic that hold these bytes, with their numbers."""
    from kingdom.hall.topics.batches import Batches, of_line

    batches = Batches(places.topics / topic, home.disk(places))
    for first in batches.numbers():
        with suppress(FileNotFoundError, BadFile):  # removed meanwhile; what cannot be read is fsck's
            for line in batches.numbered(first):
                if holds in line.data.lower() and not line.surplus:
                    with suppress(ValueError, AttributeError):
                        value = parse_json(of_line(line.data)[1])
                        if isinstance(value, dict):
                            yield f"{line.number}", value


def _what_holds(places: Places, hall: config.Config, number: int) -> str:
    from kingdom.hall.topics.names import MESSAGES

    group = Path(places.topics, MESSAGES, "groups", f"{hall['kafka']['group']}.json")
    passed = read_json_or(group, {}).get("next", 0)
    waits = f"it waits for the worker, with {count(max(0, number - passed), 'message')} before it"
    if number < passed:
        return "the worker has passed it, and the database does not have it: it was a repetition, or `kingdom fsck`"
    running = [path for path in places.worker_snapshots() if is_locked(places.lock(path.parent.name))]
    if not running:
        return f"{waits}; no worker runs: {home.how_to_start(places, 'worker')}"
    said = read_json_or(running[0], {})
    return f"{waits}, which waits: {one_line(said.get('why'), 200)}" if said.get("state") == "waiting" else waits


def _moment(text: object) -> float | None:
    with suppress(ValueError, OverflowError):
        return moment(str(text))
    return None
