"""Delete a queue with everything in it, or one message by its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from kingdom.mq import names
from kingdom.mq.budget import MOST_CHANGES, Budget
from kingdom.mq.errors import InvalidRequest, MessageNotFound, StoreError
from kingdom.mq.leases import Lease, Leases
from kingdom.mq.queue_state import QueueState
from kingdom.mq.queues import Queues
from kingdom.mq.search import Search
from kingdom.mq.stores.base import MessageGone, State, Store


@dataclass(slots=True)
class Deletion:
    """A queue on its way out, over as many turns as it takes."""

    #: What it held when it was asked for. What is published meanwhile goes into a new queue of its name.
    queue: QueueState
    #: Its leases, as far as they are not ended.
    leases: Iterator[Lease]
    #: How many messages and dead letters are gone.
    deleted: int = 0


class Removal:
    def __init__(
        self,
        store: Store,
        queues: Queues,
        leases: Leases,
        commit: Callable[[], None],
        distrust_memory: Callable[[], None],
    ) -> None:
        self._store = store
        self._queues = queues
        self._leases = leases
        self._commit = commit
        self._distrust_memory = distrust_memory

    def deleting(self, queue: str) -> Deletion:
        """Begin to delete a queue with its messages, leases, dead letters, archive and policy."""
        leases = list(self._leases.by_message_id.values())
        old = self._queues.detach(queue)
        for name in old.held.values():
            if names.is_dead_letter(name):
                old.add_dead(name)
            else:
                old.add_ready(name)
        old.held = {}
        return Deletion(old, (lease for lease in leases if lease.queue is old))

    def delete_some(self, begun: Deletion, budget: Budget) -> bool:
        """Delete more of it, as much as the budget allows. Return whether all is gone."""
        try:
            return self._delete_some(begun, budget)
        except StoreError:
            self._distrust_memory()  # what is left of the queue is known to the store alone
            raise

    def _delete_some(self, begun: Deletion, budget: Budget) -> bool:
        old = begun.queue
        self._queues.changed = True
        while budget.is_left():
            if (name := old.pop_any()) is not None:
                state: State = "ready"
            elif old.dead:
                name, state = next(iter(old.dead.values())), "dlq"
                old.remove_dead(name)
            elif (lease := next(begun.leases, None)) is not None:
                if self._leases.by_message_id.get(lease.name[names.MESSAGE_ID]) is not lease:
                    continue
                self._leases.acknowledge(lease)
                name, state = lease.name, "inflight"
            else:
                return self._finish(begun)
            budget.spend()
            begun.deleted += 1
            with suppress(MessageGone):
                self._store.drop(old.name, state, name)
        return False

    def _finish(self, begun: Deletion) -> bool:
        """Delete the archive, a part in each turn, and then the record."""
        name = begun.queue.name
        leaving = self._queues.leaving.get(name, [])
        if len(leaving) > 1 and begun.queue in leaving:  # the last deletion of this name removes the record
            leaving.remove(begun.queue)
            return True
        self._commit()
        archived = self._store.archived(name, MOST_CHANGES)
        for kept in archived:
            with suppress(MessageGone):
                self._store.drop(name, "archived", kept)
        if archived:
            return False
        self._queues.remove(name)
        self._queues.leaving.pop(name, None)
        return True

    def delete(self, search: Search, budget: Budget) -> bool:
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
