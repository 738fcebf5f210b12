"""`why` tells what became of a chat message: stored, refused, or waiting, and for whom."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kingdom.base.home.places import Places
from tests.cli.conftest import Held, Terminal
from tests.faults import trees
from tests.faults.hall.test_sweep_hall import BATCHES, ROOM, prepare
from tests.hall.cli.test_inspection import whole

__all__ = ["whole"]
MESSAGES = [message for batch in BATCHES for message in batch]
NOBODYS = MESSAGES[2]


def into(terminal: Terminal, home: Path) -> None:
    shutil.copytree(home, terminal.places.home, dirs_exist_ok=True)


@pytest.fixture
def stored(terminal: Terminal, whole: Path) -> Terminal:
    into(terminal, whole)
    return terminal


@pytest.fixture
def waiting(terminal: Terminal) -> Terminal:
    folder = trees.new_folder()
    prepare(folder)
    into(terminal, folder)
    trees.remove(folder)
    return terminal


def ids(places: Places) -> list[str]:
    with closing(sqlite3.connect(places.hall / "hall.db")) as db:
        return [id for (id,) in db.execute("SELECT id FROM messages ORDER BY id")]


def test_a_stored_message_is_found_by_its_own_id_and_by_its_senders(stored: Terminal) -> None:
    [first, *_] = ids(stored.places)
    text = " ".join(stored.ok("why", first).split())
    assert f"{first} (TEXT): 'message 0' of" in text
    assert f"in 'a room' ({ROOM}) was stored" in text
    assert f"its event was at 0:0 of chat.messages.v1, under its sender's ID {MESSAGES[0].client_msg_id}" in text
    told = json.loads(stored.ok("why", MESSAGES[0].client_msg_id.upper(), "--json"))
    assert (told["id"], told["lies_in"]) == (first, "the chat's database")


def test_one_that_could_not_be_stored_is_told_with_its_reason(stored: Terminal) -> None:
    for id in (NOBODYS.event_id, NOBODYS.client_msg_id):
        text = " ".join(stored.ok("why", id).split())
        assert f"{id} could not be stored: the database refuses this: FOREIGN KEY" in text
        assert "its event was at 0:2 of chat.messages.v1" in text


def test_one_that_waits_is_told_with_what_it_waits_for(waiting: Terminal) -> None:
    shutil.rmtree(waiting.places.topics / "chat.messages.v1/groups")
    text = " ".join(waiting.ok("why", MESSAGES[3].event_id).split())
    assert f"{MESSAGES[3].event_id} was accepted: 'message 3'" in text
    assert "it waits for the worker, with 3 messages before it; no worker runs:" in text
    path = waiting.places.worker_snapshot("worker")
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"state": "waiting", "why": "the disk is full"}')
    with closing(Held(waiting.places, "worker")):
        assert "which waits: the disk is full" in " ".join(waiting.ok("why", MESSAGES[3].client_msg_id).split())


def test_an_id_that_nobody_knows_is_said_so_in_one_line(stored: Terminal) -> None:
    unknown = "0b8f1c1e-6a55-4b0e-9d0a-3a8f5ce9affe"
    said = stored("why", unknown)
    assert (said.code, said.out) == (1, "")
    assert said.err.count("\n") == 1
    (stored.places.config / "hall.yaml").write_text("transport: kafka\n")
    assert "lies in Kafka, where this command does not look" in stored("why", unknown).err.replace("may lie", "lies")
    (stored.places.hall / "hall.db").write_bytes(b"no database" * 1000)
    assert "file is not a database" in stored("why", unknown).err
