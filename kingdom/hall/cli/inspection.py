"""What `kingdom fsck` looks for in the hall's own files: topics, and its database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from kingdom.base.disk.codec import read_json
from kingdom.base.errors import BadFile, KingdomError
from kingdom.base.home import config, dotenv
from kingdom.base.home.places import Places
from kingdom.base.program import home
from kingdom.base.wing import FsckFinding
from kingdom.base.words import count
from kingdom.hall.database.opening import is_there, open_database
from kingdom.hall.topics.batches import Batches

TOPIC_RULE = "The files of a topic follow each other without a gap, and no group is ahead of them."
HALL_RULE = "The last message of a room is in its history, and is the newest there."


def topics(places: Places, repair: bool) -> Iterator[FsckFinding]:
    # Beside the topics in files lies what a broker's topics are known by.
    for folder in sorted(path for path in places.topics.glob("[!.]*") if path.is_dir()):
        batches = Batches(folder, home.disk(places))
        # Groups first: what is appended meanwhile is no ground for alarm.
        passed = [(path, _next(path)) for path in sorted(batches.groups.glob("*.json"))]
        lines: dict[int, int] = {}
        for number in batches.numbers():
            try:
                lines[number] = len(batches.lines(number))
            except FileNotFoundError:  # removed meanwhile
                lines.clear()
            except BadFile as error:
                yield FsckFinding("topics", TOPIC_RULE, folder, str(error), "")
        for first, following in pairwise(lines):
            if (end := first + lines[first]) < following:
                yield FsckFinding("topics", TOPIC_RULE, folder, f"events {end} to {following - 1} are missing", "")
            elif end > following:
                what = f"{count(end - following, 'line')} too many in the file of event {first}"
                yield FsckFinding("topics", TOPIC_RULE, folder, what, "")
        ends_at, oldest = batches.end(), min(lines, default=0)
        for path, position in passed:
            if position is None:
                yield FsckFinding("topics", TOPIC_RULE, path, "it names no position", "")
            elif position < oldest and (_next(path) or 0) < oldest:  # what it has passed may be removed meanwhile
                what = f"events {position} to {oldest - 1} are gone, and it has not read them"
                yield FsckFinding("topics", TOPIC_RULE, path, what, "")
            elif position > ends_at:
                yield FsckFinding(
                    "topics", TOPIC_RULE, path, f"it has passed event {position}, and the topic ends at {ends_at}", ""
                )


def _next(path: Path) -> int | None:
    try:
        number = read_json(path).get("next")
    except (FileNotFoundError, BadFile):
        return None
    return number if isinstance(number, int) else None


def database(places: Places, repair: bool) -> Iterator[FsckFinding]:
    hall, _ = config.for_looking(places, "hall")
    secrets = dotenv.secrets(places)
    if not is_there(hall, secrets, places):
        return
    try:
        opened = open_database(hall, secrets, places)
        try:
            for row in opened.read(lambda db: db.all("rooms_without_their_last_message")):
                what = f"room {row['id']} names message {row['last_message_id']}, which is not there"
                yield FsckFinding("hall", HALL_RULE, places.hall, what, "")
            for row in opened.read(lambda db: db.all("rooms_behind_their_messages")):
                what = f"room {row['id']} has a newer message than {row['last_message_id']}, its last one"
                yield FsckFinding("hall", HALL_RULE, places.hall, what, "")
        finally:
            opened.close()
    except KingdomError as error:
        yield FsckFinding("hall", HALL_RULE, places.hall, str(error), "")
