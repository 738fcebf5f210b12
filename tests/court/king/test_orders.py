"""What people tell the king to do, and what he answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places
from kingdom.base.records import notes
from kingdom.court.king.job import KingJob
from tests.fixtures import MORNING, Clock, all_of, event, here, install, message, put, read, services, task, write

TASK = "task-20260207-001"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def run_king(home: Path, clock: Clock) -> KingJob:
    given = services(home, "king", clock)
    court = KingJob(given)
    while court.turn(None).worked:
        pass
    given.log.flush()
    return court


def order(home: Path, clock: Clock, action: str, target: str, **fields: Any) -> str:
    """The outcome of an order given to a fresh king."""
    put(home, "orders", "pending", id="ord-1", action=action, target=target, by="kim", created_at=MORNING, **fields)
    run_king(home, clock)
    assert here(home, "orders", "pending") == []
    outcome = read(home, "orders", "done", "ord-1")["outcome"]
    assert isinstance(outcome, str)
    return outcome


def logged(home: Path) -> list[tuple[str, str]]:
    """The internal events, each with the task or event that it is about."""
    lines = map(json.loads, Places(home).events_log.read_text().splitlines())
    return [(line["type"], line["data"].get("task_id") or line["data"]["event_id"]) for line in lines]


@pytest.fixture
def court_home(home: Path, clock: Clock) -> Path:
    services(home, "king", clock)
    install(home, "gen-pr", subscribes=["github.pr.*"])
    return home


def test_retry_makes_a_new_task_like_the_failed_one_in_its_thread(court_home: Path, clock: Clock) -> None:
    put(court_home, "tasks", "completed", **task(attempt=2, outcome="failed", payload={"pr_number": "7"}))
    assert order(court_home, clock, "retry", TASK) == "task-20260207-002 tries it again"
    again = read(court_home, "tasks", "pending", "task-20260207-002")
    assert (again["payload"], again["attempt"], again["outcome"]) == ({"pr_number": "7"}, 0, None)
    assert again["thread_task_id"] == TASK
    assert logged(court_home) == [("task.created", "task-20260207-002")]
    assert read(court_home, "orders", "done", "ord-1")["made"] == "task-20260207-002"


def test_a_retry_of_a_task_that_rested_starts_at_once(court_home: Path, clock: Clock) -> None:
    put(court_home, "tasks", "completed", **task(outcome="failed", not_before="2099-01-01T00:00:00Z"))
    order(court_home, clock, "retry", TASK)
    assert read(court_home, "tasks", "pending", "task-20260207-002").get("not_before") is None


def test_a_retry_that_was_begun_makes_no_second_task(court_home: Path, clock: Clock) -> None:
    put(court_home, "tasks", "completed", **task(outcome="failed"))
    put(court_home, "tasks", "in_progress", **task("task-20260207-009"))
    outcome = order(court_home, clock, "retry", TASK, made="task-20260207-009")
    assert outcome == "task-20260207-009 tries it again"
    assert here(court_home, "tasks", "pending") == []


def test_cancel_ends_a_task_that_nobody_has_claimed_and_its_event(court_home: Path, clock: Clock) -> None:
    put(court_home, "tasks", "pending", **task())
    put(court_home, "events", "dispatched", **event(task_id=TASK, status="dispatched"))
    assert order(court_home, clock, "cancel", TASK) == "cancelled before it started"
    assert read(court_home, "tasks", "completed", TASK)["outcome"] == "discarded"
    ended = read(court_home, "events", "completed", "evt-1")
    assert (ended["status"], ended["discarded_reason"]) == ("discarded", f"{TASK} was cancelled by kim")


def test_cancel_tells_the_general_of_a_task_under_way_and_leaves_its_file_alone(court_home: Path, clock: Clock) -> None:
    before = put(court_home, "tasks", "in_progress", **task()).stat()
    assert order(court_home, clock, "cancel", TASK) == "its general has been told to end it"
    assert notes.cancelled_by(Places(court_home), TASK) == "kim"
    after = Places(court_home).queue_file("tasks", "in_progress", TASK).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_note_of_a_cancelled_task_goes_with_it(court_home: Path, clock: Clock) -> None:
    put(court_home, "tasks", "in_progress", **task())
    order(court_home, clock, "cancel", TASK)
    write(Places(court_home).result(TASK), {"task_id": TASK, "status": "failed", "error": "cancelled by kim"})
    run_king(court_home, clock)
    assert here(court_home, "tasks", "completed") == [TASK]
    assert notes.cancelled_by(Places(court_home), TASK) is None


def test_a_mended_task_is_not_cancelled_by_an_old_note(court_home: Path, clock: Clock) -> None:
    put(court_home, "tasks", "dead", **task())
    notes.note_cancelled(Places(court_home), services(court_home, "king", clock).disk, TASK, "kim")
    assert order(court_home, clock, "requeue", TASK) == "back in tasks/pending"
    assert notes.cancelled_by(Places(court_home), TASK) is None


def test_cancel_ends_a_task_whose_general_is_gone(court_home: Path, clock: Clock) -> None:
    put(court_home, "tasks", "in_progress", **task(general="gen-gone"))
    put(court_home, "events", "dispatched", **event(task_id=TASK, status="dispatched"))
    assert order(court_home, clock, "cancel", TASK) == "cancelled before it started"
    assert read(court_home, "tasks", "completed", TASK)["outcome"] == "discarded"
    assert here(court_home, "events", "completed") == ["evt-1"]


def test_a_retry_inherits_the_work_and_not_what_became_of_it(court_home: Path, clock: Clock) -> None:
    of_one_life = {
        "cancelled_by_order": "ord-9",
        "waits_because": "attempt 1 failed",
        "spent_usd": 3.0,
        "retried_as": ["task-1"],
    }
    put(court_home, "tasks", "completed", **task(outcome="failed", matter="a.b", **of_one_life))
    order(court_home, clock, "retry", TASK)
    again = read(court_home, "tasks", "pending", "task-20260207-002")
    assert (again["matter"], again.keys() & of_one_life.keys()) == ("a.b", set())
    assert read(court_home, "tasks", "completed", TASK)["retried_as"] == ["task-1", "task-20260207-002"]


def test_requeue_serves_a_discarded_event_again(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "completed", **event(status="discarded", discarded_reason="nobody wanted it"))
    assert order(court_home, clock, "requeue", "evt-1") == "back in events/pending"
    served = read(court_home, "events", "dispatched", "evt-1")
    assert (served["task_id"], served["discarded_reason"]) == (TASK, None)


def test_requeue_of_an_event_that_became_a_task_is_refused(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "completed", **event(status="completed", task_id=TASK))
    assert order(court_home, clock, "requeue", "evt-1").startswith("refused: evt-1 was not discarded (completed)")
    assert refused(court_home)["code"] == "order_not_discarded"
    assert here(court_home, "events", "completed") == ["evt-1"]


def test_requeue_gives_a_failed_message_its_tries_back(court_home: Path, clock: Clock) -> None:
    put(court_home, "messages", "failed", **message(status="failed", tries=3, not_before=MORNING))
    assert order(court_home, clock, "requeue", "msg-1") == "back in messages/pending"
    again = read(court_home, "messages", "pending", "msg-1")
    assert (again["status"], "tries" in again, "not_before" in again) == ("pending", False, False)


def test_requeue_takes_up_what_has_been_mended_and_drops_its_reason(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "dead", **event())
    write(Places(court_home).folder("events", "dead") / "evt-1.json.reason", {"reason": "it was truncated"})
    assert order(court_home, clock, "requeue", "evt-1") == "back in events/pending"
    assert here(court_home, "events", "dispatched") == ["evt-1"]
    assert list(Places(court_home).folder("events", "dead").iterdir()) == []


def test_requeue_of_what_is_still_broken_is_refused_and_stays(court_home: Path, clock: Clock) -> None:
    dead = Places(court_home).folder("events", "dead")
    write(dead / "evt-1.json", {"id": "evt-1"})
    assert order(court_home, clock, "requeue", "evt-1").startswith("refused: event")
    assert [path.name for path in dead.iterdir()] == ["evt-1.json"]


def test_discard_lets_a_waiting_event_go(court_home: Path, clock: Clock) -> None:
    write(Places(court_home).resources, {"timestamp": MORNING, "health": "red"})
    put(court_home, "events", "pending", **event())
    assert order(court_home, clock, "discard", "evt-1") == "discarded"
    assert logged(court_home) == [("event.discarded", "evt-1")]
    assert read(court_home, "events", "completed", "evt-1")["discarded_reason"] == "by kim"


@pytest.mark.parametrize(
    ("action", "target", "said", "says"),
    [
        ("retry", "task-20260207-077", "there is no task task-20260207-077", ("order_no_task", "task")),
        ("cancel", "task-20260207-077", "there is no task task-20260207-077", ("order_no_task", "task")),
        ("requeue", "evt-77", "nothing named evt-77 is discarded, failed or in dead/", ("order_nothing", "name")),
        ("discard", "evt-77", "no event evt-77 is waiting", ("order_no_event", "event")),
    ],
)
def test_an_order_about_nothing_is_refused_in_words_and_as_data(
    court_home: Path, clock: Clock, action: str, target: str, said: str, says: tuple[str, str]
) -> None:
    assert order(court_home, clock, action, target) == f"refused: {said}"
    assert refused(court_home) == {"code": says[0], "values": {says[1]: target}}


def refused(home: Path) -> Any:
    """Why the last order was refused, as data."""
    return read(home, "orders", "done", "ord-1")["says"]


def test_retry_of_what_is_worked_on_is_refused(court_home: Path, clock: Clock) -> None:
    put(court_home, "tasks", "in_progress", **task(status="in_progress"))
    assert order(court_home, clock, "retry", TASK) == f"refused: {TASK} is in in_progress, not in completed"
    assert refused(court_home) == {"code": "order_elsewhere", "values": {"task": TASK, "where": "in_progress"}}


def test_cancel_of_what_has_ended_is_refused(court_home: Path, clock: Clock) -> None:
    put(court_home, "tasks", "completed", **task(outcome="success"))
    assert order(court_home, clock, "cancel", TASK) == f"refused: {TASK} has ended already: success"
    assert refused(court_home) == {"code": "order_ended", "values": {"task": TASK, "outcome": "success"}}


def test_an_order_that_names_a_path_is_moved_to_dead(court_home: Path, clock: Clock) -> None:
    put(court_home, "orders", "pending", id="ord-2", action="requeue", target="../../x", by="kim", created_at=MORNING)
    run_king(court_home, clock)
    assert here(court_home, "orders", "dead") == ["ord-2"]


def test_an_event_whose_task_is_in_dead_fails_with_a_message(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "dispatched", **event(task_id=TASK, status="dispatched", letters={"start": "msg-0"}))
    put(court_home, "tasks", "dead", **task())
    run_king(court_home, clock)
    assert read(court_home, "events", "completed", "evt-1")["status"] == "failed"
    (message,) = here(court_home, "messages", "pending")
    said = read(court_home, "messages", "pending", message)
    assert (said["content"], said["task_id"]) == (f"[failed] {TASK} was lost: its file could not be read", TASK)


def test_an_event_whose_task_is_claimed_is_left_alone(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "dispatched", **event(task_id=TASK, status="dispatched"))
    put(court_home, "tasks", "in_progress", **task())
    run_king(court_home, clock)
    assert here(court_home, "events", "dispatched") == ["evt-1"]


@pytest.mark.parametrize(("state", "general"), [("pending", "gen-pr"), ("in_progress", "gen-gone")])
def test_a_task_cancelled_before_anybody_took_it_gets_a_closing_message(
    court_home: Path, clock: Clock, state: str, general: str
) -> None:
    put(court_home, "tasks", state, **task(general=general, thread_task_id="task-1"))
    order(court_home, clock, "cancel", TASK)
    (last,) = all_of(court_home, "messages", "pending")
    assert (last["type"], last["task_id"], last["content"]) == ("notification", "task-1", "[failed] cancelled by kim")
    assert read(court_home, "tasks", "completed", TASK)["letters"] == {"final": last["id"]}


def test_an_order_to_cancel_that_was_interrupted_writes_its_message_once(court_home: Path, clock: Clock) -> None:
    noted = {"letters": {"final": "msg-20260207-007"}, "cancelled_by_order": "ord-1", "outcome": "discarded"}
    put(court_home, "tasks", "completed", **task(**noted))
    assert order(court_home, clock, "cancel", TASK) == "cancelled before it started"
    assert here(court_home, "messages", "pending") == ["msg-20260207-007"]


@pytest.mark.parametrize("state", ["pending", "in_progress", "completed", None])
def test_an_event_that_another_king_dispatched_ends_with_its_task(
    court_home: Path, clock: Clock, state: str | None
) -> None:
    put(court_home, "events", "dispatched", **event())
    if state is not None:
        put(court_home, "tasks", state, **task("task-20260207-801", status="failed"))
    run_king(court_home, clock)
    ended = {path: read(court_home, "events", "completed", path) for path in here(court_home, "events", "completed")}
    if state in ("pending", "in_progress"):
        assert here(court_home, "events", "dispatched") == ["evt-1"]
        return
    assert ended["evt-1"]["status"] == "failed"
    said = [message["content"] for message in all_of(court_home, "messages", "pending")]
    assert said == ([] if state else ["[failed] the task of evt-1 was lost: its file is gone"])
