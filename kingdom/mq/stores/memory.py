"""Messages that live as long as the process: for tests, for pipelines that start anew, and as the plainest store."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from kingdom.mq import names
from kingdom.mq.stores.base import Finding, Found, Gone, Memo, Plan, State, Stray


class MemoryStore:
    by_hand = False

    def __init__(self, plan: Plan) -> None:
        self.broken = False
        self._bodies: dict[tuple[str, str], tuple[State, str, str]] = {}
        self._records: dict[str, str] = {}
        self._memos: deque[Memo] = deque(maxlen=1_000_000)
        self._keep = plan.archive_keep_ms

    def load(self) -> Iterator[Found]:
        for (queue, _), (state, name, _) in list(self._bodies.items()):
            if state != "archived":
                yield Found(queue, "ready" if state == "delayed" else state, [name])

    def queues(self) -> Mapping[str, str]:
        return dict(self._records)

    def save_queue(self, queue: str, record: str) -> None:
        self._records[queue] = record

    def put(self, queue: str, state: State, name: str, body: str) -> None:
        self._bodies[queue, name[-36:]] = (state, name, body)

    def move(self, queue: str, state: State, name: str, to: State, new: str) -> None:
        self._bodies[queue, name[-36:]] = (to, new, self.read(queue, state, name))

    def rewrite(self, queue: str, state: State, name: str, to: State, new: str, body: str) -> None:
        self.read(queue, state, name)
        self._bodies[queue, name[-36:]] = (to, new, body)

    def drop(self, queue: str, state: State, name: str) -> None:
        if self._bodies.pop((queue, name[-36:]), None) is None:
            raise Gone

    def read(self, queue: str, state: State, name: str) -> str:
        found = self._bodies.get((queue, name[-36:]))
        if found is None or found[1] != name:
            raise Gone
        return found[2]

    def remember(self, memos: Iterable[Memo]) -> None:
        self._memos += memos

    def recall(self, since: int) -> Iterator[Memo]:
        return (memo for memo in list(self._memos) if memo.at >= since)

    def ripen(self, queue: str, now: int) -> None:
        pass

    def tidy(self, now: int, idle: bool) -> None:
        pass

    def strays(self, budget: int, waiting: Mapping[str, Collection[str]]) -> list[Stray]:
        return []

    def adopt(self, stray: Stray, name: str) -> None:
        raise Gone

    def commit(self) -> None:
        pass

    def abandon(self) -> None:
        self.broken = False

    def check(self, repair: bool, now: int) -> list[Finding]:
        stale = [
            (queue, name)
            for (queue, _), (state, name, _) in self._bodies.items()
            if state == "archived" and names.due_of(name) + self._keep <= now
        ]
        if repair:
            for queue, name in stale:
                self.drop(queue, "archived", name)
        return [Finding("stale_archive", queue, name[-36:], repair) for queue, name in stale]

    def close(self) -> None:
        pass
