"""Orders to the hall's worker from the command line: published durably, then found in the database when done."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kingdom.base.disk.atomic import make_folder
from kingdom.base.errors import KingdomError
from kingdom.base.home import config, dotenv
from kingdom.base.home.places import Places
from kingdom.base.program import home
from kingdom.hall.database.base import Database
from kingdom.hall.database.ids import iso, new_uuid
from kingdom.hall.database.records import HallCommand
from kingdom.hall.topics import open_topics
from kingdom.hall.topics.base import PublishOutcome, TopicRecord, Topics, TopicsKit
from kingdom.hall.topics.names import COMMANDS, PASSING

PUBLISH_SECONDS = 15.0
DONE_SECONDS = 10.0
LOOK_SECONDS = 0.05
READERS = "kingdom-rebuild"
POLL_SECONDS = 0.2
HOLD_SECONDS = 20.0
"""A broker gives partitions to a new reader only after some seconds."""
SILENT_SECONDS = 2.0
"""A topic in which nothing came for so long was read to its end."""


class NotOrdered(KingdomError):
    """the order could not be given: {why}"""


def order(places: Places, database: Database, name: str, **facts: str | int) -> bool:
    """Give the worker an order. Return whether it has carried it out by now; it does when it runs."""
    command = HallCommand(new_uuid(), name, iso(time.time()), {**facts, "by": f"{home.user()} on the command line"})
    _publish(places, str(facts.get("roomId") or facts["userId"]), command)
    until = time.monotonic() + DONE_SECONDS
    while time.monotonic() < until:
        if database.read(lambda db: db.one("audited", command_id=command.id)) is not None:
            return True
        time.sleep(LOOK_SECONDS)
    return False


def _publish(places: Places, key: str, command: HallCommand) -> None:
    told: list[tuple[PublishOutcome, str]] = []
    with opened_topics(places) as topics:
        producer = topics.producer()
        producer.append(COMMANDS, key, command.to_json(), lambda outcome, why: told.append((outcome, why)))
        producer.flush(PUBLISH_SECONDS)
    outcome, why = told[0] if told else (PublishOutcome.UNKNOWN, "no answer from the topics")
    if outcome is not PublishOutcome.STORED:
        raise NotOrdered(why=why)


@contextmanager
def opened_topics(places: Places) -> Iterator[Topics]:
    """Open the hall's topics for one command."""
    # A folder for each: whoever opens topics clears its own scratch folder.
    scratch = places.topic_scratch(home.WRITER) / str(os.getpid())
    make_folder(scratch)
    system = config.load(places, "system")
    kit = TopicsKit(
        folder=places.topics,
        scratch=scratch,
        durability=system["durability"],
        guard=lambda: None,
        settings=config.load(places, "hall"),
        passing=PASSING,
        wake=system["wake"],
        secrets=dotenv.secrets(places),
    )
    topics = open_topics(kit.settings["transport"], kit)
    try:
        yield topics
    finally:
        topics.close()
        shutil.rmtree(scratch, ignore_errors=True)


def all_records(topics: Topics, topic: str) -> Iterator[Sequence[TopicRecord]]:
    """Yield everything in a topic from its oldest record on, and leave no position there."""
    reader = topics.group(READERS, topic)
    until = time.monotonic() + HOLD_SECONDS
    held = False
    while time.monotonic() < until:
        records = reader.poll(POLL_SECONDS)
        if records or (reader.holds and not held):
            held, until = True, time.monotonic() + SILENT_SECONDS
        if records:
            yield records
    if not held:
        raise NotOrdered(why=f"{topic} cannot be read: another `rebuild` may be reading it")
