"""fsck finds each damage made by hand in topics and in the hall's database."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kingdom.base.home.places import Places
from kingdom.hall.cli.inspection import database, topics
from kingdom.hall.topics.names import MESSAGES
from tests.faults import trees
from tests.faults.hall.test_sweep_hall import WORKER, prepare


@pytest.fixture(scope="module")
def whole() -> Path:
    """A home with a hall whose worker has stored seven events."""
    home = trees.new_folder()
    prepare(home)
    done = trees.run(trees.program(), home, WORKER.spelt(home), timeout=60)
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture
def places(whole: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    shutil.copytree(whole, home, dirs_exist_ok=True)
    monkeypatch.setenv("KINGDOM_HOME", str(home))
    return Places(home)


def batches(places: Places) -> list[Path]:
    return sorted((places.topics / MESSAGES).glob("*.jsonl"))


def gap(places: Places) -> None:
    batches(places)[1].unlink()


def surplus(places: Places) -> None:
    with batches(places)[1].open("ab") as file:
        file.write(b"no event\n")


def group(**position: object) -> Callable[[Places], None]:
    def write(places: Places) -> None:
        (places.topics / MESSAGES / "groups" / "chat-persistor.json").write_text(json.dumps(position))

    return write


def last_message(places: Places) -> None:
    with closing(sqlite3.connect(places.hall / "hall.db")) as db, db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("UPDATE rooms SET last_message_id = 77")


def cut_database(places: Places) -> None:
    (places.hall / "hall.db").write_bytes(b"no database" * 1000)


def oldest_files(places: Places) -> None:
    group(next=1)(places)
    batches(places)[0].unlink()


def newer_message(places: Places) -> None:
    with closing(sqlite3.connect(places.hall / "hall.db")) as db, db:
        db.execute("UPDATE rooms SET last_message_id = (SELECT min(id) FROM messages)")


DAMAGES: dict[str, tuple[Callable[[Places], None], str]] = {
    "a file in the middle of a topic is gone": (gap, "topics: events 2 to 4 are missing"),
    "a file in the middle of a topic has a line too many": (surplus, "topics: 1 line too many in the file of event "),
    "the note of a group is ahead": (group(next=90), "topics: it has passed event 90, and the topic ends at 7"),
    "the note of a group is empty": (group(), "topics: it names no position"),
    "the note of a group is text": (group(next="7"), "topics: it names no position"),
    "the last message of a room is gone": (last_message, "message 77, which is not there"),
    "a group has not read what is gone": (oldest_files, "topics: events 1 to 1 are gone, and it has not read them"),
    "a room does not know its newest message": (newer_message, "hall: room "),
    "the hall's database is none": (cut_database, "hall: "),
}


def found(places: Places) -> list[str]:
    return [f"{finding.check}: {finding.what}" for find in (topics, database) for finding in find(places, False)]


def test_what_is_whole_raises_no_alarm(places: Places) -> None:
    (places.topics / "created.json").write_text("{}")
    assert found(places) == []


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_found(name: str, places: Places) -> None:
    damage, says = DAMAGES[name]
    damage(places)
    assert [line for line in found(places) if says in line], found(places)
