"""The queue's verbs: publish, lease, ack, nack, extend, sweep. Order and rules live in memory, messages in a store.

One thread, one engine, one store. Nothing may be told to anybody before commit() has returned.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from kingdom.base import tables
from kingdom.base.disk.lock import Lock
from kingdom.mq import message_format, names
from kingdom.mq.budget import MOST_CHANGES, Budget, Steps, all_at_once
from kingdom.mq.dead_letters import DeadLetters
from kingdom.mq.deduplication import Deduplication, PublishRequest, Remembered
from kingdom.mq.errors import InvalidRequest, MessageNotFound, Refusal, StoreError, ValidationFailed
from kingdom.mq.failures import Failures, Log, Outcome
from kingdom.mq.handover import Handover
from kingdom.mq.leases import Lease, Leases, digest_of
from kingdom.mq.message_format import Draft, MalformedBody
from kingdom.mq.moving import Moving
from kingdom.mq.names import LATEST, MESSAGE_ID, NEVER, Ids
from kingdom.mq.opening import Opening
from kingdom.mq.queue_state import QueueState
from kingdom.mq.queues import EngineSettings, QueueStates
from kingdom.mq.removal import Removal
from kingdom.mq.search import MessageSearch, NotSeenYet
from kingdom.mq.status import QueueStatus, WaitingMessage
from kingdom.mq.steady_clock import steady_clock
from kingdom.mq.stores import STORES
from kingdom.mq.stores.base import MOST_AT_ONCE, MessageGone, MessageStore, State, StoreConfig, StoreFinding
from kingdom.mq.timers import Timers
from kingdom.mq.wall_watch import WallWatch

LOOK_FOR_STRAYS_MS = 2_000
UPKEEP_MS = 3_600_000
TIDY_MS = 1_000
STRAYS_AT_ONCE = 2_000


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _no_log(key: str, sentence: str, **facts: object) -> None:
    """Do nothing: the log of those who keep none."""


class Stored(NamedTuple):
    message_id: str
    message_key: str
    #: Whether an earlier message came under the same request id or deduplication key; then it is that one.
    duplicate: bool = False


class Leased(NamedTuple):
    """A message handed out, as its consumer sees it."""

    message_id: str
    message_key: str
    queue: str
    #: Word for word as it was published.
    payload: str
    #: A JSON object.
    attributes: str
    priority: int
    #: How often it has been handed out, with this time.
    attempt: int
    lease_id: str
    consumer: str
    #: When the lease ends, in ms since the epoch by the wall clock.
    lease_until: int
    #: When it was published, in ms since the epoch by the wall clock.
    created_at: int
    #: The whole message as the store has it.
    body: str

    def envelope(self) -> dict[str, Any]:
        """Return everything of the message but payload and attributes: type, traceId and so on."""
        return message_format.header(self.body)


def open_engine(
    config: StoreConfig,
    *,
    settings: EngineSettings,
    clock: Callable[[], int] | None = None,
    wall: Callable[[], int] | None = None,
    log: Log = _no_log,
) -> Engine:
    """Open the configured store with an engine over it. Locked when another process holds the same root."""
    lock = Lock(config.root / "lock", "queue manager")
    lock.acquire()
    try:
        store: MessageStore = tables.load(STORES[config.backend])(config)
        return Engine(store, settings=settings, clock=clock, wall=wall, log=log, lock=lock)
    except BaseException:
        lock.release()
        raise


class Engine:
    def __init__(
        self,
        store: MessageStore,
        *,
        settings: EngineSettings,
        clock: Callable[[], int] | None = None,
        wall: Callable[[], int] | None = None,
        random: Callable[[], float] = random.random,
        ids: Ids | None = None,
        log: Log = _no_log,
        lock: Lock | None = None,
    ) -> None:
        """`clock` and `wall` are in ms since the epoch, `random` yields numbers in [0, 1).

        Everything is judged by the clock, which is steady unless another is given. Consumers are told when their
        leases end by the wall clock, which is theirs and may step.
        """
        self.store = store
        self._wall = wall or clock or _wall_ms
        self.clock = clock = clock or steady_clock()
        self.log = log
        self._ids = ids or Ids()
        self._lock = lock
        self._queues = QueueStates(store, settings)
        self._timers = Timers(store, self._queues)
        self._leases = Leases(self._queues)
        self._failures = Failures(store, self._queues, self._timers, self._leases, random, log)
        self._dead_letters = DeadLetters(store, self._queues, self._timers, self._ids, clock, log)
        self._removal = Removal(store, self._queues, self._leases, self.commit, self._distrust_memory)
        self._handover = Handover(store, self._queues, self._timers, self._dead_letters)
        self._moving = Moving(store, self._queues, self._timers, self._dead_letters, self._ids, clock)
        self._dedup = Deduplication(store)
        self._by_name = self._queues.by_name
        #: Whether the last `lease` ended before it had seen all that waits: very much of it had expired.
        self.cut_short = False
        self._look_at = 0
        self._tidy_at = 0
        self._upkeep_at = 0
        self._wall_watch = WallWatch(self._queues, self._timers, self._leases, clock, self._wall, log)
        self._opening = Opening(
            store,
            self._queues,
            self._timers,
            self._leases,
            self._dedup,
            self._ids,
            self._wall_watch,
            clock,
            log,
            self._reject,
        )
        self._ensure_loaded = self._opening.ensure_loaded
        self._opening.load()

    @property
    def loads(self) -> int:
        """How often the store was loaded. A call of several turns cannot go on with what it knew before."""
        return self._opening.loads

    @property
    def queues(self) -> QueueStates:
        self._ensure_loaded()
        return self._queues

    @property
    def dead_letters(self) -> DeadLetters:
        self._ensure_loaded()
        return self._dead_letters

    @property
    def removal(self) -> Removal:
        self._ensure_loaded()
        return self._removal

    @property
    def moving(self) -> Moving:
        self._ensure_loaded()
        return self._moving

    @property
    def handover(self) -> Handover:
        self._ensure_loaded()
        return self._handover

    def take_over(self, queue: str, draft: Draft, message_id: str) -> Stored:
        """Add a message that another store has handed over, where it had this id. Again it is the same message."""
        self._ensure_loaded()
        request = PublishRequest.of_handed_over(queue, message_id)
        published = self._publish(queue, draft, request, 0, self._dedup.ids_of_request(request, 1), by_key=False)
        if not published.duplicate:
            self._dedup.note_request(queue, request, (published.message_id,), self.clock())
        return published

    def publish(self, queue: str, draft: Draft, request_id: str = "", client: str = "") -> Stored:
        """Add a message. A request of this client under an id and with a content that came before returns what it
        led to then."""
        self._ensure_loaded()
        request = PublishRequest.of(client, queue, request_id, (draft,)) if request_id else None
        known = self._dedup.ids_of_request(request, 1) if request else None
        published = self._publish(queue, draft, request, 0, known)
        if request and not published.duplicate:
            self._dedup.note_request(queue, request, (published.message_id,), self.clock())
        return published

    def publish_batch(
        self, queue: str, drafts: Sequence[Draft], request_id: str = "", client: str = ""
    ) -> list[Stored | Refusal]:
        """Add messages and return an outcome for each: one that is refused does not stop the others."""
        return all_at_once(self.publishing(queue, drafts, request_id, client))

    def publishing(
        self, queue: str, drafts: Sequence[Draft], request_id: str, client: str, budget: Budget | None = None
    ) -> Steps[list[Stored | Refusal]]:
        """Do the same, a part in each turn."""
        self._ensure_loaded()
        request = PublishRequest.of(client, queue, request_id, drafts) if request_id else None
        known = self._dedup.ids_of_request(request, len(drafts)) if request else None
        budget = budget or Budget()
        outcomes: list[Stored | Refusal] = []
        remembered = 0
        try:
            for index, draft in enumerate(drafts):
                if not budget.is_left():
                    remembered = self._remember_part(queue, request, outcomes, remembered)
                    yield
                    budget.renew()
                budget.spend()
                try:
                    outcomes.append(self._publish(queue, draft, request, index, known))
                except Refusal as refusal:
                    outcomes.append(refusal)
        finally:
            # Also when the disk fails half-way: asked again, the batch goes on where it stopped.
            self._remember_part(queue, request, outcomes, start=remembered)
        return outcomes

    def _remember_part(
        self, queue: str, request: PublishRequest | None, outcomes: Sequence[Stored | Refusal], start: int
    ) -> int:
        """Remember what came of a request from `start` on. Return how many outcomes it has by now."""
        part = outcomes[start:]
        if request and any(isinstance(outcome, Stored) and not outcome.duplicate for outcome in part):
            ids = ("" if isinstance(outcome, Refusal) else outcome.message_id for outcome in part)
            self._dedup.note_request(queue, request, (*[""] * start, *ids), self.clock())
        return len(outcomes)

    def _publish(
        self,
        queue_name: str,
        draft: Draft,
        request: PublishRequest | None,
        index: int,
        known: tuple[str, ...] | None,
        by_key: bool = True,
    ) -> Stored:
        if known is not None and known[index]:
            return Stored(known[index], names.key(queue_name, known[index]), True)
        queue = self._by_name.get(queue_name)
        if queue is None:
            queue = self._queues.to_publish(queue_name)
        now = self.clock()
        if by_key and draft.dedup_key:
            original = self._dedup.duplicate_of(queue, draft.dedup_key, now)
            if original is not None:
                return Stored(original, names.key(queue_name, original), True)
        payload, extra = message_format.spliced(draft)
        if queue.check is not None:
            wrong = queue.check(payload)
            if wrong:
                raise ValidationFailed(queue=queue_name, why=wrong)
        sequence = self._ids.next_sequence()
        kind = names.REMEMBERED if request or draft.dedup_key else names.PLAIN_KIND
        message_id = self._ids.message_id(now, sequence, kind)
        if request:
            extra = message_format.request_line(request.id, request.key, index) + extra
        if draft[1:] == _PLAIN and not queue.policy.ttl_ms:
            due, expires = now, 0
            if queue.header_at != now:
                queue.header_at, queue.header = now, message_format.head(draft, queue.quoted_name, now, now, 0)
            name = names.plain(now, sequence, message_id)
            body = message_format.write(message_id, queue.header, extra, "{}", payload)
        else:
            draft = _checked(draft, now)
            due = now + draft.delay_ms
            ttl = draft.ttl_ms or queue.policy.ttl_ms
            expires = now + ttl if ttl else 0
            name = names.compose(draft.priority, due, sequence, names.first_fields(expires, draft.target), message_id)
            head = message_format.head(draft, queue.quoted_name, now, due, expires)
            body = message_format.write(message_id, head, extra, draft.attributes, payload)
        self.store.put(queue_name, "delayed" if due > now else "ready", name, body)
        queue.published += 1
        self._queues.changed = True
        self._timers.add(queue, name, due, now)
        if draft.dedup_key:
            self._dedup.note_key(queue_name, draft.dedup_key, name, now)
        return Stored(message_id, names.key(queue_name, message_id))

    def lease(
        self,
        queue: str,
        consumer: str,
        limit: int = 1,
        visibility_ms: int | None = None,
        room: int = MOST_AT_ONCE,
    ) -> list[Leased]:
        """Hand out up to `limit` messages, and no more than `room` characters but for the last of them: those
        of the queue, then dead letters that are consumed under its name."""
        self._ensure_loaded()
        own = self._by_name.get(queue)
        sources = self._queues.dead_letter_sources.get(queue)
        if own is None and sources is None:
            self._queues.check_unseen(queue)
            return []
        if visibility_ms is not None:
            _check_range("visibilityTimeoutSec", visibility_ms, 1, LATEST // 10)
        now = self.clock()
        digest = digest_of(consumer)
        leased: list[Leased] = []
        left = MOST_CHANGES
        self.cut_short = False
        if own is not None:
            if own.paused:
                return leased
            if own.next_release <= now:
                self._timers.release_due(own, now)
        while len(leased) < limit and room > 0:
            state: State = "ready"
            if own is not None and (first := own.take(digest)) is not None:
                source, name = own, first
            elif sources is not None and (dead := self._dead_letters.take_first(sources, now)) is not None:
                (source, name), state = dead, "dlq"
            else:
                break
            until = now + (visibility_ms or source.policy.visibility_ms)
            delivery = self._lease(source, state, name, consumer, digest, until, now)
            if delivery is not None:
                leased.append(delivery)
                room -= len(delivery.body)
            else:
                left -= 1
                if not left:
                    self.cut_short = True
                    break
        return leased

    def _lease(
        self, queue: QueueState, state: State, name: str, consumer: str, digest: str, until: int, now: int
    ) -> Leased | None:
        """Return the leased message; None when it is expired, malformed or gone."""
        is_plain = len(name) == names.PLAIN_LENGTH
        if not is_plain and 0 < self._timers.expiries.end_of(name) <= now:
            self._drop(queue, name)
            return None
        lease_id = self._ids.lease_id()
        new, attempt = names.leased(name, until, until - now, lease_id, digest, state == "ready")
        try:
            self.store.move(queue.name, state, name, "inflight", new)
            body = self.store.read(queue.name, "inflight", new)
        except MessageGone:
            self._vanished(queue, name, new)
            return None
        except StoreError:
            if state == "ready":
                queue.add_ready(name)
            else:
                queue.add_dead(name)
            raise
        except MalformedBody as error:
            body, content, wrong = error.text, None, error.why
        else:
            content, wrong = self._content(queue, state, new, body, is_plain)
        lease = Lease(queue, new, lease_id, digest, until, attempt, consumer, now)
        self._queues.changed = True
        self._leases.begin(lease)
        if content is None:
            self._failures.dead_letter(lease, now, "VALIDATION_ERROR", wrong, body)
            return None
        queue.consumed += 1
        return Leased(
            new[MESSAGE_ID] if is_plain else message_format.shown_id(new, body),
            lease.key,
            queue.name,
            content.payload,
            content.attributes,
            names.priority_of(new),
            attempt,
            lease_id,
            consumer,
            until - now + self._wall(),
            self._created_at(new, body, now),
            body,
        )

    def _created_at(self, name: str, body: str, now: int) -> int:
        if names.is_foreign(name):
            return int(message_format.header(body).get("createdAt") or 0)
        return self._wall_watch.as_told_now(names.created_of(name), now)

    def _content(
        self, queue: QueueState, state: State, name: str, body: str, is_plain: bool
    ) -> tuple[message_format.Content | None, str]:
        if state == "dlq":
            return message_format.Content(body.strip(), "{}"), ""
        try:
            content = message_format.content(body, self.store.by_hand or (not is_plain and names.is_foreign(name)))
        except MalformedBody as error:
            return None, error.why
        if queue.check is not None and names.is_by_hand(name):
            wrong = queue.check(content.payload)
            if wrong:
                return None, wrong
        return content, ""

    def _reject(self, queue: QueueState, name: str, now: int) -> None:
        """Make a ready message a dead letter: leasing it to ourselves finds what is wrong with it."""
        if 0 < self._timers.expiries.end_of(name) <= now:
            self._drop(queue, name)
            return
        self._lease(queue, "ready", name, "", names.digest(""), now, now)

    def _vanished(self, queue: QueueState, name: str, new: str) -> None:
        with suppress(MessageGone):
            self.store.drop(queue.name, "inflight", new)
        key = names.key_of(queue.name, name)
        self.log("mq.vanished", f"{key} is gone: somebody took it", queue=queue.name)

    def has_ready(self, queue: str, consumer: str) -> bool:
        """Return whether this consumer would get a message now."""
        own = self._by_name.get(queue)
        if own is not None:
            if own.paused:
                return False
            if own.next_release <= self.clock():
                self._timers.release_due(own, self.clock())
            if own.has_ready(digest_of(consumer)):
                return True
        return any(source.first_dead(self.clock()) for source in self._queues.dead_letter_sources.get(queue, ()))

    def arrived(self) -> set[str]:
        """Return the queues in which messages may have become ready since this was last asked."""
        arrived = self._queues.arrived
        self._queues.arrived = set()
        return arrived

    def ack(self, key: str, lease_id: str = "", consumer: str = "", by_key: bool = False) -> None:
        """End a lease: the message is done. The same ack again is no error. `by_key` as Leases.held says."""
        self._ensure_loaded()
        lease = self._leases.by_message_id.get(key[MESSAGE_ID])
        now = self.clock()
        if lease is None or lease.key != key or lease.lease_id != lease_id or lease.until <= now:
            if self._leases.was_acked(key, lease_id, consumer, by_key):
                return
            lease = self._leases.held(key, lease_id, consumer, now, by_key)
        queue = lease.queue
        try:
            if queue.policy.archive and not lease.is_dead_letter:
                self.store.move(queue.name, "inflight", lease.name, "archived", names.archived(lease.name, now))
            else:
                self.store.drop(queue.name, "inflight", lease.name)
        except MessageGone:
            pass
        self._leases.acknowledge(lease)
        self._queues.changed = True
        queue.acked += 1
        if lease.since:
            queue.note_handled(now - lease.since)

    def nack(
        self,
        key: str,
        lease_id: str = "",
        consumer: str = "",
        reason: str = "",
        requeue: bool = False,
        by_key: bool = False,
    ) -> Outcome:
        """End a lease: the message failed. Return where it goes: another try, the dead letters, or the archive."""
        self._ensure_loaded()
        message_format.whole_text("reason", reason)
        now = self.clock()
        lease = self._leases.held(key, lease_id, consumer, now, by_key)
        if requeue:
            outcome = self._failures.fail(lease, now, "RETRY_EXCEEDED", reason)
        elif lease.is_dead_letter:
            outcome = self._failures.return_dead_letter(lease, now)
        else:
            outcome = self._failures.dead_letter(lease, now, "HANDLER_ERROR", reason)
        lease.queue.nacked += 1
        lease.queue.failed += 1
        return outcome

    def give_back(self, key: str, lease_id: str) -> None:
        """End a lease of which nobody has heard: the message waits as before."""
        self._ensure_loaded()
        now = self.clock()
        self._failures.give_back(self._leases.held(key, lease_id, "", now), now)

    def why_not(self, unseen: NotSeenYet) -> Steps[Refusal]:
        """Search on for the message of a lease that cannot be ended, and return why."""
        while isinstance(refusal := self._leases.why_not(unseen.search, unseen.lease_id), NotSeenYet):
            yield
        return refusal

    def is_held_by_another(self, key: str, consumer: str) -> bool:
        """Return whether a message is out on a lease of another consumer than this one."""
        self._ensure_loaded()
        return self._leases.is_held_by_another(key, consumer)

    def search(self, key: str) -> MessageSearch:
        """Begin to look for a message among those that wait in its queue."""
        self._ensure_loaded()
        return self._leases.search(key)

    def was_given_back(self, search: MessageSearch, lease_id: str) -> bool:
        """Return whether a message that was leased before is a dead letter, waits, or is out on another lease, after a
        search for it."""
        return self._leases.was_given_back(search, lease_id)

    def is_at_work(self, search: MessageSearch) -> bool:
        """Return whether a message waits or is leased, after a search for it."""
        return self._leases.is_at_work(search)

    def extend(self, key: str, lease_id: str = "", visibility_ms: int | None = None, consumer: str = "") -> int:
        """Let a lease last longer from now on. Return its new end, in ms since the epoch by the wall clock."""
        self._ensure_loaded()
        now = self.clock()
        if visibility_ms is not None:
            _check_range("visibilityTimeoutSec", visibility_ms, 1, LATEST // 10)
        lease = self._leases.held(key, lease_id, consumer, now)
        until = now + (visibility_ms or lease.queue.policy.visibility_ms)
        new = names.extended(lease.name, until, until - now)
        try:
            self.store.move(lease.queue.name, "inflight", lease.name, "inflight", new)
        except MessageGone:
            self._leases.end(lease, now)
            raise MessageNotFound(key=key) from None
        self._leases.extend(lease, new, until)
        return until - now + self._wall()

    def sweep(self, now: int | None = None) -> int | None:
        """Do what is due, a part of it when it is much; return when something is due next. Free when nothing is."""
        self._ensure_loaded()
        now = self.clock() if now is None else now
        budget = Budget()
        self._wall_watch.look(now)
        for lease in self._leases.expired(now, budget):
            self._failures.fail(lease, now, "TIMEOUT", "")
            lease.queue.failed += 1
        self._timers.release_all_due(now, Budget())
        for queue, name in self._timers.take_expired(now, Budget()):
            self._drop(queue, name)
        if self._queues.changed and now >= self._tidy_at:
            self._tidy(now)
        if self.store.by_hand and now >= self._look_at:
            adopted = self._opening.adopt_strays(STRAYS_AT_ONCE, now)
            self._look_at = now + (0 if adopted else LOOK_FOR_STRAYS_MS)
        self._handover.give_back_late(now, Budget())
        if now >= self._upkeep_at and self._dead_letters.retire(now, Budget()):
            self._upkeep_at = now + UPKEEP_MS
        return self.next_due()

    def next_due(self) -> int | None:
        """Return when `sweep` has something to do, in ms since the epoch."""
        due = min(
            self._leases.next_end(),
            self._timers.next_due(),
            self._wall_watch.next_look,
            self._handover.next_due(),
            self._look_at if self.store.by_hand else NEVER,
            self._tidy_at if self._queues.changed else NEVER,
        )
        if self._upkeep_at < due and any(queue.dead for queue in self._by_name.values()):
            due = self._upkeep_at
        return None if due == NEVER else due

    def _tidy(self, now: int) -> None:
        happened = [queue.sample_counts(now) for queue in self._by_name.values()]
        self._queues.changed = self.store.tidy(now, idle=not any(happened))
        self._tidy_at = now if self._queues.changed else now + TIDY_MS

    def status(self, queue: str) -> QueueStatus:
        """Return the figures of a queue, or of a dead-letter queue that is only a name."""
        self._ensure_loaded()
        now = self.clock()
        sources = self._queues.dead_letter_sources.get(queue, [])
        own = self._by_name.get(queue)
        if own is None:
            own = QueueState(queue, sources[0].policy if sources else self._queues.check_unseen(queue))
        if own.next_release <= now:
            self._timers.release_due(own, now)
        return QueueStatus.of(own, sources, now)

    def remembered(self) -> Remembered:
        """Return how much is remembered of requests and deduplication keys."""
        return self._dedup.remembered()

    def peek(self, queue: str, limit: int = 10, dead: bool = False) -> list[WaitingMessage]:
        """Return the messages that come next, or the dead letters, without handing them out; no more than MOST_AT_ONCE
        characters but for the last of them."""
        return all_at_once(self.looking(queue, limit, dead))

    def looking(
        self, queue: str, limit: int, dead: bool = False, budget: Budget | None = None
    ) -> Steps[list[WaitingMessage]]:
        """Do the same, a part in each turn."""
        budget, seen, room = budget or Budget(), list[WaitingMessage](), MOST_AT_ONCE
        for source, name in list(islice(self._next_ones(queue, limit, dead), limit)):
            if not budget.is_left():
                yield
                budget.renew()
            budget.spend()
            now = self.clock()
            message = WaitingMessage.read(self.store, source.name, name, now)
            if message is not None:
                created = self._wall_watch.as_told_now(message.created_at, now)
                seen.append(message._replace(created_at=created))
                room -= len(message.payload) + len(message.attributes)
                if room <= 0:
                    break
        return seen

    def _next_ones(self, queue: str, limit: int, dead: bool) -> Iterator[tuple[QueueState, str]]:
        """Yield the messages that come next, then the dead letters, those that died first at the head."""
        if dead:
            own, sources = None, self.queues.with_dead_letters(queue)
        else:
            own, sources = self.queues.sources(queue)
        if own is not None:
            if own.next_release <= self.clock():
                self._timers.release_due(own, self.clock())
            yield from ((own, name) for name in own.first(limit))
        yield from ((source, name) for source in sources for name in source.all_dead())

    def purge(self, queue: str, limit: int = MOST_CHANGES) -> int:
        """Remove up to `limit` waiting messages, of a dead-letter queue the dead letters as well. Returns how many;
        come back until it is 0."""
        own, sources = self.queues.sources(queue)
        purged = 0
        while own is not None and purged < limit and (name := own.pop_any()) is not None:
            self._drop(own, name)
            purged += 1
        if sources and purged < limit:
            purged += self._dead_letters.purge(queue, limit=limit - purged)
        return purged

    def _drop(self, queue: QueueState, name: str) -> None:
        self._queues.changed = True
        try:
            self.store.drop(queue.name, "ready", name)
        except MessageGone:
            pass
        except StoreError:
            self._distrust_memory()
            raise

    def _distrust_memory(self) -> None:
        """Load everything anew before the next call: a message that the store could not drop is missing here."""
        self._opening.stale = True

    def check(self, repair: bool = False) -> list[StoreFinding]:
        """Return what does not fit together in the store. Ends the group: call it between requests."""
        self._ensure_loaded()
        self.commit()
        findings = self.store.check(repair, self.clock())
        if repair:
            self._opening.load()
        return findings

    def check_lock(self) -> None:
        """Raise LockLost when somebody has removed the lock of the store: another engine may be at work on it."""
        if self._lock is not None:
            self._lock.check()

    def commit(self) -> None:
        """Make all since the last commit as durable as the configuration says. StoreError: all of it is undecided."""
        store = self.store
        if not store.broken:
            try:
                if self._dedup.unsaved:
                    store.remember(self._dedup.unsaved)
                    self._dedup.unsaved = []
                store.commit()
                return
            except StoreError:
                self._give_up()
                raise
        self._give_up()
        raise StoreError(backend=type(store).__name__, action="finish the group", why="an earlier change failed")

    def _give_up(self) -> None:
        self.store.abandon()
        self._dedup.unsaved = []
        self._opening.stale = True

    def close(self) -> None:
        """Commit, and let go of the store."""
        try:
            if not self._opening.stale and not self.store.broken:
                self.commit()
        finally:
            self.store.close()
            if self._lock is not None:
                self._lock.release()


_PLAIN = Draft("")[1:]


def _check_range(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidRequest(field=what, why=f"{value} is not between {least} and {most}")


def _checked(draft: Draft, now: int) -> Draft:
    """Return a draft that says more than a payload, if it is within bounds."""
    _check_range("priority", draft.priority, -names.HIGHEST, names.HIGHEST)
    _check_range("delayMs", draft.delay_ms, 0, LATEST - now)
    _check_range("ttlSec", draft.ttl_ms, 0, LATEST - now)
    for what, text in (("type", draft.type), ("traceId", draft.trace_id), ("targetConsumerId", draft.target)):
        message_format.whole_text(what, text)
    return draft._replace(attributes=message_format.checked_attributes(draft.attributes))
