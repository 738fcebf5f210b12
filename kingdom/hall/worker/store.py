"""Store a group of messages in one transaction; a bad one among them is found by trying each alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kingdom.hall.database.base import Database, DatabaseRefused, Transaction
from kingdom.hall.database.persist import Arrival, persist
from kingdom.hall.database.records import BadEvent, HallCommand, MessageCreated, MessagePersisted
from kingdom.hall.topics import dead_letters
from kingdom.hall.topics.base import PublishOutcome, TopicRecord
from kingdom.hall.topics.names import COMMANDS, DEAD, PERSISTED
from kingdom.hall.worker import commands


@dataclass
class Publication:
    """What follows from one record, on its way into a topic."""

    topic: str
    key: str
    value: bytes
    is_begun: bool = False
    outcome: PublishOutcome | None = None
    why: str = ""

    def settle(self, outcome: PublishOutcome, why: str) -> None:
        """Note what became of it. Called from the producer's thread."""
        self.why = why
        self.outcome = outcome

    def again(self) -> Publication:
        """Return the same, to be published once more."""
        return Publication(self.topic, self.key, self.value, why=self.why)


class WorkerStore:
    """Turns records of `chat.messages.v1` into rows, carries commands out, and says what is to be published of each."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self.stored = 0
        self.repeated = 0
        self.refused: list[str] = []
        """Why the last group's dead letters were refused."""

    def store(self, records: Sequence[TopicRecord]) -> list[Publication]:
        """Carry out the commands, then store all that can be stored.

        Return what is to be published: messages, and dead letters for the rest.

        Unavailable when the database is away. What had been stored by then is recognised by its position later.
        """
        self.refused = []
        done = [publication for record in records if record.topic == COMMANDS for publication in self._do(record)]
        return [*done, *self._store([record for record in records if record.topic != COMMANDS])]

    def _do(self, record: TopicRecord) -> list[Publication]:
        """Carry a command out, in a transaction of its own. Return what is to be published of it."""
        now = self._clock()
        try:
            command = HallCommand.from_json(_value(record))
            events = self._database.run(lambda db: commands.carry_out(db, command, record, now))
        except (BadEvent, DatabaseRefused) as error:
            return [self._dead_letter(record, str(error))]
        return [Publication(*event) for event in events]

    def _store(self, records: Sequence[TopicRecord]) -> list[Publication]:
        arrivals: list[tuple[TopicRecord, Arrival]] = []
        publications: dict[str, Publication] = {}
        for record in records:
            try:
                event = MessageCreated.from_json(_value(record))
                arrivals.append((record, Arrival(event, record.topic, record.position)))
            except BadEvent as error:
                publications[record.position] = self._dead_letter(record, str(error))
        try:
            self._store_together(arrivals, publications)
        except DatabaseRefused:
            for alone in arrivals:
                try:
                    self._store_together([alone], publications)
                except DatabaseRefused as error:
                    publications[alone[0].position] = self._dead_letter(alone[0], str(error))
        return [publications[record.position] for record in records if record.position in publications]

    def _store_together(
        self, arrivals: Sequence[tuple[TopicRecord, Arrival]], publications: dict[str, Publication]
    ) -> None:
        if not arrivals:
            return
        now = self._clock()

        def work(db: Transaction) -> list[MessagePersisted | None]:
            return persist(db, [arrival for _, arrival in arrivals], now)

        for (record, _), message in zip(arrivals, self._database.run(work), strict=True):
            if message is None:
                self.repeated += 1
            else:
                self.stored += 1
                publications[record.position] = Publication(PERSISTED, message.key, message.to_json())

    def _dead_letter(self, record: TopicRecord, why: str) -> Publication:
        self.refused.append(f"{record.topic} at {record.position}: {why}")
        return Publication(DEAD, record.key, dead_letters.of(record, why, self._clock()))


def _value(record: TopicRecord) -> bytes:
    """Return what the event of a record reads; BadEvent if it is no event of its topic."""
    if record.unfit:
        raise BadEvent(what="event", why=record.unfit)
    return record.value
