"""Messages handed over to another store: held for whoever takes them there, and dropped here when they have arrived.

Nothing of it is on the disk. A message that is held still waits as far as the store knows, so that after a kill, and
when its holder is not heard of any more, it is where it was, with its attempts, due time and order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kingdom.mq import names
from kingdom.mq.budget import MOST_CHANGES, Budget
from kingdom.mq.dead_letters import DeadLetters
from kingdom.mq.errors import StoreError
from kingdom.mq.large_map import LargeMap
from kingdom.mq.names import NEVER
from kingdom.mq.queue_state import QueueState
from kingdom.mq.queues import QueueStates
from kingdom.mq.status import WaitingMessage
from kingdom.mq.stores.base import MOST_AT_ONCE, MessageGone, MessageStore
from kingdom.mq.timers import Timers

HOLD_MS = 60_000


@dataclass(slots=True)
class Holder:
    #: When what it holds is given back, unless it is heard of before.
    until: int = 0
    #: The queues of the messages that it was given, by message id. What it still holds, the queues know.
    messages: LargeMap[str, QueueState] = field(default_factory=LargeMap)
    #: How many these are of each queue.
    counts: Counter[QueueState] = field(default_factory=Counter)

    def keep(self, message_id: str, queue: QueueState) -> None:
        self.messages.put(message_id, queue)
        self.counts[queue] += 1

    def let_go(self, message_id: str) -> None:
        if (queue := self.messages.pop(message_id, None)) is not None:
            self.counts[queue] -= 1

    def let_one_go(self) -> tuple[str, QueueState]:
        """Return any of them, which it no longer has."""
        message_id, queue = self.messages.popitem()
        self.counts[queue] -= 1
        return message_id, queue


class Handover:
    def __init__(self, store: MessageStore, queues: QueueStates, timers: Timers, dead_letters: DeadLetters) -> None:
        self._store = store
        self._queues = queues
        self._timers = timers
        self._dead_letters = dead_letters
        self._holders: dict[str, Holder] = {}
        #: Whether `offer` ended because so many had been taken away by hand; more may be left.
        self.cut_short = False

    def offer(self, queue: str, holder_id: str, limit: int, now: int) -> list[WaitingMessage]:
        """Give a holder the messages that come next, of a dead-letter queue the dead letters; nobody else gets them."""
        own, sources = self._queues.sources(queue)
        if own is not None and own.next_release <= now:
            self._timers.release_due(own, now)
        holder = self._holders.setdefault(holder_id, Holder())
        holder.until = now + HOLD_MS
        offered: list[WaitingMessage] = []
        room, left = MOST_AT_ONCE, MOST_CHANGES
        while len(offered) < min(limit, MOST_CHANGES) and room > 0 and left:
            found = self._next(own, sources)
            if found is None:
                break
            source, name = found
            message = WaitingMessage.read(self._store, source.name, name, now)
            if message is None:
                left -= 1
                continue
            source.held.put(name[names.MESSAGE_ID], name)
            holder.keep(name[names.MESSAGE_ID], source)
            offered.append(message)
            room -= len(message.payload) + len(message.attributes)
        self.cut_short = not left
        return offered

    def _next(self, own: QueueState | None, sources: list[QueueState]) -> tuple[QueueState, str] | None:
        if own is not None and (name := own.take_any()) is not None:
            return own, name
        return self._dead_letters.take_first(sources)

    def held_by_others(self, queue: str, holder_id: str) -> int:
        """Return how many messages of a queue other holders have."""
        own, sources = self._queues.sources(queue)
        asked = [source for source in (own, *sources) if source is not None]
        mine = self._holders.get(holder_id, Holder()).counts
        return sum(len(source.held) - mine[source] for source in asked)

    def drop(self, holder_id: str, key: str, now: int) -> bool | None:
        """Delete what has arrived elsewhere. Return whether it was still here; None when it is not held any more: it
        was given back meanwhile, and perhaps taken by somebody."""
        if (holder := self._holders.get(holder_id)) is not None:
            holder.until = now + HOLD_MS
        message_id = key[names.MESSAGE_ID]
        queue = self._queues.by_name.get(names.queue_of_key(key))
        name = queue.held.pop(message_id, None) if queue is not None else None
        if holder is not None:
            holder.let_go(message_id)
        if queue is None or name is None:
            return None
        self._queues.changed = True
        try:
            self._store.drop(queue.name, "dlq" if names.is_dead_letter(name) else "ready", name)
        except MessageGone:
            return False
        except StoreError:
            queue.held.put(message_id, name)
            if holder is not None:
                holder.keep(message_id, queue)
            raise
        return True

    def end(self, holder_id: str, now: int, budget: Budget) -> bool:
        """Give back what a holder still has, as much as the budget allows. Return whether that is all."""
        holder = self._holders.get(holder_id, Holder())
        while holder.messages and budget.is_left():
            budget.spend()
            message_id, queue = holder.let_one_go()
            name = queue.held.pop(message_id, None)
            if name is None:
                continue
            if names.is_dead_letter(name):
                queue.add_dead(name)
                continue
            self._timers.add(queue, name, queue.due_of(name, now), now)
        if holder.messages:
            return False
        self._holders.pop(holder_id, None)
        return True

    def give_back_late(self, now: int, budget: Budget) -> None:
        """Give back the messages of holders that have been silent for too long, as many as the budget allows."""
        for holder_id in [holder_id for holder_id, holder in self._holders.items() if holder.until <= now]:
            self.end(holder_id, now, budget)

    def next_due(self) -> int:
        return min((holder.until for holder in self._holders.values()), default=NEVER)
