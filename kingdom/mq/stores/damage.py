"""What the check makes of a message whose body can no longer be read: a dead letter that holds what is left of it."""

from __future__ import annotations

from typing import Literal

from kingdom.mq import message_format, names
from kingdom.mq.message_format import Failure, MalformedBody
from kingdom.mq.stores.base import MessageGone, MessageStore, State, StoreFinding


def finding_of(store: MessageStore, queue: str, state: State, name: str, repair: bool, now: int) -> StoreFinding | None:
    """Return what is wrong with a message's body, and mend it; None when nothing is."""
    try:
        body = store.read(queue, state, name)
        if names.is_dead_letter(name):
            message_format.original(body)  # what died may have been no message: then it is a text in here
        else:
            message_format.content(body, True)
    except MalformedBody as error:
        text, why = error.text, error.why
    except MessageGone:
        return StoreFinding("missing_payload", queue, f"{names.key_of(queue, name)} is {state}, and not there", False)
    else:
        return None
    if not text:
        text = store.read(queue, state, name)
    kind: Literal["truncated", "unreadable"] = "unreadable" if text.rstrip().endswith("}") else "truncated"
    if repair:
        _bury(store, queue, state, name, text, why, now)
    return StoreFinding(kind, queue, f"{names.key_of(queue, name)}: {why}", repair)


def _bury(store: MessageStore, queue: str, state: State, name: str, text: str, why: str, now: int) -> None:
    fields = names.without_lease(name)
    fields.pop(names.EXPIRES, None)
    fields |= {names.REASON: "VALIDATION_ERROR", names.DEAD_SINCE: str(now), names.QUARANTINED: ""}
    failure = Failure("VALIDATION_ERROR", f"damaged: {why}", now, names.attempt_of(name), "")
    body = message_format.dead(message_format.quoted(text), failure, queue, f"{queue}-dlq")
    store.rewrite(queue, state, name, "dlq", names.changed(name, now, fields), body)
