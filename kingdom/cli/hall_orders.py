"""Orders to the hall's worker from the command line: published durably, then found in the database when done."""

from __future__ import annotations

import os
import shutil
import time

from kingdom.cli import home
from kingdom.disk.atomic import make_folder
from kingdom.errors import KingdomError
from kingdom.hall.base import Database
from kingdom.hall.ids import iso, new_uuid
from kingdom.hall.records import Command
from kingdom.home import config, dotenv
from kingdom.home.places import Places
from kingdom.topics import open_topics
from kingdom.topics.base import Kit, Outcome
from kingdom.topics.names import COMMANDS, PASSING

PUBLISH_SECONDS = 15.0
DONE_SECONDS = 10.0
LOOK_SECONDS = 0.05


class NotOrdered(KingdomError):
    """the order could not be given: {why}"""


def order(places: Places, database: Database, name: str, **facts: str) -> bool:
    """Give the worker an order. Return whether it has carried it out by now; it does when it runs."""
    command = Command(new_uuid(), name, iso(time.time()), {**facts, "by": f"{home.user()} on the command line"})
    _publish(places, facts.get("roomId") or facts["userId"], command)
    until = time.monotonic() + DONE_SECONDS
    while time.monotonic() < until:
        if database.read(lambda db: db.one("audited", command_id=command.id)) is not None:
            return True
        time.sleep(LOOK_SECONDS)
    return False


def _publish(places: Places, key: str, command: Command) -> None:
    # One for each call: whoever opens topics clears its own scratch folder.
    scratch = places.topic_scratch(home.WRITER) / str(os.getpid())
    make_folder(scratch)
    system = config.load(places, "system")
    kit = Kit(
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
    told: list[tuple[Outcome, str]] = []
    try:
        producer = topics.producer()
        producer.append(COMMANDS, key, command.to_json(), lambda outcome, why: told.append((outcome, why)))
        producer.flush(PUBLISH_SECONDS)
    finally:
        topics.close()
        shutil.rmtree(scratch, ignore_errors=True)
    outcome, why = told[0] if told else (Outcome.UNKNOWN, "no answer from the topics")
    if outcome is not Outcome.STORED:
        raise NotOrdered(why=why)
