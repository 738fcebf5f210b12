"""The queues by name: opened, steered, and fed by each other's dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import orjson

from kingdom.mq import original_configuration
from kingdom.mq.errors import InvalidRequest, QueueNotFound, StoreError
from kingdom.mq.policy import Policy, merged
from kingdom.mq.queue_state import QueueState
from kingdom.mq.stores.base import DAY_MS, MessageStore

LONGEST_NAME = 256
OWN = "ownPolicy"
"""In a queue's record: its policy was given to it, by a call or an earlier system, and not by the configuration."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    #: The policy of queues that say nothing else.
    defaults: Policy
    #: Policies of queues that the configuration names.
    queues: Mapping[str, Policy] = field(default_factory=dict)
    #: Whether only named queues may be published to.
    strict: bool = False


class QueueStates:
    def __init__(self, store: MessageStore, settings: EngineSettings) -> None:
        self._store = store
        self._settings = settings
        #: Policies that were given to queues by a call, or that an earlier system has left with them.
        self._own: dict[str, Policy] = {}
        self.by_name: dict[str, QueueState] = {}
        #: Queues that are being deleted, by name.
        self.leaving: dict[str, list[QueueState]] = {}
        #: The queues whose dead letters can be consumed under a name, by that name.
        self.dead_letter_sources: dict[str, list[QueueState]] = {}
        #: Names of queues in which messages may have become ready.
        self.arrived: set[str] = set()
        #: Whether anything changed since the store was last tidied.
        self.changed = False

    def names(self) -> list[str]:
        """Return the names of all queues, and of dead-letter queues that hold something."""
        with_dead = (
            name for name, sources in self.dead_letter_sources.items() if any(source.dead for source in sources)
        )
        return sorted({*self.by_name, *with_dead})

    def get(self, name: str) -> QueueState:
        """Return a queue by its name, or raise QueueNotFound."""
        queue = self.by_name.get(name)
        if queue is None:
            raise QueueNotFound(queue=name)
        return queue

    def is_seen(self, name: str) -> bool:
        """Return whether there is a queue of this name, or one whose dead letters go there."""
        return name in self.by_name or name in self.dead_letter_sources

    def with_dead_letters(self, name: str) -> list[QueueState]:
        """Return the queues whose dead letters are meant: the queue itself, and those whose dead-letter queue it is."""
        queue = self.by_name.get(name)
        queues = [*([queue] if queue is not None else []), *self.dead_letter_sources.get(name, [])]
        if not queues:
            raise QueueNotFound(queue=name)
        return queues

    def sources(self, name: str) -> tuple[QueueState | None, list[QueueState]]:
        """Return the queue of this name, if it is one, and those whose dead letters are consumed under it."""
        queue, sources = self.by_name.get(name), self.dead_letter_sources.get(name, [])
        if queue is None and not sources:
            raise QueueNotFound(queue=name)
        return queue, sources

    def check_unseen(self, name: str) -> Policy:
        """Return the policy that a queue will have which nobody has published to yet: a consumer may start first.
        QueueNotFound when only named queues may exist."""
        if self._settings.strict:
            raise QueueNotFound(queue=name)
        _check_name(name)
        return self._settings.defaults

    def to_publish(self, name: str) -> QueueState:
        """Return the queue that a publisher names, new if need be, unless only named queues may exist."""
        if name not in self.by_name and self._settings.strict:
            raise QueueNotFound(queue=name)
        return self.declare(name)

    def declare(self, name: str) -> QueueState:
        """Return the queue, new if there is none. InvalidRequest when that is no name for one."""
        queue = self.by_name.get(name)
        if queue is None:
            _check_name(name)
            queue = self.get_or_create(name)
        return queue

    def set_policy(self, name: str, policy: Policy) -> None:
        """Give a queue a policy, which is kept with it until the configuration names the queue. A queue that does not
        exist is declared."""
        queue = self.declare(name)
        self._own[name] = policy
        queue.set_policy(policy)
        self._save(queue)
        self._find_dead_letter_sources()

    def configure(self, settings: EngineSettings) -> None:
        """Take over a changed configuration: every queue has the policy that it would have after a start."""
        self._settings = settings
        self._apply_settings()

    def _apply_settings(self) -> None:
        for name in self._settings.queues:
            self.get_or_create(name)
        for queue in self.by_name.values():
            policy = self._policy_of(queue.name)
            if queue.policy != policy:
                queue.set_policy(policy)
                self._save(queue)
        self._find_dead_letter_sources()

    def _policy_of(self, name: str) -> Policy:
        return self._settings.queues.get(name) or self._own.get(name) or self._settings.defaults

    def pause(self, name: str) -> None:
        """Hand out nothing of this queue until `resume`."""
        self._set_paused(name, True)

    def resume(self, name: str) -> None:
        self._set_paused(name, False)
        self.arrived.add(name)

    def delete_policy(self, name: str) -> None:
        """Give a queue the policy that the configuration says."""
        queue = self.get(name)
        self._own.pop(name, None)
        queue.set_policy(self._policy_of(name))
        self._save(queue)
        self._find_dead_letter_sources()

    def detach(self, name: str) -> QueueState:
        """Put an empty queue in the place of this one, with the policy that the configuration says, and return this
        one: nobody publishes to it or consumes from it any more."""
        old, own = self.get(name), self._own.get(name)
        del self.by_name[name]
        self._own.pop(name, None)
        try:
            self.get_or_create(name)
        except StoreError:
            self.by_name[name] = old
            if own is not None:
                self._own[name] = own
            raise
        self.leaving.setdefault(name, []).append(old)
        return old

    def not_leased(self, name: str) -> Iterator[str]:
        """Yield the names of all messages of a queue that nobody has leased, also those that are being handed over,
        moved or deleted."""
        for queue in (self.by_name[name], *self.leaving.get(name, ())):
            yield from queue
            yield from queue.held.values()

    def remove(self, name: str) -> bool:
        """Remove a queue, with its record, unless it holds something. Return False when that takes another call."""
        queue = self.by_name.get(name)
        if queue is not None and (len(queue) or queue.inflight or queue.dead or queue.held):
            return True
        if queue is not None:
            if not self._store.remove_queue(name):
                return False
            del self.by_name[name]
        self._find_dead_letter_sources()
        return True

    def _set_paused(self, name: str, paused: bool) -> None:
        # A dead-letter queue that is only a name so far becomes one with a record, which can say that it is paused.
        queue = self.declare(name) if name in self.dead_letter_sources else self.get(name)
        if queue.paused != paused:
            queue.paused = paused
            try:
                self._save(queue)
            except StoreError:
                queue.paused = not paused  # else it would not be saved when it is asked for again
                raise

    def load(self) -> None:
        """Make all queues empty, each with the policy that the configuration or a call has given it."""
        self.arrived = set()
        self.leaving.clear()
        for queue in self.by_name.values():
            queue.forget()
        for name, record in self._store.queues().items():
            if name not in self.by_name:
                self.by_name[name] = self._read(name, record)
        self._apply_settings()

    def _read(self, name: str, record: str) -> QueueState:
        """Return a queue by its record: ours says whether it is paused; one of the original is a policy alone."""
        try:
            about = orjson.loads(record)
        except orjson.JSONDecodeError:
            about = {}
        if not isinstance(about, dict) or "paused" not in about:
            about = {**original_configuration.policy_left_behind(about), "paused": False, OWN: True}
        paused = about.pop("paused")
        if about.pop(OWN, False):
            self._own[name] = Policy.from_json(merged(self._settings.defaults.to_json(), about))
        return QueueState(name, self._policy_of(name), paused is True)

    def get_or_create(self, name: str) -> QueueState:
        """Return the queue under any name that the store or the configuration knows."""
        queue = self.by_name.get(name)
        if queue is None:
            queue = QueueState(name, self._policy_of(name))
            self._save(queue)
            self.by_name[name] = queue
            self._find_dead_letter_sources()
        return queue

    def _save(self, queue: QueueState) -> None:
        record = {**queue.policy.to_json(), "paused": queue.paused, OWN: queue.name in self._own}
        self._store.save_queue(queue.name, orjson.dumps(record, default=dict, option=orjson.OPT_INDENT_2).decode())

    def _find_dead_letter_sources(self) -> None:
        self._store.kept_ms = max(DAY_MS, *(queue.policy.dedup_ms for queue in self.by_name.values()), 0)
        self.dead_letter_sources.clear()
        for queue in self.by_name.values():
            if queue.policy.dlq_enabled and queue.policy.dlq_of(queue.name) != queue.name:
                self.dead_letter_sources.setdefault(queue.policy.dlq_of(queue.name), []).append(queue)


def _check_name(name: str) -> None:
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidRequest(field="queue", why=f"1 to {LONGEST_NAME} printable characters name a queue")
