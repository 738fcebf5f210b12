"""The queues by name: opened, steered, and fed by each other's dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import orjson

from kingdom.mq.errors import InvalidRequest, QueueNotFound
from kingdom.mq.policy import Policy
from kingdom.mq.queue_state import Line
from kingdom.mq.stores.base import Store

LONGEST_NAME = 256


@dataclass(frozen=True, slots=True)
class EngineSettings:
    defaults: Policy
    queues: Mapping[str, Policy] = field(default_factory=dict)
    strict: bool = False


class Queues:
    def __init__(self, store: Store, settings: EngineSettings) -> None:
        self._store = store
        self._settings = settings
        self.lines: dict[str, Line] = {}
        self.feeds: dict[str, list[Line]] = {}
        """By the name under which their dead letters can be consumed."""
        self.arrived: set[str] = set()
        """Those in which messages may have become ready."""
        self.touched = False
        """Whether anything changed since the store was last tidied."""

    def names(self) -> list[str]:
        fed = (queue for queue, sources in self.feeds.items() if any(source.dead for source in sources))
        return sorted({*self.lines, *fed})

    def line(self, queue: str) -> Line:
        line = self.lines.get(queue)
        if line is None:
            raise QueueNotFound(queue=queue)
        return line

    def dead_of(self, queue: str) -> Iterator[tuple[Line, str]]:
        """The dead letters of a queue, also under the name of its dead-letter queue."""
        line = self.lines.get(queue)
        lines = [*([line] if line is not None else []), *self.feeds.get(queue, [])]
        if not lines:
            raise QueueNotFound(queue=queue)
        return ((each, name) for each in lines for name in list(each.dead.values()))

    # --- opening and steering

    def publish_to(self, queue: str) -> Line:
        """A publisher opens what it names, unless only named queues may exist."""
        if queue not in self.lines and self._settings.strict:
            raise QueueNotFound(queue=queue)
        return self.declare(queue)

    def declare(self, queue: str) -> Line:
        line = self.lines.get(queue)
        if line is None:
            if not queue or len(queue) > LONGEST_NAME or not queue.isprintable():
                raise InvalidRequest(field="queue", why=f"1 to {LONGEST_NAME} printable characters name a queue")
            line = self.found(queue)
        return line

    def set_policy(self, queue: str, policy: Policy) -> None:
        line = self.declare(queue)
        line.use(policy)
        self._save(line)
        self._find_feeds()

    def pause(self, queue: str) -> None:
        self._set_paused(queue, True)

    def resume(self, queue: str) -> None:
        self._set_paused(queue, False)
        self.arrived.add(queue)

    def _set_paused(self, queue: str, paused: bool) -> None:
        line = self.line(queue)
        if line.paused != paused:
            line.paused = paused
            self._save(line)

    # --- as the store has them

    def load(self) -> None:
        """The lines empty, each with the policy that it was given last."""
        self.arrived = set()
        for line in self.lines.values():
            line.forget()
        for queue, record in self._store.queues().items():
            if queue not in self.lines:
                about = orjson.loads(record)
                policy = Policy.from_json({key: part for key, part in about.items() if key != "paused"})
                self.lines[queue] = Line(queue, policy, about.get("paused") is True)
        for queue, policy in self._settings.queues.items():
            line = self.found(queue)
            if line.policy != policy:
                line.use(policy)
                self._save(line)
        self._find_feeds()

    def found(self, queue: str) -> Line:
        """The line of a queue that is there, whether or not anything is known of it."""
        line = self.lines.get(queue)
        if line is None:
            line = Line(queue, self._settings.queues.get(queue, self._settings.defaults))
            self._save(line)
            self.lines[queue] = line
            self._find_feeds()
        return line

    def _save(self, line: Line) -> None:
        record = {**line.policy.to_json(), "paused": line.paused}
        self._store.save_queue(line.name, orjson.dumps(record, default=dict, option=orjson.OPT_INDENT_2).decode())

    def _find_feeds(self) -> None:
        self.feeds.clear()
        for line in self.lines.values():
            if line.policy.dlq_enabled and line.policy.dlq_of(line.name) != line.name:
                self.feeds.setdefault(line.policy.dlq_of(line.name), []).append(line)
