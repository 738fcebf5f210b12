"""Messages on their way to another queue: as they are, at once, and each in one queue only whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kingdom.mq import message_format, names
from kingdom.mq.budget import Budget, Steps
from kingdom.mq.dead_letters import DeadLetters
from kingdom.mq.errors import InvalidRequest, StoreError
from kingdom.mq.message_format import MalformedBody
from kingdom.mq.names import Ids
from kingdom.mq.queue_state import QueueState
from kingdom.mq.queues import QueueStates
from kingdom.mq.stores.base import MessageGone, MessageStore, State
from kingdom.mq.timers import Timers

Found = tuple[QueueState, State, str]
"""A queue, and the state and the name of one of its messages."""


class Moving:
    def __init__(
        self,
        store: MessageStore,
        queues: QueueStates,
        timers: Timers,
        dead_letters: DeadLetters,
        ids: Ids,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._queues = queues
        self._timers = timers
        self._dead_letters = dead_letters
        self._ids = ids
        self._clock = clock

    def move(self, queue: str, to: str, limit: int = 0, budget: Budget | None = None) -> Steps[tuple[int, int]]:
        """Move what waits in a queue to another one, no more than waits there now. A dead-letter queue gives its dead
        letters, which become messages again, but for the quarantined. Return how many were moved, and how many the
        target refused: these are back where they were."""
        source, sources = self._queues.sources(queue)
        if to == queue:
            raise InvalidRequest(field="to", why="is the queue that the messages are in")
        waiting = len(source or ()) + sum(len(one.dead) for one in sources)
        target, budget, moved = self._queues.to_publish(to), budget or Budget(), 0
        refused: list[Found] = []
        for _ in range(min(limit or waiting, waiting)):
            if not budget.is_left():
                yield
                budget.renew()
                target = self._queues.to_publish(to)  # it may have been deleted meanwhile
            if (found := self._next(source, sources)) is None:
                break
            budget.spend()
            if self._transferred(target, found, refused):
                moved += 1
            else:
                refused.append(found)
                found[0].held.put(found[2][names.MESSAGE_ID], found[2])
        given_back = len(refused)
        while refused:
            if not budget.is_left():
                yield
                budget.renew()
            budget.spend()
            self._unhold(refused.pop())
        return moved, given_back

    def _next(self, source: QueueState | None, sources: Sequence[QueueState]) -> Found | None:
        if source is not None and (name := source.take_any()) is not None:
            return source, "ready", name
        dead = self._dead_letters.take_first(sources)
        return (dead[0], "dlq", dead[1]) if dead is not None else None

    def _transferred(self, target: QueueState, found: Found, refused: Sequence[Found]) -> bool:
        """Move one, as `_transfer`. When the disk fails, it is back where it was, and so are the refused."""
        now = self._clock()
        try:
            return self._transfer(target, *found, now)
        except StoreError:
            self._give_back(*found, now)
            for one in refused:
                self._unhold(one)
            raise

    def _unhold(self, found: Found) -> None:
        """Give back what the target has not taken, unless its queue is being deleted."""
        queue, state, name = found
        if queue.held.pop(name[names.MESSAGE_ID], None) is not None:
            self._give_back(queue, state, name, self._clock())

    def _transfer(self, target: QueueState, queue: QueueState, state: State, name: str, now: int) -> bool:
        """Move one message. False if the target refuses it; a message that vanished is ignored."""
        self._queues.changed = True
        try:
            body = self._store.read(queue.name, state, name)
            if state == "dlq":
                body = message_format.original(body)
            if target.check is not None and target.check(message_format.content(body, True).payload):
                return False
            new = name if state == "ready" else names.revived(name, now, self._ids.next_sequence())
            new = names.carried(new, target.name)
            self._store.transfer(queue.name, state, name, target.name, new, body)
        except MessageGone:
            return True
        except MalformedBody:
            return False
        self._give_back(target, "ready", new, now)
        target.published += 1
        return True

    def _give_back(self, queue: QueueState, state: State, name: str, now: int) -> None:
        if state == "dlq":
            queue.add_dead(name)
            return
        self._timers.add(queue, name, queue.due_of(name, now), now)
