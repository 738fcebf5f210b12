"""How a queue treats its messages, as the configuration says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from kingdom.home import schemas
from kingdom.rules.retry import Jitter, Shape

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Retry:
    limit: int
    shape: Shape
    initial_s: float
    longest_s: float
    jitter: Jitter


@dataclass(frozen=True, slots=True)
class Policy:
    visibility_ms: int
    ttl_ms: int
    dedup_ms: int
    poison_after: int
    retry: Retry
    dlq_enabled: bool
    dlq_queue: str
    dlq_keep_ms: int
    archive: bool
    schema: Mapping[str, Any] | None = None
    rules: tuple[Mapping[str, Any], ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Policy:
        """A policy of any completeness; what it does not say, the schema's defaults say."""
        whole = _over(_defaults(), given)
        retry, dlq = whole["retry"], whole["dlq"]
        return cls(
            visibility_ms=round(whole["visibilityTimeoutSec"] * 1000),
            ttl_ms=round(whole["ttlSec"] * 1000),
            dedup_ms=round(whole["dedupWindowSec"] * 1000),
            poison_after=whole["poisonAfter"],
            retry=Retry(
                retry["limit"],
                cast("Shape", retry["backoff"]),
                retry["initialDelaySec"],
                retry["maxDelaySec"],
                cast("Jitter", retry["jitter"]),
            ),
            dlq_enabled=dlq["enabled"],
            dlq_queue=dlq["queue"],
            dlq_keep_ms=round(dlq["retentionDays"] * DAY_MS),
            archive=whole["archive"],
            schema=whole.get("schema"),
            rules=tuple(whole.get("messageSchema", {}).get("rules", ())),
            source=whole,
        )

    def to_json(self) -> dict[str, Any]:
        return dict(self.source)

    def dlq_of(self, queue: str) -> str:
        return self.dlq_queue or f"{queue}-dlq"


@cache
def _defaults() -> dict[str, Any]:
    parts = schemas.load("config/mq")["properties"]
    defaults: dict[str, Any] = schemas.with_defaults(parts["policyDefaults"], {})
    lease: dict[str, Any] = schemas.with_defaults(parts["lease"], {})
    return {"visibilityTimeoutSec": lease["visibilityTimeoutSec"], **defaults}


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**below, **above}
    for group in ("retry", "dlq"):
        merged[group] = {**below[group], **above.get(group, {})}
    return merged
