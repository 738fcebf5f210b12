"""What the machine carries: its health as far as it was measured, the tasks that could run, the soldiers that do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kingdom.base.disk.lock import Lock
from kingdom.base.home.places import Places
from kingdom.base.records import load
from kingdom.base.times import moment
from tests.fixtures import MORNING, Clock, beats, install, put, services, task, write

NOW = moment(MORNING)


@pytest.fixture
def places(home: Path) -> Places:
    given = services(home, "king", Clock())
    install(home, "gen-pr")
    install(home, "gen-down")
    install(home, "gen-ended")
    beats(home, "gen-pr", "gen-down", "gen-gone", "gen-ended")
    given.places.wanted("gen-down").write_text("down\n")
    return given.places


def under_way(places: Places, at_most: int = 1) -> int:
    return load.read(places, NOW, 60.0, at_most).under_way


@pytest.mark.parametrize(
    ("fields", "counted"),
    [
        ({}, 1),
        ({"not_before": "2026-02-07T10:00:01Z"}, 0),
        ({"not_before": MORNING}, 1),
        ({"general": "gen-gone"}, 0),
        ({"general": "gen-down"}, 0),
        ({"general": "gen-new"}, 0),
        ({"general": "gen-ended"}, 0),
        ({"general": "gen-runs"}, 1),
        ({"general": "../gen-pr"}, 0),
    ],
)
@pytest.mark.parametrize("state", ["pending", "in_progress"])
def test_tasks_that_cannot_run_now_are_not_counted(
    places: Places, state: str, fields: dict[str, str], counted: int
) -> None:
    for general in ("gen-new", "gen-runs"):
        install(places.home, general)
    os.utime(places.heartbeat("gen-ended"), (NOW - load.RESTART_SECONDS - 1,) * 2)
    running = Lock(places.lock("gen-runs"), "gen-runs")
    running.acquire(0.0)
    put(places.home, "tasks", state, **task("task-1", **fields))
    places.folder("tasks", state).joinpath(".draft.json").write_text("{}")
    assert under_way(places) == counted
    running.release()


def test_a_general_that_ends_leaves_its_room_to_others_once_it_had_time_to_come_back(places: Places) -> None:
    put(places.home, "tasks", "pending", **task("task-1"))
    for seconds, counted in ((load.RESTART_SECONDS, 1), (load.RESTART_SECONDS + 1, 0)):
        os.utime(places.heartbeat("gen-pr"), (NOW - seconds,) * 2)
        assert under_way(places) == counted


def test_a_general_by_a_name_that_is_none_serves_nobody(places: Places) -> None:
    places.manifests.joinpath("gen-X y.yaml").write_text("name: gen-X y\n")
    put(places.home, "tasks", "pending", **task("task-1", "gen-X y"))
    assert under_way(places) == 0


def test_tasks_are_opened_only_when_there_may_be_too_many(places: Places) -> None:
    for number in range(2):
        put(places.home, "tasks", "pending", **task(f"task-{number}", "gen-gone"))
    assert [under_way(places, at_most) for at_most in (3, 2)] == [2, 0]


def test_what_is_no_task_is_not_counted(places: Places) -> None:
    places.folder("tasks", "pending").joinpath("task-1.json").write_text("{")
    assert under_way(places) == 0
    for state in ("pending", "in_progress"):
        for path in places.folder("tasks", state).iterdir():
            path.unlink()
        places.folder("tasks", state).rmdir()
    assert under_way(places) == 0, "before the first start"


@pytest.mark.parametrize(
    ("vitals", "health", "why"),
    [
        (None, "green", "no vitals yet"),
        ({"health": "red"}, "green", "no vitals yet"),
        ({"timestamp": "soon", "health": "green"}, "orange", "the vitals cannot be read"),
        ({"timestamp": "2026-02-07T09:59:00Z", "health": "red"}, "red", "by its vitals"),
        ({"timestamp": "2026-02-07T09:58:59Z", "health": "green"}, "orange", "the vitals are 61 s old"),
        ({"timestamp": MORNING, "health": "red", "system": {"cpu_percent": 97.4}}, "red", "cpu 97 %"),
    ],
)
def test_the_health_is_what_was_measured_lately(
    places: Places, vitals: dict[str, object] | None, health: str, why: str
) -> None:
    if vitals is not None:
        write(places.resources, vitals)
    found = load.read(places, NOW, 60.0, 1)
    assert (found.health, found.why) == (health, why)


def test_soldiers_that_hold_their_lock_are_out(places: Places) -> None:
    assert load.soldiers_out(places, 0) == []
    for name in ("task-1", "task-2"):
        places.control_folder("gen-pr", name).mkdir(parents=True)
    lock = Lock(places.control_folder("gen-pr", "task-2") / "lock", "soldier")
    lock.acquire()
    try:
        assert [load.soldiers_out(places, enough) for enough in (2, 3)] == [[("gen-pr", "task-2")], []]
    finally:
        lock.release()
