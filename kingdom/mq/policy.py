"""How a queue treats its messages, as the configuration says it. A new key is one line here and one in the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Self, get_type_hints

from kingdom.base.home import schemas
from kingdom.base.retry import Jitter, Shape

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Key:
    """Where a field of a policy stands in the configuration, and how it is read."""

    #: Dotted, for example `dlq.enabled`.
    path: str
    #: Turns the value in the file into the field.
    read: Callable[[Any], Any] = lambda value: value


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _days_in_ms(days: float) -> int:
    return _ms(days * DAY_S)


def _read(cls: type, whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a class by name, each read from its key; what is not there keeps the field's default."""
    found: dict[str, Any] = {}
    for name, key in _keys(cls).items():
        value: Any = whole
        for part in key.path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            found[name] = key.read(value)
    return found


@cache
def _keys(cls: type) -> dict[str, Key]:
    hints = get_type_hints(cls, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


@dataclass(frozen=True, slots=True)
class Retry:
    """What happens to a message that was not acknowledged."""

    #: Leases a message may have before it goes to the dead letters.
    limit: Annotated[int, Key("limit")]
    #: How the wait grows from attempt to attempt.
    shape: Annotated[Shape, Key("backoff")]
    #: The first wait, in seconds.
    initial_s: Annotated[float, Key("initialDelaySec")]
    #: No wait is longer, in seconds.
    longest_s: Annotated[float, Key("maxDelaySec")]
    #: Whether the wait is drawn at random below the computed one.
    jitter: Annotated[Jitter, Key("jitter")]


def _retry(given: Mapping[str, Any]) -> Retry:
    return Retry(**_read(Retry, given))


@dataclass(frozen=True, slots=True)
class Policy:
    #: How long a lease lasts when the consumer does not say.
    visibility_ms: Annotated[int, Key("visibilityTimeoutSec", _ms)]
    #: Messages that nobody took are purged after this long; 0 keeps them.
    ttl_ms: Annotated[int, Key("ttlSec", _ms)]
    #: How long a deduplication key is remembered.
    dedup_ms: Annotated[int, Key("dedupWindowSec", _ms)]
    #: 0: off. Else a message whose tries all failed for the same reason, at least this many, is called POISON.
    poison_after: Annotated[int, Key("poisonAfter")]
    #: When a failed message is tried again, and how often.
    retry: Annotated[Retry, Key("retry", _retry)]
    #: Whether exhausted messages become dead letters; else they go to the archive.
    dlq_enabled: Annotated[bool, Key("dlq.enabled")]
    #: Under which name dead letters can be consumed; empty: the queue's name with -dlq behind it.
    dlq_queue: Annotated[str, Key("dlq.queue")]
    #: Dead letters older than this are archived; 0 keeps them.
    dlq_keep_ms: Annotated[int, Key("dlq.retentionDays", _days_in_ms)]
    #: Whether acknowledged messages are kept in the archive.
    archive: Annotated[bool, Key("archive")]
    #: Whether an ack or nack is accepted that names neither the lease nor the consumer.
    ack_by_key: Annotated[bool, Key("ackByKey")]
    #: A JSON Schema that every payload must fit.
    schema: Annotated[Mapping[str, Any] | None, Key("schema")] = None
    #: Field rules that every payload must fit, as the older configurations have them.
    rules: Annotated[tuple[Mapping[str, Any], ...], Key("messageSchema.rules", tuple)] = ()
    #: The whole policy as JSON.
    source: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Build a policy from one of any completeness; what it does not say, the schema's defaults say."""
        whole = merged(_defaults(), given)
        return cls(**_read(cls, whole), source=whole)

    def to_json(self) -> dict[str, Any]:
        return dict(self.source)

    def dlq_of(self, queue: str) -> str:
        """Return the name of the queue's dead-letter queue."""
        return self.dlq_queue or f"{queue}-dlq"


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one policy over another, key by key also in groups such as `retry`."""
    both = {**below, **above}
    for key, part in below.items():
        if isinstance(part, Mapping):
            over = above.get(key, {})
            both[key] = merged(part, over) if isinstance(over, Mapping) else over
    return both


@cache
def _defaults() -> dict[str, Any]:
    whole = schemas.with_defaults(schemas.load("config/mq"), {})
    return {"visibilityTimeoutSec": whole["lease"]["visibilityTimeoutSec"], **whole["policyDefaults"]}
