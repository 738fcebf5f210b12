"""The queue's verbs: publish, lease, ack, nack, extend, sweep. Order and rules live in memory, messages in a store.

One thread, one engine, one store. Nothing may be told to anybody before commit() has returned.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from kingdom.disk.lock import Lock
from kingdom.mq import message_format, names
from kingdom.mq.dead_letters import DeadLetters
from kingdom.mq.deduplication import KEPT_MS, Memos
from kingdom.mq.errors import InvalidRequest, MessageNotFound, QueueNotFound, Refusal, StoreTrouble, ValidationFailed
from kingdom.mq.failures import LATEST, Fate, Fates, Say, resting
from kingdom.mq.leases import Flight, Leases, digest_of
from kingdom.mq.message_format import Draft, Ids, Unfit
from kingdom.mq.queue_state import NEVER, Line
from kingdom.mq.queues import EngineSettings, Queues
from kingdom.mq.status import QueueStatus, Waiting
from kingdom.mq.stores import STORES
from kingdom.mq.stores.base import Finding, Found, Gone, Plan, State, Store, Stray
from kingdom.mq.timers import Timers
from kingdom.runtime import tables

LOOK_FOR_STRAYS_MS = 2_000
UPKEEP_MS = 3_600_000
TIDY_MS = 1_000
STRAYS_AT_ONCE = 2_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _silent(key: str, sentence: str, **facts: object) -> None:
    """For those who keep no log."""


class Published(NamedTuple):
    message_id: str
    message_key: str
    duplicate: bool = False


class Leased(NamedTuple):
    message_id: str
    message_key: str
    queue: str
    payload: str
    attributes: str
    priority: int
    attempt: int
    lease_id: str
    consumer: str
    lease_until: int
    body: str

    @property
    def created_at(self) -> int:
        return names.created_of(self.message_id)

    def envelope(self) -> dict[str, Any]:
        """Everything of the message but payload and attributes: type, traceId and so on."""
        return message_format.header(self.body)


def open_engine(
    backend: str,
    plan: Plan,
    *,
    settings: EngineSettings,
    clock: Callable[[], int] = now_ms,
    say: Say = _silent,
) -> Engine:
    """The engine over a store of STORES. Locked when another process holds the same root."""
    lock = Lock(plan.root / "lock", "queue manager")
    lock.acquire()
    try:
        store: Store = tables.load(STORES[backend])(plan)
        return Engine(store, settings=settings, clock=clock, say=say, lock=lock)
    except BaseException:
        lock.release()
        raise


class Engine:
    def __init__(
        self,
        store: Store,
        *,
        settings: EngineSettings,
        clock: Callable[[], int] = now_ms,
        dice: Callable[[], float] = random.random,
        ids: Ids | None = None,
        say: Say = _silent,
        lock: Lock | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.say = say
        self._ids = ids or Ids()
        self._lock = lock
        self._queues = Queues(store, settings)
        self._timers = Timers(store, self._queues)
        self._leases = Leases(self._queues)
        self._fates = Fates(store, self._queues, self._timers, self._leases, dice, say)
        self._dead_letters = DeadLetters(store, self._queues, self._timers, self._ids, clock, say)
        self._memos = Memos()
        self._lines = self._queues.lines
        self._stale = True
        self._look_at = 0
        self._tidy_at = 0
        self._upkeep_at = 0
        self._reload()

    @property
    def queues(self) -> Queues:
        self._ready()
        return self._queues

    @property
    def dead_letters(self) -> DeadLetters:
        self._ready()
        return self._dead_letters

    # --- publishing

    def publish(self, queue: str, draft: Draft, request_id: str = "") -> Published:
        self._ready()
        known = self._memos.known(request_id, 1) if request_id else None
        published = self._publish(queue, draft, request_id, 0, known)
        if request_id and not published.duplicate:
            self._memos.note_request(queue, request_id, (published.message_id,), self.clock())
        return published

    def publish_batch(self, queue: str, drafts: Sequence[Draft], request_id: str = "") -> list[Published | Refusal]:
        """One draft that is refused does not stop the others."""
        self._ready()
        known = self._memos.known(request_id, len(drafts)) if request_id else None
        outcomes: list[Published | Refusal] = []
        try:
            for index, draft in enumerate(drafts):
                try:
                    outcomes.append(self._publish(queue, draft, request_id, index, known))
                except Refusal as refusal:
                    outcomes.append(refusal)
        finally:
            # Also when the disk fails half-way: asked again, the batch goes on where it stopped.
            self._remember_batch(queue, request_id, outcomes)
        return outcomes

    def _remember_batch(self, queue: str, request_id: str, outcomes: Sequence[Published | Refusal]) -> None:
        if request_id and any(isinstance(each, Published) and not each.duplicate for each in outcomes):
            ids = tuple("" if isinstance(each, Refusal) else each.message_id for each in outcomes)
            self._memos.note_request(queue, request_id, ids, self.clock())

    def _publish(
        self, queue: str, draft: Draft, request_id: str, index: int, known: tuple[str, ...] | None
    ) -> Published:
        if known is not None and known[index]:
            return Published(known[index], f"msg:{queue}:{known[index]}", True)
        line = self._lines.get(queue)
        if line is None:
            line = self._queues.publish_to(queue)
        now = self.clock()
        if draft.dedup_key:
            twin = self._memos.twin(line, draft.dedup_key, now)
            if twin is not None:
                return Published(twin, f"msg:{queue}:{twin}", True)
        payload, extra = message_format.spliced(draft)
        if line.check is not None:
            wrong = line.check(orjson.loads(payload))
            if wrong:
                raise ValidationFailed(queue=queue, why=wrong)
        sequence = self._ids.next()
        kind = message_format.REMEMBERED if request_id or draft.dedup_key else "7"
        message_id = self._ids.message(now, sequence, kind)
        if request_id:
            extra = message_format.request_line(request_id, index) + extra
        if draft[1:] == _PLAIN and not line.policy.ttl_ms:
            due, expires = now, 0
            if line.head_at != now:
                line.head_at, line.head = now, message_format.head(draft, line.quoted, now, now, 0)
            name = f"1000000-{now:013d}-{sequence:08d}-0-{message_id}"
            body = message_format.write(message_id, line.head, extra, "{}", payload)
        else:
            draft = _checked(draft, now)
            due = now + draft.delay_ms
            ttl = draft.ttl_ms or line.policy.ttl_ms
            expires = now + ttl if ttl else 0
            marks = message_format.first_marks(expires, draft.target)
            name = names.compose(names.HIGHEST - draft.priority, due, sequence, marks, message_id)
            head = message_format.head(draft, line.quoted, now, due, expires)
            body = message_format.write(message_id, head, extra, draft.attributes, payload)
        self.store.put(queue, "delayed" if due > now else "ready", name, body)
        line.published += 1
        self._queues.touched = True
        self._timers.wait(line, name, due, now)
        if expires:
            self._timers.end_at(expires, line, name)
        if draft.dedup_key:
            self._memos.note_key(queue, draft.dedup_key, name, now)
        return Published(message_id, f"msg:{queue}:{message_id}")

    # --- leasing

    def lease(self, queue: str, consumer: str, limit: int = 1, visibility_ms: int | None = None) -> list[Leased]:
        self._ready()
        line = self._lines.get(queue)
        feeds = self._queues.feeds.get(queue)
        if line is None and feeds is None:
            raise QueueNotFound(queue=queue)
        if visibility_ms is not None:
            _check_range("visibilityTimeoutSec", visibility_ms, 1, LATEST // 10)
        now = self.clock()
        digest = digest_of(consumer)
        leased: list[Leased] = []
        if line is not None and not line.paused:
            if line.alarm <= now:
                self._timers.ripen(line, now)
            until = now + (visibility_ms or line.policy.visibility_ms)
            while len(leased) < limit and (name := line.take(digest)) is not None:
                delivery = self._lease(line, "ready", name, consumer, digest, until, now)
                if delivery is not None:
                    leased.append(delivery)
        if feeds is not None and len(leased) < limit and not (line is not None and line.paused):
            self._lease_dead(feeds, consumer, digest, limit, visibility_ms, now, leased)
        return leased

    def _lease(
        self, line: Line, state: State, name: str, consumer: str, digest: str, until: int, now: int
    ) -> Leased | None:
        """None when there is nothing to hand out after all: expired, spoiled or gone."""
        lease = self._ids.lease()
        marks = name[31:-37]
        if marks == "0":
            attempt = 1
            new = f"{name[:8]}{until:013d}{name[21:31]}1.l{lease}.c{digest}{name[-37:]}"
        else:
            if ".e" in marks and state == "ready" and self._ends_now(line, name, now):
                return None
            attempts, dot, rest = marks.partition(".")
            attempt = int(attempts) + (state == "ready")
            new = f"{name[:8]}{until:013d}{name[21:31]}{attempt}{dot}{rest}.l{lease}.c{digest}{name[-37:]}"
        queue = line.name
        try:
            self.store.move(queue, state, name, "inflight", new)
            body = self.store.read(queue, "inflight", new)
        except Gone:
            self._vanished(line, name, new)
            return None
        except StoreTrouble:
            if state == "ready":
                line.add_ready(name)
            else:
                line.dead[name[-36:]] = name
            raise
        except Unfit as spoiled:
            body, content, wrong = spoiled.args[1], None, str(spoiled.args[0])
        else:
            content, wrong = self._content(line, new, body)
        flight = Flight(line, new, lease, digest, until)
        flight.consumer = consumer
        flight.attempt = attempt
        flight.since = now
        self._queues.touched = True
        self._leases.begin(flight)
        if content is None:
            self._fates.bury(flight, now, "VALIDATION_ERROR", wrong, body)
            return None
        line.consumed += 1
        return Leased(
            new[-36:],
            flight.key,
            queue,
            content.payload,
            content.attributes,
            names.HIGHEST - int(new[:7]),
            attempt,
            lease,
            consumer,
            until,
            body,
        )

    def _content(self, line: Line, name: str, body: str) -> tuple[message_format.Content | None, str]:
        if ".r" in name:
            return message_format.Content(body.strip(), "{}"), ""
        try:
            content = message_format.content(body, self.store.by_hand)
        except Unfit as unfit:
            return None, str(unfit)
        if line.check is not None and ".h" in name:
            wrong = line.check(orjson.loads(content.payload))
            if wrong:
                return None, wrong
        return content, ""

    def _lease_dead(
        self,
        feeds: list[Line],
        consumer: str,
        digest: str,
        limit: int,
        visibility_ms: int | None,
        now: int,
        leased: list[Leased],
    ) -> None:
        """Dead letters, those that died first at the head; the quarantined stay where they are."""
        while len(leased) < limit:
            heads = [(names.due_of(name), source, name) for source in feeds if (name := source.first_dead())]
            if not heads:
                return
            _, source, name = min(heads, key=lambda head: head[0])
            del source.dead[name[-36:]]
            until = now + (visibility_ms or source.policy.visibility_ms)
            delivery = self._lease(source, "dlq", name, consumer, digest, until, now)
            if delivery is not None:
                leased.append(delivery)

    def _ends_now(self, line: Line, name: str, now: int) -> bool:
        """Whether a message about to be leased has outlived its ttl; it is purged then."""
        line.mortal.discard(name)
        if int(names.marks_of(name)["e"]) > now:
            return False
        self._drop(line, name)
        return True

    def _vanished(self, line: Line, name: str, new: str) -> None:
        line.mortal.discard(name)
        with suppress(Gone):
            self.store.drop(line.name, "inflight", new)
        self.say("mq.vanished", f"{names.key_of(line.name, name)} is gone: somebody took it", queue=line.name)

    def has_ready(self, queue: str, consumer: str) -> bool:
        line = self._lines.get(queue)
        if line is not None:
            if line.paused:
                return False
            if line.alarm <= self.clock():
                self._timers.ripen(line, self.clock())
            if line.ready or (line.aimed_count and digest_of(consumer) in line.aimed):
                return True
        return any(source.first_dead() for source in self._queues.feeds.get(queue, ()))

    def arrived(self) -> set[str]:
        """The queues in which messages may have become ready since this was last asked."""
        arrived = self._queues.arrived
        self._queues.arrived = set()
        return arrived

    # --- the end of a lease

    def ack(self, key: str, lease_id: str = "", consumer: str = "") -> None:
        self._ready()
        flight = self._leases.out.get(key[-36:])
        now = self.clock()
        if flight is None or flight.key != key or flight.lease != lease_id or flight.until <= now:
            if self._leases.was_acked(key, lease_id, consumer):
                return
            flight = self._leases.held(key, lease_id, consumer, now)
        line = flight.line
        with suppress(Gone):
            if line.policy.archive and not flight.is_dead_letter:
                self.store.move(line.name, "inflight", flight.name, "archived", resting(flight.name, now))
            else:
                self.store.drop(line.name, "inflight", flight.name)
        self._leases.done(flight)
        self._queues.touched = True
        line.acked += 1
        if flight.since:
            line.handled(now - flight.since)

    def nack(self, key: str, lease_id: str = "", consumer: str = "", reason: str = "", requeue: bool = False) -> Fate:
        """Where it goes: to another try, to the dead letters, or to the archive."""
        self._ready()
        message_format.whole_text("reason", reason)
        now = self.clock()
        flight = self._leases.held(key, lease_id, consumer, now)
        line = flight.line
        if requeue:
            fate = self._fates.fail(flight, now, "RETRY_EXCEEDED", reason)
        elif flight.is_dead_letter:
            fate = self._fates.put_back(flight, now)
        else:
            fate = self._fates.bury(flight, now, "HANDLER_ERROR", reason)
        line.nacked += 1
        line.failed += 1
        return fate

    def extend(self, key: str, lease_id: str = "", visibility_ms: int | None = None, consumer: str = "") -> int:
        self._ready()
        now = self.clock()
        if visibility_ms is not None:
            _check_range("visibilityTimeoutSec", visibility_ms, 1, LATEST // 10)
        flight = self._leases.held(key, lease_id, consumer, now)
        until = now + (visibility_ms or flight.line.policy.visibility_ms)
        new = f"{flight.name[:8]}{until:013d}{flight.name[21:]}"
        try:
            self.store.move(flight.line.name, "inflight", flight.name, "inflight", new)
        except Gone:
            self._leases.end(flight, now)
            raise MessageNotFound(key=key) from None
        self._leases.extend(flight, new, until)
        return until

    # --- time

    def sweep(self, now: int | None = None) -> int | None:
        """Do what is due; returns when something is due next. Free when nothing is."""
        self._ready()
        now = self.clock() if now is None else now
        for flight in self._leases.expired(now):
            self._fates.fail(flight, now, "TIMEOUT", "")
            flight.line.failed += 1
        self._timers.ripen_due(now)
        for line, name in self._timers.ended(now):
            self._drop(line, name)
        if self._queues.touched and now >= self._tidy_at:
            self._tidy(now)
        if self.store.by_hand and now >= self._look_at:
            self._look_at = now + LOOK_FOR_STRAYS_MS
            self._adopt(STRAYS_AT_ONCE, now)
        if now >= self._upkeep_at:
            self._upkeep_at = now + UPKEEP_MS
            self._dead_letters.retire(now)
        return self.next_due()

    def next_due(self) -> int | None:
        due = min(
            self._leases.next_end(),
            self._timers.next_due(),
            self._look_at if self.store.by_hand else NEVER,
            self._tidy_at if self._queues.touched else NEVER,
            self._upkeep_at if any(line.dead for line in self._lines.values()) else NEVER,
        )
        return None if due == NEVER else due

    def _tidy(self, now: int) -> None:
        self._queues.touched = False
        self._tidy_at = now + TIDY_MS
        counts = [line for line in self._lines.values() if not line.history or line.history[-1].values != line.counts()]
        for line in counts:
            line.note(now)
        self.store.tidy(now, not counts)

    def _adopt(self, budget: int, now: int) -> None:
        for stray in self.store.strays(budget, self._lines):
            self._adopt_one(stray, now)

    def _adopt_one(self, stray: Stray, now: int) -> None:
        line = self._queues.declare(stray.queue)
        priority, due, expires, target = message_format.by_hand(stray.body)
        due = max(due, now)
        sequence = self._ids.next()
        marks = message_format.first_marks(expires, target, hand=True)
        message_id = self._ids.message(now, sequence)
        name = names.compose(names.HIGHEST - priority, due, sequence, marks, message_id)
        try:
            self.store.adopt(stray, name)
        except Gone:
            return
        line.published += 1
        self._queues.touched = True
        try:
            message_format.content(stray.body, True)
        except Unfit:
            # Leasing it to ourselves finds what is wrong and buries it.
            self._lease(line, "ready", name, "", names.digest(""), now, now)
            return
        self._timers.wait(line, name, due, now)
        if expires:
            self._timers.end_at(expires, line, name)
        self.say("mq.adopted", f"{stray.file} in {line.name} is msg:{line.name}:{message_id} now", queue=line.name)

    # --- looking and clearing away

    def status(self, queue: str) -> QueueStatus:
        self._ready()
        now = self.clock()
        feeds = self._queues.feeds.get(queue, [])
        line = self._lines.get(queue)
        if line is None:
            if not feeds:
                raise QueueNotFound(queue=queue)
            line = Line(queue, feeds[0].policy)
        if line.alarm <= now:
            self._timers.ripen(line, now)
        return QueueStatus.of(line, feeds, now)

    def peek(self, queue: str, limit: int = 10) -> list[Waiting]:
        line = self.queues.line(queue)
        now = self.clock()
        if line.alarm <= now:
            self._timers.ripen(line, now)
        found = (Waiting.read(self.store, line.name, name, now) for name in line.first(limit))
        return [each for each in found if each is not None]

    def purge(self, queue: str, limit: int = 10_000) -> int:
        """Remove up to `limit` waiting messages. Returns how many; come back until it is 0."""
        line = self.queues.line(queue)
        purged = 0
        while purged < limit and (name := line.pop_any()) is not None:
            self._drop(line, name)
            purged += 1
        return purged

    def _drop(self, line: Line, name: str) -> None:
        self._queues.touched = True
        with suppress(Gone):
            self.store.drop(line.name, "ready", name)

    def check(self, repair: bool = False) -> list[Finding]:
        """Look the whole store over. ProcessExits the group: call it between requests."""
        self._ready()
        self.commit()
        findings = self.store.check(repair, self.clock())
        if repair:
            self._reload()
        return findings

    # --- the group

    def commit(self) -> None:
        """All since the last commit is as durable as the plan says; StoreTrouble: all of it is undecided."""
        store = self.store
        if not store.broken:
            try:
                if self._memos.fresh:
                    store.remember(self._memos.fresh)
                    self._memos.fresh = []
                store.commit()
                return
            except StoreTrouble:
                self._give_up()
                raise
        self._give_up()
        raise StoreTrouble(backend=type(store).__name__, action="finish the group", why="an earlier change failed")

    def _give_up(self) -> None:
        self.store.abandon()
        self._memos.fresh = []
        self._stale = True

    def _ready(self) -> None:
        if self.store.broken:
            raise StoreTrouble(
                backend=type(self.store).__name__, action="go on", why="an earlier change of this group failed"
            )
        if self._stale:
            self._reload()

    def close(self) -> None:
        try:
            if not self._stale and not self.store.broken:
                self.commit()
        finally:
            self.store.close()
            if self._lock is not None:
                self._lock.release()

    # --- loading

    def _reload(self) -> None:
        """Everything anew from the store: at start, and after a group was lost."""
        now = self.clock()
        self._leases.forget()
        self._timers.forget()
        self._memos.forget()
        self._queues.load()
        ready: dict[str, list[list[str]]] = {}
        for found in self.store.load():
            self._find(found, ready)
        for queue, lists in ready.items():
            waiting = lists[0] if len(lists) == 1 else [name for each in lists for name in each]
            sequence = self._timers.fill(self._queues.found(queue), waiting, now)
            self._ids.sequence = max(self._ids.sequence, sequence)
        self._memos.recall(self.store.recall(now - KEPT_MS))
        self._stale = False
        if self.store.by_hand:
            self._adopt(1 << 40, now)

    def _find(self, found: Found, ready: dict[str, list[list[str]]]) -> None:
        if found.state == "ready":
            ready.setdefault(found.queue, []).append(found.names)
            return
        line = self._queues.found(found.queue)
        if found.state == "dlq":
            for name in sorted(found.names, key=names.by_due):
                line.dead[name[-36:]] = name
            return
        for name in found.names:
            self._leases.find(line, name)


_PLAIN = Draft("")[1:]


def _check_range(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidRequest(field=what, why=f"{value} is not between {least} and {most}")


def _checked(draft: Draft, now: int) -> Draft:
    """A draft that says more than a payload, within its bounds."""
    _check_range("priority", draft.priority, -names.HIGHEST, names.HIGHEST)
    _check_range("delayMs", draft.delay_ms, 0, LATEST - now)
    _check_range("ttlSec", draft.ttl_ms, 0, LATEST - now)
    for what, text in (("type", draft.type), ("traceId", draft.trace_id), ("targetConsumerId", draft.target)):
        message_format.whole_text(what, text)
    return draft._replace(attributes=message_format.checked_attributes(draft.attributes))
