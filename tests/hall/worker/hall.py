"""A hall without gateway and network: rooms and people in its database, messages in its topics, and a worker."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kingdom.base.runtime.role import Services
from kingdom.hall.database.base import Database, Transaction
from kingdom.hall.database.ids import iso, new_uuid
from kingdom.hall.database.opening import open_database
from kingdom.hall.database.records import HallCommand, MessageCreated
from kingdom.hall.topics import open_topics
from kingdom.hall.topics.base import PublishOutcome, TopicRecord, Topics, kit_of
from kingdom.hall.topics.names import COMMANDS, DEAD, MESSAGES, PASSING, PERSISTED
from kingdom.hall.worker.job import WorkerJob
from tests.contracts.topics import Told
from tests.fixtures import Clock, services
from tests.waiting import SOON, wait_until

LONG_AGO = iso(0.0)


class Hall:
    """A home with a hall; tests play the gateway."""

    def __init__(self, home: Path, clock: Clock, **settings: Any) -> None:
        self.home = home
        self.clock = clock
        self.settings = settings
        self.services = self.of("gateway")
        self.database: Database = open_database(self.services.config, {}, self.services.places)
        self.database.migrate()
        self.topics: Topics = open_topics(self.services.config["transport"], kit_of(self.services, self._hall, PASSING))
        self.producer = self.topics.producer()
        self.persisted = self.topics.follow(PERSISTED)
        self.dead = self.topics.follow(DEAD)

    @property
    def _hall(self) -> Mapping[str, Any]:
        return self.services.config

    def of(self, role: str) -> Services:
        """The services of a role of the hall."""
        return replace(services(self.home, role, self.clock, hall=self.settings), secrets={})

    def close(self) -> None:
        self.topics.close()
        self.database.close()

    def user(self) -> str:
        user = new_uuid()
        row = {"id": user, "email": f"{user}@example.org", "password_hash": "x", "created_at": LONG_AGO}
        self.database.run(lambda db: db.one("add_user", **row))
        return user

    def room(self, *members: str) -> str:
        room = new_uuid()

        def work(db: Transaction) -> None:
            db.do("add_room", id=room, name="a room", created_at=LONG_AGO)
            for member in members:
                db.one("add_member", room_id=room, user_id=member, joined_at=LONG_AGO)

        self.database.run(work)
        return room

    def publish(self, *values: bytes | MessageCreated, key: str = "") -> list[PublishOutcome]:
        """Publish a message as the gateway does."""
        told = Told()
        for number, value in enumerate(values):
            if isinstance(value, MessageCreated):
                self.producer.append(MESSAGES, value.key, value.to_json(), told.of(number))
            else:
                self.producer.append(MESSAGES, key, value, told.of(number))
        assert self.producer.flush(SOON)
        return list(told.outcomes().values())

    def history(self, room: str) -> list[dict[str, Any]]:
        """Return the messages of a room, oldest first."""
        return self.database.read(lambda db: db.all("messages_after", room_id=room, after="", most=1_000_000))

    def told(self, number: int) -> list[dict[str, Any]]:
        """Return the next messages for gateways."""
        return [json.loads(record.value) for record in self._next(self.persisted, number)]

    def buried(self, number: int) -> list[dict[str, Any]]:
        """Return the next dead letters."""
        return [json.loads(record.value) for record in self._next(self.dead, number)]

    @staticmethod
    def _next(reader: Any, number: int) -> Sequence[TopicRecord]:
        found: list[TopicRecord] = []
        wait_until(lambda: found.extend(reader.poll(0.05)) or len(found) >= number, SOON, f"{number} records")
        assert len(found) == number
        return found


def message(room: str, sender: str, content: str = "hello", **fields: Any) -> MessageCreated:
    whole = {
        "event_id": new_uuid(),
        "room_id": room,
        "sender_id": sender,
        "client_msg_id": new_uuid(),
        "message_type": "TEXT",
        "content": content,
        "produced_at": LONG_AGO,
        **fields,
    }
    return MessageCreated(**whole)


@contextmanager
def at_work(hall: Hall) -> Iterator[WorkerJob]:
    """Start a worker, and close it at the end as a role's loop does."""
    worker = WorkerJob(hall.of("worker"))
    try:
        yield worker
    finally:
        worker.close()


def work(hall: Hall, worker: WorkerJob, passed: int) -> None:
    """Run turns until its group has read so many more messages."""
    before = hall.topics.lag("chat-persistor", MESSAGES)

    def turned() -> bool:
        worker.turn(None)
        return hall.topics.lag("chat-persistor", MESSAGES) <= before - passed

    wait_until(turned, SOON, f"the worker has passed {passed} messages")


def give(hall: Hall, *values: HallCommand | bytes) -> None:
    """Publish commands."""
    outcomes: list[PublishOutcome] = []
    for value in values:
        raw = value if isinstance(value, bytes) else value.to_json()
        hall.producer.append(COMMANDS, "key", raw, lambda outcome, why: outcomes.append(outcome))
    assert hall.producer.flush(SOON)
    assert outcomes == [PublishOutcome.STORED] * len(values)


def ordered(name: str, **facts: str | int) -> HallCommand:
    """Return a command that a person has given."""
    return HallCommand(new_uuid(), name, iso(0.0), {"by": "anna@example.org", **facts})
