"""The longest turn of own work while something happens to very many messages at once, on every store.

A turn is one sweep, or one part of a call, with its commit. Durability is process, so that no sync is counted; time is
processor time, so that other work on the machine does not look like ours.

`python -m tests.faults.mq.mass_turns SIZE [STORE…] [STORY…]`, by their functions' names, prints ms.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.figures import Found
from bench.floors import BODY
from bench.mq_stores import QUEUE, Scratch, opened
from kingdom.mq.call_fields import Call
from kingdom.mq.calls import CALLS, OngoingCall
from kingdom.mq.errors import Refusal
from kingdom.mq.mailbox.manager import collect_young, keep_collections_short
from kingdom.mq.message_format import Draft
from kingdom.mq.policy import Policy

STORES = ("memory", "filesystem", "sqlite", "hybrid")
HOUR_MS, GROUP, OTHER = 3_600_000, 500, "elsewhere"
Turns = Iterator[tuple[str, float]]


def run(quick: bool) -> Found:
    found = Found()
    for size in (1_000,) if quick else (100_000, 1_000_000):
        stores = {store: longest_turns(size, store) for store in STORES}
        for store, turns in stores.items():
            found.add("longest turn", f"{store}, {size:,} messages", [max(turns.values())])
        events = dict.fromkeys(event for turns in stores.values() for event in turns)
        rows = {event: [turns.get(event, "") for turns in stores.values()] for event in events}
        found.table(f"The longest turn in ms when {size:,} messages …", STORES, rows)
    return found


def longest_turns(size: int, store: str, *names: str) -> dict[str, float]:
    """Return the longest turn in ms, by event; each story has a store of its own."""
    keep_collections_short()
    found: dict[str, float] = {}
    for story in [story for story in STORIES if story.__name__ in names or not names]:
        queue = Queue(store, Scratch().fresh(), size)
        for event, seconds in story(queue):
            found[event] = max(found.get(event, 0.0), round(seconds * 1000, 1))
        queue.mq.close()
        shutil.rmtree(queue.folder)
    return found


class Queue:
    """An engine over a store of its own, a clock that can be moved on, and what happens in it."""

    def __init__(self, backend: str, folder: Path, size: int) -> None:
        self.folder, self.size, self.ahead_ms = folder, size, 0
        self.mq = opened(backend, folder, clock=self.clock)

    def clock(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def commit(self) -> None:
        """End a turn, as a manager does."""
        self.mq.commit()
        collect_young()

    def fill(self, **more: Any) -> None:
        for start in range(0, self.size, GROUP):
            for _ in range(start, min(start + GROUP, self.size)):
                self.mq.publish(QUEUE, Draft(BODY, **more))
            self.commit()
        self.rest()

    def lease_all(self, queue: str = QUEUE) -> Iterator[Any]:
        while leased := self.mq.lease(queue, "bench", GROUP, HOUR_MS):
            yield from leased
            self.commit()

    def die(self, dead_letters: dict[str, Any] | None = None) -> Iterator[float]:
        """Lease all, once too often, and let the leases end."""
        self.mq.queues.set_policy(QUEUE, Policy.from_json({"retry": {"limit": 0}, "dlq": dead_letters or {}}))
        self.fill()
        for _ in self.lease_all():
            pass
        self.rest()
        yield from self.sweeps(2 * HOUR_MS)

    def rest(self) -> None:
        """Do what is due by now, as a manager has done long before the event."""
        for _ in self.sweeps():
            pass
        self.mq.store.tidy(self.clock(), False)

    def sweeps(self, later_ms: int = 0) -> Iterator[float]:
        """Let time pass, and sweep until nothing is due. Yields how long each turn takes."""
        self.ahead_ms += later_ms
        due: int | None = 0
        while due is not None and due <= self.clock():
            began = time.thread_time()
            due = self.mq.sweep()
            self.commit()
            yield time.thread_time() - began

    def extend_all(self) -> Iterator[float]:
        """Every lease is extended, a turn for each group; then the turns of the sweep."""
        held = list(self.lease_all())
        self.rest()
        for start in range(0, len(held), GROUP):
            began = time.thread_time()
            for leased in held[start : start + GROUP]:
                self.mq.extend(leased.message_key, leased.lease_id, HOUR_MS)
            self.commit()
            yield time.thread_time() - began
        yield from self.sweeps()

    def change_policy(self) -> Iterator[float]:
        """A new policy while all wait: what its schema says of them holds from then on."""
        began = time.thread_time()
        self.mq.queues.set_policy(QUEUE, Policy.from_json({"schema": {"type": "object"}, "dlq": {"retentionDays": 1}}))
        self.commit()
        yield time.thread_time() - began
        yield from self.sweeps()

    def look(self) -> Iterator[float]:
        """The calls that only look, also for a message that is not there."""
        unknown = f"msg:{QUEUE}:00000000-0000-8000-8000-000000000000"
        yield from self.call("status")
        yield from self.call("queues")
        yield from self.call("peek", limit=100)
        yield from self.call("hand_over", holder="bench", limit=100)
        yield from self.call("handed_over", holder="bench", messageKeys=[unknown] * 3, end=True)
        for command in ("ack", "nack", "extend_lease", "reprocess_dlq"):
            yield from self.call(command, messageKey=unknown, leaseId="0" * 16)

    def look_at_dead(self) -> Iterator[float]:
        yield from self.call("status")
        yield from self.call("list_dlq", limit=100)
        yield from self.call("peek", limit=100, dlq=True)
        yield from self.call("dlq_stats")
        yield from self.call("dlq_stats", sinceMs=HOUR_MS)

    def call(self, command: str, **payload: Any) -> Iterator[float]:
        """Carry a call out to its end. Yields how long each turn takes."""
        work = OngoingCall(CALLS[command], Call({"queue": QUEUE, **payload}, "bench"))
        data: Any = None
        while data is None:
            began = time.thread_time()
            try:
                data = work.go_on(self.mq)
            except Refusal as refusal:  # also a refusal takes its time
                data = refusal
            self.commit()
            yield time.thread_time() - began


def wait_and_expire(queue: Queue) -> Turns:
    """Messages wait for their time, are looked at, get another policy, come back from consumers, and expire."""
    queue.fill(delay_ms=HOUR_MS, ttl_ms=100 * HOUR_MS)
    yield from _named("are looked at", queue.look())
    yield from _named("get a new policy", queue.change_policy())
    yield from _named("become due", queue.sweeps(2 * HOUR_MS))
    yield from _named("are looked at", queue.look())
    yield from _named("get longer leases", queue.extend_all())
    yield from _named("are redelivered", queue.sweeps(2 * HOUR_MS))
    yield from _named("expire", queue.sweeps(200 * HOUR_MS))


def die_and_go_back(queue: Queue) -> Turns:
    yield from _named("die of the ends of their leases", queue.die())
    yield from _named("are looked at as dead letters", queue.look_at_dead())
    yield from _named("go back from the dead letters", queue.call("reprocess_dlq"))
    yield from _named("are purged", queue.call("purge"))


def die_and_are_purged(queue: Queue) -> Turns:
    yield from _named("die of the ends of their leases", queue.die())
    yield from _named("are purged as dead letters", queue.call("purge", dlq=True))


def die_and_retire(queue: Queue) -> Turns:
    yield from _named("die of the ends of their leases", queue.die({"retentionDays": 1}))
    yield from _named("have been dead letters long enough", queue.sweeps(48 * HOUR_MS))


def move_and_go(queue: Queue) -> Turns:
    queue.fill()
    yield from _named("are moved to another queue", queue.call("move", to=OTHER))
    for _ in queue.lease_all(OTHER):
        pass
    yield from _named("are deleted with their queue", queue.call("delete_queue", queue=OTHER))


def lay_in(queue: Queue) -> Turns:
    """Files laid into the inbox by hand, or imported with `mv`; other stores have none."""
    queue.mq.publish(QUEUE, Draft(BODY))
    queue.commit()
    if queue.mq.store.by_hand:
        inbox = queue.folder / "fs" / QUEUE / "inbox"
        for number in range(queue.size):
            (inbox / f"{number}.json").write_text(BODY)
    yield from _named("are laid in by hand", queue.sweeps(HOUR_MS))


def _named(event: str, turns: Iterator[float]) -> Turns:
    for seconds in turns:
        yield event, seconds


STORIES: tuple[Callable[[Queue], Turns], ...] = (
    wait_and_expire,
    die_and_go_back,
    die_and_are_purged,
    die_and_retire,
    move_and_go,
    lay_in,
)


if __name__ == "__main__":
    size, *chosen = sys.argv[1:]
    wanted = [word for word in chosen if word not in STORES]
    for store in [store for store in STORES if store in chosen] or STORES:
        for event, ms in longest_turns(int(size), store, *wanted).items():
            print(f"{ms:8.1f} ms  {store}: {event}", flush=True)
