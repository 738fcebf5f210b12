"""What waits: every file once, in the order of service, and nothing that is still being written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kingdom.records.backlog import Backlog
from kingdom.records.queues import SETTLING_SECONDS, Queues
from tests.fixtures import Clock, event, here, put, services


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queues(home: Path, clock: Clock) -> Queues:
    return services(home, "king", clock).queues


def names(backlog: Backlog) -> list[str]:
    return [each.filename.removesuffix(".json") for each in backlog]


def test_a_shelf_is_sorted_however_things_arrive(queues: Queues, home: Path) -> None:
    put(home, "events", "pending", **event("evt-low", priority="low", created_at="2020-01-01T00:00:00Z"))
    put(home, "events", "pending", **event("evt-b"))
    backlog = Backlog(queues.events)
    backlog.rescan()
    for name, fields in {
        "evt-high": {"priority": "high", "created_at": "2027-01-01T00:00:00Z"},
        "evt-a": {},
        "evt-older": {"created_at": "2026-02-06T00:00:00Z"},
    }.items():
        put(home, "events", "pending", **event(name, **fields))
        backlog.note([f"{name}.json", f"{name}.json", "never-was.json"])
    assert names(backlog) == ["evt-high", "evt-older", "evt-a", "evt-b", "evt-low"]


def test_a_rescan_finds_what_no_arrival_told_and_forgets_what_left(queues: Queues, home: Path) -> None:
    backlog = Backlog(queues.events)
    put(home, "events", "pending", **event("evt-1"))
    put(home, "events", "pending", **event("evt-2"))
    backlog.rescan()
    (queues.events.folder("pending") / "evt-1.json").unlink()
    put(home, "events", "pending", **event("evt-3"))
    backlog.rescan()
    assert names(backlog) == ["evt-2", "evt-3"]
    backlog.drop(["evt-2.json"])
    assert names(backlog) == ["evt-3"]
    backlog.rescan()
    assert names(backlog) == ["evt-2", "evt-3"], "what did not leave comes back"


def test_a_shelf_may_be_for_some_alone(queues: Queues, home: Path) -> None:
    put(home, "events", "pending", **event("evt-mine", source="github"))
    put(home, "events", "pending", **event("evt-other", source="jira"))
    backlog = Backlog(queues.events, mine=lambda thing: thing.source == "github")
    backlog.rescan()
    backlog.note(["evt-other.json"])
    assert names(backlog) == ["evt-mine"]


def test_a_file_that_is_being_written_in_place_is_given_time(queues: Queues, home: Path, clock: Clock) -> None:
    path = queues.events.folder("pending") / "evt-1.json"
    backlog = Backlog(queues.events)
    path.write_text('{"id": "evt-1", ')
    clock.now = path.stat().st_mtime + SETTLING_SECONDS / 2
    backlog.rescan()
    assert backlog.unsettled
    assert (len(backlog), here(home, "events", "dead")) == (0, [])
    with open(path, "a") as file:
        file.write(json.dumps(event()).partition(", ")[2])
    backlog.note(["evt-1.json"])
    assert not backlog.unsettled
    assert [each.filename for each in backlog] == ["evt-1.json"]


def test_a_file_that_stays_half_written_is_buried(queues: Queues, home: Path, clock: Clock) -> None:
    path = queues.events.folder("pending") / "evt-1.json"
    path.write_text('{"id": "evt-1", ')
    clock.now = path.stat().st_mtime + SETTLING_SECONDS
    backlog = Backlog(queues.events)
    backlog.rescan()
    assert not backlog.unsettled
    assert here(home, "events", "dead") == ["evt-1"]
