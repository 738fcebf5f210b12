"""Which soldiers are out: one row for each task, whole after a power cut, and nobody else's touched."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kingdom.base.home.places import Places
from kingdom.base.records import sessions
from kingdom.base.records.messages import SessionRow
from kingdom.base.records.sessions import Sessions
from tests.fixtures import Clock, services

FOREIGN = {"task_id": "task-9", "pid": 7, "started": "yesterday"}


@pytest.fixture
def places(home: Path) -> Places:
    return Places(home)


@pytest.fixture
def ours(home: Path) -> Sessions:
    given = services(home, "gen-pr", Clock())
    return Sessions(given.places, given.unsynced)


def row(task: str, soldier: int = 0) -> SessionRow:
    name = f"soldier-{task}-{soldier}"
    return SessionRow(id=name, soldier=name, task_id=task, general="gen-pr", pid=1, started_at="2026-02-07T10:00:00Z")


def out(places: Places) -> list[str]:
    return [str(row.soldier or row.task_id) for row in sessions.read(places)]


def test_a_task_has_one_row(ours: Sessions, places: Places) -> None:
    for soldier in (row("task-1"), row("task-2"), row("task-1", 1)):
        ours.add(soldier)
    assert out(places) == [], "nothing is written before it is asked for"
    ours.write()
    assert out(places) == ["soldier-task-2-0", "soldier-task-1-1"]
    ours.remove("task-2")
    ours.write()
    assert out(places) == ["soldier-task-1-1"]


def test_only_our_own_rows_are_struck(ours: Sessions, places: Places) -> None:
    places.sessions.write_text(json.dumps([FOREIGN]))
    ours.add(row("task-1"))
    ours.add(row("task-2"))
    ours.write()
    assert ours.keep_only(lambda task: task == "task-2", lambda _: False) == ["task-1"]
    assert out(places) == ["task-9", "soldier-task-2-0"]
    assert json.loads(places.sessions.read_text())[0] == FOREIGN, "with what we do not know"
    assert ours.keep_only(lambda _: True, lambda task: task == "task-9") == ["task-9"]
    assert out(places) == ["soldier-task-2-0"], "a foreign row goes when its task has ended"


@pytest.mark.parametrize(("torn", "left"), [("", []), ("[{", []), ('[{"task_id": "task-9"}, 5]', ["task-9"])])
def test_whole_rows_of_a_torn_file_stay(ours: Sessions, places: Places, torn: str, left: list[str]) -> None:
    places.sessions.write_text(torn)
    ours.repair()
    assert [entry["task_id"] for entry in json.loads(places.sessions.read_text())] == left


def test_what_changes_nothing_writes_nothing(ours: Sessions, places: Places) -> None:
    ours.repair()
    ours.remove("task-1")
    ours.write()
    assert not places.sessions.exists()
    ours.add(row("task-1"))
    ours.write()
    before = os.stat(places.sessions)
    ours.repair()
    assert ours.keep_only(lambda _: True, lambda _: True) == []
    assert os.stat(places.sessions).st_ino == before.st_ino
