"""Who holds which message until when; and who held it, for an ack that comes twice or too late."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from heapq import heappop, heappush

from kingdom.mq import message_format, names
from kingdom.mq.budget import Budget
from kingdom.mq.errors import HeldByAnother, LeaseExpired, LeaseMismatch, MessageNotFound, Refusal
from kingdom.mq.expiring_map import ExpiringMap, fingerprint
from kingdom.mq.large_map import LargeMap
from kingdom.mq.names import MESSAGE_ID, NEVER
from kingdom.mq.queue_state import QueueState
from kingdom.mq.queues import QueueStates
from kingdom.mq.search import MessageSearch, NotSeenYet
from kingdom.mq.stores.base import DAY_MS

KEPT_MS = DAY_MS
MOST_REMEMBERED = 8_192
BYTES_FOR_EXPIRED = 1 << 20
OUTDATED_AT_ONCE = 1_000


class Lease:
    """A message that a consumer holds until a moment."""

    __slots__ = (
        "attempt",
        "consumer",
        "consumer_digest",
        "key",
        "latest",
        "lease_id",
        "name",
        "queue",
        "since",
        "until",
    )

    def __init__(
        self,
        queue: QueueState,
        name: str,
        lease_id: str,
        consumer_digest: str,
        until: int,
        attempt: int,
        consumer: str = "",
        since: int = 0,
        latest: int = 0,
    ) -> None:
        self.queue = queue
        #: The message's name while it is leased.
        self.name = name
        #: The message's key.
        self.key = names.key_of(queue.name, name)
        self.lease_id = lease_id
        #: Empty when the lease was given before a restart: then only the digest is known.
        self.consumer = consumer
        self.consumer_digest = consumer_digest
        #: In ms since the epoch; -1 once it is acknowledged.
        self.until = until
        self.attempt = attempt
        #: When it began; 0 when it was given before a restart.
        self.since = since
        #: Of a lease that was given before the start: when it ends at the latest, whatever the wall clock says. Else 0.
        self.latest = latest

    @property
    def is_dead_letter(self) -> bool:
        return names.is_dead_letter(self.name)


@lru_cache(maxsize=10_000)
def digest_of(consumer: str) -> str:
    message_format.whole_text("consumerId", consumer)
    return names.digest(consumer)


class Leases:
    _acked: dict[str, Lease]
    _acked_before: dict[str, Lease]
    _expired: ExpiringMap

    def __init__(self, queues: QueueStates) -> None:
        self._queues = queues
        self.by_message_id = LargeMap[str, Lease]()
        #: A heap of (when, message id): the lease may end.
        self._ends: list[tuple[int, str]] = []
        #: One with too much in it that is outdated: it goes over into the other, a part in every turn.
        self._old_ends: list[tuple[int, str]] = []
        self.forget()

    def forget(self) -> None:
        self.by_message_id.clear()
        self._ends, self._old_ends = [], []
        self._acked, self._acked_before = {}, {}
        #: How many leases are from before the start.
        self.inherited = 0
        self._expired = ExpiringMap(KEPT_MS, BYTES_FOR_EXPIRED)

    def of(self, queue: QueueState) -> Iterator[Lease | None]:
        """Yield the leases of a queue as far as they are not ended; None after each part that was looked through."""
        for part in self.by_message_id.parts():
            for lease in part:
                if lease.queue is queue and self.by_message_id.get(lease.name[MESSAGE_ID]) is lease:
                    yield lease
            yield None

    def begin(self, lease: Lease) -> None:
        message_id = lease.name[MESSAGE_ID]
        self.by_message_id.put(message_id, lease)
        lease.queue.inflight += 1
        heappush(self._ends, (lease.until, message_id))

    def restore(self, queue: QueueState, name: str, now: int) -> None:
        """Take over a lease that was given before a restart. It does not last longer than it was given for."""
        fields = names.fields_of(name)
        until, attempt = names.due_of(name), names.attempt_of(name)
        latest = now + int(fields.get(names.LENGTH) or until - names.created_of(name))
        lease_id, consumer = fields.get(names.LEASE, ""), fields.get(names.CONSUMER, "")
        self.begin(Lease(queue, name, lease_id, consumer, min(until, latest), attempt, latest=latest))
        self.inherited += 1

    def judge_inherited(self, ahead: int) -> None:
        """Judge anew when leases from before the start end, by a wall clock that was set forward by `ahead` ms."""
        for part in self.by_message_id.parts():
            for lease in part:
                if lease.latest:
                    lease.until = min(names.due_of(lease.name) - ahead, lease.latest)
                    heappush(self._ends, (lease.until, lease.name[MESSAGE_ID]))

    def _is_ours_now(self, lease: Lease) -> None:
        """Note that a lease has ended, or was extended: the wall clock does not matter for it any more."""
        self.inherited -= lease.latest > 0
        lease.latest = 0

    def extend(self, lease: Lease, name: str, until: int) -> None:
        lease.name = name
        lease.until = until
        self._is_ours_now(lease)
        self._queues.changed = True
        heappush(self._ends, (until, name[MESSAGE_ID]))

    def end(self, lease: Lease, now: int) -> None:
        """End a lease, not by an ack: whoever asks for it later hears that it has expired."""
        if self.by_message_id.pop(lease.name[MESSAGE_ID], None) is not None:
            lease.queue.inflight -= 1
            self._is_ours_now(lease)
            self._queues.changed = True
            self._expired.put(fingerprint(lease.key, lease.lease_id), b"", now)

    def acknowledge(self, lease: Lease) -> None:
        """End a lease by an ack, and remember that for a while."""
        message_id = lease.name[MESSAGE_ID]
        self.by_message_id.pop(message_id, None)
        lease.queue.inflight -= 1
        self._is_ours_now(lease)
        if len(self._acked) >= MOST_REMEMBERED:
            self._acked_before, self._acked = self._acked, {}
        lease.until = -1
        self._acked[message_id] = lease

    def held(self, key: str, lease_id: str, consumer: str, now: int, by_key: bool = False) -> Lease:
        """Return the lease that the caller may end. With neither lease id nor consumer nobody's right is checked.

        `by_key`: the caller has named neither, and `consumer` is the client itself: the policy may let it pass.
        """
        lease = self.by_message_id.get(names.id_of_key(key))
        if lease is None or lease.key != key:
            raise self._why_not(key, lease_id)
        if not lease.lease_id:  # given by another system, which has not left it here
            lease.lease_id = lease_id
        elif lease_id:
            if lease_id != lease.lease_id:
                raise self._why_not(key, lease_id)
        elif consumer and digest_of(consumer) != lease.consumer_digest:
            if not by_key:
                raise LeaseMismatch(key=key)
            if not lease.queue.policy.ack_by_key:
                raise HeldByAnother(key=key, consumer=consumer)
        if lease.until <= now:
            raise LeaseExpired(key=key)
        return lease

    def is_held_by_another(self, key: str, consumer: str) -> bool:
        lease = self.by_message_id.get(names.id_of_key(key))
        return lease is not None and lease.key == key and lease.consumer_digest != digest_of(consumer)

    def was_acked(self, key: str, lease_id: str, consumer: str, by_key: bool = False) -> bool:
        """Return whether the same ack was answered before."""
        lease = self._acked_lease(key)
        if lease is None:
            return False
        if lease_id:
            return lease_id == lease.lease_id
        return consumer in ("", lease.consumer) or (by_key and lease.queue.policy.ack_by_key)

    def search(self, key: str) -> MessageSearch:
        """Begin to look for a message among those that wait in its queue."""
        return MessageSearch(self._queues.by_name.get(names.queue_of_key(key)), key)

    def was_given_back(self, search: MessageSearch, lease_id: str) -> bool:
        """Return whether a message that was leased before is a dead letter, waits, or is out on another lease, after a
        search for it."""
        if search.queue is None:
            return False
        if (lease := self.by_message_id.get(search.message_id)) is not None:
            return lease.key == search.key and lease.lease_id != lease_id and lease.attempt > 1
        return search.message_id in search.queue.dead or (bool(search.found) and names.attempt_of(search.found) > 0)

    def is_at_work(self, search: MessageSearch) -> bool:
        """Return whether a message waits or is leased, after a search for it."""
        return search.queue is not None and (search.message_id in self.by_message_id or bool(search.found))

    def _acked_lease(self, key: str) -> Lease | None:
        message_id = names.id_of_key(key)
        lease = self._acked.get(message_id) or self._acked_before.get(message_id)
        return lease if lease is not None and lease.key == key else None

    def _why_not(self, key: str, lease_id: str) -> Refusal:
        if lease_id and self._expired.get(fingerprint(key, lease_id)) is not None:
            return LeaseExpired(key=key)
        return self.why_not(self.search(key), lease_id)

    def why_not(self, search: MessageSearch, lease_id: str) -> Refusal:
        """Search on for a message. Return why its lease cannot be ended; NotSeenYet: there is more to search."""
        key, message_id = search.key, search.message_id
        if search.queue is None:
            return MessageNotFound(key=key)
        if message_id in self.by_message_id or message_id in search.queue.dead or self._acked_lease(key) is not None:
            return LeaseMismatch(key=key)
        if not search.go_on(Budget()):
            return NotSeenYet(search, lease_id)
        if not search.found:
            return MessageNotFound(key=key)
        # Leased before, perhaps before a restart: then it is this lease that ended.
        return LeaseExpired(key=key) if lease_id and names.attempt_of(search.found) else LeaseMismatch(key=key)

    def expired(self, now: int, budget: Budget) -> Iterator[Lease]:
        """Yield leases that have run out, as many as the budget allows; the caller ends each."""
        for ends in (self._old_ends, self._ends):
            while ends and ends[0][0] <= now and budget.is_left():
                entry = heappop(ends)
                budget.spend()
                if (lease := self._current(entry)) is not None:
                    yield lease

    def next_end(self) -> int:
        """Return when a lease may end, or has ended already."""
        self._clear_outdated()
        return min(self._first_end(self._old_ends), self._first_end(self._ends))

    def _first_end(self, ends: list[tuple[int, str]]) -> int:
        for _ in range(OUTDATED_AT_ONCE):
            if not ends or self._current(ends[0]) is not None:
                break
            heappop(ends)
        return ends[0][0] if ends else NEVER

    def _clear_outdated(self) -> None:
        """Forget some outdated entries when there are many: every extension and every ack leaves one behind."""
        if not self._old_ends and len(self._ends) > 2 * len(self.by_message_id) + 4096:
            self._old_ends, self._ends = self._ends, []
        for _ in range(min(OUTDATED_AT_ONCE, len(self._old_ends))):
            entry = self._old_ends.pop()  # without its last one a heap is a heap
            if self._current(entry) is not None:
                heappush(self._ends, entry)

    def _current(self, entry: tuple[int, str]) -> Lease | None:
        """Return the lease that ends as an entry says; None when it has ended or was extended."""
        lease = self.by_message_id.get(entry[1])
        return lease if lease is not None and lease.until == entry[0] else None
