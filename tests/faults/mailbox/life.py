"""Run a mailbox once, with a client that prints its requests and answers.

python tests/faults/mailbox/life.py HOME
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kingdom.mq.client import Client
from tests.waiting import SOON

QUEUE = "power"
MARK = "client: "
"""Others of this life have a standard output too."""


def say(what: str, label: str, message_id: str) -> None:
    os.write(1, f"\n{MARK}{json.dumps([what, label, message_id])}\n".encode())


def publish(client: Client, *labels: str) -> None:
    if len(labels) == 1:
        say("published", labels[0], client.publish(QUEUE, {"label": labels[0]}).message_id)
        return
    outcomes = client.publish_batch(QUEUE, [{"label": label} for label in labels])
    for label, outcome in zip(labels, outcomes, strict=True):
        assert not isinstance(outcome, Exception)
        say("published", label, outcome.message_id)


def end(client: Client, bury: bool) -> None:
    delivery = client.take(QUEUE)
    assert delivery is not None
    label = delivery.payload["label"]
    say("ends", label, delivery.message_id)
    if bury:
        client.nack(delivery, "told to fail")
    else:
        client.ack(delivery)
    say("buried" if bury else "acked", label, delivery.message_id)


def main() -> None:
    root = Path(sys.argv[1]) / "queue" / "mailbox"
    with subprocess.Popen([sys.executable, "-m", "kingdom.mailbox"]) as manager:
        with Client(root, "me", timeout=SOON) as client:
            publish(client, "a")
            publish(client, "b", "c", "d")
            end(client, bury=False)
            end(client, bury=True)
            publish(client, "e")  # over what was acknowledged
            end(client, bury=False)
            publish(client, "f")
        manager.terminate()


if __name__ == "__main__":
    main()
