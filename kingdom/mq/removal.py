"""Delete a queue with everything in it, or one message by its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from kingdom.mq import names
from kingdom.mq.budget import MOST_CHANGES, Budget, Steps
from kingdom.mq.errors import InvalidRequest, MessageNotFound, StoreError
from kingdom.mq.leases import Leases
from kingdom.mq.queue_state import QueueState
from kingdom.mq.queues import QueueStates
from kingdom.mq.search import MessageSearch
from kingdom.mq.stores.base import MessageGone, MessageStore, State


class Removal:
    def __init__(
        self,
        store: MessageStore,
        queues: QueueStates,
        leases: Leases,
        commit: Callable[[], None],
        distrust_memory: Callable[[], None],
    ) -> None:
        self._store = store
        self._queues = queues
        self._leases = leases
        self._commit = commit
        self._distrust_memory = distrust_memory

    def delete_queue(self, queue: str, budget: Budget | None = None) -> Steps[int]:
        """Delete a queue with its messages, leases, dead letters, archive and policy. Return how many messages and dead
        letters it had. What is published meanwhile goes into a new queue of its name."""
        old, budget, deleted = self._queues.detach(queue), budget or Budget(), 0
        try:
            for found in self._contents(old):
                self._queues.changed = True
                if found is not None:
                    deleted += 1
                    with suppress(MessageGone):
                        self._store.drop(old.name, *found)
                budget.spend()
                if not budget.is_left():
                    yield
                    budget.renew()
            while not self._finish(old):
                yield
        except StoreError:
            self._distrust_memory()  # what is left of the queue is known to the store alone
            raise
        return deleted

    def _contents(self, old: QueueState) -> Iterator[tuple[State, str] | None]:
        """Take out all that a queue holds; None where nothing was found in a while. What comes back into it meanwhile,
        from a lease that ends or from whoever held it, comes as well."""
        yield from _unleased(old)
        for lease in self._leases.of(old):
            if lease is None:
                yield None
            else:
                self._leases.acknowledge(lease)
                yield "inflight", lease.name
            yield from _unleased(old)

    def _finish(self, old: QueueState) -> bool:
        """Delete a part of the archive, and at last the record. Return whether all is gone."""
        name = old.name
        leaving = self._queues.leaving.get(name, [])
        if len(leaving) > 1 and old in leaving:  # the last deletion of this name removes the record
            leaving.remove(old)
            return True
        self._commit()
        archived = self._store.archived(name, MOST_CHANGES)
        for kept in archived:
            with suppress(MessageGone):
                self._store.drop(name, "archived", kept)
        if archived or not self._queues.remove(name):
            return False
        self._queues.leaving.pop(name, None)
        return True

    def delete(self, search: MessageSearch, budget: Budget) -> bool:
        """Delete one message that waits, or one dead letter, when the search for it finds it within the budget. Return
        whether the search is over. What is leased is its consumer's to end."""
        key, message_id, queue = search.key, search.message_id, search.queue
        if queue is None or not names.is_id(message_id):
            raise MessageNotFound(key=key)
        if (lease := self._leases.by_message_id.get(message_id)) is not None and lease.key == key:
            raise InvalidRequest(field="messageKey", why="is leased: acknowledge it, or wait for the lease to end")
        state: State = "dlq"
        if (name := queue.dead.get(message_id)) is not None:
            queue.remove_dead(name)
        elif not search.go_on(budget):
            return False
        elif search.found and queue.remove(search.found, search.at):
            name, state = search.found, "ready"
        else:
            raise MessageNotFound(key=key)
        self._queues.changed = True
        try:
            self._store.drop(queue.name, state, name)
        except MessageGone:
            raise MessageNotFound(key=key) from None
        except StoreError:
            self._distrust_memory()
            raise
        return True


def _unleased(queue: QueueState) -> Iterator[tuple[State, str]]:
    while (name := queue.pop_any()) is not None:
        yield "ready", name
    while queue.dead:
        yield "dlq", queue.pop_dead()
    while queue.held:
        _, name = queue.held.popitem()
        yield "dlq" if names.is_dead_letter(name) else "ready", name
