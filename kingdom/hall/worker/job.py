"""The worker's turn: read messages from the topic, store them, publish what is stored, and then commit the position."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kingdom.base.errors import KingdomError
from kingdom.base.runtime.role import Services, Turn
from kingdom.hall.database import retention
from kingdom.hall.database.base import Unavailable
from kingdom.hall.database.opening import open_database
from kingdom.hall.topics import open_topics
from kingdom.hall.topics.base import PositionGone, PublishOutcome, TopicRecord, TopicsAway, kit_of
from kingdom.hall.topics.names import COMMANDS, MESSAGES, PASSING, PERSISTED, SIGNALS
from kingdom.hall.worker.erasing import Erasing
from kingdom.hall.worker.store import Publication, WorkerStore
from kingdom.hall.worker.vitals import Vitals

MOST_TOGETHER = 500
"""Messages of one transaction."""
PATIENCE_SECONDS = 0.25
"""How long a turn waits for messages where no folder tells of them."""
PUBLISH_SECONDS = 2.0
CLOSE_SECONDS = 5.0
AWAY_SECONDS = 0.5
"""How soon it tries again when database or topics are away."""
LOOK_SECONDS = 2.0
"""How often it looks whether the database is there and has room."""
TRIM_SECONDS = 60.0
ERASE_SECONDS = 30.0
"""How often it looks for texts to erase; after a command at once."""
MOST_CUT = 1000
"""Old messages that one turn deletes."""
PASSING_SECONDS = 600.0
"""How long signals are kept."""


class WorkerJob:
    """Reads `chat.messages.v1` and `hall.commands.v1` on behalf of its group."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._group = str(services.config["kafka"]["group"])
        self._database = open_database(services.config, services.secrets, services.places)
        self._topics = open_topics(services.config["transport"], kit_of(services, services.config, PASSING))
        self._reader = self._topics.group(self._group, COMMANDS, MESSAGES)
        self._producer = self._topics.producer(patient=True)
        self._store = WorkerStore(self._database, services.clock)
        self._vitals = Vitals(services, self._group)
        self._erasing = Erasing(self._database, self._topics)
        #: What was read and is not committed.
        self._in_hand: Sequence[TopicRecord] = ()
        #: What is to be published of it, once it is stored.
        self._publications: list[Publication] | None = None
        self._is_migrated = False
        self._look_at = 0.0
        self._trim_at = 0.0
        self._cut_at = 0.0
        self._erase_at = 0.0

    def folders(self) -> dict[Path, tuple[str, ...]]:
        return dict.fromkeys(self._reader.folders, ())

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        try:
            self._look()
            worked = self._work()
            self._cut()
            worked = self._erase() or worked
        except (Unavailable, TopicsAway) as error:
            # Nothing was committed: the same messages are taken up again when it is back.
            self._vitals.away(str(error))
            with suppress(TopicsAway, OSError):
                self._trim()  # also on a full disk, where it makes room
            return Turn(worked=False, wait=AWAY_SECONDS, busy=True)
        self._vitals.well()
        self._trim()
        self._vitals.write(self._topics, self._reader.holds)
        return Turn(worked, self._wait(), busy=bool(self._in_hand))

    def reload(self, services: Services) -> None:
        """Take over nothing: another transport or database takes effect at the next start."""

    def close(self) -> None:
        """Finish what is being published and leave the group."""
        try:
            if self._publications is not None:
                self._publish(CLOSE_SECONDS)
        except KingdomError as error:
            self._services.log.warn(f"leaves {len(self._in_hand)} messages for its next start: {error}")
        self._topics.close()
        self._database.close()

    def _work(self) -> bool:
        """Carry one group of messages as far as it goes. Return whether all of it was committed."""
        if not self._in_hand:
            self._in_hand = self._read()
        if not self._in_hand:
            return False
        if self._publications is None:
            self._publications = self._store.store(self._in_hand)
        self._publish(PUBLISH_SECONDS)
        return True

    def _look(self) -> None:
        """Find out from time to time whether messages could be stored, also while none come. Unavailable if not."""
        if not self._is_migrated:
            self._database.migrate()
            self._is_migrated = True
        if self._services.monotonic() >= self._look_at:
            self._database.check()
            self._look_at = self._services.monotonic() + LOOK_SECONDS

    def _read(self) -> Sequence[TopicRecord]:
        try:
            return self._reader.poll(0.0 if self._reader.folders else PATIENCE_SECONDS, MOST_TOGETHER)
        except PositionGone as error:
            self._vitals.gone(str(error))
            return ()

    def _publish(self, seconds: float) -> None:
        """Publish what is stored, and commit. TopicsAway when not all could be published in this time."""
        assert self._publications is not None
        for publication in self._publications:
            if not publication.is_begun:
                publication.is_begun = True
                self._producer.append(publication.topic, publication.key, publication.value, publication.settle)
        if not self._producer.flush(seconds):
            raise TopicsAway(why="what is stored could not be published yet")
        failed = next(
            (at for at, given in enumerate(self._publications) if given.outcome is not PublishOutcome.STORED), None
        )
        if failed is not None:
            # All from there on again: their order matters, and who reads them drops what it has seen.
            self._publications = [publication.again() for publication in self._publications[failed:]]
            raise TopicsAway(why=self._publications[0].why)
        if len(self._publications) < len(self._in_hand) or any(record.topic == COMMANDS for record in self._in_hand):
            self._erase_at = 0.0  # removed now, or sent again after it was removed
        self._reader.commit(self._in_hand)
        self._vitals.committed(self._in_hand, self._store)
        self._in_hand, self._publications = (), None

    def _trim(self) -> None:
        """Remove from the topics what all groups have committed."""
        now = self._services.monotonic()
        if now < self._trim_at or not self._reader.holds:
            return
        keep = float(self._services.config["retention_minutes"]) * 60
        wall = self._services.clock()
        steps = sum(
            self._topics.trim(topic, groups, seconds, wall)
            for topic, groups, seconds in (
                (MESSAGES, [self._group], keep),
                (COMMANDS, [self._group], keep),
                (PERSISTED, [], keep),
                (SIGNALS, [], PASSING_SECONDS),
            )
        )
        self._trim_at = now + (0.0 if steps else TRIM_SECONDS)

    def _cut(self) -> None:
        """Delete messages that are older than their room keeps them, so many in a turn."""
        now = self._services.monotonic()
        if now < self._cut_at or not self._reader.holds:
            return
        usual, wall = int(self._services.config["keep_days"]), self._services.clock()
        removed = self._database.run(lambda db: retention.cut(db, usual, wall, MOST_CUT))
        self._cut_at = now + (0.0 if removed else TRIM_SECONDS)

    def _erase(self) -> bool:
        """Erase the texts of removed messages, some files in a turn. Return whether there is more to do at once."""
        now = self._services.monotonic()
        if not self._reader.holds or self._in_hand:
            return False
        if now >= self._erase_at:
            self._erasing.look()
            self._erase_at = now + ERASE_SECONDS
        try:
            return self._erasing.go_on()
        except TopicsAway as error:
            self._vitals.not_erased(str(error))
            return False

    def _wait(self) -> float:
        if not self._reader.folders:
            return 0.0
        if self._reader.holds and min(self._cut_at, self._erase_at) <= self._services.monotonic():
            return 0.0
        return min(self._vitals.seconds_to_write, LOOK_SECONDS) if self._reader.holds else 1.0
