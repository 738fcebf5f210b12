"""What one client of another user may ask for: verbs, each with the queues that it may name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from kingdom.mq import names
from kingdom.mq.errors import NotAllowed

Verb = Literal["publish", "consume", "look", "manage"]
VERBS: tuple[Verb, ...] = get_args(Verb)
ALL = "*"


@dataclass(frozen=True, slots=True)
class Rights:
    client: str
    #: Names of queues for each verb; one that ends in * matches every name with that beginning.
    queues: Mapping[str, Iterable[str]]

    def check(self, verb: Verb | None, payload: Mapping[str, Any]) -> None:
        """Raise NotAllowed unless a call of this verb with this payload may be made; None: everybody may."""
        if verb is None:
            return
        allowed = tuple(self.queues.get(verb, ()))
        named = list(_queues_in(payload, with_keys=verb != "consume"))
        # ack, nack and extend_lease name no queue; the call checks that the lease is this client's own.
        if verb == "consume" and not named and allowed:
            return
        for queue in named or [ALL]:
            if not any(_fits(queue, pattern) for pattern in allowed):
                where = "in every queue" if queue == ALL else f"in {queue!r}"
                raise NotAllowed(client=self.client, verb=verb, where=where)


def _queues_in(payload: Mapping[str, Any], with_keys: bool) -> Iterator[str]:
    """Yield the queues that a payload names. What is of another type the call itself refuses."""
    if payload.get("holder") and payload.get("end"):
        yield ALL  # what the holder has not moved may be of any queue
    for field in ("queue", "to"):
        if isinstance(name := payload.get(field), str):
            yield name
    if with_keys:
        keys = payload.get("messageKeys")
        for key in (payload.get("messageKey"), *(keys if isinstance(keys, list) else ())):
            if isinstance(key, str):
                yield names.queue_of_key(key)


def _fits(queue: str, pattern: str) -> bool:
    return queue.startswith(pattern[:-1]) if pattern.endswith(ALL) else queue == pattern
