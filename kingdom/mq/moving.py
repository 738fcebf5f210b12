"""Messages on their way to another queue: as they are, at once, and each in one queue only whatever happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kingdom.mq import message_format, names
from kingdom.mq.budget import Budget
from kingdom.mq.dead_letters import DeadLetters
from kingdom.mq.errors import InvalidRequest, StoreError
from kingdom.mq.message_format import MalformedBody
from kingdom.mq.names import Ids
from kingdom.mq.queue_state import QueueState
from kingdom.mq.queues import Queues
from kingdom.mq.stores.base import MessageGone, State, Store
from kingdom.mq.timers import Timers


@dataclass(slots=True)
class Move:
    """Messages that are being moved, over as many turns as it takes."""

    #: None: only the dead letters of `sources` are meant.
    source: QueueState | None
    #: The queues whose dead letters are consumed under the name that was given.
    sources: Sequence[QueueState]
    to: str
    #: How many are still to be moved: no more than waited when the move began.
    left: int
    moved: int = 0
    #: Whether all have been tried.
    is_over: bool = False
    #: What the target does not take goes back when the move is over: the queue, the state and the name of each.
    refused: list[tuple[QueueState, State, str]] = field(default_factory=list)
    #: How many of them are back.
    given_back: int = 0


class Moving:
    def __init__(self, store: Store, queues: Queues, timers: Timers, dead_letters: DeadLetters, ids: Ids) -> None:
        self._store = store
        self._queues = queues
        self._timers = timers
        self._dead_letters = dead_letters
        self._ids = ids

    def moving(self, queue: str, to: str, limit: int = 0) -> Move:
        """Begin to move what waits in a queue to another one. A dead-letter queue gives its dead letters, which become
        messages again, but for the quarantined."""
        source, sources = self._queues.sources(queue)
        if to == queue:
            raise InvalidRequest(field="to", why="is the queue that the messages are in")
        waiting = len(source or ()) + sum(len(one.dead) for one in sources)
        self._queues.to_publish(to)
        return Move(source, sources, to, min(limit or waiting, waiting))

    def move_some(self, begun: Move, budget: Budget, now: int) -> bool:
        """Move more of them, as many as the budget allows. Return whether all are done."""
        target = self._queues.to_publish(begun.to)  # it may have been deleted since the last part
        if begun.is_over:
            return self._give_back_refused(begun, budget, now)
        while begun.left and budget.is_left():
            found = self._next(begun)
            if found is None:
                break
            budget.spend()
            begun.left -= 1
            try:
                if self._transfer(target, *found, now):
                    begun.moved += 1
                else:
                    begun.refused.append(found)
                    found[0].held.put(found[2][names.MESSAGE_ID], found[2])
            except StoreError:
                self._give_back(*found, now)
                while not self._give_back_refused(begun, Budget(), now):
                    pass
                raise
        else:
            if begun.left:
                return False
        begun.is_over = True
        return self._give_back_refused(begun, budget, now)

    def _give_back_refused(self, begun: Move, budget: Budget, now: int) -> bool:
        """Give back what the target has not taken, as much as the budget allows. Return whether that is all."""
        while begun.refused and budget.is_left():
            budget.spend()
            queue, state, name = begun.refused.pop()
            begun.given_back += 1
            if queue.held.pop(name[names.MESSAGE_ID], None) is not None:  # or its queue is being deleted
                self._give_back(queue, state, name, now)
        return not begun.refused

    def _next(self, begun: Move) -> tuple[QueueState, State, str] | None:
        if begun.source is not None and (name := begun.source.take_any()) is not None:
            return begun.source, "ready", name
        dead = self._dead_letters.take_first(begun.sources)
        return (dead[0], "dlq", dead[1]) if dead is not None else None

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
