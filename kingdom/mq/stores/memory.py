"""Messages that live as long as the process: for tests, for pipelines that start anew, and as the plainest store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from kingdom.mq import names
from kingdom.mq.large_map import LargeMap
from kingdom.mq.names import MESSAGE_ID
from kingdom.mq.stores.base import (
    DAY_MS,
    DedupEntry,
    FoundMessages,
    MessageGone,
    State,
    StoreConfig,
    StoreFinding,
    Stray,
)


class MemoryStore:
    by_hand = False
    trouble = ""

    def __init__(self, config: StoreConfig) -> None:
        self.broken = False
        self.kept_ms = DAY_MS
        #: State, name and body of each message, by its queue and its id.
        self._bodies = LargeMap[tuple[str, str], tuple[State, str, str]]()
        #: The names of those that are archived, by queue and id.
        self._archived: dict[str, LargeMap[str, str]] = {}
        self._records: dict[str, str] = {}
        self._entries: deque[DedupEntry] = deque(maxlen=1_000_000)
        self._archive_keep_ms = config.archive_keep_ms

    def load(self) -> Iterator[FoundMessages]:
        for (queue, _), (state, name, _) in list(self._bodies.items()):
            if state != "archived":
                yield FoundMessages(queue, "ready" if state == "delayed" else state, [name])

    def queues(self) -> Mapping[str, str]:
        return dict(self._records)

    def save_queue(self, queue: str, record: str) -> None:
        self._records[queue] = record

    def put(self, queue: str, state: State, name: str, body: str) -> None:
        self._bodies.put((queue, name[MESSAGE_ID]), (state, name, body))

    def move(self, queue: str, state: State, name: str, to: State, new: str) -> None:
        key = queue, name[MESSAGE_ID]
        found = self._bodies.get(key)
        if found is None or found[1] != name:
            raise MessageGone
        if to == "archived":
            self._set(queue, to, new, found[2])
        else:
            self._bodies.put(key, (to, new, found[2]))

    def rewrite(self, queue: str, state: State, name: str, to: State, new: str, body: str) -> None:
        self.read(queue, state, name)
        self._set(queue, to, new, body)

    def _set(self, queue: str, state: State, name: str, body: str) -> None:
        self._bodies.put((queue, name[MESSAGE_ID]), (state, name, body))
        if state == "archived":
            self._archived.setdefault(queue, LargeMap()).put(name[MESSAGE_ID], name)

    def drop(self, queue: str, state: State, name: str) -> None:
        if self._bodies.pop((queue, name[MESSAGE_ID]), None) is None:
            raise MessageGone
        if state == "archived":
            self._archived[queue].pop(name[MESSAGE_ID], None)

    def transfer(self, queue: str, state: State, name: str, to: str, new: str, body: str) -> None:
        self.drop(queue, state, name)
        self.put(to, "ready", new, body)

    def archived(self, queue: str, most: int) -> list[str]:
        return list(islice(self._archived.get(queue, LargeMap[str, str]()).values(), most))

    def remove_queue(self, queue: str) -> bool:
        self._records.pop(queue, None)
        self._archived.pop(queue, None)
        return True

    def read(self, queue: str, state: State, name: str) -> str:
        found = self._bodies.get((queue, name[MESSAGE_ID]))
        if found is None or found[1] != name:
            raise MessageGone
        return found[2]

    def remember(self, entries: Iterable[DedupEntry]) -> None:
        self._entries += entries

    def recall(self, since: int) -> Iterator[DedupEntry]:
        return (entry for entry in list(self._entries) if entry.at >= since)

    def release_due(self, queue: str, now: int, count: int) -> None:
        pass

    def tidy(self, now: int, idle: bool) -> bool:
        return False

    def strays(self, budget: int, waiting: Callable[[str], Iterable[str]]) -> list[Stray]:
        return []

    def adopt(self, stray: Stray, name: str) -> None:
        raise MessageGone

    def commit(self) -> None:
        pass

    def abandon(self) -> None:
        self.broken = False

    def check(self, repair: bool, now: int) -> list[StoreFinding]:
        stale = [
            (queue, name)
            for queue, archived in self._archived.items()
            for name in archived.values()
            if names.due_of(name) + self._archive_keep_ms <= now
        ]
        if repair:
            for queue, name in stale:
                self.drop(queue, "archived", name)
        return [StoreFinding("stale_archive", queue, name[MESSAGE_ID], repair) for queue, name in stale]

    def close(self) -> None:
        pass
