"""What the queue refuses, each with the code that its caller is told; nothing was changed when one is raised."""

from __future__ import annotations

from typing import ClassVar

from kingdom.base.errors import BadInput, KingdomError

LONGEST_FACT = 500
"""Longer than any valid name or key."""


class Refusal(BadInput):
    """{message}"""

    code: ClassVar[str] = "ERR_INVALID_REQUEST"

    def __init__(self, **facts: object) -> None:
        super().__init__(**{name: _short(fact) for name, fact in facts.items()})


class InvalidRequest(Refusal):
    """{field}: {why}"""


class QueueNotFound(Refusal):
    """no queue named {queue!r}; publish to it first, or name it in the configuration"""

    code = "ERR_QUEUE_NOT_FOUND"


class MessageNotFound(Refusal):
    """no message {key!r} is out on a lease or waiting"""

    code = "ERR_MESSAGE_NOT_FOUND"


class LeaseExpired(Refusal):
    """the lease on {key!r} has expired; the message is on its way to another consumer"""

    code = "ERR_LEASE_EXPIRED"


class LeaseMismatch(Refusal):
    """{key!r} is not leased under that lease id or to that consumer"""

    code = "ERR_LEASE_MISMATCH"


class HeldByAnother(LeaseMismatch):
    """{key!r} is not leased to {consumer!r}: give its leaseId or consumerId, or set `ackByKey` in the policy"""


class ValidationFailed(Refusal):
    """queue {queue!r} does not take this message: {why}"""

    code = "ERR_VALIDATION_FAILED"


class DeadLetterNotFound(Refusal):
    """no dead letter {key!r}"""

    code = "ERR_DLQ_NOT_FOUND"


class NotAllowed(Refusal):
    """client {client!r} may not {verb} {where}: ipc.clients.{client}.may in mq.yaml does not list it"""

    code = "ERR_NOT_ALLOWED"


class NoRoom(Refusal):
    """the disk is full: nothing is published until there is room; what is there can be consumed and purged"""

    code = "ERR_INTERNAL_ERROR"


class StoreError(KingdomError):
    """the {backend} store cannot {action}: {why}"""

    code: ClassVar[str] = "ERR_INTERNAL_ERROR"


def _short(fact: object) -> object:
    """Return what a caller has written, cut where it would fill the answer."""
    return f"{fact[:LONGEST_FACT]}…" if isinstance(fact, str) and len(fact) > LONGEST_FACT else fact
