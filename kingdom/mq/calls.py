"""The calls as they travel: a JSON payload in, JSON data out. One function and one row of CALLS for each.

The mailbox and `yirangmq --direct` answer by these same functions, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kingdom.mq import message_format, names
from kingdom.mq.budget import MOST_CHANGES, Budget
from kingdom.mq.call_fields import (
    ACKS,
    ARCHIVE,
    AVAILABLE_AT,
    CONSUMER,
    DEAD_LETTERS,
    DRAFT,
    END,
    EXPIRES_AT,
    HOLDER,
    LARGEST_BATCH,
    LEASE_ID,
    LIMIT,
    MESSAGE_ID,
    MESSAGE_KEY,
    MESSAGE_KEYS,
    MESSAGES,
    NO_MORE_THAN,
    OLDER_THAN,
    PAYLOAD,
    PEEK_LIMIT,
    QUARANTINED,
    QUEUE,
    REASON,
    REASON_CODE,
    REQUEUE,
    SINCE,
    TO,
    UNTIL,
    VISIBILITY,
    WAIT,
    Call,
    Data,
    Field,
    Payload,
    by_key,
    draft,
    draft_or_refusal,
    holder,
    refuse_given,
    refuse_unknown,
)
from kingdom.mq.engine import Engine, Leased, Publishing
from kingdom.mq.engine import Published as Stored
from kingdom.mq.errors import DeadLetterNotFound, InvalidRequest, LeaseMismatch, MessageNotFound, Refusal
from kingdom.mq.message_format import Draft
from kingdom.mq.rights import Rights, Verb
from kingdom.mq.search import NotSeenYet
from kingdom.mq.status import Waiting
from kingdom.mq.stores.base import MOST_AT_ONCE

Context = TypeVar("Context")

OF_BATCH = "is that of the batch for each of its messages: leave it out, or publish to another queue by another call"
COUNTED_AT_ONCE = 20_000
LEASED_AT_ONCE = 250


@dataclass(frozen=True, slots=True)
class NotYet:
    """The call goes on after the next commit; so far it has done this much."""

    #: What its command wants to know of it: see Call.done.
    done: Any


@dataclass(frozen=True, slots=True)
class Command(Generic[Context]):
    """One row of a table of calls."""

    #: Carries the call out in its context (the engine, or what a manager has besides) and returns the answer.
    answer: Callable[[Context, Call], Data | NotYet]
    #: What the payload may hold, in the order of the manual.
    fields: tuple[Field[Any], ...] = ()
    #: Its other names.
    aliases: tuple[str, ...] = ()
    #: Returns whether a request with this payload must not be carried out a second time.
    run_once: Callable[[Payload], bool] = lambda payload: False
    #: The answer instead of which the caller may wait for a better one (`waitMs`).
    nothing: Data | None = None
    #: What a client of another user must be allowed to; None: nothing.
    verb: Verb | None = "manage"

    def check(self, rights: Rights | None, payload: Payload) -> None:
        """Raise NotAllowed unless a client with these rights may make this call. Fields that it has not are ignored."""
        if rights is not None:
            rights.check(self.verb, {field.name: payload[field.name] for field in self.fields if field.name in payload})


def publish(engine: Engine, call: Call) -> Data:
    return _stored(engine.publish(call[QUEUE], draft(call.payload), call.request_id, call.client))


def publish_batch(engine: Engine, call: Call) -> Data | NotYet:
    """Publish each message for itself: a bad one is refused in its place and does not stop the others."""
    drafts, begun = call.done or _publishing(engine, call)
    if not engine.publish_some(begun, Budget()):
        return NotYet((drafts, begun))
    stored = iter(begun.outcomes)
    outcomes = [next(stored) if isinstance(entry, Draft) else entry for entry in drafts]
    return {"messages": [_failed(entry) if isinstance(entry, Refusal) else _stored(entry) for entry in outcomes]}


def consume_next(engine: Engine, call: Call) -> Data | NotYet:
    leased = _lease(engine, call, 1)
    if not leased and engine.cut_short:
        return NotYet(None)
    return _delivered(leased[0]) if leased else NO_MESSAGE


def consume_batch(engine: Engine, call: Call) -> Data | NotYet:
    """Hand out many: a bounded part in each turn, so that other calls need not wait long."""
    limit, before = call[LIMIT], call.done or []
    room = MOST_AT_ONCE - sum(len(one["message"]["payload"]) for one in before)
    leased = _lease(engine, call, min(limit - len(before), LEASED_AT_ONCE), room)
    delivered = [*before, *map(_delivered, leased)]
    if engine.cut_short or (len(leased) == LEASED_AT_ONCE and len(delivered) < limit and room > 0):
        return NotYet(delivered)
    return {"messages": delivered} if delivered else NO_MESSAGES


def ack(engine: Engine, call: Call) -> Data | NotYet:
    lease_id, consumer = holder(call)
    try:
        if call.done is not None:
            raise engine.why_not(call.done)
        _check_holder(engine, call)
        engine.ack(call[MESSAGE_KEY], lease_id, consumer, by_key(call))
    except NotSeenYet as unseen:
        return NotYet(unseen)
    except MessageNotFound:
        if not call.again:
            raise
    return {}


def _check_holder(engine: Engine, call: Call) -> None:
    """Refuse a client of another user that names another's lease: knowing its id is not holding it."""
    if call.rights is not None and engine.is_held_by_another(call[MESSAGE_KEY], call.client):
        raise LeaseMismatch(key=call[MESSAGE_KEY])


def ack_batch(engine: Engine, call: Call) -> Data | NotYet:
    """Acknowledge each message for itself: one that is refused does not stop the others."""
    acks, budget = call[ACKS], Budget()
    before: tuple[list[Data], Any] = call.done or ([], None)
    results, done = before
    while len(results) < len(acks):
        if not budget.is_left():
            return NotYet((results, done))
        budget.spend()
        result = _result_of_ack(engine, acks[len(results)], call, done)
        if isinstance(result, NotYet):
            return NotYet((results, result.done))
        results.append(result)
        done = None
    return {"results": results}


def nack(engine: Engine, call: Call) -> Data | NotYet:
    lease_id, consumer = holder(call)
    reason, requeue = call[REASON], call[REQUEUE]
    key = call[MESSAGE_KEY]
    before: Any = call.done or (None, None)
    refused, search = before
    if search is None:
        try:
            if refused is not None:
                raise engine.why_not(refused)
            _check_holder(engine, call)
            engine.nack(key, lease_id, consumer, reason, requeue, by_key(call))
            return {}
        except NotSeenYet as unseen:
            return NotYet((unseen, None))
        except Refusal as refusal:
            if not call.again:
                raise
            refused, search = refusal, engine.search(key)
    if not search.go_on(Budget()):
        return NotYet((refused, search))
    if engine.was_given_back(search, lease_id):
        return {}
    raise refused


def extend_lease(engine: Engine, call: Call) -> Data | NotYet:
    lease_id, consumer = holder(call)
    try:
        if call.done is not None:
            raise engine.why_not(call.done)
        _check_holder(engine, call)
        return {"leaseUntil": engine.extend(call[MESSAGE_KEY], lease_id, call[VISIBILITY], consumer)}
    except NotSeenYet as unseen:
        return NotYet(unseen)


def status(engine: Engine, call: Call) -> Data:
    found = engine.status(call[QUEUE])
    remembered = engine.remembered()
    return {
        "queue": found.queue,
        "metrics": {
            "ready": found.ready,
            "inflight": found.inflight,
            "delayed": found.delayed,
            "dlq": found.dlq,
            "oldestAgeMs": found.oldest_age_ms,
            "ratesPerSec": dict(found.rates),
            "failureRate": found.failure_rate,
            "handlingMeanMs": found.handling_mean_ms,
            "handlingP99Ms": found.handling_p99_ms,
        },
        "paused": found.paused,
        "policy": found.policy.to_json(),
        "remembered": {
            "requests": remembered.requests,
            "deduplicationKeys": remembered.deduplication_keys,
            "bytes": remembered.bytes,
            "mostBytes": remembered.most_bytes,
        },
    }


def queues(engine: Engine, call: Call) -> Data:
    found = [engine.status(name) for name in engine.queues.names()]
    return {
        "queues": [
            {
                "queue": queue.queue,
                "ready": queue.ready,
                "inflight": queue.inflight,
                "delayed": queue.delayed,
                "dlq": queue.dlq,
                "paused": queue.paused,
            }
            for queue in found
        ]
    }


def peek(engine: Engine, call: Call) -> Data | NotYet:
    """Show what comes next, or the dead letters, without taking it: a bounded part in each turn."""
    queue = call[QUEUE]
    look = engine.looking_at_dead if call[DEAD_LETTERS] else engine.looking
    begun = call.done or look(queue, call[PEEK_LIMIT])
    if not engine.look_at_some(begun, Budget()):
        return NotYet(begun)
    return {"queue": queue, "messages": [_waiting(message) for message in begun.seen]}


def pause(engine: Engine, call: Call) -> Data:
    engine.queues.pause(call[QUEUE])
    return {}


def resume(engine: Engine, call: Call) -> Data:
    engine.queues.resume(call[QUEUE])
    return {}


def purge(engine: Engine, call: Call) -> Data | NotYet:
    """Delete what waits, or the dead letters: a bounded part in each turn, so that other calls need not wait long."""
    refuse_unknown(call, PURGE, also=("yes",))
    queue = call[QUEUE]
    if not call[DEAD_LETTERS]:
        refuse_given(call, (OLDER_THAN, ARCHIVE), "applies to dead letters alone: give it with dlq, or leave it out")
    before = call.done or 0
    if call[DEAD_LETTERS]:
        purged = engine.dead_letters.purge(queue, call[OLDER_THAN], call[ARCHIVE])
    else:
        purged = engine.purge(queue)
    done = before + purged
    return {"queue": queue, "purged": done} if purged < MOST_CHANGES else NotYet(done)


def delete_queue(engine: Engine, call: Call) -> Data | NotYet:
    """Delete a queue and all that it holds: a bounded part in each turn."""
    refuse_unknown(call, (QUEUE,), also=("yes",))
    queue = call[QUEUE]
    begun = call.done or engine.removal.deleting(queue)
    if not engine.removal.delete_some(begun, Budget()):
        return NotYet(begun)
    return {"queue": queue, "deleted": begun.deleted}


def delete_policy(engine: Engine, call: Call) -> Data:
    """Let a queue have the policy that the configuration says."""
    refuse_unknown(call, (QUEUE,))
    queue = call[QUEUE]
    engine.queues.delete_policy(queue)
    return {"queue": queue, "policy": engine.queues.get(queue).policy.to_json()}


def delete_message(engine: Engine, call: Call) -> Data | NotYet:
    """Delete one message; it is looked for among a bounded part in each turn."""
    refuse_unknown(call, (MESSAGE_KEY,))
    key = call[MESSAGE_KEY]
    search = call.done or engine.search(key)
    try:
        if not engine.removal.delete(search, Budget()):
            return NotYet(search)
    except MessageNotFound:
        if not call.again:
            raise
    return {"messageKey": key, "deleted": True}


def move(engine: Engine, call: Call) -> Data | NotYet:
    """Move what waits in a queue to another one: a bounded part in each turn."""
    refuse_unknown(call, (QUEUE, TO, NO_MORE_THAN))
    queue, to = call[QUEUE], call[TO]
    begun = call.done or engine.moving.moving(queue, to, call[NO_MORE_THAN])
    if not engine.moving.move_some(begun, Budget(), engine.clock()):
        return NotYet(begun)
    return {"queue": queue, "to": to, "moved": begun.moved, "refused": begun.given_back}


def hand_over(engine: Engine, call: Call) -> Data | NotYet:
    """Hold what comes next for somebody who takes it to another store."""
    queue, holder = call[QUEUE], call[HOLDER]
    offered = engine.handover.offer(queue, holder, call[LIMIT], engine.clock())
    if not offered and engine.handover.cut_short:
        return NotYet(None)
    others = engine.handover.held_by_others(queue, holder)
    return {"queue": queue, "messages": [_waiting(message) for message in offered], "heldByOthers": others}


def handed_over(engine: Engine, call: Call) -> Data | NotYet:
    """Drop what has arrived in another store, a bounded part in each turn; at the end, give back the rest."""
    refuse_unknown(call, (HOLDER, MESSAGE_KEYS, END))
    holder, keys, now = call[HOLDER], call[MESSAGE_KEYS], engine.clock()
    budget, (at, dropped, search) = Budget(), call.done or (0, 0, None)
    while at < len(keys):
        if not budget.is_left():
            return NotYet((at, dropped, search))
        budget.spend()
        was_here = None if search is not None else engine.handover.drop(holder, keys[at], now)
        if was_here is None:
            search = search or engine.search(keys[at])
            try:
                if not engine.removal.delete(search, budget):
                    continue
                was_here = True
            except Refusal:
                was_here = False
        dropped += was_here
        at, search = at + 1, None
    if call[END] and not engine.handover.end(holder, now, budget):
        return NotYet((at, dropped, search))
    return {"dropped": dropped}


def take_over(engine: Engine, call: Call) -> Data | NotYet:
    """Take what another store hands over, each message once however often it comes: a bounded part in each turn."""
    queue, entries, taken, budget = call[QUEUE], call[MESSAGES], call.done or [], Budget()
    while len(taken) < len(entries):
        if not budget.is_left():
            return NotYet(taken)
        budget.spend()
        taken.append(_taken(engine, queue, entries[len(taken)]))
    return {"messages": taken}


def _taken(engine: Engine, queue: str, entry: Payload) -> Data:
    now = engine.clock()
    try:
        message_id, expires = MESSAGE_ID.read(entry), EXPIRES_AT.read(entry)
        if 0 < expires <= now:
            return {"expired": True}
        given = draft({**entry, "message": PAYLOAD.read(entry)})
        wait = max(0, AVAILABLE_AT.read(entry) - now)
        ttl = expires - now if expires else 0
        return _stored(engine.take_over(queue, given._replace(delay_ms=wait, ttl_ms=ttl), message_id))
    except Refusal as refusal:
        return _failed(refusal)


def list_dlq(engine: Engine, call: Call) -> Data | NotYet:
    queue = call[QUEUE]
    begun = call.done or engine.dead_letters.listing(queue, call[LIMIT])
    if not engine.dead_letters.list_some(begun, Budget()):
        return NotYet(begun)
    letters = begun.found
    return {
        "queue": queue,
        "count": len(letters),
        "messages": [
            {
                "messageKey": letter.message_key,
                "queue": letter.queue,
                "reason": letter.message,
                "reasonCode": letter.reason,
                "message": letter.message,
                "dlqAt": letter.dlq_at,
                "attempt": letter.attempt,
                "quarantined": letter.quarantined,
            }
            for letter in letters
        ],
    }


def dlq_stats(engine: Engine, call: Call) -> Data | NotYet:
    queue = call[QUEUE]
    begun = call.done or engine.dead_letters.counting(queue, call[SINCE])
    if not engine.dead_letters.count_some(begun, Budget(COUNTED_AT_ONCE)):
        return NotYet(begun)
    return {"queue": queue, "reasons": dict(begun.found)}


def reprocess_dlq(engine: Engine, call: Call) -> Data | NotYet:
    """Put one dead letter back to work, or those of a queue that fit: a bounded part in each turn."""
    if _is_one(call.payload):
        key = call[MESSAGE_KEY]
        refuse_given(call, SELECTION, "applies to the dead letters of a queue: leave it out, or messageKey")
        if call.payload.get("queue") not in (None, names.queue_of_key(key)):
            raise InvalidRequest(field="queue", why=f"is not the queue of {key!r}; leave it out")
        return _put_one_back(engine, call, key)
    if "queue" not in call.payload:
        raise InvalidRequest(field="messageKey", why="is missing; give it, or a queue whose dead letters are meant")
    refuse_unknown(call, (MESSAGE_KEY, QUEUE, *SELECTION))
    queue = call[QUEUE]
    letters = engine.dead_letters
    until, older_than = call[UNTIL], call[OLDER_THAN]
    begun = call.done or letters.reprocessing(
        queue, call[REASON_CODE], until or engine.clock() - older_than, call[NO_MORE_THAN]
    )
    if not letters.reprocess_some(begun, Budget()):
        return NotYet(begun)
    keys = begun.keys[:LARGEST_BATCH]
    return {"queue": queue, "reprocessed": True, "count": len(begun.keys), "until": begun.until, "messageKeys": keys}


def _put_one_back(engine: Engine, call: Call, key: str) -> Data | NotYet:
    before: Any = call.done or (None, None)
    refused, search = before
    if search is None:
        try:
            engine.dead_letters.reprocess(key)
        except DeadLetterNotFound as refusal:
            if not call.again:
                raise
            refused, search = refusal, engine.search(key)
    if search is not None and not search.go_on(Budget()):
        return NotYet((refused, search))
    if search is not None and not engine.is_at_work(search):
        raise refused
    return {"messageKey": key, "reprocessed": True}


def quarantine(engine: Engine, call: Call) -> Data:
    key = call[MESSAGE_KEY]
    on = call[QUARANTINED]
    engine.dead_letters.quarantine(key, on)
    return {"messageKey": key, "quarantined": on}


def _is_one(payload: Payload) -> bool:
    return payload.get("messageKey") is not None


PURGE: tuple[Field[Any], ...] = (QUEUE, DEAD_LETTERS, OLDER_THAN, ARCHIVE)
SELECTION: tuple[Field[Any], ...] = (REASON_CODE, OLDER_THAN, UNTIL, NO_MORE_THAN)

NO_MESSAGE: Data = {"message": None}
NO_MESSAGES: Data = {"messages": []}

CALLS: dict[str, Command[Engine]] = {
    "publish": Command(publish, (QUEUE, *DRAFT), verb="publish"),
    "publish_batch": Command(publish_batch, (QUEUE, MESSAGES), verb="publish"),
    "consume_next": Command(
        consume_next,
        (QUEUE, CONSUMER, VISIBILITY, WAIT),
        ("consumenext", "consume"),
        nothing=NO_MESSAGE,
        verb="consume",
    ),
    "consume_batch": Command(
        consume_batch, (QUEUE, LIMIT, CONSUMER, VISIBILITY, WAIT), nothing=NO_MESSAGES, verb="consume"
    ),
    "ack": Command(ack, (MESSAGE_KEY, LEASE_ID, CONSUMER), verb="consume"),
    "ack_batch": Command(ack_batch, (ACKS,), verb="consume"),
    "nack": Command(nack, (MESSAGE_KEY, LEASE_ID, CONSUMER, REASON, REQUEUE), verb="consume"),
    "extend_lease": Command(
        extend_lease, (MESSAGE_KEY, LEASE_ID, CONSUMER, VISIBILITY), ("extendlease", "extend"), verb="consume"
    ),
    "status": Command(status, (QUEUE,), verb="look"),
    "queues": Command(queues, verb="look"),
    "peek": Command(peek, (QUEUE, PEEK_LIMIT, DEAD_LETTERS), verb="look"),
    "pause": Command(pause, (QUEUE,)),
    "resume": Command(resume, (QUEUE,)),
    "purge": Command(purge, PURGE, run_once=lambda payload: True),
    "delete_queue": Command(delete_queue, (QUEUE,), run_once=lambda payload: True),
    "delete_policy": Command(delete_policy, (QUEUE,)),
    "delete_message": Command(delete_message, (MESSAGE_KEY,)),
    "move": Command(move, (QUEUE, TO, NO_MORE_THAN), run_once=lambda payload: True),
    "hand_over": Command(hand_over, (QUEUE, HOLDER, LIMIT)),
    "handed_over": Command(handed_over, (HOLDER, MESSAGE_KEYS, END)),
    "take_over": Command(take_over, (QUEUE, MESSAGES)),
    "list_dlq": Command(list_dlq, (QUEUE, LIMIT), ("listdlq", "dlq"), verb="look"),
    "dlq_stats": Command(dlq_stats, (QUEUE, SINCE), verb="look"),
    "reprocess_dlq": Command(
        reprocess_dlq,
        (MESSAGE_KEY, QUEUE, *SELECTION),
        ("reprocessdlq", "reprocess"),
        run_once=lambda payload: not _is_one(payload),
    ),
    "quarantine": Command(quarantine, (MESSAGE_KEY, QUARANTINED)),
}


def refused(refusal: Refusal) -> Data:
    return {"code": refusal.code, "message": str(refusal)}


def leases_in(answer: Data) -> list[Data]:
    """Return the leases that an answer hands out."""
    return [part["lease"] for part in (answer, *answer.get("messages", ())) if "lease" in part]


def _publishing(engine: Engine, call: Call) -> tuple[list[Draft | Refusal], Publishing]:
    queue = call[QUEUE]
    drafts = [
        draft_or_refusal(message)
        if message.get("queue") in (None, queue)
        else InvalidRequest(field="queue", why=OF_BATCH)
        for message in call[MESSAGES]
    ]
    good = [entry for entry in drafts if isinstance(entry, Draft)]
    return drafts, engine.publishing(queue, good, call.request_id, call.client)


def _lease(engine: Engine, call: Call, limit: int, room: int = MOST_AT_ONCE) -> list[Leased]:
    WAIT.read(call.payload)  # refused also when nobody has to wait
    return engine.lease(call[QUEUE], call.consumer, limit, call[VISIBILITY], room)


def _result_of_ack(engine: Engine, entry: Payload, call: Call, done: Any) -> Data | NotYet:
    try:
        answer = ack(engine, Call(entry, call.client, call.request_id, call.again, done, call.rights))
    except Refusal as refusal:
        return {"messageKey": entry.get("messageKey"), "ok": False, "error": refused(refusal)}
    if isinstance(answer, NotYet):
        return answer
    return {"messageKey": entry["messageKey"], "ok": True}


def _stored(stored: Stored) -> Data:
    return {"messageId": stored.message_id, "messageKey": stored.message_key}


def _failed(refusal: Refusal) -> Data:
    return {"error": refused(refusal)}


def _labels(labels: message_format.Labels) -> Data:
    """Return what the publisher said of a message; what is hardly ever said only when it was."""
    said = {"deduplicationKey": labels.dedup_key, "targetConsumerId": labels.target, "expiresAt": labels.expires}
    return {"type": labels.type, "traceId": labels.trace_id, **{key: part for key, part in said.items() if part}}


def _waiting(message: Waiting) -> Data:
    return {
        "messageId": message.message_id,
        "messageKey": message.message_key,
        "queue": message.queue,
        "payload": message.payload,
        "attributes": message.attributes,
        "priority": message.priority,
        "attempt": message.attempt,
        "createdAt": message.created_at,
        "availableAt": message.available_at,
        "state": message.state,
        **_labels(message.labels),
        **(_failure(message.failure, message.available_at) if message.failure else {}),
    }


def _failure(failure: Payload, died_at: int) -> Data:
    return {"reason": failure.get("reasonMessage", ""), "reasonCode": failure["reasonCode"], "dlqAt": died_at}


def _delivered(leased: Leased) -> Data:
    labels = message_format.labels(leased.body)
    message = {
        "messageId": leased.message_id,
        "messageKey": leased.message_key,
        "queue": leased.queue,
        "payload": leased.payload,
        "attributes": leased.attributes,
        "priority": leased.priority,
        "attempt": leased.attempt,
        "createdAt": leased.created_at,
        "type": "",
        "traceId": "",
    }
    if labels is not message_format.NO_LABELS:
        message.update(_labels(labels))
    return {
        "message": message,
        "lease": {
            "leaseId": leased.lease_id,
            "messageKey": leased.message_key,
            "consumerId": leased.consumer,
            "leaseUntil": leased.lease_until,
        },
    }
