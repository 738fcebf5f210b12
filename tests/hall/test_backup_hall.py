"""A copy of a hall at work, restored, goes on as if it had been stopped: nothing is missing, twice or untold."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.home.places import Places
from kingdom.base.times import stamp
from kingdom.cli.fsck import of_products
from kingdom.court.upkeep import backup
from kingdom.hall.topics.names import MESSAGES, PERSISTED
from tests.fixtures import Clock
from tests.hall.worker.hall import Hall, at_work, message
from tests.waiting import SOON, wait_until

COPIES = 4


@contextmanager
def talking(home: Path) -> Iterator[tuple[str, list[str]]]:
    """A room whose messages are published and stored without a pause. Yield it with what was ACCEPTED so far."""
    accepted: list[str] = []
    begun, ended, failed = threading.Event(), threading.Event(), []
    rooms = []

    def talk() -> None:
        try:
            with closing(Hall(home, Clock(stamp(time.time())))) as hall, at_work(hall) as worker:
                sender = hall.user()
                rooms.append(hall.room(sender))
                while not ended.is_set():
                    one = message(rooms[0], sender, f"number {len(accepted)}")
                    hall.publish(one)
                    accepted.append(one.client_msg_id)
                    if len(accepted) % 7:
                        worker.turn(None)
                    if len(accepted) == 50:
                        begun.set()
                    if not len(accepted) % 20:  # files go while they are copied; a setting keeps them a minute at least
                        hall.topics.trim(MESSAGES, ["chat-persistor"], 2.0, time.time())
        except BaseException as error:  # noqa: BLE001
            failed.append(error)
            begun.set()

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        assert begun.wait(SOON)
        yield rooms[0] if rooms else "", accepted
    finally:
        ended.set()
        thread.join()
    assert not failed, failed


def restored(archive: Path, home: Path) -> Path:
    home.mkdir(mode=0o700)
    backup.unpack(archive, home / ".restore")
    backup.put_in_place(home / ".restore", Places(home), Disk(home / "scratch"), None)
    return home


def events(home: Path, topic: str) -> list[dict[str, Any]]:
    files = sorted((home / "queue/topics" / topic).glob("*.jsonl"))
    return [json.loads(line)["value"] for file in files for line in file.read_text().splitlines()]


def what_is_wrong(home: Path, room: str, accepted: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("KINGDOM_HOME", str(home))
    wrong = [f"{found.path}: {found.what}" for found in of_products(Places(home), repair=False)]
    with closing(Hall(home, Clock(stamp(time.time() + 100)))) as hall, at_work(hall) as worker:
        copied = {row["client_msg_id"]: row["id"] for row in hall.history(room)}
        wait_until(
            lambda: worker.turn(None) and not hall.topics.lag("chat-persistor", MESSAGES), SOON, "the worker is done"
        )
        history = hall.history(room)
    counts = Counter(row["client_msg_id"] for row in history)
    wrong += [f"{id} was ACCEPTED and is {counts[id]} times in history" for id in accepted if counts[id] != 1]
    wrong += [
        f"{row['client_msg_id']} got another id"
        for row in history
        if copied.get(row["client_msg_id"], row["id"]) != row["id"]
    ]
    told = {event["messageId"] for event in events(home, PERSISTED)}
    wrong += [f"{row['content']} is stored and was never told" for row in history if row["id"] not in told]
    return wrong


def test_a_copy_of_a_hall_at_work_goes_on(
    home: Path, tmp_path: Path, figure: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    places, archives = Places(home), []
    (places.topics / "created.json").parent.mkdir(parents=True)
    (places.topics / "created.json").write_text('{"topics": []}')
    with talking(home) as (room, accepted):
        for number in range(COPIES):
            before = list(accepted)
            target = tmp_path / f"{number}.tar.gz"
            backup.make(places, target, Disk(places.scratch("cli"), durability="process"), secrets=False)
            archives.append((target, before))
    wrong = []
    for target, before in archives:
        wrong += what_is_wrong(restored(target, tmp_path / target.name[0]), room, before, monkeypatch)
        assert (tmp_path / target.name[0] / "queue/topics/created.json").is_file(), (
            "what a broker's topics are known by"
        )
    figure(f"backups of a hall at work: {COPIES}, {len(accepted)} messages, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong[:20])
