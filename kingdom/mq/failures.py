"""What becomes of a message whose lease did not end well: another try, the dead letters, or the archive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from kingdom.base.retry import backoff, jittered, may_retry
from kingdom.mq import message_format, names
from kingdom.mq.leases import Lease, Leases
from kingdom.mq.message_format import Failure, MalformedBody
from kingdom.mq.names import LATEST
from kingdom.mq.queue_state import QueueState
from kingdom.mq.queues import QueueStates
from kingdom.mq.stores.base import MessageGone, MessageStore
from kingdom.mq.timers import Timers

Code = Literal["VALIDATION_ERROR", "HANDLER_ERROR", "TIMEOUT", "RETRY_EXCEEDED", "POISON"]
Outcome = Literal["retry", "dlq", "archived"]
Log = Callable[..., None]
"""Takes a key, a sentence and facts by name."""

LEAST_REST_MS = 1_000

_SENTENCES: Mapping[Code, str] = {
    "VALIDATION_ERROR": "the message does not fit",
    "HANDLER_ERROR": "refused by its consumer",
    "TIMEOUT": "its lease ended without an answer",
    "RETRY_EXCEEDED": "no tries left",
    "POISON": "the same failure again and again",
}


class Failures:
    def __init__(
        self,
        store: MessageStore,
        queues: QueueStates,
        timers: Timers,
        leases: Leases,
        random: Callable[[], float],
        log: Log,
    ) -> None:
        self._store = store
        self._queues = queues
        self._timers = timers
        self._leases = leases
        self._random = random
        self._log = log

    def fail(self, lease: Lease, now: int, exhausted: Code, reason: str) -> Outcome:
        """Apply the queue's retry rule. `exhausted` is the code of a message that has no tries left."""
        if lease.is_dead_letter:
            return self.return_dead_letter(lease, now)
        queue = lease.queue
        policy = queue.policy
        fields = names.without_lease(lease.name)
        same_failures = 0
        if reason:
            before = fields.get(names.SAME_FAILURES, "")
            same_failures, fields[names.SAME_FAILURES] = names.count_same_failures(before, reason)
        else:
            fields.pop(names.SAME_FAILURES, None)
        if not may_retry(lease.attempt, policy.retry.limit):
            poison = policy.poison_after and same_failures >= max(policy.poison_after, policy.retry.limit)
            return self.dead_letter(lease, now, "POISON" if poison else exhausted, reason)
        due = min(now + self._wait_ms(lease), LATEST)
        self._make_wait(lease, names.changed(lease.name, due, fields), due, now)
        return "retry"

    def _make_wait(self, lease: Lease, new: str, due: int, now: int) -> None:
        queue = lease.queue
        try:
            self._store.move(queue.name, "inflight", lease.name, "delayed" if due > now else "ready", new)
        except MessageGone:
            self._leases.end(lease, now)
            return
        self._leases.end(lease, now)
        self._timers.add(queue, new, due, now)

    def give_back(self, lease: Lease, now: int) -> None:
        """Let a message that never reached its consumer wait as before, in its old place, without a try more."""
        if lease.is_dead_letter:
            self.return_dead_letter(lease, now)
            return
        fields = names.without_lease(lease.name) | {names.ATTEMPTS: str(lease.attempt - 1)}
        self._make_wait(lease, names.changed(lease.name, names.created_of(lease.name), fields), now, now)

    def dead_letter(self, lease: Lease, now: int, code: Code, reason: str, body: str | None = None) -> Outcome:
        """Make the message a dead letter; where the queue keeps none, it goes to the archive."""
        queue = lease.queue
        try:
            if not queue.policy.dlq_enabled:
                archived = names.archived(lease.name, now)
                self._store.move(queue.name, "inflight", lease.name, "archived", archived)
                self._leases.end(lease, now)
                self._log("mq.dropped", f"{lease.key} goes to the archive: {code} {reason}", queue=queue.name)
                return "archived"
            if body is None:
                body = self._body(queue.name, lease.name)
            failure = Failure(code, reason or _SENTENCES[code], now, lease.attempt, lease.consumer)
            record = message_format.dead(body, failure, queue.name, queue.policy.dlq_of(queue.name))
            fields = names.without_lease(lease.name)
            fields.pop(names.EXPIRES, None)
            fields |= {names.REASON: code, names.DEAD_SINCE: str(now)}
            new = names.changed(lease.name, now, fields)
            self._store.rewrite(queue.name, "inflight", lease.name, "dlq", new, record)
        except MessageGone:
            self._leases.end(lease, now)
            return "dlq"
        self._leases.end(lease, now)
        self._add_dead(queue, new)
        self._log("mq.dead", f"{lease.key} is a dead letter: {code} {reason}", queue=queue.name, reason=code)
        return "dlq"

    def return_dead_letter(self, lease: Lease, now: int) -> Outcome:
        """Put back a leased dead letter that was not acknowledged, in its old place. It rests as long as a message
        would after as many tries: a program that fails on all of them gets none twice at once."""
        fields = names.without_lease(lease.name)
        new = names.changed(lease.name, int(fields.get(names.DEAD_SINCE, now)), fields)
        try:
            self._store.move(lease.queue.name, "inflight", lease.name, "dlq", new)
        except MessageGone:
            self._leases.end(lease, now)
            return "dlq"
        self._leases.end(lease, now)
        rests_until = now + max(LEAST_REST_MS, self._wait_ms(lease))
        self._add_dead(lease.queue, new, rests_until)
        self._timers.rest(lease.queue, rests_until)
        return "dlq"

    def _add_dead(self, queue: QueueState, name: str, rests_until: int = 0) -> None:
        queue.add_dead(name, rests_until)
        self._queues.arrived.add(queue.policy.dlq_of(queue.name))

    def _wait_ms(self, lease: Lease) -> int:
        retry = lease.queue.policy.retry
        wait = backoff(retry.shape, max(1, lease.attempt), retry.initial_s, retry.longest_s)
        return round(jittered(wait, retry.jitter, self._random) * 1000)

    def _body(self, queue_name: str, name: str) -> str:
        try:
            return self._store.read(queue_name, "inflight", name)
        except MalformedBody as error:
            return error.text
