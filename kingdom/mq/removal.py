"""What somebody wants gone: a queue with all that it holds, or one message by its key."""

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

    def delete(self, key: str) -> None:
        """Delete one message that waits, or one dead letter. What is leased is its consumer's to end."""
        message_id = names.id_of_key(key)
        queue = self._queues.by_name.get(names.queue_of_key(key))
        if queue is None or not names.is_id(message_id):
            raise MessageNotFound(key=key)
        if (lease := self._leases.by_message_id.get(message_id)) is not None and lease.key == key:
            raise InvalidRequest(field="messageKey", why="is leased: acknowledge it, or wait for the lease to end")
        name, state = queue.dead.get(message_id), "dlq"
        if name is not None:
            queue.remove_dead(name)
        else:
            name, state = self._waiting(queue, message_id), "ready"
        if name is None:
            raise MessageNotFound(key=key)
        self._queues.changed = True
        try:
            self._store.drop(queue.name, "dlq" if state == "dlq" else "ready", name)
        except MessageGone:
            raise MessageNotFound(key=key) from None
        except StoreError:
            self._distrust_memory()
            raise

    def _waiting(self, queue: QueueState, message_id: str) -> str | None:
        """Take a message out of those that wait. Most have the name that they were published under."""
        plain = names.plain(int(message_id[:8] + message_id[9:13], 16), names.tie_of(message_id), message_id)
        if queue.remove(plain):
            return plain
        found = queue.find(message_id)
        return found if found is not None and queue.remove(found) else None
