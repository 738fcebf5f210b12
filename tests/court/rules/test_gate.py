"""Whether work may start: the machine's health, by what waits, and how many soldiers are out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.lock import Lock
from kingdom.base.home.places import Places
from kingdom.base.records import load
from kingdom.court.rules import gate
from tests.fixtures import Clock, beats, founded, install, put, task, write

STALE = 120.0
NOW = Clock("2026-02-07T10:02:00Z")()


def standing(places: Places, now: float, at_most: int) -> gate.Gate:
    return gate.Gate(load.read(places, now, STALE, at_most), at_most)


def no_soldier_because(places: Places, general: str, is_answer: bool, own_most: int | None, at_most: int) -> str | None:
    return gate.no_soldier_because(load.soldiers_out(places, 1), general, is_answer, own_most, at_most)


def look(home: Path, vitals: dict[str, Any] | bytes | None, under_way: int = 0, at_most: int = 3) -> gate.Gate:
    places = founded(home)
    install(home, "gen-pr")
    beats(home, "gen-pr")
    if isinstance(vitals, bytes):
        places.resources.write_bytes(vitals)
    elif vitals is not None:
        write(places.resources, vitals)
    for number in range(under_way):
        put(home, "tasks", "pending" if number % 2 else "in_progress", **task(f"task-{number}"))
    return standing(places, NOW, at_most)


ALL, NONE = {"high", "normal", "low"}, set[str]()
STARTS = {
    # health: of priority, when a program made it; when a person said it; when its general needs no model
    "green": (ALL, ALL, ALL),
    "yellow": ({"high"}, ALL, ALL),
    "orange": (NONE, NONE, ALL),
    "red": (NONE, NONE, ALL),
}


@pytest.mark.parametrize("health", STARTS)
def test_each_health_admits_its_work(home: Path, health: str) -> None:
    seen = look(home, {"timestamp": "2026-02-07T10:01:50Z", "health": health})
    assert seen.load.health == health
    kinds = (gate.Work("x"), gate.Work("x", is_said=True), gate.Work("x", needs_model=False))
    for kind, starts in zip(kinds, STARTS[health], strict=True):
        for priority in ALL:
            work = replace(kind, priority=priority)
            assert seen.admits(work) is (priority in starts), work
            assert (seen.holds_because(work) is None) is (priority in starts), work


@pytest.mark.parametrize("work", [gate.Work("high", is_said=True), gate.Work("high", needs_model=False)])
def test_the_number_of_soldiers_holds_for_everybody(home: Path, work: gate.Work) -> None:
    assert look(home, None, 3).holds_because(work) is not None


VITALS: list[tuple[dict[str, Any] | bytes | None, str]] = [
    (None, "green"),
    ({"health": "red"}, "green"),
    ({"timestamp": "2026-02-07T10:00:00Z", "health": "green"}, "green"),
    ({"timestamp": "2026-02-07T10:00:00Z"}, "green"),
    ({"timestamp": "2026-02-07T09:59:59Z", "health": "green"}, "orange"),
    ({"timestamp": "2026-02-07T11:00:00Z", "health": "green"}, "green"),
    ({"timestamp": "2026-02-07T10:01:50Z", "health": "mauve"}, "orange"),
    ({"timestamp": "2026-02-07T10:01:50Z", "health": ["red"]}, "orange"),
    ({"timestamp": "soon", "health": "green"}, "orange"),
    ({"timestamp": None, "health": "green"}, "orange"),
    (b"{half", "orange"),
    (b"", "orange"),
    (b"[]", "orange"),
]


@pytest.mark.parametrize(("vitals", "health"), VITALS)
def test_no_vitals_are_green_old_or_damaged_ones_are_orange(home: Path, vitals: Any, health: str) -> None:
    assert look(home, vitals).load.health == health


@pytest.mark.parametrize(("under_way", "at_most", "room"), [(0, 3, 3), (2, 3, 1), (3, 3, 0), (7, 3, 0)])
def test_the_room_is_what_is_not_under_way(home: Path, under_way: int, at_most: int, room: int) -> None:
    seen = look(home, None, under_way, at_most)
    assert seen.room == room
    assert (seen.holds_because(gate.Work("high")) is None) is (room > 0)


NO_WORK: dict[str, Callable[[Path], object]] = {
    "it rests until tomorrow": lambda home: put(
        home, "tasks", "in_progress", **task("task-9", not_before="2026-02-08T00:00:00Z")
    ),
    "its general was stopped by hand": lambda home: down(home, "down"),
    "its general is quarantined": lambda home: down(home, "quarantined"),
    "its general has never run": lambda home: (
        install(home, "gen-new"),
        put(home, "tasks", "pending", **task("task-9", "gen-new")),
    ),
    "it is half written": lambda home: (Places(home).folder("tasks", "in_progress") / "task-9.json").write_text("{"),
    "its general is not installed": lambda home: put(home, "tasks", "in_progress", **task("task-9", "gen-gone")),
    "its general has no name": lambda home: put(
        home, "tasks", "pending", **task("task-9", "../..", not_before="2099-01-01")
    ),
}


def down(home: Path, word: str) -> None:
    install(home, "gen-away")
    beats(home, "gen-away")
    put(home, "tasks", "pending", **task("task-9", "gen-away"))
    Places(home).wanted("gen-away").write_text(word)


@pytest.mark.parametrize("what", NO_WORK)
def test_blocked_tasks_do_not_count_against_max_soldiers(home: Path, what: str) -> None:
    founded(home)
    NO_WORK[what](home)
    assert look(home, None, 2).room == 1
    assert look(home, None, 3).room == 0


def test_a_task_that_is_due_again_counts_against_max_soldiers(home: Path) -> None:
    founded(home)
    put(home, "tasks", "in_progress", **task("task-9", not_before="2026-02-07T10:03:00Z"))
    assert look(home, None, 2).room == 1
    assert standing(Places(home), NOW + 60, 3).room == 0
    put(home, "tasks", "in_progress", **task("task-9", not_before="2026-02-07T11:00:00Z"))
    assert standing(Places(home), NOW + 60, 3).room == 1


def test_no_more_soldiers_go_out_than_may(home: Path) -> None:
    places = founded(home)
    locks = []
    for general, name in (("gen-a", "task-1"), ("gen-a", "task-2"), ("gen-b", "task-3"), ("gen-b", "task-4")):
        places.control_folder(general, name).mkdir(parents=True)
        locks.append(Lock(places.control_folder(general, name) / "lock", name))
    for lock in locks[:3]:
        lock.acquire(0.0)
    assert no_soldier_because(places, "gen-b", False, None, 4) is None
    all_out = no_soldier_because(places, "gen-b", False, None, 3)
    assert all_out == "3 soldiers are running and concurrency.max_soldiers is 3"
    assert no_soldier_because(places, "gen-b", True, None, 3) is None
    own = no_soldier_because(places, "gen-b", True, 1, 9)
    assert own == "1 soldier of gen-b is running and its max_soldiers is 1"
    for lock in locks[:3]:
        lock.release()
    assert no_soldier_because(places, "gen-b", False, 1, 3) is None


def test_a_hold_says_its_reason(home: Path) -> None:
    one = look(home, None, 1, at_most=1).holds_because(gate.Work("high"))
    assert one is not None
    assert one.startswith("concurrency.max_soldiers is 1, and 1 task runs or could run now: ")
    full = look(home, None, 3).holds_because(gate.Work("high"))
    assert full == (
        "concurrency.max_soldiers is 3, and 3 tasks run or could run now: "
        "more starts when one ends, or when config/king.yaml allows more"
    )
    old = look(home, {"timestamp": "2026-02-07T09:52:00Z"}).holds_because(gate.Work("low"))
    assert old == (
        "the machine is orange (the vitals are 600 s old), so only what needs no model starts "
        "until the chamberlain has measured again; `kingdom status` shows whether it works"
    )
    vitals = {"timestamp": "2026-02-07T10:01:50Z", "health": "yellow", "system": {"cpu_percent": 71.6, "x": 1}}
    assert look(home, vitals).holds_because(gate.Work("normal")) == (
        "the machine is yellow (cpu 72 %), "
        "so only what people say, what has high priority and what needs no model starts "
        "until it is calmer; `thresholds` in config/chamberlain.yaml say how calm"
    )


def test_the_gate_names_the_figures_that_decided(home: Path) -> None:
    vitals: dict[str, Any] = {"timestamp": "2026-02-07T10:02:00Z", "health": "yellow"}
    vitals |= {"system": {"cpu_percent": 58.0}, "judged_by": {"cpu_percent": 64.0, "memory_available_mb": 99}}
    assert "yellow (cpu 64 %, 99 MB available)" in str(look(home, vitals).holds_because(gate.Work("normal")))
