"""The dead letters: listed, counted, handed out, put back to work, set apart, cleared away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from kingdom.mq import message_format, names
from kingdom.mq.budget import MOST_CHANGES, Budget, Steps, all_at_once
from kingdom.mq.errors import DeadLetterNotFound, ValidationFailed
from kingdom.mq.failures import Log
from kingdom.mq.message_format import MalformedBody
from kingdom.mq.names import NEVER, Ids
from kingdom.mq.ordered_names import OrderedNames
from kingdom.mq.queue_state import QueueState
from kingdom.mq.queues import QueueStates
from kingdom.mq.stores.base import MOST_AT_ONCE, MessageGone, MessageStore
from kingdom.mq.timers import Timers

NO_LIMIT = 1 << 40
COUNTED_AT_ONCE = 20_000


class DeadLetter(NamedTuple):
    message_key: str
    #: The queue in which the message died.
    queue: str
    #: Its reason code.
    reason: str
    #: When it died, in ms since the epoch.
    dlq_at: int
    #: How often it had been tried.
    attempt: int
    #: Whether bulk commands leave it alone.
    quarantined: bool
    #: What was said about the failure.
    message: str
    #: The whole dead letter as JSON, with the original message in it.
    record: str


def _walk(
    lines: Iterable[tuple[QueueState, OrderedNames]], budget: Budget, begin: str = ""
) -> Iterator[tuple[QueueState, str] | None]:
    """Yield the dead letters in these ordered sets from `begin` on, whatever becomes of them meanwhile; None where a
    turn ends."""
    for source, line in lines:
        looked_at = begin
        while following := line.after(looked_at, 64):
            for turned in following:
                looked_at = turned  # a turned name begins with its time
                yield source, names.rank_first(turned)
                budget.spend()
                if not budget.is_left():
                    yield None
                    budget.renew()
                    break  # those that follow may have gone


class DeadLetters:
    """The dead letters of all queues. A `queue` is named by its own name or by that of its dead-letter queue."""

    def __init__(
        self, store: MessageStore, queues: QueueStates, timers: Timers, ids: Ids, clock: Callable[[], int], log: Log
    ) -> None:
        self._store = store
        self._queues = queues
        self._timers = timers
        self._ids = ids
        self._clock = clock
        self._log = log

    def listed(self, queue: str, limit: int = 100) -> list[DeadLetter]:
        """Return up to `limit` dead letters of a queue, those that died first at the head; no more than MOST_AT_ONCE
        characters of reasons but for the last of them."""
        return all_at_once(self.listing(queue, limit))

    def listing(self, queue: str, limit: int = 100, budget: Budget | None = None) -> Steps[list[DeadLetter]]:
        """Do the same, a part in each turn."""
        if not self._queues.is_seen(queue):
            self._queues.check_unseen(queue)
            return []
        sources = self._queues.with_dead_letters(queue)
        budget, found, room = budget or Budget(), list[DeadLetter](), MOST_AT_ONCE
        dead = islice(((source, name) for source in sources for name in source.all_dead()), limit)
        for queue_state, name in list(dead):
            if not budget.is_left():
                yield
                budget.renew()
            budget.spend()
            try:
                found.append(self._described(queue_state, name))
            except MessageGone:
                if queue_state.dead.get(name[names.MESSAGE_ID]) == name:  # a person took it away
                    queue_state.remove_dead(name)
                continue
            room -= len(found[-1].message)
            if room <= 0:
                break
        return found

    def _described(self, queue: QueueState, name: str) -> DeadLetter:
        try:
            record = self._store.read(queue.name, "dlq", name)
        except MalformedBody as error:
            record = error.text
        return DeadLetter(
            message_key=names.key_of(queue.name, name),
            queue=queue.name,
            reason=names.reason_of(name),
            dlq_at=names.due_of(name),
            attempt=names.attempt_of(name),
            quarantined=names.is_quarantined(name),
            message=str(message_format.failure_of(record).get("reasonMessage", "")),
            record=record,
        )

    def counts(self, queue: str, since_ms: int = 0) -> dict[str, int]:
        """Return how many there are per reason: of all that lie there, or of those of the last `since_ms`."""
        return all_at_once(self.counting(queue, since_ms))

    def counting(self, queue: str, since_ms: int = 0, budget: Budget | None = None) -> Steps[dict[str, int]]:
        """Do the same, a part in each turn."""
        sources = self._queues.with_dead_letters(queue)
        found: Counter[str] = Counter()
        if not since_ms:
            return dict(sum((source.dead_reasons for source in sources), found))
        lines = (
            (source, line)
            for source in sources
            for line in (source.dead_in_line, source.dead_returned, source.dead_apart)
        )
        for dead in _walk(lines, budget or Budget(COUNTED_AT_ONCE), f"{self._clock() - since_ms:013d}"):
            if dead is None:
                yield
            else:
                found[names.reason_of(dead[1])] += 1
        return dict(found)

    def take_first(self, sources: Sequence[QueueState], now: int = NEVER) -> tuple[QueueState, str] | None:
        """Remove and return the one that died first, to be leased; the quarantined stay where they are, and those that
        rest by `now`."""
        heads = [(names.due_of(name), source, name) for source in sources if (name := source.first_dead(now))]
        if not heads:
            return None
        _, source, name = min(heads, key=lambda head: head[0])
        source.remove_dead(name)
        return source, name

    def reprocess(self, key: str) -> str:
        """Put one back into its queue, with its attempts forgotten. Returns the key. ValidationFailed: it is no message
        any more, and stays."""
        queue, name = self._find(key)
        try:
            self._revive(queue, name)
        except MessageGone:
            raise DeadLetterNotFound(key=key) from None
        except MalformedBody as error:
            raise ValidationFailed(queue=queue.name, why=f"{key} stays a dead letter: {error.why}") from None
        return key

    def reprocessing(
        self, queue: str, reason_code: str, until: int, limit: int = 0, budget: Budget | None = None
    ) -> Steps[list[str]]:
        """Put back all that had died by then but the quarantined, or those that fit, a part in each turn. Return their
        keys."""
        sources = self._queues.with_dead_letters(queue)
        lines = ((source, line) for source in sources for line in (source.dead_in_line, source.dead_returned))
        keys: list[str] = []
        for dead in _walk(lines, budget or Budget()):
            if dead is None:
                yield
                continue
            source, name = dead
            fits = names.due_of(name) <= until and reason_code in ("", names.reason_of(name))
            if fits and self._could_revive(source, name):
                keys.append(names.key_of(source.name, name))
                if len(keys) == limit:
                    break
        return keys

    def reprocess_all(self, queue: str, reason_code: str = "", older_than_ms: int = 0, limit: int = 0) -> list[str]:
        """Put back all but the quarantined, or those that fit, in one go. Returns their keys."""
        return all_at_once(self.reprocessing(queue, reason_code, self._clock() - older_than_ms, limit))

    def quarantine(self, key: str, on: bool = True) -> None:
        """Set one apart, so that bulk commands and consumers leave it alone; or give it free again."""
        queue, name = self._find(key)
        fields = names.fields_of(name)
        fields.pop(names.QUARANTINED, None)
        if on:
            fields[names.QUARANTINED] = ""
        new = names.changed(name, names.due_of(name), fields)
        if new != name:
            try:
                self._store.move(queue.name, "dlq", name, "dlq", new)
            except MessageGone:
                queue.remove_dead(name)
                raise DeadLetterNotFound(key=key) from None
            queue.add_dead(new)

    def purge(self, queue: str, older_than_ms: int = 0, archive: bool = False, limit: int = MOST_CHANGES) -> int:
        """Remove or archive them, but not the quarantined. Returns how many; come back until it is 0."""
        before = self._clock() - older_than_ms
        budget = Budget(limit, seconds=NO_LIMIT)
        return sum(self._clear(source, before, archive, budget) for source in self._queues.with_dead_letters(queue))

    def retire(self, now: int, budget: Budget) -> bool:
        """Archive those that their queue has kept long enough, as many as the budget allows. Return whether all are."""
        for queue in self._queues.by_name.values():
            keep = queue.policy.dlq_keep_ms
            if keep:
                self._clear(queue, now - keep, archive=True, budget=budget)
        return budget.is_left()

    def _clear(self, queue: QueueState, before: int, archive: bool, budget: Budget) -> int:
        now = self._clock()
        cleared = 0
        while budget.is_left() and (name := queue.first_dead_before(before)):
            budget.spend()
            with suppress(MessageGone):
                if archive:
                    self._store.move(queue.name, "dlq", name, "archived", names.archived(name, now))
                else:
                    self._store.drop(queue.name, "dlq", name)
            queue.remove_dead(name)
            cleared += 1
            self._queues.changed = True
        return cleared

    def _find(self, key: str) -> tuple[QueueState, str]:
        message_id = names.id_of_key(key)
        named = self._queues.by_name.get(names.queue_of_key(key))
        for queue in (*([named] if named is not None else []), *self._queues.by_name.values()):
            name = queue.dead.get(message_id)
            if name is not None and names.key_of(queue.name, name) == key:
                return queue, name
        raise DeadLetterNotFound(key=key)

    def _could_revive(self, queue: QueueState, name: str) -> bool:
        """Put one of many back. One that cannot be read stays, with a log line."""
        try:
            self._revive(queue, name)
        except MessageGone:
            return False
        except MalformedBody as error:
            self._log("mq.unfit", f"{names.key_of(queue.name, name)} stays: {error.why}", queue=queue.name)
            return False
        return True

    def _revive(self, queue: QueueState, name: str) -> None:
        now = self._clock()
        new = names.revived(name, now, self._ids.next_sequence())
        try:
            body = message_format.original(self._store.read(queue.name, "dlq", name))
            self._store.rewrite(queue.name, "dlq", name, "ready", new, body)
        except MessageGone:
            queue.remove_dead(name)
            raise
        queue.remove_dead(name)
        self._queues.changed = True
        self._timers.add(queue, new, now, now)
