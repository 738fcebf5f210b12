"""What waits: every file once, in the order of service, and nothing that is still being written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kingdom.post import SETTLING_SECONDS, Post
from kingdom.shelf import Shelf
from tests.kit import Clock, event, here, kit, put


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def post(home: Path, clock: Clock) -> Post:
    return kit(home, "king", clock).post


def names(shelf: Shelf) -> list[str]:
    return [each.filename.removesuffix(".json") for each in shelf]


def test_a_shelf_is_sorted_however_things_arrive(post: Post, home: Path) -> None:
    put(home, "events", "pending", **event("evt-low", priority="low", created_at="2020-01-01T00:00:00Z"))
    put(home, "events", "pending", **event("evt-b"))
    shelf = Shelf(post, "events")
    shelf.rescan()
    for name, fields in {
        "evt-high": {"priority": "high", "created_at": "2027-01-01T00:00:00Z"},
        "evt-a": {},
        "evt-older": {"created_at": "2026-02-06T00:00:00Z"},
    }.items():
        put(home, "events", "pending", **event(name, **fields))
        shelf.note([f"{name}.json", f"{name}.json", "never-was.json"])
    assert names(shelf) == ["evt-high", "evt-older", "evt-a", "evt-b", "evt-low"]


def test_a_rescan_finds_what_no_arrival_told_and_forgets_what_left(post: Post, home: Path) -> None:
    shelf = Shelf(post, "events")
    put(home, "events", "pending", **event("evt-1"))
    put(home, "events", "pending", **event("evt-2"))
    shelf.rescan()
    (post.places.folder("events", "pending") / "evt-1.json").unlink()
    put(home, "events", "pending", **event("evt-3"))
    shelf.rescan()
    assert names(shelf) == ["evt-2", "evt-3"]
    shelf.drop(["evt-2.json"])
    assert names(shelf) == ["evt-3"]
    shelf.rescan()
    assert names(shelf) == ["evt-2", "evt-3"], "what did not leave comes back"


def test_a_shelf_may_be_for_some_alone(post: Post, home: Path) -> None:
    put(home, "events", "pending", **event("evt-mine", source="github"))
    put(home, "events", "pending", **event("evt-other", source="jira"))
    shelf = Shelf(post, "events", mine=lambda thing: thing.source == "github")
    shelf.rescan()
    shelf.note(["evt-other.json"])
    assert names(shelf) == ["evt-mine"]


def test_a_file_that_is_being_written_in_place_is_given_time(post: Post, home: Path, clock: Clock) -> None:
    path = post.places.folder("events", "pending") / "evt-1.json"
    shelf = Shelf(post, "events")
    path.write_text('{"id": "evt-1", ')
    clock.now = path.stat().st_mtime + SETTLING_SECONDS / 2
    shelf.rescan()
    assert shelf.unsettled
    assert (len(shelf), here(home, "events", "dead")) == (0, [])
    with open(path, "a") as file:
        file.write(json.dumps(event()).partition(", ")[2])
    shelf.note(["evt-1.json"])
    assert not shelf.unsettled
    assert [each.filename for each in shelf] == ["evt-1.json"]


def test_a_file_that_stays_half_written_is_buried(post: Post, home: Path, clock: Clock) -> None:
    path = post.places.folder("events", "pending") / "evt-1.json"
    path.write_text('{"id": "evt-1", ')
    clock.now = path.stat().st_mtime + SETTLING_SECONDS
    shelf = Shelf(post, "events")
    shelf.rescan()
    assert not shelf.unsettled
    assert here(home, "events", "dead") == ["evt-1"]
