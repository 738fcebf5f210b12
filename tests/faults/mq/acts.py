"""Run a queue once: a few operations, each noted once it is promised, and repeated if it was not.

    python tests/faults/mq/acts.py HOME BACKEND DURABILITY OPERATION...

`prepare` brings a home into the state that the operations begin with, `check` says what is wrong in the end.
The ledger HOME/promised plays the client: a line is there once commit() has returned, and is synced.
A client whose promise is missing asks again, with the same request id or the same lease.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kingdom.base.disk.atomic import Durability
from kingdom.base.tables import load
from kingdom.mq.budget import Budget, Steps, step
from kingdom.mq.engine import Engine
from kingdom.mq.errors import (
    DeadLetterNotFound,
    LeaseExpired,
    LeaseMismatch,
    MessageNotFound,
    NoRoom,
    QueueNotFound,
    StoreError,
)
from kingdom.mq.message_format import Draft
from kingdom.mq.names import Ids
from kingdom.mq.policy import Policy
from kingdom.mq.queues import EngineSettings
from kingdom.mq.stores import STORES, sqlite
from kingdom.mq.stores.base import StoreConfig

MORNING_MS = 1_770_458_400_000
LAST = 900
TEXT = '{"temp": 36.5}'
LARGE = json.dumps({"pad": "x" * 20_000})
SMALL = {"reserveMiB": 0.01}
"""So that there is little to compare in the many states of a disk."""
POLICY = {"retry": {"limit": 5, "initialDelaySec": 1}}
GONE = (MessageNotFound, LeaseExpired, LeaseMismatch)
Counts = tuple[int, int, int, int]

sqlite.QUIET_S = 60.0
# Under strace on a busy machine every pause is a long one, and nothing would ever lie in the log alone.


class Client:
    """An engine and its client's knowledge."""

    def __init__(self, home: Path, backend: str, durability: Durability, clock: Callable[[], int], seed: int) -> None:
        self.home = home
        store = load(STORES[backend])(StoreConfig.at(home / "mq", backend=backend, durability=durability, sqlite=SMALL))
        settings = EngineSettings(Policy.from_json(POLICY), {"kept": Policy.from_json({**POLICY, "archive": True})})
        self.mq = Engine(store, settings=settings, clock=clock, ids=Ids(seed))
        self.known = _promised(home)

    def promise(self, operation: str, *facts: str) -> None:
        self.mq.commit()
        self.known[operation] = facts
        fd = os.open(self.home / "promised", os.O_WRONLY | os.O_APPEND)
        os.write(fd, f"{json.dumps([operation, *facts])}\n".encode())
        os.fsync(fd)
        os.close(fd)

    def lease(self, operation: str) -> tuple[str, str]:
        """Return the lease that was prepared for this operation."""
        key, lease = self.known[f"leased {operation}"]
        return key, lease


@dataclass(frozen=True)
class Operation:
    """Works on the queue of its own name. `ends`: what (ready, inflight, delayed, dead) may count in the end."""

    act: Callable[[Client], Sequence[str]]
    ends: Sequence[Counts]
    ready: int = 0
    leased: bool = False
    dead: int = 0
    queue: str = ""


def publish(client: Client) -> Sequence[str]:
    return [client.mq.publish("publish", Draft(TEXT, dedup_key="k"), "request-1").message_key]


def publish_large(client: Client) -> Sequence[str]:
    return [client.mq.publish("publish_large", Draft(LARGE), "request-2").message_key]


def publish_batch(client: Client) -> Sequence[str]:
    for outcome in client.mq.publish_batch("publish_batch", [Draft(TEXT)] * 3, "request-3"):
        if isinstance(outcome, NoRoom):
            raise outcome
    return []


def lease(client: Client) -> Sequence[str]:
    leased = client.mq.lease("lease", "c", visibility_ms=1_000_000)
    return [leased[0].message_key, leased[0].lease_id] if leased else []


def ack(client: Client) -> Sequence[str]:
    with suppress(*GONE):
        client.mq.ack(*client.lease("ack"))
    return []


def take(client: Client, queue: str) -> str:
    """Lease the message of a queue and commit, so that a power cut may fall between this and what ends the lease."""
    client.mq.lease(queue, "c", visibility_ms=1_000_000)
    client.mq.commit()
    return client.known[f"waits {queue}"][0]


def take_and_ack(client: Client) -> Sequence[str]:
    key = take(client, "take_and_ack")
    with suppress(*GONE):
        client.mq.ack(key, consumer="c")
    return []


def take_and_nack(client: Client) -> Sequence[str]:
    key = take(client, "take_and_nack")
    with suppress(*GONE):
        client.mq.nack(key, consumer="c", reason="no", requeue=True)
    return []


def take_and_bury(client: Client) -> Sequence[str]:
    key = take(client, "take_and_bury")
    with suppress(*GONE):
        client.mq.nack(key, consumer="c", reason="never", requeue=False)
    return []


def take_and_extend(client: Client) -> Sequence[str]:
    client.mq.extend(take(client, "take_and_extend"), "", 1_000_000, "c")
    return []


def archive(client: Client) -> Sequence[str]:
    with suppress(*GONE):
        client.mq.ack(*client.lease("archive"))
    return []


def nack(client: Client) -> Sequence[str]:
    with suppress(*GONE):
        client.mq.nack(*client.lease("nack"), reason="no", requeue=True)
    return []


def bury(client: Client) -> Sequence[str]:
    with suppress(*GONE):
        client.mq.nack(*client.lease("bury"), reason="never", requeue=False)
    return []


def extend(client: Client) -> Sequence[str]:
    with suppress(*GONE):
        client.mq.extend(*client.lease("extend"), 1_000_000)
    return []


def reprocess(client: Client) -> Sequence[str]:
    with suppress(DeadLetterNotFound):
        client.mq.dead_letters.reprocess(client.known["dead reprocess"][0])
    return []


def quarantine(client: Client) -> Sequence[str]:
    client.mq.dead_letters.quarantine(client.known["dead quarantine"][0])
    return []


def purge(client: Client) -> Sequence[str]:
    client.mq.purge("purge")
    return []


def pause(client: Client) -> Sequence[str]:
    client.mq.queues.pause("pause")
    return []


def move(client: Client) -> Sequence[str]:
    _all(client.mq.moving.move("move", "moved", 0, Budget(2)), client)
    return []


def move_dead(client: Client) -> Sequence[str]:
    with suppress(QueueNotFound):
        _all(client.mq.moving.move("move_dead-dlq", "revived", 0, Budget(2)), client)
    return []


def _all(work: Steps[object], client: Client) -> None:
    while step(work) is None:
        client.mq.commit()


def delete(client: Client) -> Sequence[str]:
    with suppress(MessageNotFound):
        client.mq.removal.delete(client.mq.search(client.known["waits delete"][0]), Budget())
    return []


def delete_queue(client: Client) -> Sequence[str]:
    with suppress(QueueNotFound):
        _all(client.mq.removal.delete_queue("delete_queue", Budget(1)), client)
    return []


def sweep(client: Client) -> Sequence[str]:
    client.mq.sweep(MORNING_MS + 40_000)
    return []


OPERATIONS: Mapping[str, Operation] = {
    "publish": Operation(publish, [(1, 0, 0, 0)]),
    "publish_large": Operation(publish_large, [(1, 0, 0, 0)]),
    "publish_batch": Operation(publish_batch, [(3, 0, 0, 0)]),
    "lease": Operation(lease, [(0, 1, 0, 0)], ready=1),
    "ack": Operation(ack, [(0, 0, 0, 0)], leased=True),
    "take_and_ack": Operation(take_and_ack, [(0, 0, 0, 0)], ready=1),
    "take_and_nack": Operation(take_and_nack, [(0, 0, 1, 0)], ready=1),
    "take_and_bury": Operation(take_and_bury, [(0, 0, 0, 1)], ready=1),
    "take_and_extend": Operation(take_and_extend, [(0, 1, 0, 0)], ready=1),
    "archive": Operation(archive, [(0, 0, 0, 0)], leased=True, queue="kept"),
    "nack": Operation(nack, [(0, 0, 1, 0)], leased=True),
    "bury": Operation(bury, [(0, 0, 0, 1)], leased=True),
    "extend": Operation(extend, [(0, 1, 0, 0)], leased=True),
    "reprocess": Operation(reprocess, [(1, 0, 0, 0)], dead=1),
    "quarantine": Operation(quarantine, [(0, 0, 0, 1)], dead=1),
    "purge": Operation(purge, [(0, 0, 0, 0)], ready=3),
    "pause": Operation(pause, [(1, 0, 0, 0)], ready=1),
    "move": Operation(move, [(0, 0, 0, 0)], ready=3),
    "move_dead": Operation(move_dead, [(0, 0, 0, 0)], dead=1),
    "delete": Operation(delete, [(1, 0, 0, 0)], ready=2),
    "delete_queue": Operation(delete_queue, [(0, 0, 0, 0)], ready=2, dead=1),
    "sweep": Operation(sweep, [(0, 0, 1, 0), (0, 0, 0, 0)], leased=True),
}


WAITS_AGAIN = (1, 0, 0, 0)
ELSEWHERE = {"move": "moved", "move_dead": "revived"}
"""Where operations move their messages."""


def queue_of(operation: str) -> str:
    return OPERATIONS[operation].queue or operation


def prepare(home: Path, backend: str, durability: Durability, operations: Sequence[str]) -> None:
    (home / "promised").touch()
    (home / "lives").touch()
    with _open(home, backend, durability, 0) as client:
        for name in operations:
            operation, queue = OPERATIONS[name], queue_of(name)
            client.mq.queues.declare(queue)
            keys = [
                client.mq.publish(queue, Draft(TEXT)).message_key
                for _ in range(operation.ready + operation.leased + operation.dead)
            ]
            if operation.ready:
                client.promise(f"waits {name}", keys[-1])
            if operation.leased:
                [leased] = client.mq.lease(queue, "c", visibility_ms=30_000 if name == "sweep" else 500_000)
                client.promise(f"leased {name}", leased.message_key, leased.lease_id)
            if operation.dead:
                [leased] = client.mq.lease(queue, "c")
                client.mq.nack(leased.message_key, leased.lease_id, reason="broken", requeue=False)
                client.promise(f"dead {name}", leased.message_key)


def act(home: Path, backend: str, durability: Durability, operations: Sequence[str]) -> int:
    """Handle these requests as a manager does; after a disk error the client retries."""
    failed = 0
    try:
        _count_life(home)
        with _open(home, backend, durability, os.stat(home / "lives").st_size) as client:
            _count_life(home)
            for name in operations:
                failed += not _act_once(client, name)
    except (StoreError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return min(failed, 1)


def _count_life(home: Path) -> None:
    with (home / "lives").open("ab", buffering=0) as lives:
        lives.write(b"!")


def _act_once(client: Client, name: str) -> bool:
    if name in client.known:
        return True
    for _ in range(2):
        try:
            facts = OPERATIONS[name].act(client)
        except (StoreError, NoRoom) as error:
            print(error, file=sys.stderr)
            with suppress(StoreError):
                client.mq.commit()
        else:
            try:
                client.promise(name, *facts)
            except (StoreError, OSError) as error:
                print(error, file=sys.stderr)
            else:
                return True
    return False


def check(home: Path, backend: str, durability: Durability, operations: Sequence[str]) -> list[str]:
    wrong: list[str] = []
    promised = _promised(home)
    with _open(home, backend, durability, LAST) as client:
        for name in operations:
            status = client.mq.status(queue_of(name))
            counts = (status.ready, status.inflight, status.delayed, status.dlq)
            ends = [*OPERATIONS[name].ends, *([WAITS_AGAIN] if _may_be_undone(name, durability) else [])]
            if name in promised and counts not in ends:
                wrong.append(f"{name} was promised, and (ready, inflight, delayed, dead) are {counts}")
            if counts != WAITS_AGAIN or not _may_be_undone(name, durability):
                wrong += [f"{name}: {detail}" for detail in _details(client, name, promised)]
        wrong += [f"check finds: {finding}" for finding in client.mq.check()]
    wrong += [f"litter: {path}" for path in sorted((home / "mq").glob("*/.scratch/*"))]
    return wrong


def _may_be_undone(name: str, durability: Durability) -> bool:
    """Return whether a power cut may undo what was promised: a take is only as durable as the process."""
    return name == "lease" and durability == "power"


def _details(client: Client, name: str, promised: Mapping[str, Sequence[str]]) -> Iterator[str]:
    queue = queue_of(name)
    if name in ELSEWHERE:
        operation, there = OPERATIONS[name], client.mq.status(ELSEWHERE[name])
        here = client.mq.status(queue)
        there_are = here.ready + here.dlq + there.ready
        if there_are != operation.ready + operation.dead:
            yield f"{there_are} messages are in both queues"
    if name == "delete_queue" and name in promised and name in client.mq.queues.names():
        yield "it is there"
    if queue not in client.mq.queues.names():
        return
    for message in client.mq.peek(queue):
        if message.payload not in (TEXT, LARGE):
            yield f"a payload is {message.payload[:60]!r}"
    for letter in client.mq.dead_letters.listed(queue):
        if json.loads(letter.record)["originalMessage"]["payload"] != json.loads(TEXT):
            yield f"a dead letter is {letter.record[:80]!r}"
    if name == "lease" and promised.get("lease"):
        try:
            client.mq.ack(*promised["lease"])
        except GONE as refused:
            yield f"the promised lease is refused: {refused}"
        client.mq.store.abandon()
    if name == "quarantine" and name in promised and not client.mq.dead_letters.listed(queue)[0].quarantined:
        yield "it is not quarantined"
    if name == "pause" and name in promised and not client.mq.status(queue).paused:
        yield "it is not paused"
    if name == "publish" and name in promised:
        again = client.mq.publish(queue, Draft(TEXT, dedup_key="k"), "")
        if [again.message_key] != list(promised["publish"]):
            yield "the deduplication key is forgotten"


@contextmanager
def _open(home: Path, backend: str, durability: Durability, seed: int) -> Iterator[Client]:
    client = Client(home, backend, durability, lambda: MORNING_MS + seed, seed)
    try:
        yield client
    finally:
        with suppress(StoreError):
            client.mq.close()


def _promised(home: Path) -> dict[str, Sequence[str]]:
    promised: dict[str, Sequence[str]] = {}
    for line in (home / "promised").read_text().splitlines():
        with suppress(json.JSONDecodeError):  # cut off with the power: it was not promised yet
            operation, *facts = json.loads(line)
            promised[operation] = facts
    return promised


if __name__ == "__main__":
    sys.exit(act(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))  # type: ignore[arg-type]
