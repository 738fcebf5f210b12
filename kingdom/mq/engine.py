"""The queue: publish, lease, ack, nack, extend, sweep. Order and rules live here in memory, messages in a store.

One thread, one engine, one store. Nothing may be told to anybody before commit() has returned.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from importlib import import_module
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import orjson

from kingdom.lock import Lock
from kingdom.mq import envelopes, names
from kingdom.mq.envelopes import Draft, Failure, Ids, Unfit
from kingdom.mq.lines import NEVER, RATE_WINDOW_MS, Line
from kingdom.mq.policies import Policy
from kingdom.mq.recall import Recall, fingerprint
from kingdom.mq.refusals import (
    DlqNotFound,
    InvalidRequest,
    LeaseExpired,
    LeaseMismatch,
    MessageNotFound,
    QueueNotFound,
    Refusal,
    StoreTrouble,
    ValidationFailed,
)
from kingdom.mq.stores import STORES
from kingdom.mq.stores.base import Finding, Found, Gone, Memo, Plan, State, Store, Stray
from kingdom.policy import backoff, jittered, may_retry

__all__ = [
    "DeadLetter",
    "Draft",
    "Engine",
    "EngineSettings",
    "Leased",
    "Plan",
    "Policy",
    "Published",
    "QueueStatus",
    "Waiting",
    "open_engine",
]

REQUESTS_KEPT_MS = 86_400_000
REQUESTS_KEPT = 1_000_000
KEYS_KEPT = 4_000_000
LONGEST_QUEUE = 256
LATEST = 10**13 - 1
LOOK_FOR_STRAYS_MS = 2_000
UPKEEP_MS = 3_600_000
TIDY_MS = 1_000
STRAYS_AT_ONCE = 2_000
PAST_LEASES = 8_192

Code = Literal["VALIDATION_ERROR", "HANDLER_ERROR", "TIMEOUT", "RETRY_EXCEEDED", "POISON"]
Fate = Literal["retry", "dlq", "archived"]
Say = Callable[..., None]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _silent(key: str, sentence: str, **facts: object) -> None:
    """For those who keep no log."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    defaults: Policy
    queues: Mapping[str, Policy] = field(default_factory=dict)
    strict: bool = False


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
        return envelopes.header(self.body)


class Waiting(NamedTuple):
    message_id: str
    message_key: str
    queue: str
    payload: str
    attributes: str
    priority: int
    attempt: int
    created_at: int
    available_at: int
    state: State


class DeadLetter(NamedTuple):
    message_key: str
    queue: str
    reason: str
    dlq_at: int
    attempt: int
    quarantined: bool
    message: str
    record: str


@dataclass(frozen=True, slots=True)
class QueueStatus:
    queue: str
    ready: int
    inflight: int
    delayed: int
    dlq: int
    oldest_age_ms: int
    paused: bool
    rates: Mapping[str, float]
    failure_rate: float
    handling_mean_ms: float
    handling_p99_ms: int
    policy: Policy


class Flight:
    """A message out on a lease."""

    __slots__ = ("attempt", "consumer", "consumer_digest", "key", "lease", "line", "name", "since", "until")

    def __init__(self, line: Line, name: str, lease: str, digest: str, until: int) -> None:
        self.line = line
        self.name = name
        self.key = f"msg:{line.name}:{name[-36:]}"
        self.lease = lease
        self.consumer = ""
        self.consumer_digest = digest
        self.until = until
        self.attempt = 0
        self.since = 0

    @property
    def is_dead_letter(self) -> bool:
        return ".r" in self.name


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
        module, _, attribute = STORES[backend].partition(":")
        store: Store = getattr(import_module(module), attribute)(plan)
        return Engine(store, settings=settings, clock=clock, say=say, lock=lock)
    except BaseException:
        lock.release()
        raise


class Engine:
    _flights: dict[str, Flight]
    _leases: list[tuple[int, str]]
    _alarms: list[tuple[int, str]]
    _ends: list[tuple[int, str, str]]
    _arrived: set[str]
    _past_young: dict[str, Flight]
    _past_old: dict[str, Flight]
    _expired: Recall[bool]
    _requests: Recall[int | tuple[int, ...]]
    _keys: Recall[str]
    _memos: list[Memo]
    _feeds: dict[str, list[Line]]

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
        self.settings = settings
        self.clock = clock
        self.dice = dice
        self.say = say
        self._ids = ids or Ids()
        self._lock = lock
        self._lines: dict[str, Line] = {}
        self._sequence = 0
        self._digests: dict[str, str] = {}
        self._stale = True
        self._look_at = 0
        self._tidy_at = 0
        self._upkeep_at = 0
        self._touched = False
        self._reload()

    # --- publishing

    def publish(self, queue: str, draft: Draft, request_id: str = "") -> Published:
        self._ready()
        known = self._known(request_id, 1) if request_id else None
        return self._publish(queue, draft, request_id, 0, known, self._memos)

    def publish_batch(self, queue: str, drafts: Sequence[Draft], request_id: str = "") -> list[Published | Refusal]:
        """One draft that is refused does not stop the others."""
        self._ready()
        known = self._known(request_id, len(drafts)) if request_id else None
        memos: list[Memo] = []
        outcomes: list[Published | Refusal] = []
        try:
            for index, draft in enumerate(drafts):
                try:
                    outcomes.append(self._publish(queue, draft, request_id, index, known, memos))
                except Refusal as refusal:
                    outcomes.append(refusal)
        finally:
            # Also when the disk fails half-way: asked again, the batch goes on where it stopped.
            self._remember_batch(queue, request_id, outcomes, memos)
        return outcomes

    def _remember_batch(
        self, queue: str, request_id: str, outcomes: Sequence[Published | Refusal], memos: Sequence[Memo]
    ) -> None:
        self._memos += [memo for memo in memos if memo.kind == "dedup"]
        if memos and request_id:
            ids = tuple("" if isinstance(each, Refusal) else each.message_id for each in outcomes)
            memo = Memo("request", self.clock(), queue, request_id, ids)
            self._keep_request(memo)
            self._memos.append(memo)

    def _publish(
        self, queue: str, draft: Draft, request_id: str, index: int, known: tuple[str, ...] | None, memos: list[Memo]
    ) -> Published:
        if known is not None and known[index]:
            return Published(known[index], f"msg:{queue}:{known[index]}", True)
        line = self._lines.get(queue)
        if line is None:
            line = self._open_line(queue)
        now = self.clock()
        if draft.dedup_key:
            twin = self._twin(line, draft.dedup_key, now)
            if twin is not None:
                return Published(twin, f"msg:{queue}:{twin}", True)
        payload, extra = envelopes.spliced(draft)
        if line.check is not None:
            wrong = line.check(orjson.loads(payload))
            if wrong:
                raise ValidationFailed(queue=queue, why=wrong)
        self._sequence = sequence = (self._sequence + 1) % names.SEQUENCES
        kind = envelopes.REMEMBERED if request_id or draft.dedup_key else "7"
        message_id = self._ids.message(now, sequence, kind)
        if request_id:
            extra = envelopes.request_line(request_id, index) + extra
        if draft[1:] == _PLAIN and not line.policy.ttl_ms:
            due, expires = now, 0
            if line.head_at != now:
                line.head_at, line.head = now, envelopes.head(draft, line.quoted, now, now, 0)
            name = f"1000000-{now:013d}-{sequence:08d}-0-{message_id}"
            body = envelopes.write(message_id, line.head, extra, "{}", payload)
        else:
            draft = _checked(draft, now)
            due = now + draft.delay_ms
            ttl = draft.ttl_ms or line.policy.ttl_ms
            expires = now + ttl if ttl else 0
            marks = envelopes.first_marks(expires, draft.target)
            name = names.compose(names.HIGHEST - draft.priority, due, sequence, marks, message_id)
            head = envelopes.head(draft, line.quoted, now, due, expires)
            body = envelopes.write(message_id, head, extra, draft.attributes, payload)
        self.store.put(queue, "delayed" if due > now else "ready", name, body)
        line.published += 1
        self._touched = True
        if due > now or expires or draft.target:
            self._wait(line, name, due, now)
            if expires:
                heappush(self._ends, (expires, queue, name))
        else:
            heappush(line.ready, name)
            self._arrived.add(queue)
        if kind == envelopes.REMEMBERED:
            self._remember(line, draft.dedup_key, request_id, index, name, now, memos)
        return Published(message_id, f"msg:{queue}:{message_id}")

    def _remember(
        self, line: Line, dedup_key: str, request_id: str, index: int, name: str, now: int, memos: list[Memo]
    ) -> None:
        message_id = name[-36:]
        if dedup_key:
            self._keys.put(fingerprint(line.name, dedup_key), name, now)
            memos.append(Memo("dedup", now, line.name, dedup_key, (message_id,)))
        if request_id:
            memo = Memo("request", now, line.name, request_id, (message_id,))
            memos.append(memo)
            if memos is self._memos:
                self._keep_request(memo)

    def _known(self, request_id: str, count: int) -> tuple[str, ...] | None:
        """The ids that this request led to, with gaps for what was refused or lost."""
        envelopes.whole_text("requestId", request_id)
        found = self._requests.get(fingerprint(request_id))
        if found is None:
            return None
        ids = tuple(_id_text(number) for number in ((found,) if isinstance(found, int) else found))
        return (*ids, *[""] * (count - len(ids)))

    def _keep_request(self, memo: Memo) -> None:
        """What a crash left of a request may tell only a part of it: it adds to what the journal knows."""
        numbers = tuple(_id_number(each) for each in memo.ids)
        key = fingerprint(memo.key)
        before = self._requests.get(key)
        if before is not None:
            known = (before,) if isinstance(before, int) else before
            numbers = tuple(new or old for new, old in zip_longest(numbers, known, fillvalue=0))
        self._requests.put(key, numbers[0] if len(numbers) == 1 else numbers, memo.at)

    def _twin(self, line: Line, dedup_key: str, now: int) -> str | None:
        envelopes.whole_text("deduplicationKey", dedup_key)
        name = self._keys.get(fingerprint(line.name, dedup_key))
        if name is None or names.created_of(name) + line.policy.dedup_ms <= now:
            return None
        return name[-36:]

    # --- leasing

    def lease(self, queue: str, consumer: str, limit: int = 1, visibility_ms: int | None = None) -> list[Leased]:
        self._ready()
        line = self._lines.get(queue)
        feeds = self._feeds.get(queue)
        if line is None and feeds is None:
            raise QueueNotFound(queue=queue)
        if visibility_ms is not None:
            _check_range("visibilityTimeoutSec", visibility_ms, 1, LATEST // 10)
        now = self.clock()
        digest = self._digests.get(consumer) or self._digest(consumer)
        leased: list[Leased] = []
        if line is not None and not line.paused:
            if line.alarm <= now:
                self._ripen(line, now)
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
        message_id = new[-36:]
        flight = Flight(line, new, lease, digest, until)
        flight.consumer = consumer
        flight.attempt = attempt
        flight.since = now
        self._touched = True
        self._flights[message_id] = flight
        line.inflight += 1
        if content is None:
            self._bury(flight, now, "VALIDATION_ERROR", wrong, body)
            return None
        line.consumed += 1
        heappush(self._leases, (until, message_id))
        return Leased(
            message_id,
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

    def _content(self, line: Line, name: str, body: str) -> tuple[envelopes.Content | None, str]:
        if ".r" in name:
            return envelopes.Content(body.strip(), "{}"), ""
        try:
            content = envelopes.content(body, self.store.by_hand)
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
            heads = [(names.due_of(name), source, name) for source in feeds if (name := _first_free(source.dead))]
            if not heads:
                return
            _, source, name = min(heads, key=lambda head: head[0])
            del source.dead[name[-36:]]
            until = now + (visibility_ms or source.policy.visibility_ms)
            delivery = self._lease(source, "dlq", name, consumer, digest, until, now)
            if delivery is not None:
                leased.append(delivery)

    def has_ready(self, queue: str, consumer: str) -> bool:
        line = self._lines.get(queue)
        if line is not None:
            if line.paused:
                return False
            if line.alarm <= self.clock():
                self._ripen(line, self.clock())
            if line.ready or (line.aimed_count and self._digest(consumer) in line.aimed):
                return True
        return any(_first_free(source.dead) for source in self._feeds.get(queue, ()))

    def arrived(self) -> set[str]:
        """The queues in which messages may have become ready since this was last asked."""
        arrived = self._arrived
        self._arrived = set()
        return arrived

    # --- the end of a lease

    def ack(self, key: str, lease_id: str = "", consumer: str = "") -> None:
        self._ready()
        message_id = key[-36:]
        flight = self._flights.get(message_id)
        now = self.clock()
        if flight is None or flight.key != key or flight.lease != lease_id or flight.until <= now:
            if self._was_acked(key, lease_id, consumer):
                return
            flight = self._held(key, lease_id, consumer, now)
        line = flight.line
        try:
            if line.policy.archive and not flight.is_dead_letter:
                self.store.move(line.name, "inflight", flight.name, "archived", _resting(flight.name, now))
            else:
                self.store.drop(line.name, "inflight", flight.name)
        except Gone:
            pass
        del self._flights[message_id]
        self._touched = True
        line.inflight -= 1
        line.acked += 1
        if flight.since:
            line.handled(now - flight.since)
        if len(self._past_young) >= PAST_LEASES:
            self._past_old, self._past_young = self._past_young, {}
        flight.until = -1
        self._past_young[message_id] = flight

    def nack(self, key: str, lease_id: str = "", consumer: str = "", reason: str = "", requeue: bool = False) -> Fate:
        """Where it goes: to another try, to the dead letters, or to the archive."""
        self._ready()
        envelopes.whole_text("reason", reason)
        now = self.clock()
        flight = self._held(key, lease_id, consumer, now)
        line = flight.line
        if requeue:
            fate = self._fail(flight, now, "RETRY_EXCEEDED", reason)
        elif flight.is_dead_letter:
            fate = self._put_back(flight)
        else:
            fate = self._bury(flight, now, "HANDLER_ERROR", reason)
        line.nacked += 1
        line.failed += 1
        return fate

    def extend(self, key: str, lease_id: str = "", visibility_ms: int | None = None, consumer: str = "") -> int:
        self._ready()
        now = self.clock()
        if visibility_ms is not None:
            _check_range("visibilityTimeoutSec", visibility_ms, 1, LATEST // 10)
        flight = self._held(key, lease_id, consumer, now)
        until = now + (visibility_ms or flight.line.policy.visibility_ms)
        new = f"{flight.name[:8]}{until:013d}{flight.name[21:]}"
        try:
            self.store.move(flight.line.name, "inflight", flight.name, "inflight", new)
        except Gone:
            self._forget(flight)
            raise MessageNotFound(key=key) from None
        flight.name = new
        flight.until = until
        self._touched = True
        heappush(self._leases, (until, new[-36:]))
        return until

    def _held(self, key: str, lease_id: str, consumer: str, now: int) -> Flight:
        """The flight that the caller may end. With neither lease id nor consumer nobody's right is checked."""
        flight = self._flights.get(key[-36:])
        if flight is None or flight.key != key:
            raise self._why_not(key, lease_id)
        if lease_id:
            if lease_id != flight.lease:
                raise self._why_not(key, lease_id)
        elif consumer and self._digest(consumer) != flight.consumer_digest:
            raise LeaseMismatch(key=key)
        if flight.until <= now:
            raise LeaseExpired(key=key)
        return flight

    def _was_acked(self, key: str, lease_id: str, consumer: str) -> bool:
        """Whether the same ack was answered before."""
        flight = self._past_young.get(key[-36:]) or self._past_old.get(key[-36:])
        if flight is None or flight.key != key:
            return False
        return lease_id == flight.lease if lease_id else consumer in ("", flight.consumer)

    def _why_not(self, key: str, lease_id: str) -> Refusal:
        if lease_id and self._expired.get(fingerprint(key, lease_id)):
            return LeaseExpired(key=key)
        message_id = key[-36:]
        line = self._lines.get(key[4:-37])
        if line is None or not key.startswith("msg:"):
            return MessageNotFound(key=key)
        past = self._past_young.get(message_id) or self._past_old.get(message_id)
        if message_id in self._flights or message_id in line.dead or (past is not None and past.key == key):
            return LeaseMismatch(key=key)
        waiting = line.find(message_id)
        if waiting is None:
            return MessageNotFound(key=key)
        # Leased before, perhaps in another life of ours: then it is this lease that ended.
        return LeaseExpired(key=key) if lease_id and names.attempt_of(waiting) else LeaseMismatch(key=key)

    def _fail(self, flight: Flight, now: int, exhausted: Code, reason: str) -> Fate:
        """The retry rule."""
        if flight.is_dead_letter:
            return self._put_back(flight)
        line = flight.line
        policy = line.policy
        marks = _without_lease(flight.name)
        row = 0
        if reason:
            row, marks["s"] = _row(marks.get("s", ""), reason)
        else:
            marks.pop("s", None)
        if policy.poison_after and row >= policy.poison_after:
            return self._bury(flight, now, "POISON", reason)
        if not may_retry(flight.attempt, policy.retry.limit):
            return self._bury(flight, now, exhausted, reason)
        retry = policy.retry
        wait = backoff(retry.shape, flight.attempt, retry.initial_s, retry.longest_s)
        due = min(now + round(jittered(wait, retry.jitter, self.dice) * 1000), LATEST)
        new = names.changed(flight.name, due, names.join(marks))
        try:
            self.store.move(line.name, "inflight", flight.name, "delayed" if due > now else "ready", new)
        except Gone:
            self._forget(flight)
            return "retry"
        self._forget(flight)
        self._wait(line, new, due, now)
        if "e" in marks:
            heappush(self._ends, (int(marks["e"]), line.name, new))
        return "retry"

    def _bury(self, flight: Flight, now: int, code: Code, reason: str, body: str | None = None) -> Fate:
        line = flight.line
        marks = _without_lease(flight.name)
        try:
            if not line.policy.dlq_enabled:
                self.store.move(line.name, "inflight", flight.name, "archived", _resting(flight.name, now))
                self._forget(flight)
                self.say("mq.dropped", f"{flight.key} goes to the archive: {code} {reason}", queue=line.name)
                return "archived"
            if body is None:
                body = self._body(line.name, flight.name)
            failure = Failure(code, reason or _SAID[code], now, flight.attempt, flight.consumer)
            record = envelopes.dead(body, failure, line.name, line.policy.dlq_of(line.name))
            marks.pop("e", None)
            marks |= {"r": code, "a": str(now)}
            new = names.changed(flight.name, now, names.join(marks))
            self.store.rewrite(line.name, "inflight", flight.name, "dlq", new, record)
        except Gone:
            self._forget(flight)
            return "dlq"
        self._forget(flight)
        self._lay_dead(line, new)
        self.say("mq.dead", f"{flight.key} is a dead letter: {code} {reason}", queue=line.name, reason=code)
        return "dlq"

    def _put_back(self, flight: Flight) -> Fate:
        """A dead letter that nobody wanted after all."""
        marks = _without_lease(flight.name)
        new = names.changed(flight.name, int(marks["a"]), names.join(marks))
        try:
            self.store.move(flight.line.name, "inflight", flight.name, "dlq", new)
        except Gone:
            self._forget(flight)
            return "dlq"
        self._forget(flight)
        self._lay_dead(flight.line, new)
        return "dlq"

    def _lay_dead(self, line: Line, name: str) -> None:
        line.dead[name[-36:]] = name
        self._arrived.add(line.policy.dlq_of(line.name))

    def _forget(self, flight: Flight) -> None:
        message_id = flight.name[-36:]
        if self._flights.pop(message_id, None) is not None:
            flight.line.inflight -= 1
            self._touched = True
            self._expired.put(fingerprint(flight.key, flight.lease), True, self.clock())

    def _body(self, queue: str, name: str) -> str:
        try:
            return self.store.read(queue, "inflight", name)
        except Unfit as spoiled:
            return str(spoiled.args[1])

    # --- time

    def sweep(self, now: int | None = None) -> int | None:
        """Do what is due; returns when something is due next. Free when nothing is."""
        self._ready()
        now = self.clock() if now is None else now
        self._end_leases(now)
        while self._alarms and self._alarms[0][0] <= now:
            line = self._lines.get(heappop(self._alarms)[1])
            if line is not None and line.alarm <= now:
                self._ripen(line, now)
        while self._ends and self._ends[0][0] <= now:
            _, queue, name = heappop(self._ends)
            line = self._lines.get(queue)
            if line is not None and name in line.mortal:
                line.remove(name)
                self._purge(line, name)
        if self._touched and now >= self._tidy_at:
            self._tidy(now)
        if self.store.by_hand and now >= self._look_at:
            self._look_at = now + LOOK_FOR_STRAYS_MS
            self._adopt(STRAYS_AT_ONCE, now)
        if now >= self._upkeep_at:
            self._upkeep_at = now + UPKEEP_MS
            self._upkeep(now)
        return self.next_due()

    def next_due(self) -> int | None:
        leases = self._leases
        while leases and not self._is_live(leases[0]):
            heappop(leases)
        due = min(
            leases[0][0] if leases else NEVER,
            self._alarms[0][0] if self._alarms else NEVER,
            self._ends[0][0] if self._ends else NEVER,
            self._look_at if self.store.by_hand else NEVER,
            self._tidy_at if self._touched else NEVER,
            self._upkeep_at if any(line.dead for line in self._lines.values()) else NEVER,
        )
        return None if due == NEVER else due

    def _is_live(self, entry: tuple[int, str]) -> bool:
        flight = self._flights.get(entry[1])
        return flight is not None and flight.until == entry[0]

    def _end_leases(self, now: int) -> None:
        leases = self._leases
        while leases and leases[0][0] <= now:
            entry = heappop(leases)
            if self._is_live(entry):
                flight = self._flights[entry[1]]
                line = flight.line
                self._fail(flight, now, "TIMEOUT", "")
                line.failed += 1
        if len(leases) > 2 * len(self._flights) + 4096:
            self._leases = [(flight.until, message_id) for message_id, flight in self._flights.items()]
            heapify(self._leases)

    def _ripen(self, line: Line, now: int) -> None:
        if line.ripen(now):
            self._arrived.add(line.name)
            self.store.ripen(line.name, now)
        self._set_alarm(line)

    def _set_alarm(self, line: Line) -> None:
        line.alarm = line.next_ripe()
        if line.alarm != NEVER:
            heappush(self._alarms, (line.alarm, line.name))

    def _wait(self, line: Line, name: str, due: int, now: int) -> None:
        if due <= now:
            line.add_ready(name)
            self._arrived.add(line.name)
            return
        line.add_delayed(name)
        if due < line.alarm:
            line.alarm = due
            heappush(self._alarms, (due, line.name))

    def _ends_now(self, line: Line, name: str, now: int) -> bool:
        """Whether a message about to be leased has outlived its ttl; it is purged then."""
        line.mortal.discard(name)
        if int(names.marks_of(name)["e"]) > now:
            return False
        self._purge(line, name)
        return True

    def _purge(self, line: Line, name: str) -> None:
        self._touched = True
        try:
            self.store.drop(line.name, "ready", name)
        except Gone:
            return

    def _vanished(self, line: Line, name: str, new: str) -> None:
        line.mortal.discard(name)
        with suppress(Gone):
            self.store.drop(line.name, "inflight", new)
        self.say("mq.vanished", f"{names.key_of(line.name, name)} is gone: somebody took it", queue=line.name)

    def _tidy(self, now: int) -> None:
        self._touched = False
        self._tidy_at = now + TIDY_MS
        counts = [line for line in self._lines.values() if not line.history or line.history[-1].values != line.counts()]
        for line in counts:
            line.note(now)
        self.store.tidy(now, not counts)

    def _upkeep(self, now: int) -> None:
        for line in self._lines.values():
            keep = line.policy.dlq_keep_ms
            if keep and line.dead:
                self._clear_dead(line, now - keep, archive=True, limit=1 << 30)

    def _adopt(self, budget: int, now: int) -> None:
        for stray in self.store.strays(budget):
            self._adopt_one(stray, now)

    def _adopt_one(self, stray: Stray, now: int) -> None:
        line = self._lines.get(stray.queue) or self._open_line(stray.queue, by_publisher=False)
        priority, due, expires, target = envelopes.by_hand(stray.body)
        due = max(due, now)
        self._sequence = (self._sequence + 1) % names.SEQUENCES
        marks = envelopes.first_marks(expires, target, hand=True)
        message_id = self._ids.message(now, self._sequence)
        name = names.compose(names.HIGHEST - priority, due, self._sequence, marks, message_id)
        try:
            self.store.adopt(stray, name)
        except Gone:
            return
        line.published += 1
        self._touched = True
        try:
            envelopes.content(stray.body, True)
        except Unfit:
            # Leasing it to ourselves finds what is wrong and buries it.
            self._lease(line, "ready", name, "", names.digest(""), now, now)
            return
        self._wait(line, name, due, now)
        if expires:
            heappush(self._ends, (expires, line.name, name))
        self.say("mq.adopted", f"{stray.file} in {line.name} is msg:{line.name}:{message_id} now", queue=line.name)

    # --- the group

    def commit(self) -> None:
        """All since the last commit is as durable as the plan says; StoreTrouble: all of it is undecided."""
        store = self.store
        if not store.broken:
            try:
                if self._memos:
                    store.remember(self._memos)
                    self._memos = []
                store.commit()
                return
            except StoreTrouble:
                self._give_up()
                raise
        self._give_up()
        raise StoreTrouble(backend=type(store).__name__, action="finish the group", why="an earlier change failed")

    def _give_up(self) -> None:
        self.store.abandon()
        self._memos = []
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

    # --- looking and steering

    def declare(self, queue: str) -> None:
        self._ready()
        if queue not in self._lines:
            self._open_line(queue, by_publisher=False)

    def set_policy(self, queue: str, policy: Policy) -> None:
        self._ready()
        line = self._lines.get(queue)
        if line is None:
            line = self._open_line(queue, by_publisher=False)
        line.use(policy)
        self._save(line)
        self._find_feeds()

    def pause(self, queue: str) -> None:
        self._set_paused(queue, True)

    def resume(self, queue: str) -> None:
        self._set_paused(queue, False)
        self._arrived.add(queue)

    def _set_paused(self, queue: str, paused: bool) -> None:
        line = self._line(queue)
        if line.paused != paused:
            line.paused = paused
            self._save(line)

    def queues(self) -> list[str]:
        self._ready()
        fed = (queue for queue, sources in self._feeds.items() if any(source.dead for source in sources))
        return sorted({*self._lines, *fed})

    def status(self, queue: str) -> QueueStatus:
        self._ready()
        now = self.clock()
        feeds = self._feeds.get(queue, [])
        line = self._lines.get(queue)
        if line is None:
            if not feeds:
                raise QueueNotFound(queue=queue)
            line = Line(queue, feeds[0].policy)
        if line.alarm <= now:
            self._ripen(line, now)
        lately = line.lately(now)
        ended = lately["acked"] + lately["failed"]
        return QueueStatus(
            queue=queue,
            ready=line.ready_count + sum(len(source.dead) for source in feeds),
            inflight=line.inflight,
            delayed=len(line.delayed),
            dlq=len(line.dead),
            oldest_age_ms=max(0, now - line.oldest()),
            paused=line.paused,
            rates={what: round(count * 1000 / RATE_WINDOW_MS, 3) for what, count in lately.items()},
            failure_rate=round(lately["failed"] / ended, 4) if ended else 0.0,
            handling_mean_ms=round(line.handled_ms / line.acked, 3) if line.acked else 0.0,
            handling_p99_ms=line.p99_ms(),
            policy=line.policy,
        )

    def peek(self, queue: str, limit: int = 10) -> list[Waiting]:
        line = self._line(queue)
        now = self.clock()
        if line.alarm <= now:
            self._ripen(line, now)
        return [each for name in line.first(limit) if (each := self._waiting(line, name, now)) is not None]

    def _waiting(self, line: Line, name: str, now: int) -> Waiting | None:
        due = names.due_of(name)
        state: State = "delayed" if due > now else "ready"
        try:
            body = self.store.read(line.name, state, name)
            content = envelopes.content(body, self.store.by_hand)
        except Gone:
            return None
        except Unfit as spoiled:
            content = envelopes.Content(str(spoiled.args[-1]), "{}")
        return Waiting(
            name[-36:],
            names.key_of(line.name, name),
            line.name,
            content.payload,
            content.attributes,
            names.priority_of(name),
            names.attempt_of(name),
            names.created_of(name),
            due,
            state,
        )

    def purge(self, queue: str, limit: int = 10_000) -> int:
        """Remove up to `limit` waiting messages. Returns how many; come back until it is 0."""
        line = self._line(queue)
        purged = 0
        while purged < limit and (name := _pop_any(line)) is not None:
            self._purge(line, name)
            purged += 1
        return purged

    def check(self, repair: bool = False) -> list[Finding]:
        """Look the whole store over. Ends the group: call it between requests."""
        self._ready()
        self.commit()
        findings = self.store.check(repair, self.clock())
        if repair:
            self._reload()
        return findings

    # --- dead letters

    def list_dlq(self, queue: str, limit: int = 100) -> list[DeadLetter]:
        letters: list[DeadLetter] = []
        for line, name in self._dead_of(queue):
            if len(letters) >= limit:
                break
            try:
                record = self.store.read(line.name, "dlq", name)
            except Gone:
                continue
            except Unfit as spoiled:
                record = str(spoiled.args[1])
            marks = names.marks_of(name)
            said = envelopes.failure_of(record).get("reasonMessage", "")
            letters.append(
                DeadLetter(
                    names.key_of(line.name, name),
                    line.name,
                    marks["r"],
                    names.due_of(name),
                    int(marks[""]),
                    "q" in marks,
                    str(said),
                    record,
                )
            )
        return letters

    def dlq_stats(self, queue: str, since_ms: int = 0) -> dict[str, int]:
        """How many dead letters per reason: all that lie there, or those of the last `since_ms`."""
        after = self.clock() - since_ms if since_ms else 0
        counts: dict[str, int] = {}
        for _, name in self._dead_of(queue):
            if names.due_of(name) >= after:
                code = names.marks_of(name)["r"]
                counts[code] = counts.get(code, 0) + 1
        return counts

    def reprocess(self, key: str) -> str:
        """Back into its queue, with its attempts forgotten. Returns the key."""
        line, name = self._dead(key)
        self._revive(line, name)
        return key

    def reprocess_queue(self, queue: str, reason_code: str = "", older_than_ms: int = 0, limit: int = 0) -> list[str]:
        """All but the quarantined, or those that fit. Returns their keys."""
        until = self.clock() - older_than_ms
        revived: list[str] = []
        for line, name in list(self._dead_of(queue)):
            marks = names.marks_of(name)
            fits = "q" not in marks and names.due_of(name) <= until and reason_code in ("", marks["r"])
            if fits and self._revive(line, name):
                revived.append(names.key_of(line.name, name))
                if limit and len(revived) >= limit:
                    break
        return revived

    def quarantine(self, key: str, on: bool = True) -> None:
        line, name = self._dead(key)
        marks = names.marks_of(name)
        marks.pop("q", None)
        if on:
            marks["q"] = ""
        new = names.changed(name, names.due_of(name), names.join(marks))
        if new != name:
            try:
                self.store.move(line.name, "dlq", name, "dlq", new)
            except Gone:
                del line.dead[name[-36:]]
                raise DlqNotFound(key=key) from None
            line.dead[name[-36:]] = new

    def purge_dlq(self, queue: str, older_than_ms: int = 0, archive: bool = False, limit: int = 10_000) -> int:
        """Remove or archive dead letters, but not the quarantined. Returns how many; come back until it is 0."""
        self._ready()
        before = self.clock() - older_than_ms
        lines = {line.name: line for line, _ in self._dead_of(queue)}
        return sum(self._clear_dead(line, before, archive, limit) for line in lines.values())

    def _clear_dead(self, line: Line, before: int, archive: bool, limit: int) -> int:
        now = self.clock()
        old = [name for name in line.dead.values() if names.due_of(name) <= before and ".q" not in name][:limit]
        for name in old:
            try:
                if archive:
                    self.store.move(line.name, "dlq", name, "archived", _resting(name, now))
                else:
                    self.store.drop(line.name, "dlq", name)
            except Gone:
                pass
            del line.dead[name[-36:]]
        self._touched = self._touched or bool(old)
        return len(old)

    def _dead_of(self, queue: str) -> Iterator[tuple[Line, str]]:
        """The dead letters of a queue, also under the name of its dead-letter queue."""
        self._ready()
        line = self._lines.get(queue)
        lines = [*([line] if line is not None else []), *self._feeds.get(queue, [])]
        if not lines:
            raise QueueNotFound(queue=queue)
        return ((each, name) for each in lines for name in list(each.dead.values()))

    def _dead(self, key: str) -> tuple[Line, str]:
        self._ready()
        line = self._lines.get(key[4:-37])
        name = line.dead.get(key[-36:]) if line is not None else None
        if line is None or name is None or not key.startswith("msg:"):
            raise DlqNotFound(key=key)
        return line, name

    def _revive(self, line: Line, name: str) -> bool:
        now = self.clock()
        marks = {letter: text for letter, text in names.marks_of(name).items() if letter in ("t", "h")}
        self._sequence = (self._sequence + 1) % names.SEQUENCES
        new = names.compose(int(name[:7]), now, self._sequence, names.join({"": "0", **marks}), name[-36:])
        try:
            try:
                body = envelopes.original(self.store.read(line.name, "dlq", name))
            except Unfit as spoiled:
                self.say("mq.unfit", f"{names.key_of(line.name, name)} stays: {spoiled.args[0]}", queue=line.name)
                return False
            self.store.rewrite(line.name, "dlq", name, "ready", new, body)
        except Gone:
            del line.dead[name[-36:]]
            return False
        del line.dead[name[-36:]]
        self._touched = True
        self._wait(line, new, now, now)
        return True

    # --- queues

    def _line(self, queue: str) -> Line:
        self._ready()
        line = self._lines.get(queue)
        if line is None:
            raise QueueNotFound(queue=queue)
        return line

    def _open_line(self, queue: str, by_publisher: bool = True) -> Line:
        if by_publisher and self.settings.strict:
            raise QueueNotFound(queue=queue)
        if not queue or len(queue) > LONGEST_QUEUE or not queue.isprintable():
            raise InvalidRequest(field="queue", why=f"1 to {LONGEST_QUEUE} printable characters name a queue")
        line = Line(queue, self.settings.queues.get(queue, self.settings.defaults))
        self._save(line)
        self._lines[queue] = line
        self._find_feeds()
        return line

    def _save(self, line: Line) -> None:
        record = {**line.policy.to_json(), "paused": line.paused}
        self.store.save_queue(line.name, orjson.dumps(record, default=dict, option=orjson.OPT_INDENT_2).decode())

    def _find_feeds(self) -> None:
        self._feeds = {}
        for line in self._lines.values():
            if line.policy.dlq_enabled and line.policy.dlq_of(line.name) != line.name:
                self._feeds.setdefault(line.policy.dlq_of(line.name), []).append(line)

    def _digest(self, consumer: str) -> str:
        envelopes.whole_text("consumerId", consumer)
        if len(self._digests) >= 10_000:
            self._digests.clear()
        return self._digests.setdefault(consumer, names.digest(consumer))

    # --- loading

    def _reload(self) -> None:
        """Everything anew from the store: at start, and after a group was lost."""
        now = self.clock()
        self._flights = {}
        self._leases = []
        self._alarms = []
        self._ends = []
        self._arrived = set()
        self._past_young = {}
        self._past_old = {}
        self._expired = Recall(REQUESTS_KEPT_MS, PAST_LEASES)
        self._requests = Recall(REQUESTS_KEPT_MS, REQUESTS_KEPT)
        self._keys = Recall(REQUESTS_KEPT_MS, KEYS_KEPT)
        self._memos = []
        self._load_lines()
        ready: dict[str, list[list[str]]] = {}
        for found in self.store.load():
            self._find(found, ready)
        for queue, lists in ready.items():
            self._fill(self._line_of(queue), lists[0] if len(lists) == 1 else [n for each in lists for n in each], now)
        self._load_memos(now)
        self._find_feeds()
        self._stale = False
        if self.store.by_hand:
            self._adopt(1 << 40, now)

    def _load_lines(self) -> None:
        for line in self._lines.values():
            line.forget()
        for queue, record in self.store.queues().items():
            if queue not in self._lines:
                about = orjson.loads(record)
                policy = Policy.from_json({key: part for key, part in about.items() if key != "paused"})
                self._lines[queue] = Line(queue, policy, about.get("paused") is True)
        for queue, policy in self.settings.queues.items():
            named = self._lines.get(queue)
            if named is None:
                named = self._lines[queue] = Line(queue, policy)
                self._save(named)
            elif named.policy != policy:
                named.use(policy)
                self._save(named)
        self._find_feeds()

    def _line_of(self, queue: str) -> Line:
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = Line(queue, self.settings.defaults)
            self._save(line)
        return line

    def _find(self, found: Found, ready: dict[str, list[list[str]]]) -> None:
        if found.state == "ready":
            ready.setdefault(found.queue, []).append(found.names)
            return
        line = self._line_of(found.queue)
        if found.state == "dlq":
            for name in sorted(found.names, key=names.by_due):
                line.dead[name[-36:]] = name
            return
        for name in found.names:
            self._find_flight(line, name)

    def _find_flight(self, line: Line, name: str) -> None:
        marks = names.marks_of(name)
        flight = Flight(line, name, marks.get("l", ""), marks.get("c", ""), names.due_of(name))
        flight.attempt = int(marks[""])
        self._flights[name[-36:]] = flight
        line.inflight += 1
        heappush(self._leases, (flight.until, name[-36:]))

    def _fill(self, line: Line, found: list[str], now: int) -> None:
        line.fill(found, now)
        now_text = f"{now:013d}"
        latest = max((name[22:30] for name in found if name[8:21] >= now_text), default="")
        self._sequence = max(self._sequence, int(latest or 0))
        for name in line.mortal:
            heappush(self._ends, (int(names.marks_of(name)["e"]), line.name, name))
        if line.ready_count:
            self._arrived.add(line.name)
        self._set_alarm(line)

    def _load_memos(self, now: int) -> None:
        for memo in self.store.recall(now - REQUESTS_KEPT_MS):
            if memo.kind == "dedup":
                self._keys.put(fingerprint(memo.queue, memo.key), memo.ids[0], memo.at)
            else:
                self._keep_request(memo)


_PLAIN = Draft("")[1:]
_SAID: Mapping[Code, str] = {
    "VALIDATION_ERROR": "the message does not fit",
    "HANDLER_ERROR": "refused by its consumer",
    "TIMEOUT": "its lease ended without an answer",
    "RETRY_EXCEEDED": "no tries left",
    "POISON": "the same failure again and again",
}


def _check_range(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidRequest(field=what, why=f"{value} is not between {least} and {most}")


def _checked(draft: Draft, now: int) -> Draft:
    """A draft that says more than a payload, within its bounds."""
    _check_range("priority", draft.priority, -names.HIGHEST, names.HIGHEST)
    _check_range("delayMs", draft.delay_ms, 0, LATEST - now)
    _check_range("ttlSec", draft.ttl_ms, 0, LATEST - now)
    for what, text in (("type", draft.type), ("traceId", draft.trace_id), ("targetConsumerId", draft.target)):
        envelopes.whole_text(what, text)
    return draft._replace(attributes=envelopes.checked_attributes(draft.attributes))


def _without_lease(name: str) -> dict[str, str]:
    marks = names.marks_of(name)
    marks.pop("l", None)
    marks.pop("c", None)
    return marks


def _row(before: str, reason: str) -> tuple[int, str]:
    """How often in a row this reason was given, and the mark that remembers it."""
    count, _, same = before.partition("x")
    digest = names.digest(reason)
    row = int(count) + 1 if same == digest else 1
    return row, f"{row}x{digest}"


def _resting(name: str, now: int) -> str:
    """In the archive: since when, and how often it was tried."""
    return names.changed(name, now, names.join(_without_lease(name)))


def _first_free(dead: Mapping[str, str]) -> str:
    return next((name for name in dead.values() if ".q" not in name), "")


def _pop_any(line: Line) -> str | None:
    if line.ready:
        name = line.ready.pop()
    elif line.aimed:
        digest, heap = next(iter(line.aimed.items()))
        name = heap.pop()
        line.aimed_count -= 1
        if not heap:
            del line.aimed[digest]
    elif line.delayed:
        name = names.rank_first(line.delayed.pop())
    else:
        return None
    line.mortal.discard(name)
    return name


def _id_number(message_id: str) -> int:
    return int(message_id.replace("-", ""), 16) if message_id else 0


def _id_text(number: int) -> str:
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}" if number else ""
