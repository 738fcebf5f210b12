"""The longest turn of own work while something happens to very many messages at once, on every store.

A turn is one sweep, or one part of a call, with its commit. Durability is process, so that no sync is counted; time is
processor time, so that other work on the machine does not look like ours.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.figures import Row, row
from bench.mq_stores import PAYLOAD, QUEUE, Scratch
from kingdom.mailbox.manager import SELDOM
from kingdom.mq.call_fields import Call
from kingdom.mq.calls import CALLS, NotYet
from kingdom.mq.engine import Engine, open_engine
from kingdom.mq.message_format import Draft
from kingdom.mq.policy import Policy
from kingdom.mq.queues import EngineSettings
from kingdom.mq.stores.base import StoreConfig

STORES = ("memory", "filesystem", "sqlite", "hybrid")
GOAL_MS = 50
HOUR_MS = 3_600_000
GROUP = 500
ABOUT = (
    "Something happens to all messages of a queue at once; how long the longest turn is in which nobody else is "
    "answered (one sweep, or one part of a call, with its commit; processor time, without syncs)."
)


class Ahead:
    """The time, and what is added to it so that something becomes due."""

    def __init__(self) -> None:
        self.by_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.by_ms


class Queue:
    """An engine over a store of its own, and what happens in it."""

    def __init__(self, backend: str, folder: Path, size: int) -> None:
        self.backend, self.folder, self.size = backend, folder, size
        self.clock = Ahead()
        self.mq = self._open()

    def _open(self) -> Engine:
        config = StoreConfig.at(self.folder, backend=self.backend, durability="process")
        return open_engine(config, settings=EngineSettings(Policy.from_json({})), clock=self.clock)

    def fill(self, **more: Any) -> None:
        for start in range(0, self.size, GROUP):
            for _ in range(start, min(start + GROUP, self.size)):
                self.mq.publish(QUEUE, Draft(PAYLOAD, **more))
            self.mq.commit()
        self.rest()

    def lease_all(self, visibility_ms: int = HOUR_MS) -> Iterator[Any]:
        while leased := self.mq.lease(QUEUE, "bench", GROUP, visibility_ms):
            yield from leased
            self.mq.commit()

    def die(self) -> None:
        self.fill()
        for leased in self.lease_all():
            self.mq.nack(leased.message_key, leased.lease_id, reason="bench")
        self.mq.commit()
        self.rest()

    def rest(self) -> None:
        """Do what is due by now, as a manager has done long before the event."""
        for _ in self.sweeps():
            pass
        self.mq.store.tidy(self.clock(), False)

    def sweeps(self, later_ms: int = 0) -> Iterator[float]:
        """Let time pass, and sweep until nothing is due. Yields how long each turn takes."""
        self.clock.by_ms += later_ms
        due: int | None = 0
        while due is not None and due <= self.clock():
            began = time.process_time()
            due = self.mq.sweep()
            self.mq.commit()
            yield time.process_time() - began

    def call(self, command: str, **payload: Any) -> Iterator[float]:
        """Carry a call out to its end. Yields how long each turn takes."""
        done: Any = None
        data: Any = NotYet(None)
        while isinstance(data, NotYet):
            began = time.process_time()
            data = _answer(self.mq, command, Call({"queue": QUEUE, **payload}, "bench", done=done))
            self.mq.commit()
            yield time.process_time() - began
            done = data.done if isinstance(data, NotYet) else None


def _answer(mq: Engine, command: str, call: Call) -> Any:
    try:
        return CALLS[command].answer(mq, call)
    except Exception as refusal:  # noqa: BLE001
        # Also a refusal takes its time.
        return refusal


def run(quick: bool) -> dict[str, Any]:
    found = {size: longest_turns(size, STORES, EVENTS) for size in ((5_000,) if quick else (100_000, 1_000_000))}
    rows = [_row(size, store, turns) for size, stores in found.items() for store, turns in stores.items()]
    tables = [_table(size, stores) for size, stores in found.items()]
    return {"title": "The queue under mass events", "about": ABOUT, "rows": rows, "tables": tables}


def longest_turns(size: int, stores: tuple[str, ...], events: dict[str, Event]) -> dict[str, dict[str, float]]:
    """Return the longest turn in ms, by store and event."""
    gc.set_threshold(*gc.get_threshold()[:2], SELDOM)  # as the manager does
    place = Scratch()
    found: dict[str, dict[str, float]] = {}
    for backend in stores:
        for event, happen in events.items():
            queue = Queue(backend, place.fresh(), size)
            found.setdefault(backend, {})[event] = round(max(happen(queue)) * 1000, 1)
            queue.mq.close()
    return found


def _row(size: int, store: str, turns: dict[str, float]) -> Row:
    event, longest = max(turns.items(), key=lambda turn: turn[1])
    return row(
        f"{store}: longest turn with {size:,} messages",
        goal=f"≤ {GOAL_MS} ms",
        met=longest <= GOAL_MS,
        ours=longest,
        unit="ms",
        reason=f"{store}: when {size:,} {event}",
    )


def _table(size: int, stores: dict[str, dict[str, float]]) -> dict[str, Any]:
    rows = {event: [turns[event] for turns in stores.values()] for event in EVENTS}
    return {"title": f"The longest turn in ms when {size:,} messages …", "columns": [*stores], "rows": rows}


def expire(queue: Queue) -> Iterator[float]:
    queue.fill(ttl_ms=HOUR_MS)
    return queue.sweeps(2 * HOUR_MS)


def redeliver(queue: Queue) -> Iterator[float]:
    queue.fill()
    for _ in queue.lease_all():
        pass
    queue.rest()
    return queue.sweeps(2 * HOUR_MS)


def extend(queue: Queue) -> Iterator[float]:
    """Every lease is extended, a turn for each group; then the turns of the sweep."""
    queue.fill()
    held = list(queue.lease_all())
    queue.rest()
    for start in range(0, len(held), GROUP):
        began = time.process_time()
        for leased in held[start : start + GROUP]:
            queue.mq.extend(leased.message_key, leased.lease_id, HOUR_MS)
        queue.mq.commit()
        yield time.process_time() - began
    yield from queue.sweeps()


def become_due(queue: Queue) -> Iterator[float]:
    queue.fill(delay_ms=HOUR_MS)
    return queue.sweeps(2 * HOUR_MS)


def purge(queue: Queue) -> Iterator[float]:
    queue.fill()
    return queue.call("purge")


def purge_dead(queue: Queue) -> Iterator[float]:
    queue.die()
    return queue.call("purge", dlq=True)


def reprocess(queue: Queue) -> Iterator[float]:
    queue.die()
    return queue.call("reprocess_dlq")


def retire(queue: Queue) -> Iterator[float]:
    queue.mq.queues.set_policy(QUEUE, Policy.from_json({"dlq": {"retentionDays": 1}}))
    queue.die()
    return queue.sweeps(48 * HOUR_MS)


def change_policy(queue: Queue) -> Iterator[float]:
    """A new policy while all wait: what its schema says of them holds from then on."""
    queue.fill()
    began = time.process_time()
    queue.mq.queues.set_policy(QUEUE, Policy.from_json({"schema": {"type": "object"}, "dlq": {"retentionDays": 1}}))
    queue.mq.commit()
    yield time.process_time() - began
    yield from queue.sweeps(2 * HOUR_MS)


def look(queue: Queue) -> Iterator[float]:
    """The calls that only look, while all wait."""
    queue.fill()
    unknown = f"msg:{QUEUE}:00000000-0000-8000-8000-000000000000"
    yield from queue.call("status")
    yield from queue.call("queues")
    yield from queue.call("peek", limit=100)
    for command in ("ack", "nack", "extend_lease", "reprocess_dlq"):
        yield from queue.call(command, messageKey=unknown, leaseId="0" * 16)


def look_at_dead(queue: Queue) -> Iterator[float]:
    queue.die()
    yield from queue.call("status")
    yield from queue.call("list_dlq", limit=100)
    yield from queue.call("dlq_stats")
    yield from queue.call("dlq_stats", sinceMs=HOUR_MS)


def lay_in(queue: Queue) -> Iterator[float]:
    """Files laid into the inbox by hand, or imported with `mv`; other stores have none."""
    queue.mq.publish(QUEUE, Draft(PAYLOAD))
    queue.mq.commit()
    if queue.mq.store.by_hand:
        inbox = queue.folder / "fs" / QUEUE / "inbox"
        for number in range(queue.size):
            (inbox / f"{number}.json").write_text(PAYLOAD)
    yield from queue.sweeps(HOUR_MS)


Event = Callable[[Queue], Iterator[float]]
EVENTS: dict[str, Event] = {
    "expire": expire,
    "are redelivered": redeliver,
    "get longer leases": extend,
    "become due": become_due,
    "are purged": purge,
    "are purged as dead letters": purge_dead,
    "go back from the dead letters": reprocess,
    "have been dead letters long enough": retire,
    "get a new policy": change_policy,
    "are looked at": look,
    "are looked at as dead letters": look_at_dead,
    "are laid in by hand": lay_in,
}


def main(words: list[str]) -> None:
    """`python -m bench.mq_mass SIZE [STORE…] [EVENT…]`, events by their functions' names; prints ms first."""
    size, *chosen = words
    stores = tuple(word for word in chosen if word in STORES) or STORES
    named = {event: happen for event, happen in EVENTS.items() if happen.__name__ in chosen}
    for store in stores:
        for event, happen in (named or EVENTS).items():
            found = longest_turns(int(size), (store,), {event: happen})
            print(f"{found[store][event]:8.1f} ms  {store}: {event}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
