"""What every transport does: topics are logs of events, in order for each key, that several readers follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from kingdom.base.disk.atomic import Durability
from kingdom.base.errors import KingdomError
from kingdom.base.runtime.role import Services
from kingdom.base.runtime.wake import Mode

LARGEST_EVENT = 1_000_000
"""More bytes are refused, as a broker would by its default."""
CHECK_SECONDS = 2.0
"""How long `check`, `lag` and `follow` wait for a broker."""


class TopicsAway(KingdomError):
    """the topics cannot be reached: {why}"""


class PositionGone(KingdomError):
    """{reader} had not yet read all that was removed from {topic}: from {missed} on, up to {oldest}"""


class PublishOutcome(Enum):
    """What became of an event that was published."""

    STORED = "stored"
    REFUSED = "refused"
    """It is not in the topic and never will be."""
    UNKNOWN = "unknown"
    """It may be in the topic, or arrive there later."""


Done = Callable[[PublishOutcome, str], None]
"""Told what became of one event, and why if it is not stored. Called once, mostly from another thread."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One event in a topic, as a reader finds it."""

    topic: str
    #: Where it lies, as opaque text: no other record of the topic has it, and a redelivery has the same.
    position: str
    key: str
    value: bytes
    #: Why it is no event of the topic, whatever its value reads; "" for an ordinary one.
    unfit: str = ""


@dataclass(frozen=True)
class TopicsKit:
    """What a transport is made of."""

    #: The folder of the files transport.
    folder: Path
    #: Where this role's unfinished batches lie.
    scratch: Path
    durability: Durability
    #: Raises when this role has lost the right to write.
    guard: Callable[[], None]
    #: config/hall.yaml
    settings: Mapping[str, Any]
    #: Topics whose events matter for moments only: they are not made durable, and kept for minutes.
    passing: frozenset[str] = frozenset()
    wake: Mode = "inotify"
    #: What `.env` holds.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def kit_of(services: Services, settings: Mapping[str, Any], passing: frozenset[str]) -> TopicsKit:
    """Return what the transports of a role are made of."""
    return TopicsKit(
        folder=services.places.topics,
        scratch=services.places.topic_scratch(services.name),
        durability=services.system["durability"],
        guard=services.disk.guard,
        settings=settings,
        passing=passing,
        wake=services.system["wake"],
        secrets=services.secrets,
    )


class Producer(Protocol):
    """Publishes events. One for a process; its methods may be called from any thread."""

    def append(self, topic: str, key: str, value: bytes, done: Done) -> None:
        """Publish an event. Events enter a topic in the order of these calls. Neither waits nor raises."""

    def flush(self, seconds: float) -> bool:
        """Wait until the outcome of every event is known. Return whether it was, within this time."""

    def close(self) -> None:
        """Publish what was appended, as far as that is possible now, and end."""


class Follower(Protocol):
    """Reads what comes into topics after it was opened, without a group: its positions are nobody else's business."""

    @property
    def folders(self) -> Sequence[Path]:
        """The folders whose arrivals tell of new records; none where only `poll` can wait for them."""

    def poll(self, seconds: float, at_most: int = 1000) -> list[TopicRecord]:
        """Return the next records, waiting up to `seconds` for the first of them.

        TopicsAway while they cannot be read; PositionGone, once, when some were removed before they were read: the
        next call goes on behind them.
        """

    def close(self) -> None:
        """Stop reading. A `poll` that waits in another thread returns soon."""


class GroupReader(Follower, Protocol):
    """Reads on behalf of a durable group, which keeps its position and begins at the oldest record.

    Each partition has one holder within the group; a reader without a partition finds nothing and stands by.
    """

    @property
    def holds(self) -> bool:
        """Whether this reader holds any partition now."""

    def commit(self, records: Sequence[TopicRecord]) -> None:
        """Note that the group has passed these records. The note is durable shortly, and when the reader is closed."""


class Topics(Protocol):
    """The topics of one transport."""

    def producer(self, *, patient: bool = False) -> Producer:
        """Return a publisher. A patient one tries as long as it takes, and publishes in `flush` at the latest."""

    def follow(self, *topics: str) -> Follower:
        """Return a reader of what is published from now on. TopicsAway when the end of a topic cannot be learnt."""

    def group(self, group: str, *topics: str) -> GroupReader:
        """Return a reader for a durable group."""

    def lag(self, group: str, topic: str) -> int:
        """Return how many records a group has not passed yet. TopicsAway when that cannot be learnt."""

    def trim(self, topic: str, groups: Sequence[str], keep_seconds: float, now: float) -> int:
        """Remove records older than `keep_seconds` that every durable group has passed, those named at least.

        Of files also younger ones, if there are more than config/hall.yaml allows.

        Return how many steps of removal that took: a large topic takes several calls.
        """

    def amend(self, topic: str, change: Callable[[bytes], bytes]) -> Iterator[None]:
        """Replace each value by what `change` returns for it, a step at a time; places and order of records stay.

        A broker cannot do that: there nothing happens, and `trim` removes old records. TopicsAway when it fails.
        """

    def check(self) -> None:
        """Return if events can be published now, else TopicsAway, which says why."""

    def close(self) -> None:
        """Close what was opened here."""
