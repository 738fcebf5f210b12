"""A store, or a whole mailbox, on a disk of a few pages that is really full: refused honestly, nothing lost or in
half, and served again as soon as there is room."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import NotRunning, TookTooLong
from kingdom.base.home.places import Places
from kingdom.mq.client import MANAGER_LOCK, Client, Refused
from tests.faults import trees
from tests.faults.oracle import Figure
from tests.faults.test_full_disk import fill, may_mount, state
from tests.waiting import SOON

SIZES = {"filesystem": "64k", "sqlite": "512k", "hybrid": "512k"}
"""A database needs a log that is longer than itself."""
MOUNT = 'mount -t tmpfs -o size="$1",mode=0700 tmpfs "$2" && shift 2 && exec "$@"'
BALLAST = {"filesystem": 16 << 10, "sqlite": 160 << 10, "hybrid": 160 << 10}
RESUMES_WITHIN = 5.0
QUEUE = "small"


@contextmanager
def on_small_disk(tree: Path, backend: str, below: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The manager in a mount namespace of its own, a small disk at `below`; and its home as it is seen from here."""
    home = trees.new_folder()
    for folder in (home / "config", home / "queue" / "mq", home / "queue" / "mailbox" / "requests"):
        folder.mkdir(mode=0o700, parents=True)
    (home / "config" / "mq.yaml").write_text(json.dumps({"backend": backend}))
    command = ["unshare", "-m", "sh", "-c", MOUNT, "sh", SIZES[backend], str(home / below)]
    with subprocess.Popen(
        [*command, sys.executable, "-m", "kingdom.mailbox"],
        cwd=tree,
        env=trees.environment(tree, home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        seen = Path(f"/proc/{process.pid}/root{home}")
        try:
            assert trees.until(lambda: is_locked(seen / "queue" / "mailbox" / MANAGER_LOCK), SOON), "it never served"
            # It holds its lock before it has made its folders, for which there must be room.
            assert trees.until(lambda: state(Places(seen), "mailbox") == "idle", SOON), "it never rested"
            yield process, seen
        finally:
            process.kill()


def full_store(tree: Path, backend: str) -> list[str]:
    with on_small_disk(tree, backend, "queue/mq") as (process, home):
        ballast = home / "queue" / "mq" / "ballast"
        ballast.write_bytes(bytes(BALLAST[backend]))
        with Client(home / "queue" / "mailbox", timeout=SOON) as client:
            try:
                accepted, refused = _publish_until_refused(client)
            except (NotRunning, TookTooLong) as error:
                return [str(error)]
            wrong = [] if accepted and refused else [f"{len(accepted)} accepted, {len(refused)} refused"]
            if client.health()["status"] != "degraded":
                wrong.append(f"it says that it is well: {client.health()}")
            wrong += _says_so_calmly(home, process) + _cannot_be_drained(client, accepted)
            ballast.unlink()
            if not trees.until(lambda: _publishes(client), RESUMES_WITHIN):
                wrong.append("with room again, it takes no message")
            if client.health()["status"] != "ok":
                wrong.append("with room again, it says that it is not well")
            return wrong + _lost_or_doubled(client, accepted, refused)


def _says_so_calmly(home: Path, process: subprocess.Popen[bytes]) -> list[str]:
    """It goes on, and its log is no flood."""
    log = home / "logs" / "mailbox.log"
    before = log.read_text().count("\n")
    trees.until(lambda: process.poll() is not None, 1.2)
    if process.poll() is not None:
        return [f"it ended with {process.poll()}"]
    lines = log.read_text().count("\n") - before
    return [f"{lines} lines in its log"] if lines > 10 else []


def _cannot_be_drained(client: Client, accepted: list[int]) -> list[str]:
    """Also while publishers go on asking: half of what is there is consumed, and taken from `accepted`."""
    try:
        for _ in range(len(accepted) // 2):
            _publishes(client)
            [delivery] = client.consume_batch(QUEUE, 1)
            client.ack(delivery)
            if delivery.payload["number"] >= 0:  # what was drained made room for others
                accepted.remove(delivery.payload["number"])
            client.status(QUEUE)
    except (Refused, ValueError) as error:
        return [f"it cannot be drained: {error}"]
    return []


def _publish_until_refused(client: Client) -> tuple[list[int], list[int]]:
    accepted: list[int] = []
    for number in range(1_000):
        try:
            client.publish(QUEUE, {"number": number, "pad": "x" * 2_000})
        except Refused as refusal:
            return accepted, [number] if refusal.code == "ERR_INTERNAL_ERROR" else []
        accepted.append(number)
    return accepted, []


def _publishes(client: Client) -> bool:
    with suppress(Refused):
        client.publish(QUEUE, {"number": -1})
        return True
    return False


def _lost_or_doubled(client: Client, accepted: list[int], undecided: list[int]) -> list[str]:
    found = Counter(delivery.payload["number"] for delivery in client.consume_batch(QUEUE, 2_000))
    found.pop(-1, None)
    wrong = [f"{number} was promised and is lost" for number in accepted if number not in found]
    wrong += [f"{number} lies there {count} times" for number, count in found.items() if count > 1]
    return wrong + [f"nobody asked for {number}" for number in found.keys() - {*accepted, *undecided}]


def full_mailbox(tree: Path, backend: str) -> list[str]:
    """The answer itself finds no room; it comes when there is some."""
    with on_small_disk(tree, backend, "queue") as (process, home):
        box = home / "queue" / "mailbox"
        draft, answer = box / "requests" / ".late", box / "responses" / "me" / "late.json"
        payload = {"queue": QUEUE, "message": {"number": 1}}
        draft.write_text(json.dumps({"requestId": "late", "clientId": "me", "command": "publish", "payload": payload}))
        ballast = fill(home / "queue")
        draft.rename(box / "requests" / "late.json")
        if trees.until(answer.exists, 1.0):
            return ["an answer came where there was no room for it"]
        if process.poll() is not None:
            return [f"it ended with {process.poll()}"]
        ballast.unlink()
        if not trees.until(answer.exists, RESUMES_WITHIN):
            return ["no answer, with room again"]
        done = json.loads(answer.read_text())["ok"]
        with Client(box, "me", timeout=SOON) as client:
            client.publish(QUEUE, {"number": -1})
            return _lost_or_doubled(client, [1] if done else [], [] if done else [1])


def full_hands(tree: Path, backend: str) -> list[str]:
    """The answer that hands messages out finds no room: they wait again at once, and the consumer hears that."""
    with on_small_disk(tree, backend, "queue") as (_, home):
        box, waiting = home / "queue" / "mailbox", home / "queue" / "mq" / "fs" / QUEUE / "inbox"
        request = {"requestId": "late", "clientId": "me", "command": "consume_batch", "payload": {"queue": QUEUE}}
        draft, answer = box / "requests" / ".late", box / "responses" / "me" / "late.json"
        with Client(box, "me", timeout=SOON) as client:
            published = [client.publish(QUEUE, {"pad": "x" * 2_000}).message_key for _ in range(3)]
            draft.write_text(json.dumps(request))
            ballast = fill(home / "queue")
            draft.rename(box / "requests" / "late.json")
            trees.until(answer.exists, 2.0)  # there may be room for a refusal
            wait_again = len([*waiting.iterdir()])
            ballast.unlink()
            if not trees.until(answer.exists, RESUMES_WITHIN) or json.loads(answer.read_text())["ok"]:
                return ["it does not hear that it was refused"]
            if wait_again != len(published):
                return [f"{wait_again} waited again"]
            after = [(delivery.message_key, delivery.attempt) for delivery in client.consume_batch(QUEUE, 4)]
            return [] if after == [(key, 1) for key in published] else [f"{published} were given back as {after}"]


CHECKS = {
    **{f"full store, {backend}": (full_store, backend) for backend in SIZES},
    "full mailbox, filesystem": (full_mailbox, "filesystem"),
    "full hands, filesystem": (full_hands, "filesystem"),
}


QUICK = ("full store, sqlite", "full mailbox, filesystem", "full hands, filesystem")


@pytest.mark.parametrize("what", CHECKS if trees.CAMPAIGN else QUICK)
def test_a_full_disk_passes(what: str, figure: Figure) -> None:
    if not may_mount():
        pytest.skip("only root can mount a small disk")
    check, backend = CHECKS[what]
    wrong = check(trees.program(), backend)
    figure(f"{what}: {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
