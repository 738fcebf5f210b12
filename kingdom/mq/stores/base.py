"""The contract of a store: it remembers where each message lies, and nothing else.

The engine keeps the order, the leases and the rules in memory, and tells the store every change of
state. A message is known to its store by (queue, state, name): the name carries all that changes
during its life (see kingdom.mq.names), the body is the envelope as published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self
from urllib.parse import quote

from kingdom.base.disk.atomic import Durability
from kingdom.base.home import schemas

State = Literal["ready", "delayed", "inflight", "dlq", "archived"]

DAY_MS = 86_400_000
LONGEST_FOLDER_NAME = 120
SMALL_ENOUGH_TO_KEEP = 16 << 10
"""Larger files are not kept to be written over."""
SPARES_TRIMMED_AT_ONCE = 128
"""In one turn, so few: deleting 512 files has taken 60 ms."""
TRASH = ".deleted"
"""Where the folder of a deleted queue goes in one step, before what is in it goes one by one."""
MOST_AT_ONCE = 16 << 20
"""Characters of messages that one answer holds, but for the last message in it: what is leased must be deliverable."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The whole configuration, handed to a store, which reads the part that is named after it."""

    #: Every key of config/mq.yaml, with defaults.
    values: Mapping[str, Any]
    #: The folder at which relative paths start.
    base: Path

    @classmethod
    def at(cls, root: Path, **values: Any) -> Self:
        """Build a configuration whose data lie at `root`; what `values` do not say, the schema's defaults say."""
        given = {**values, "paths": {"dataRoot": str(root)}}
        return cls(schemas.with_defaults(schemas.load("config/mq"), given), root)

    @property
    def backend(self) -> str:
        """The name of the store's row in STORES."""
        return str(self.values["backend"])

    @property
    def root(self) -> Path:
        """Where data lie that have no place of their own."""
        return self.base / str(self.values["paths"]["dataRoot"])

    @property
    def durability(self) -> Durability:
        durability: Durability = self.values["durability"]
        return durability

    @property
    def archive_keep_ms(self) -> int:
        """How long archived messages are kept."""
        return int(self.values["archiveDays"] * DAY_MS)

    def part(self, name: str) -> Mapping[str, Any]:
        """Return the keys of one group, for example `sqlite`."""
        part: Mapping[str, Any] = self.values[name]
        return part

    def path(self, given: str, default: str) -> Path:
        """Return the path `given`, relative to the file; when it is empty, `default` under the root."""
        return self.base / given if given else self.root / default


class FoundMessages(NamedTuple):
    """Messages of one queue in one state, in no order. Delayed ones are found as ready: the due time tells."""

    queue: str
    state: Literal["ready", "inflight", "dlq"]
    names: list[str]


class DedupEntry(NamedTuple):
    """What must outlive the message: a request or deduplication key, and the message ids it led to."""

    kind: Literal["request", "dedup"]
    #: When it was made, in ms since the epoch.
    at: int
    queue: str
    #: The request's key (see kingdom.mq.deduplication) or the deduplication key.
    key: str
    #: One per message of the request; empty for a message that was refused.
    ids: tuple[str, ...]


class Stray(NamedTuple):
    """A file that somebody laid into an inbox by hand."""

    queue: str
    file: str
    body: str


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """One inconsistency of a store."""

    kind: Literal[
        "orphan_payload",
        "missing_payload",
        "truncated",
        "foreign",
        "doubled",
        "invalid_state",
        "bad_name",
        "lost_policy",
        "stale_archive",
        "unreadable",
        "litter",
    ]
    queue: str
    #: The file, key or name that is meant.
    what: str
    #: Whether the check has removed or corrected it.
    repaired: bool


class MessageGone(Exception):
    """The message is not where it was: a person moved or removed it."""


class MessageStore(Protocol):
    """Every change may wait until commit; after commit it is as durable as the configuration says, but for takes.

    A change raises MessageGone when there is nothing to change, and StoreError when the disk fails. If it has
    then set `broken`, the changes since the last commit are undecided: the engine abandons them and
    loads everything anew.
    """

    #: Whether a change of this group failed, so that the group cannot be committed.
    broken: bool
    #: Whether a person can edit the bodies, so that they are read again before they are handed out.
    by_hand: bool
    #: How long entries are remembered at least, in ms; the engine sets it.
    kept_ms: int

    @property
    def trouble(self) -> str:
        """What keeps the store from taking messages, as a sentence; empty when nothing does."""

    def load(self) -> Iterator[FoundMessages]:
        """Yield every message, each once. Changes that a kill has interrupted are finished or undone first."""

    def queues(self) -> Mapping[str, str]:
        """Return the record (policy, paused) of every queue, as JSON."""

    def save_queue(self, queue: str, record: str) -> None:
        """Keep the record of a queue, right away and durably."""

    def put(self, queue: str, state: State, name: str, body: str) -> None:
        """Add a new message."""

    def move(self, queue: str, state: State, name: str, to: State, new: str) -> None:
        """Change a message's state and name; the body stays."""

    def rewrite(self, queue: str, state: State, name: str, to: State, new: str, body: str) -> None:
        """Move a message and change its body with it: into and out of the dead letters."""

    def drop(self, queue: str, state: State, name: str) -> None:
        """Delete a message."""

    def transfer(self, queue: str, state: State, name: str, to: str, new: str, body: str) -> None:
        """Move a message, or a dead letter, to another queue, where it waits with this body. A crash leaves it in one
        of them. (A store of files renames the file: there the body stays what it was.)"""

    def archived(self, queue: str, most: int) -> list[str]:
        """Return the names of up to `most` archived messages of a queue. Called right after a commit."""

    def remove_queue(self, queue: str) -> bool:
        """Delete the record of a queue without messages, right away and durably. Return False when so much is left of
        the queue that it takes another call. Called right after a commit."""

    def read(self, queue: str, state: State, name: str) -> str:
        """Return the body. MalformedBody when it is no text."""

    def remember(self, entries: Iterable[DedupEntry]) -> None:
        """Keep these entries, with the next commit."""

    def recall(self, since: int) -> Iterator[DedupEntry]:
        """Yield what was remembered at or after `since`, oldest first."""

    def release_due(self, queue: str, now: int, count: int) -> None:
        """Note that the first `count` delayed messages, due by now, are ready: for stores in which people look for
        that word."""

    def tidy(self, now: int, idle: bool) -> bool:
        """Clean up between groups, a part of it when it is much: the engine calls it about once a second while
        something happens. Return whether more is left to do right away."""

    def strays(self, budget: int, waiting: Callable[[str], Iterable[str]]) -> list[Stray]:
        """Return files laid in by hand. Looks at about `budget` names a call, and at nothing while nothing changes.
        `waiting` holds the names that each queue knows."""

    def adopt(self, stray: Stray, name: str) -> None:
        """Make the stray the message `name`, ready, by one rename."""

    def commit(self) -> None:
        """Make all changes since the last commit durable. A move that `is_take` need only outlive the process."""

    def abandon(self) -> None:
        """Forget the undecided changes; no longer broken."""

    def check(self, repair: bool, now: int) -> list[StoreFinding]:
        """Return what does not fit together. Called between groups; the engine loads anew after a repair."""

    def close(self) -> None:
        """Let go of files and connections."""


def is_take(state: State, to: State) -> bool:
    """Return whether a move hands a message out. A power cut may undo it: then the message waits again."""
    return to == "inflight" and state != "inflight"


def queue_folder(queue: str) -> str:
    """Return the folder name of a queue: readable for plain names, one to one for all of them, never a path.

    What is not a letter, a digit or one of `_-.` is written %XX; very long names end in a hash instead.
    """
    text = quote(queue, safe="", errors="surrogatepass").replace("~", "%7E")
    if text.startswith("."):
        text = f"%2E{text[1:]}"
    if len(text) <= LONGEST_FOLDER_NAME:
        return text
    return f"{text[:40].rstrip('%')}~{sha256(queue.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
