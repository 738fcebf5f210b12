"""Clients of the mailbox while its manager is killed; each notes its requests, answers and messages.

python -m tests.faults.mailbox.actors produce|consume|mortal|hog ROOT NOTES NAME
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from kingdom.base.errors import KingdomError
from kingdom.mq.client import Client, Delivery, Refused
from tests.faults import trees

QUEUE = "history"
PATIENCE = 300.0 if trees.CAMPAIGN else 60.0
VISIBILITY = 1.5
EVERY_NTH_FAILS = 10
TOO_LATE = "ERR_TIMEOUT"
"""Somebody has set the clock between a request and its reading."""
MANY = 200


class Notes:
    """One line for each thing, with the machine's monotonic time: all actors share that clock."""

    def __init__(self, file: TextIO, who: str) -> None:
        self._file = file
        self._who = who

    def note(self, what: str, **about: Any) -> None:
        line = {"at": time.monotonic_ns(), "who": self._who, "what": what, **about}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def produce(client: Client, notes: Notes, stop: Path, name: str) -> None:
    number = 0
    while not stop.exists():
        number += 1
        label = f"{name}-{number}"
        notes.note("publishes", label=label)
        try:
            publish(client, notes, label, number % 7 == 0)
        except Refused as refusal:
            if refusal.code != TOO_LATE:
                raise
            notes.note("too late", label=label)


def publish(client: Client, notes: Notes, label: str, two: bool) -> None:
    if two:
        outcomes = client.publish_batch(QUEUE, [{"label": label}, {"label": f"{label}b"}])
        ids = [None if isinstance(outcome, Refused) else outcome.message_id for outcome in outcomes]
        notes.note("published", label=label, id=ids[0])
        notes.note("published", label=f"{label}b", id=ids[1])
    else:
        published = client.publish(QUEUE, {"label": label})
        notes.note("published", label=label, id=published.message_id)


def mortal(client: Client, notes: Notes, stop: Path, name: str) -> None:
    """Publish many messages that expire together; none of them is promised."""
    number = 0
    while not stop.exists():
        labels = [f"{name}-{number + one}" for one in range(MANY)]
        number += MANY
        messages = [{"message": {"label": label}, "ttlSec": 0.5, "priority": -5} for label in labels]
        with suppress(Refused):
            client.call("publish_batch", {"queue": QUEUE, "messages": messages})
        notes.note("mortal")
        trees.until(stop.exists, 0.3)


def hog(client: Client, notes: Notes, stop: Path, name: str) -> None:
    """Lease many and never answer: their leases end together."""
    while not stop.exists():
        with suppress(Refused):
            for delivery in client.consume_batch(QUEUE, 20, visibility=0.5):
                notes.note("got", label=delivery.payload["label"], id=delivery.message_id)
                notes.note("held")
        trees.until(stop.exists, 1.0)


def consume(client: Client, notes: Notes, stop: Path, name: str) -> None:
    """Consume until told to stop and nothing is left."""
    while True:
        try:
            delivery = client.take(QUEUE, consumer_id=name, visibility=VISIBILITY, wait=0.5)
        except Refused as refusal:
            if refusal.code not in ("ERR_QUEUE_NOT_FOUND", TOO_LATE):
                raise
            continue
        if delivery is None:
            with suppress(Refused):
                if stop.exists() and is_empty(client):
                    return
            continue
        work(client, notes, delivery)


def work(client: Client, notes: Notes, delivery: Delivery) -> None:
    label = delivery.payload["label"]
    notes.note("got", label=label, id=delivery.message_id, attempt=delivery.attempt)
    try:
        if int(label.rstrip("b").rpartition("-")[2]) % EVERY_NTH_FAILS == 0:
            client.nack(delivery, "told to fail")
            notes.note("buried", label=label, id=delivery.message_id)
        else:
            client.ack(delivery)
            notes.note("acked", label=label, id=delivery.message_id)
    except Refused as refusal:
        notes.note("refused", label=label, id=delivery.message_id, code=refusal.code)


def is_empty(client: Client) -> bool:
    metrics = client.status(QUEUE)["metrics"]
    return not (metrics["ready"] or metrics["inflight"] or metrics["delayed"])


KINDS = {"produce": produce, "consume": consume, "mortal": mortal, "hog": hog}


def main() -> int:
    kind, root, folder, name = sys.argv[1:]
    stop = Path(folder) / "stop"
    with (Path(folder) / f"{name}.notes").open("w") as file:
        notes = Notes(file, name)
        try:
            with Client(root, name, timeout=PATIENCE) as client:
                KINDS[kind](client, notes, stop, name)
        except KingdomError as error:
            notes.note("gave up", why=str(error))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
