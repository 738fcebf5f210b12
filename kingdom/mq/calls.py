"""The calls as they travel: a JSON payload in, JSON data out. One function and one row of CALLS for each.

The mailbox and `yirangmq --direct` answer by these same functions, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kingdom.mq import message_format, names
from kingdom.mq.budget import MOST_CHANGES, Budget, Steps, step
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
from kingdom.mq.engine import Engine, Leased, Stored
from kingdom.mq.errors import DeadLetterNotFound, InvalidRequest, LeaseMismatch, MessageNotFound, Refusal
from kingdom.mq.message_format import Draft
from kingdom.mq.rights import Rights, Verb
from kingdom.mq.search import NotSeenYet
from kingdom.mq.status import WaitingMessage
from kingdom.mq.stores.base import MOST_AT_ONCE

Context = TypeVar("Context")

OF_BATCH = "is that of the batch for each of its messages: leave it out, or publish to another queue by another call"
LEASED_AT_ONCE = 250


@dataclass(frozen=True, slots=True)
class CommandRow(Generic[Context]):
    """One row of a table of calls."""

    #: Carries the call out in its context (the engine, or what a manager has besides) and returns the answer, or the
    #: steps to it when it may take several turns.
    answer: Callable[[Context, Call], Data | Steps[Data]]
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


class OngoingCall(Generic[Context]):
    """A call that is being carried out, over as many turns as it takes."""

    __slots__ = ("_call", "_command", "_steps")

    def __init__(self, command: CommandRow[Context], call: Call) -> None:
        self._command = command
        self._call = call
        self._steps: Steps[Data] | None = None

    @property
    def has_begun(self) -> bool:
        """Return whether there is more to do of what one turn has begun."""
        return self._steps is not None

    def go_on(self, context: Context) -> Data | None:
        """Carry it out until a turn may end. Return the answer; None: there is more to do, after the next commit."""
        if self._steps is None:
            answer = self._command.answer(context, self._call)
            if isinstance(answer, dict):
                return answer
            self._steps = answer
        return step(self._steps)


def publish(engine: Engine, call: Call) -> Data:
    return _stored(engine.publish(call[QUEUE], draft(call.payload), call.request_id, call.client))


def publish_batch(engine: Engine, call: Call) -> Steps[Data]:
    """Publish each message for itself: a bad one is refused in its place and does not stop the others."""
    queue = call[QUEUE]
    drafts = [
        draft_or_refusal(message)
        if message.get("queue") in (None, queue)
        else InvalidRequest(field="queue", why=OF_BATCH)
        for message in call[MESSAGES]
    ]
    good = [entry for entry in drafts if isinstance(entry, Draft)]
    stored = iter((yield from engine.publishing(queue, good, call.request_id, call.client)))
    outcomes = [next(stored) if isinstance(entry, Draft) else entry for entry in drafts]
    return {"messages": [_failed(entry) if isinstance(entry, Refusal) else _stored(entry) for entry in outcomes]}


def consume_next(engine: Engine, call: Call) -> Steps[Data]:
    while not (leased := _lease(engine, call, 1)):
        if not engine.cut_short:
            return NO_MESSAGE
        yield
    return _delivered(leased[0])


def consume_batch(engine: Engine, call: Call) -> Steps[Data]:
    """Hand out many: a bounded part in each turn, so that other calls need not wait long."""
    limit, room = call[LIMIT], MOST_AT_ONCE
    delivered: list[Data] = []
    while True:
        leased = _lease(engine, call, min(limit - len(delivered), LEASED_AT_ONCE), room)
        delivered += map(_delivered, leased)
        room -= sum(len(one.payload) for one in leased)
        if not engine.cut_short and (len(leased) < LEASED_AT_ONCE or len(delivered) == limit or room <= 0):
            return {"messages": delivered} if delivered else NO_MESSAGES
        yield


def ack(engine: Engine, call: Call) -> Steps[Data]:
    lease_id, consumer = holder(call)
    try:
        try:
            _check_holder(engine, call)
            engine.ack(call[MESSAGE_KEY], lease_id, consumer, by_key(call))
        except NotSeenYet as unseen:
            raise (yield from engine.why_not(unseen)) from None
    except MessageNotFound:
        if not call.again:
            raise
    return {}


def _check_holder(engine: Engine, call: Call) -> None:
    """Refuse a client of another user that names another's lease: knowing its id is not holding it."""
    if call.rights is not None and engine.is_held_by_another(call[MESSAGE_KEY], call.client):
        raise LeaseMismatch(key=call[MESSAGE_KEY])


def ack_batch(engine: Engine, call: Call) -> Steps[Data]:
    """Acknowledge each message for itself: one that is refused does not stop the others."""
    budget, results = Budget(), list[Data]()
    for entry in call[ACKS]:
        if not budget.is_left():
            yield
            budget.renew()
        budget.spend()
        try:
            yield from ack(engine, Call(entry, call.client, call.request_id, call.again, call.rights))
            results.append({"messageKey": entry["messageKey"], "ok": True})
        except Refusal as refusal:
            results.append({"messageKey": entry.get("messageKey"), "ok": False, "error": refused(refusal)})
    return {"results": results}


def nack(engine: Engine, call: Call) -> Steps[Data]:
    lease_id, consumer = holder(call)
    reason, requeue = call[REASON], call[REQUEUE]
    key = call[MESSAGE_KEY]
    try:
        try:
            _check_holder(engine, call)
            engine.nack(key, lease_id, consumer, reason, requeue, by_key(call))
        except NotSeenYet as unseen:
            raise (yield from engine.why_not(unseen)) from None
    except Refusal:
        if not call.again:
            raise
        search = engine.search(key)
        yield from search.through()
        if not engine.was_given_back(search, lease_id):
            raise
    return {}


def extend_lease(engine: Engine, call: Call) -> Steps[Data]:
    lease_id, consumer = holder(call)
    try:
        _check_holder(engine, call)
        return {"leaseUntil": engine.extend(call[MESSAGE_KEY], lease_id, call[VISIBILITY], consumer)}
    except NotSeenYet as unseen:
        raise (yield from engine.why_not(unseen)) from None


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


def peek(engine: Engine, call: Call) -> Steps[Data]:
    """Show what comes next, or the dead letters, without taking it: a bounded part in each turn."""
    queue = call[QUEUE]
    seen = yield from engine.looking(queue, call[PEEK_LIMIT], call[DEAD_LETTERS])
    return {"queue": queue, "messages": [_waiting(message) for message in seen]}


def pause(engine: Engine, call: Call) -> Data:
    engine.queues.pause(call[QUEUE])
    return {}


def resume(engine: Engine, call: Call) -> Data:
    engine.queues.resume(call[QUEUE])
    return {}


def purge(engine: Engine, call: Call) -> Steps[Data]:
    """Delete what waits, or the dead letters: a bounded part in each turn, so that other calls need not wait long."""
    refuse_unknown(call, PURGE, also=("yes",))
    queue, purged = call[QUEUE], 0
    if not call[DEAD_LETTERS]:
        refuse_given(call, (OLDER_THAN, ARCHIVE), "applies to dead letters alone: give it with dlq, or leave it out")
    while True:
        if call[DEAD_LETTERS]:
            part = engine.dead_letters.purge(queue, call[OLDER_THAN], call[ARCHIVE])
        else:
            part = engine.purge(queue)
        purged += part
        if part < MOST_CHANGES:
            return {"queue": queue, "purged": purged}
        yield


def delete_queue(engine: Engine, call: Call) -> Steps[Data]:
    """Delete a queue and all that it holds: a bounded part in each turn."""
    refuse_unknown(call, (QUEUE,), also=("yes",))
    queue = call[QUEUE]
    return {"queue": queue, "deleted": (yield from engine.removal.delete_queue(queue))}


def delete_policy(engine: Engine, call: Call) -> Data:
    """Let a queue have the policy that the configuration says."""
    refuse_unknown(call, (QUEUE,))
    queue = call[QUEUE]
    engine.queues.delete_policy(queue)
    return {"queue": queue, "policy": engine.queues.get(queue).policy.to_json()}


def delete_message(engine: Engine, call: Call) -> Steps[Data]:
    """Delete one message; it is looked for among a bounded part in each turn."""
    refuse_unknown(call, (MESSAGE_KEY,))
    key = call[MESSAGE_KEY]
    try:
        yield from _delete(engine, key)
    except MessageNotFound:
        if not call.again:
            raise
    return {"messageKey": key, "deleted": True}


def _delete(engine: Engine, key: str) -> Steps[None]:
    search = engine.search(key)
    while not engine.removal.delete(search, Budget()):
        yield


def move(engine: Engine, call: Call) -> Steps[Data]:
    """Move what waits in a queue to another one: a bounded part in each turn."""
    refuse_unknown(call, (QUEUE, TO, NO_MORE_THAN))
    queue, to = call[QUEUE], call[TO]
    moved, given_back = yield from engine.moving.move(queue, to, call[NO_MORE_THAN])
    return {"queue": queue, "to": to, "moved": moved, "refused": given_back}


def hand_over(engine: Engine, call: Call) -> Steps[Data]:
    """Hold what comes next for somebody who takes it to another store."""
    queue, holder = call[QUEUE], call[HOLDER]
    while not (offered := engine.handover.offer(queue, holder, call[LIMIT], engine.clock())):
        if not engine.handover.cut_short:
            break
        yield
    others = engine.handover.held_by_others(queue, holder)
    return {"queue": queue, "messages": [_waiting(message) for message in offered], "heldByOthers": others}


def handed_over(engine: Engine, call: Call) -> Steps[Data]:
    """Drop what has arrived in another store, a bounded part in each turn; at the end, give back the rest."""
    refuse_unknown(call, (HOLDER, MESSAGE_KEYS, END))
    holder, budget, dropped = call[HOLDER], Budget(), 0
    for key in call[MESSAGE_KEYS]:
        if not budget.is_left():
            yield
            budget.renew()
        budget.spend()
        was_here = engine.handover.drop(holder, key, engine.clock())
        if was_here is None:
            try:
                yield from _delete(engine, key)
                was_here = True
            except Refusal:
                was_here = False
        dropped += was_here
    while call[END] and not engine.handover.end(holder, engine.clock(), budget):
        yield
        budget.renew()
    return {"dropped": dropped}


def take_over(engine: Engine, call: Call) -> Steps[Data]:
    """Take what another store hands over, each message once however often it comes: a bounded part in each turn."""
    queue, taken, budget = call[QUEUE], list[Data](), Budget()
    for entry in call[MESSAGES]:
        if not budget.is_left():
            yield
            budget.renew()
        budget.spend()
        taken.append(_taken(engine, queue, entry))
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


def list_dlq(engine: Engine, call: Call) -> Steps[Data]:
    queue = call[QUEUE]
    letters = yield from engine.dead_letters.listing(queue, call[LIMIT])
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


def dlq_stats(engine: Engine, call: Call) -> Steps[Data]:
    queue = call[QUEUE]
    return {"queue": queue, "reasons": (yield from engine.dead_letters.counting(queue, call[SINCE]))}


def reprocess_dlq(engine: Engine, call: Call) -> Steps[Data]:
    """Put one dead letter back to work, or those of a queue that fit: a bounded part in each turn."""
    if _is_one(call.payload):
        return (yield from _put_one_back(engine, call))
    if "queue" not in call.payload:
        raise InvalidRequest(field="messageKey", why="is missing; give it, or a queue whose dead letters are meant")
    refuse_unknown(call, (MESSAGE_KEY, QUEUE, *SELECTION))
    queue = call[QUEUE]
    until, older_than = call[UNTIL], call[OLDER_THAN]
    until = until or engine.clock() - older_than
    keys = yield from engine.dead_letters.reprocessing(queue, call[REASON_CODE], until, call[NO_MORE_THAN])
    few = keys[:LARGEST_BATCH]
    return {"queue": queue, "reprocessed": True, "count": len(keys), "until": until, "messageKeys": few}


def _put_one_back(engine: Engine, call: Call) -> Steps[Data]:
    key = call[MESSAGE_KEY]
    refuse_given(call, SELECTION, "applies to the dead letters of a queue: leave it out, or messageKey")
    if call.payload.get("queue") not in (None, names.queue_of_key(key)):
        raise InvalidRequest(field="queue", why=f"is not the queue of {key!r}; leave it out")
    try:
        engine.dead_letters.reprocess(key)
    except DeadLetterNotFound:
        if not call.again:
            raise
        search = engine.search(key)
        yield from search.through()
        if not engine.is_at_work(search):
            raise
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

CALLS: dict[str, CommandRow[Engine]] = {
    "publish": CommandRow(publish, (QUEUE, *DRAFT), verb="publish"),
    "publish_batch": CommandRow(publish_batch, (QUEUE, MESSAGES), verb="publish"),
    "consume_next": CommandRow(
        consume_next,
        (QUEUE, CONSUMER, VISIBILITY, WAIT),
        ("consumenext", "consume"),
        nothing=NO_MESSAGE,
        verb="consume",
    ),
    "consume_batch": CommandRow(
        consume_batch, (QUEUE, LIMIT, CONSUMER, VISIBILITY, WAIT), nothing=NO_MESSAGES, verb="consume"
    ),
    "ack": CommandRow(ack, (MESSAGE_KEY, LEASE_ID, CONSUMER), verb="consume"),
    "ack_batch": CommandRow(ack_batch, (ACKS,), verb="consume"),
    "nack": CommandRow(nack, (MESSAGE_KEY, LEASE_ID, CONSUMER, REASON, REQUEUE), verb="consume"),
    "extend_lease": CommandRow(
        extend_lease, (MESSAGE_KEY, LEASE_ID, CONSUMER, VISIBILITY), ("extendlease", "extend"), verb="consume"
    ),
    "status": CommandRow(status, (QUEUE,), verb="look"),
    "queues": CommandRow(queues, verb="look"),
    "peek": CommandRow(peek, (QUEUE, PEEK_LIMIT, DEAD_LETTERS), verb="look"),
    "pause": CommandRow(pause, (QUEUE,)),
    "resume": CommandRow(resume, (QUEUE,)),
    "purge": CommandRow(purge, PURGE, run_once=lambda payload: True),
    "delete_queue": CommandRow(delete_queue, (QUEUE,), run_once=lambda payload: True),
    "delete_policy": CommandRow(delete_policy, (QUEUE,)),
    "delete_message": CommandRow(delete_message, (MESSAGE_KEY,)),
    "move": CommandRow(move, (QUEUE, TO, NO_MORE_THAN), run_once=lambda payload: True),
    "hand_over": CommandRow(hand_over, (QUEUE, HOLDER, LIMIT)),
    "handed_over": CommandRow(handed_over, (HOLDER, MESSAGE_KEYS, END)),
    "take_over": CommandRow(take_over, (QUEUE, MESSAGES)),
    "list_dlq": CommandRow(list_dlq, (QUEUE, LIMIT), ("listdlq", "dlq"), verb="look"),
    "dlq_stats": CommandRow(dlq_stats, (QUEUE, SINCE), verb="look"),
    "reprocess_dlq": CommandRow(
        reprocess_dlq,
        (MESSAGE_KEY, QUEUE, *SELECTION),
        ("reprocessdlq", "reprocess"),
        run_once=lambda payload: not _is_one(payload),
    ),
    "quarantine": CommandRow(quarantine, (MESSAGE_KEY, QUARANTINED)),
}


def refused(refusal: Refusal) -> Data:
    return {"code": refusal.code, "message": str(refusal)}


def leases_in(answer: Data) -> list[Data]:
    """Return the leases that an answer hands out."""
    return [part["lease"] for part in (answer, *answer.get("messages", ())) if "lease" in part]


def _lease(engine: Engine, call: Call, limit: int, room: int = MOST_AT_ONCE) -> list[Leased]:
    WAIT.read(call.payload)  # refused also when nobody has to wait
    return engine.lease(call[QUEUE], call.consumer, limit, call[VISIBILITY], room)


def _stored(stored: Stored) -> Data:
    return {"messageId": stored.message_id, "messageKey": stored.message_key}


def _failed(refusal: Refusal) -> Data:
    return {"error": refused(refusal)}


def _labels(labels: message_format.Labels) -> Data:
    """Return what the publisher said of a message; what is hardly ever said only when it was."""
    said = {"deduplicationKey": labels.dedup_key, "targetConsumerId": labels.target, "expiresAt": labels.expires}
    return {"type": labels.type, "traceId": labels.trace_id, **{key: part for key, part in said.items() if part}}


def _waiting(message: WaitingMessage) -> Data:
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
