"""The contract of a store: it remembers where each message lies, and nothing else.

The engine keeps the order, the leases and the rules in memory, and tells the store every change of
state. A message is known to its store by (queue, state, name): the name carries all that changes
during its life (see kingdom.mq.names), the body is the envelope as published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from kingdom.disk.atomic import Durability

State = Literal["ready", "delayed", "inflight", "dlq", "archived"]

FOLDERS: Mapping[str, str] = {
    "inbox": "inbox",
    "processing": "processing",
    "archive": "archive",
    "dlq": "dlq",
    "meta": "meta",
}


class Found(NamedTuple):
    """Messages of one queue in one state, in no order. Delayed ones are found as ready: the due time tells."""

    queue: str
    state: Literal["ready", "inflight", "dlq"]
    names: list[str]


class Memo(NamedTuple):
    """What must outlive the message: a request id or deduplication key, and the message ids it led to."""

    kind: Literal["request", "dedup"]
    at: int
    queue: str
    key: str
    ids: tuple[str, ...]


class Stray(NamedTuple):
    """A file that somebody laid into an inbox by hand."""

    queue: str
    file: str
    body: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One inconsistency, and whether it has been mended."""

    kind: Literal["orphan_payload", "missing_payload", "invalid_state", "stale_archive", "unreadable", "litter"]
    queue: str
    what: str
    repaired: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a store lives and how durable it is. Each store takes the fields it needs."""

    root: Path
    durability: Durability = "power"
    files: Path | None = None
    payloads: Path | None = None
    database: Path | None = None
    kv_table: str = "kv"
    index_table: str = "msg_index"
    schema: Path | None = None
    journal_mode: str = "WAL"
    busy_timeout_ms: int = 5000
    folders: Mapping[str, str] | None = None
    grouping: Literal["auto", "fsync", "syncfs"] = "auto"
    archive_keep_ms: int = 14 * 86_400_000
    check_on_start: bool = True


class Gone(Exception):
    """The message is not where it was: a person moved or removed it."""


class Store(Protocol):
    """Every change may wait until commit; after commit it is as durable as the plan says.

    A change raises Gone when there is nothing to change, and StoreTrouble when the disk fails. If it has
    then set `broken`, the changes since the last commit are undecided: the engine abandons them and
    loads everything anew.
    """

    broken: bool
    by_hand: bool
    """Whether a person can edit the bodies, so that they are read again before they are handed out."""

    def load(self) -> Iterator[Found]:
        """Every message, each once. Half-done changes of a killed life are finished or undone first."""

    def queues(self) -> Mapping[str, str]:
        """The record (policy, paused) of every queue, as JSON."""

    def save_queue(self, queue: str, record: str) -> None: ...

    def put(self, queue: str, state: State, name: str, body: str) -> None: ...

    def move(self, queue: str, state: State, name: str, to: State, new: str) -> None: ...

    def rewrite(self, queue: str, state: State, name: str, to: State, new: str, body: str) -> None:
        """Move, and change the body with it: into and out of the dead letters."""

    def drop(self, queue: str, state: State, name: str) -> None: ...

    def read(self, queue: str, state: State, name: str) -> str:
        """The body. Unfit when it is no text."""

    def remember(self, memos: Iterable[Memo]) -> None: ...

    def recall(self, since: int) -> Iterator[Memo]:
        """What was remembered at or after `since`, oldest first."""

    def ripen(self, queue: str, now: int) -> None:
        """Delayed messages due by now are ready: for stores in which people look for that word."""

    def tidy(self, now: int, idle: bool) -> None:
        """House-keeping between groups: the engine calls it about once a second while something happens."""

    def strays(self, budget: int, waiting: Mapping[str, Collection[str]]) -> list[Stray]:
        """Files laid in by hand. Looks at about `budget` names a call, and at nothing while nothing changes.
        `waiting` holds the names that each queue knows."""

    def adopt(self, stray: Stray, name: str) -> None:
        """The stray becomes the message `name`, ready, by one rename."""

    def commit(self) -> None: ...

    def abandon(self) -> None:
        """Forget the undecided changes; no longer broken."""

    def check(self, repair: bool, now: int) -> list[Finding]:
        """What does not fit together in the store. Called between groups; the engine loads anew after a repair."""

    def close(self) -> None: ...
