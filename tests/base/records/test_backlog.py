"""What waits: every file once, in the order of service, and nothing that is still being written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.records.backlog import LARGEST_KEPT, LOOK_AGAIN_SECONDS, MOST_KEPT, Backlog, refresh_due
from kingdom.base.records.messages import Event
from kingdom.base.records.queues import SETTLING_SECONDS, Queues
from tests.fixtures import Clock, event, here, message, put, services, task, watched


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queues(home: Path, clock: Clock) -> Queues:
    return services(home, "king", clock).queues


def names(backlog: Backlog[Event]) -> list[str]:
    return [record.filename.removesuffix(".json") for record in backlog.waiting]


def test_a_backlog_is_sorted_however_things_arrive(queues: Queues, home: Path) -> None:
    put(home, "events", "pending", **event("evt-low", priority="low", created_at="2020-01-01T00:00:00Z"))
    put(home, "events", "pending", **event("evt-b"))
    backlog = Backlog(queues.events, period=lambda: 10.0)
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
    backlog = Backlog(queues.events, period=lambda: 10.0)
    put(home, "events", "pending", **event("evt-1"))
    put(home, "events", "pending", **event("evt-2"))
    backlog.rescan()
    (queues.events.folders["pending"] / "evt-1.json").unlink()
    put(home, "events", "pending", **event("evt-3"))
    backlog.rescan()
    assert names(backlog) == ["evt-2", "evt-3"]
    backlog.drop(["evt-2.json"])
    assert names(backlog) == ["evt-3"]
    backlog.rescan()
    assert names(backlog) == ["evt-2", "evt-3"], "what did not leave comes back"


def test_a_backlog_may_be_for_some_alone(queues: Queues, home: Path) -> None:
    put(home, "events", "pending", **event("evt-mine", source="github"))
    put(home, "events", "pending", **event("evt-other", source="jira"))
    backlog = Backlog(queues.events, period=lambda: 10.0, mine=lambda thing: thing.source == "github")
    backlog.rescan()
    backlog.note(["evt-other.json"])
    assert names(backlog) == ["evt-mine"]


def test_a_file_that_is_being_written_in_place_is_given_time(queues: Queues, home: Path, clock: Clock) -> None:
    path = queues.events.folders["pending"] / "evt-1.json"
    backlog = Backlog(queues.events, period=lambda: 10.0)
    path.write_text('{"id": "evt-1", ')
    clock.now = path.stat().st_mtime + SETTLING_SECONDS / 2
    backlog.rescan()
    assert backlog.unsettled
    assert (len(backlog.waiting), here(home, "events", "dead")) == (0, [])
    with open(path, "a") as file:
        file.write(json.dumps(event()).partition(", ")[2])
    backlog.note(["evt-1.json"])
    assert not backlog.unsettled
    assert [record.filename for record in backlog.waiting] == ["evt-1.json"]


def test_a_file_that_stays_half_written_is_moved_to_dead(queues: Queues, home: Path, clock: Clock) -> None:
    path = queues.events.folders["pending"] / "evt-1.json"
    path.write_text('{"id": "evt-1", ')
    clock.now = path.stat().st_mtime + SETTLING_SECONDS
    backlog = Backlog(queues.events, period=lambda: 10.0)
    backlog.rescan()
    assert not backlog.unsettled
    assert here(home, "events", "dead") == ["evt-1"]


def opened(backlog: Backlog[Event], names: list[str]) -> list[str]:
    """The files of the queue that are opened to take these."""
    return watched(lambda: [backlog.take(f"{name}.json") for name in names])


def test_a_record_is_read_once_between_its_arrival_and_its_turn(queues: Queues, home: Path) -> None:
    backlog = Backlog(queues.events, period=lambda: 10.0)
    put(home, "events", "pending", **event("evt-0"))
    backlog.note(["evt-0.json"])  # the first one reads the schema too
    put(home, "events", "pending", **event("evt-1"))
    assert watched(lambda: backlog.note(["evt-1.json"])) == ["pending/evt-1.json"]
    assert opened(backlog, ["evt-1"]) == []
    put(home, "events", "pending", **event("evt-1", source="jira"))
    assert opened(backlog, ["evt-1", "evt-1"]) == ["pending/evt-1.json"], "it has changed once"
    taken = backlog.take("evt-1.json")
    assert taken is not None
    assert taken.source == "jira"


def test_only_a_small_record_is_kept_until_its_turn(queues: Queues, home: Path) -> None:
    for name, size in (("evt-1", 16384), ("evt-2", 16385)):
        path = put(home, "events", "pending", **event(name))
        path.write_text(path.read_text() + " " * (size - path.stat().st_size))
    backlog = Backlog(queues.events, period=lambda: 10.0)
    assert not backlog.unsettled
    backlog.rescan()
    assert opened(backlog, ["evt-1", "evt-2"]) == ["pending/evt-2.json"]
    assert not backlog.waiting[0].begun


def test_only_so_many_records_are_kept_until_their_turn(queues: Queues, home: Path) -> None:
    every = [f"evt-{number:03d}" for number in range(MOST_KEPT + 1)]
    for name in every:
        put(home, "events", "pending", **event(name))
    backlog = Backlog(queues.events, period=lambda: 10.0)
    backlog.rescan()
    assert (len(opened(backlog, every)), MOST_KEPT) == (1, 512)


def test_what_somebody_sees_to_does_not_wait_until_it_is_found_again(queues: Queues, home: Path) -> None:
    for name in ("evt-1", "evt-2"):
        put(home, "events", "pending", **event(name))
    backlog = Backlog(queues.events, period=lambda: 10.0)
    backlog.rescan()
    backlog.hold(["evt-1.json"])
    backlog.rescan()
    assert names(backlog) == ["evt-2"]
    backlog.hold([])
    backlog.drop(["evt-1.json"])
    backlog.rescan()
    assert names(backlog) == ["evt-1", "evt-2"]


def test_a_task_or_a_message_has_no_intention_noted(queues: Queues, home: Path) -> None:
    put(home, "tasks", "pending", **task())
    put(home, "messages", "pending", **message())
    for queue in (queues.tasks, queues.messages):
        backlog: Backlog[Any] = Backlog(queue, period=lambda: 10.0)
        backlog.rescan()
        assert [queued.begun for queued in backlog.waiting] == [False]


def test_the_echo_of_a_file_that_has_moved_on_opens_nothing(queues: Queues, home: Path) -> None:
    backlog = Backlog(queues.events, period=lambda: 10.0)
    put(home, "events", "pending", **event("evt-1"))
    backlog.rescan()
    queues.events.move(["evt-1"], "pending", "completed")
    backlog.drop(["evt-1.json"])
    assert watched(lambda: backlog.note(["evt-1.json"])) == []
    assert (len(backlog.waiting), backlog.take("evt-1.json")) == (0, None)


def test_what_moves_to_another_folder_is_not_read_again(queues: Queues, home: Path) -> None:
    backlog, other = (Backlog(queues.events, state, period=lambda: 10.0) for state in ("pending", "dispatched"))
    put(home, "events", "pending", **event("evt-1"))
    backlog.rescan()
    queues.events.move(["evt-1"], "pending", "dispatched")
    backlog.give(["evt-1.json"], other)
    assert (len(backlog.waiting), names(other)) == (0, ["evt-1"])
    assert watched(lambda: (other.rescan(), other.take("evt-1.json"))) == []


def test_few_and_small_records_are_kept(queues: Queues, home: Path) -> None:
    backlog = Backlog(queues.events, period=lambda: 10.0, most_kept=2)
    for name in ("evt-1", "evt-2", "evt-3"):
        put(home, "events", "pending", **event(name, payload={"text": "x" * (LARGEST_KEPT if name == "evt-1" else 1)}))
        backlog.note([f"{name}.json"])
    put(home, "events", "pending", **event("evt-4"))
    backlog.note(["evt-4.json"])
    assert opened(backlog, ["evt-1", "evt-2", "evt-3", "evt-4"]) == ["pending/evt-1.json", "pending/evt-4.json"]


def test_it_says_when_it_wants_to_look_again(queues: Queues, home: Path, clock: Clock) -> None:
    backlog = Backlog(queues.events, period=lambda: 10.0)
    assert backlog.refresh({}, 100.0), "nothing was ever looked at"
    put(home, "events", "pending", **event("evt-1"))
    assert (backlog.refresh({}, 109.0), len(backlog.waiting), backlog.next_look) == (False, 0, 110.0)
    assert (backlog.refresh({}, 110.0), len(backlog.waiting), backlog.next_look) == (True, 1, 120.0)
    put(home, "events", "pending", **event("evt-2"))
    assert (backlog.refresh({queues.events.folders["pending"]: ["evt-2.json"]}, 111.0), len(backlog.waiting)) == (
        False,
        2,
    )
    assert (backlog.refresh(None, 112.0), backlog.next_look) == (True, 122.0)
    half = queues.events.folders["pending"] / "evt-3.json"
    half.write_text("{")
    clock.now = half.stat().st_mtime
    backlog.refresh(None, 113.0)
    assert backlog.next_look == 113.0 + LOOK_AGAIN_SECONDS


def test_those_follow_for_which_something_has_come_or_whose_time_it_is(queues: Queues, home: Path) -> None:
    pending, done = (Backlog(queues.events, state, period=lambda: 10.0) for state in ("pending", "completed"))
    both = (pending, done)
    assert refresh_due(both, None, 0.0)
    put(home, "events", "pending", **event("evt-1"))
    put(home, "events", "completed", **event("evt-2"))
    assert not refresh_due(both, {}, 9.9)
    assert not refresh_due(both, {pending.folder: ["evt-1.json"]}, 9.9)
    assert (names(pending), names(done)) == (["evt-1"], [])
    assert refresh_due(both, {}, 10.0)
    assert names(done) == ["evt-2"]


def test_what_was_given_time_is_looked_at_anew_by_a_rescan(queues: Queues, home: Path, clock: Clock) -> None:
    path = queues.events.folders["pending"] / "evt-1.json"
    path.write_text("{")
    clock.now = path.stat().st_mtime
    backlog = Backlog(queues.events, period=lambda: 10.0)
    backlog.rescan()
    assert backlog.unsettled
    path.unlink()
    backlog.rescan()
    assert not backlog.unsettled


def test_a_record_whose_file_has_grown_is_kept_no_longer(queues: Queues, home: Path) -> None:
    backlog = Backlog(queues.events, period=lambda: 10.0, most_kept=1)
    put(home, "events", "pending", **event("evt-1"))
    backlog.note(["evt-1.json"])
    put(home, "events", "pending", **event("evt-1", payload={"text": "x" * LARGEST_KEPT}))
    backlog.take("evt-1.json")
    put(home, "events", "pending", **event("evt-2"))
    backlog.note(["evt-2.json"])
    assert opened(backlog, ["evt-2"]) == [], "there is room for it now"
    backlog.drop(["evt-2.json"])
    put(home, "events", "pending", **event("evt-3"))
    backlog.note(["evt-3.json"])
    assert opened(backlog, ["evt-3"]) == []
