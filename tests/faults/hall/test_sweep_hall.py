"""The topic in files and the worker, killed or cut off from their disk at every file call, and under power cuts.

What was acknowledged is there, each message is stored and told under one id, nothing is passed without its effect."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.home.places import Places
from kingdom.hall.database.base import Transaction
from kingdom.hall.database.moderation import REMOVED
from kingdom.hall.database.opening import open_database
from kingdom.hall.database.records import HallCommand, MessageCreated
from kingdom.hall.topics import open_topics
from kingdom.hall.topics.base import PublishOutcome, TopicsKit
from kingdom.hall.topics.names import COMMANDS, DEAD, MESSAGES, PERSISTED
from tests.faults import homes, oracle, trees
from tests.faults.hall import acts
from tests.faults.sweep import FAULTS, QUICK_POINTS, QUICK_STATES, Step, none_bad, power_cuts, sweep
from tests.waiting import SOON

ACTS = str(Path(acts.__file__))
USER, ROOM, NOBODY = (f"{number}b8f1c1e-6a55-4b0e-9d0a-3a8f5ce9a00{number}" for number in (1, 2, 3))
LONG_AGO = "2026-02-07T10:00:00.000Z"


def _message(number: int, sender: str = USER) -> MessageCreated:
    ids = [f"{number:08x}-6a55-4b0e-9d0a-{kind:012x}" for kind in (1, 2)]
    return MessageCreated(ids[0], ROOM, sender, ids[1], "TEXT", f"message {number}", LONG_AGO)


GOOD = (0, 1, 3, 4, 5)
BATCHES = ([_message(0), _message(1)], [_message(2, NOBODY), _message(3), _message(1)], [_message(4), _message(5)])
"""Among them one of an unknown sender, and one that its client has sent twice."""


def prepare(home: Path) -> None:
    places = homes.make(home)
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, places)
    database.migrate()

    def fill(db: Transaction) -> None:
        db.one("add_user", id=USER, email="a@example.org", password_hash="x", created_at=LONG_AGO)
        db.do("add_room", id=ROOM, name="a room", created_at=LONG_AGO)

    database.run(fill)
    database.close()
    (places.home / "state/hall/hall.db").chmod(0o600)  # as a role makes it
    for batch in BATCHES:
        _publish(places, [(MESSAGES, event.key, event.to_json()) for event in batch])


def _publish(places: Places, events: Sequence[tuple[str, str, bytes]]) -> None:
    topics = open_topics(
        "files", TopicsKit(places.topics, places.topic_scratch("gateway"), "process", lambda: None, {})
    )
    producer = topics.producer(patient=True)
    outcomes: list[PublishOutcome] = []
    for event in events:
        producer.append(*event, lambda outcome, _: outcomes.append(outcome))
    producer.flush(SOON)
    topics.close()
    assert outcomes == [PublishOutcome.STORED] * len(events)


def check(home: Path) -> list[str]:
    return [*oracle.tidy(home), *half_visible(home), *_stored(home), *_told(home), *_dead(home), *_passed(home)]


def half_visible(home: Path) -> list[str]:
    wrong = []
    for path in Places(home).topics.rglob("*.jsonl"):
        for line in acts.whole_lines(path) or [b""]:
            try:
                json.loads(line)
            except ValueError as error:
                wrong.append(f"half visible: {path}: {error}")
    return wrong


def at_fault(home: Path) -> list[str]:
    """Nothing is passed that was not stored and told."""
    wrong = [*oracle.half_visible(home), *half_visible(home)]
    note = Places(home).topics / MESSAGES / "groups" / "chat-persistor.json"
    if not wrong and note.exists():
        passed = json.loads(note.read_text())["next"]
        told = {event["content"] for event in _events(home, PERSISTED)} | {"message 2"}
        sent = [event.content for batch in BATCHES for event in batch]
        wrong += [f"passed, but not told: {content}" for content in sent[:passed] if content not in told]
    return wrong


def _rows(home: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(home / "state" / "hall" / "hall.db")) as db:
        return db.execute("SELECT id, content FROM messages ORDER BY id").fetchall()


def _events(home: Path, topic: str) -> list[dict[str, str]]:
    files = sorted((Places(home).topics / topic).glob("*.jsonl"))
    return [json.loads(line)["value"] for path in files for line in acts.whole_lines(path)]


def _stored(home: Path) -> list[str]:
    contents = [content for _, content in _rows(home)]
    expected = [f"message {number}" for number in GOOD]
    return [] if contents == expected else [f"stored are {contents}"]


def _told(home: Path) -> list[str]:
    told = list(dict.fromkeys((event["messageId"], event["content"]) for event in _events(home, PERSISTED)))
    return [] if told == _rows(home) else [f"told is {told}, stored {_rows(home)}"]


def _dead(home: Path) -> list[str]:
    positions = {letter["position"] for letter in _events(home, DEAD)}
    return [] if positions == {"0:2"} else [f"dead letters are of {positions}"]


def _passed(home: Path) -> list[str]:
    note = Places(home).topics / MESSAGES / "groups" / "chat-persistor.json"
    passed = json.loads(note.read_text())["next"] if note.exists() else 0
    left = [f"litter: {path}" for path in Places(home).state.glob("worker/topics/**/*") if path.is_file()]
    return left if passed == 7 else [f"the worker has passed {passed}", *left]


WORKER = Step("worker", ("-m", "kingdom.worker", "--once"), prepare, check, at_fault=at_fault, steady=False)


def prepare_removal(home: Path) -> None:
    """Have a worker store messages, remove one of them, and let its client send it again."""
    prepare(home)
    run_once(home)
    [id] = [id for id, content in _rows(home) if content == "message 3"]
    facts = {"roomId": ROOM, "messageId": id, "by": "a@example.org"}
    removal = HallCommand("9b8f1c1e-6a55-4b0e-9d0a-3a8f5ce9a009", "removeMessage", LONG_AGO, facts)
    again = _message(3)
    _publish(Places(home), [(COMMANDS, ROOM, removal.to_json()), (MESSAGES, again.key, again.to_json())])


def run_once(home: Path) -> None:
    argv = [sys.executable, *WORKER.argv]
    subprocess.run(argv, env={**os.environ, "KINGDOM_HOME": str(home)}, cwd=home, check=True, timeout=SOON)


def check_removal(home: Path) -> list[str]:
    """The text is nowhere, everything else is, and each number of a topic has its event."""
    wrong = [f"still in {path}" for path in home.rglob("*") if path.is_file() and b"message 3" in path.read_bytes()]
    contents = [content for _, content in _rows(home)]
    kept = [f"message {number}" for number in GOOD if number != 3]
    wrong += [] if contents == [*kept[:2], "", *kept[2:], REMOVED] else [f"stored are {contents}"]
    told = {event["messageId"]: event["content"] for event in _events(home, PERSISTED)}
    wrong += [] if told == dict(_rows(home)) else [f"told is {told}"]
    return [*oracle.tidy(home), *half_visible(home), *wrong]


REMOVAL = Step("removal", WORKER.argv, prepare_removal, check_removal, at_fault=half_visible, steady=False)


def reading(durability: str = "process") -> Step:
    argv = (ACTS, "{home}", durability, "read")
    return Step("topic read", argv, acts.prepare_reading, acts.check_reading, at_fault=acts.check_while_reading)


def with_ledger(home: Path) -> None:
    Disk(home / "ledger-scratch").sweep_scratch()


def publishing(durability: str = "process") -> Step:
    argv = (ACTS, "{home}", durability, "publish")
    return Step("topic publish", argv, with_ledger, acts.check_publishing, at_fault=acts.check_while_publishing)


def overtaking() -> Step:
    argv = (ACTS, "{home}", "power", "overtake")
    return Step("topic overtake", argv, with_ledger, acts.check_reading, at_fault=acts.check_while_overtaking)


@trees.in_campaigns
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("step", [publishing(), reading()], ids=lambda step: step.name)
def test_no_fault_at_any_call_loses_an_event_or_passes_one(step: Step, fault: str, figure: oracle.Figure) -> None:
    report = none_bad(sweep(step, fault, budget=QUICK_POINTS), figure)
    assert not report.missed, report.details


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_call_of_the_worker_loses_or_doubles_a_message(fault: str, figure: oracle.Figure) -> None:
    none_bad(sweep(WORKER, fault, budget=QUICK_POINTS), figure)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_call_of_the_worker_leaves_a_removed_text(fault: str, figure: oracle.Figure) -> None:
    none_bad(sweep(REMOVAL, fault, budget=QUICK_POINTS), figure)


STEPS = [publishing("power"), reading("power"), overtaking(), WORKER, REMOVAL]


@pytest.mark.parametrize("step", STEPS if trees.CAMPAIGN else [WORKER], ids=lambda step: step.name)
def test_no_power_cut_loses_what_was_acknowledged(step: Step, figure: oracle.Figure) -> None:
    none_bad(power_cuts(step, budget=QUICK_STATES), figure)
