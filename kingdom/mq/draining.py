"""Move what waits in a queue to another store, which may be of another kind, or to another manager.

A part at a time: the source holds it for us, the target takes it durably and remembers its ids, then the source drops
it. Killed in between, a part is in both; when it is done again, the target knows what it has.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import Usage
from kingdom.mq.client import MANAGER_LOCK, Client
from kingdom.mq.local import Local, settings_of
from kingdom.mq.typed_calls import Answer, Calls

AT_ONCE = 500
CHARACTERS_AT_ONCE = 8 << 20
"""A request may have 64 MiB, and a character six bytes."""
LOOK_AGAIN_SECONDS = 1.0


@contextmanager
def opened(path: Path) -> Iterator[Calls]:
    """Open what lies at a path: a mailbox, a configuration file or a data folder. A running manager is asked."""
    if (path / "requests").is_dir():
        with Client(path) as client:
            yield client
        return
    settings = settings_of(path)
    root = settings.box.root
    if path.is_file() and root.is_dir() and is_locked(root / MANAGER_LOCK):
        with Client(settings.box) as client:
            yield client
        return
    with Local(settings) as local:
        yield local


def drain(source: Calls, queue: str, target: Calls, to: str) -> Answer:
    """Move all that waits in a queue, the delayed as well, and return how many that were. What is leased stays with
    its consumer, and what the target refuses stays here. Usage: both are one manager."""
    if isinstance(source, Client) and isinstance(target, Client) and source.root.samefile(target.root):
        raise Usage(message=f"{target.root} is the manager that has {queue!r}: move it with --to and a queue's name")
    holder = uuid.uuid4().hex
    moved, refused = 0, []
    try:
        while True:
            offered = source.call("hand_over", {"queue": queue, "holder": holder, "limit": AT_ONCE})
            for part in _parts(offered["messages"]):
                outcomes = target.call("take_over", {"queue": to, "messages": part})["messages"]
                done = [
                    message["messageKey"]
                    for message, outcome in zip(part, outcomes, strict=True)
                    if "error" not in outcome
                ]
                refused += [outcome["error"] for outcome in outcomes if "error" in outcome]
                source.call("handed_over", {"holder": holder, "messageKeys": done})
                moved += len(done)
            if not offered["messages"]:
                if not offered["heldByOthers"]:
                    break
                time.sleep(LOOK_AGAIN_SECONDS)  # a drain that was killed holds them for a minute
    finally:
        source.call("handed_over", {"holder": holder, "end": True})
    return {"queue": queue, "to": to, "moved": moved, "refused": len(refused), "errors": refused[:10]}


def _parts(messages: list[Answer]) -> Iterator[list[Answer]]:
    part: list[Answer] = []
    size = 0
    for message in messages:
        length = len(message["payload"]) + len(message["attributes"])
        if part and size + length > CHARACTERS_AT_ONCE:
            yield part
            part, size = [], 0
        part.append(message)
        size += length
    if part:
        yield part
