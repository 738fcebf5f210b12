"""The king's turn, on a real home: events become tasks, results become messages, the clock makes work of its own.

A kill is played by a new king over the files of that moment."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.errors import BadConfig
from kingdom.base.home import manifests
from kingdom.base.home.places import Places
from kingdom.base.records import notes
from kingdom.base.runtime.role import Services
from kingdom.cli import packages
from kingdom.court.king.context import KingContext
from kingdom.court.king.dispatch import BATCH
from kingdom.court.king.job import KingJob
from kingdom.court.king.replay_index import ReplayIndex
from kingdom.court.king.schedule_log import ScheduleLog
from kingdom.court.steward.roll_call import RollCallFinding, What
from tests import syncs
from tests.fixtures import (
    MORNING,
    Clock,
    all_of,
    beats,
    event,
    here,
    install,
    put,
    read,
    services,
    task,
    uninstall,
    write,
)
from tests.waiting import SOON, wait_until

TASK = "task-20260207-001"
TYPE = "github.pr.review_requested"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def court_home(home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with one general and room for ten soldiers."""
    monkeypatch.delenv("SLACK_DEFAULT_CHANNEL", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    services(home, "king", clock, king={"concurrency": {"max_soldiers": 10}})
    install(home, "gen-pr", subscribes=["github.pr.*"])
    beats(home, "gen-pr")
    return home


class King(NamedTuple):
    services: Services
    job: KingJob


def new_king(home: Path, clock: Clock) -> King:
    given = services(home, "king", clock)
    return King(given, KingJob(given))


def run_king(home: Path, clock: Clock, king: King | None = None) -> King:
    """Run a new king, or the given one, until nothing is left to do."""
    king = king or new_king(home, clock)
    for _ in range(100):
        if not king.job.turn(None).worked:
            break
    else:
        raise AssertionError("the king never comes to rest")
    king.job.close()
    king.services.log.flush()
    return king


def messages_of(home: Path) -> list[tuple[str, str | None, str]]:
    return [(record["type"], record["task_id"], record["content"]) for record in all_of(home, "messages", "pending")]


def logged(home: Path) -> list[str]:
    return [json.loads(line)["type"] for line in Places(home).events_log.read_text().splitlines()]


def of_events(home: Path, type: str) -> list[dict[str, Any]]:
    every = map(json.loads, Places(home).events_log.read_text().splitlines())
    return [record["data"] for record in every if record["type"] == type]


def vitals(home: Path, health: str, at: str = MORNING) -> None:
    write(Places(home).resources, {"timestamp": at, "health": health})


def result(home: Path, name: str = TASK, status: str = "success", **fields: Any) -> None:
    write(Places(home).result(name), {"task_id": name, "status": status, **fields})


def test_an_event_becomes_a_task_and_a_message(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "pending", **event(repo="acme/shop", payload={"pr_number": "7"}, colour="blue"))
    run_king(court_home, clock)
    noted = read(court_home, "events", "dispatched", "evt-1")
    assert (noted["task_id"], noted["status"], noted["colour"]) == (TASK, "dispatched", "blue")
    made = read(court_home, "tasks", "pending", TASK)
    assert (made["event_id"], made["target_general"], made["type"]) == ("evt-1", "gen-pr", TYPE)
    assert (made["repo"], made["payload"], made["attempt"]) == ("acme/shop", {"pr_number": "7"}, 0)
    (message,) = all_of(court_home, "messages", "pending")
    assert (message["type"], message["task_id"]) == ("thread_start", TASK)
    assert (message["channel"], message["content"]) == ("kingdom", f"[start] {TYPE} — acme/shop")
    assert noted["letters"] == {"start": message["id"]} == {"start": "msg-20260207-001"}
    assert logged(court_home) == ["event.dispatched", "task.created"]
    data = {"task_id": TASK, "target_general": "gen-pr"}
    assert of_events(court_home, "event.dispatched") == [{"event_id": "evt-1", **data}]
    assert of_events(court_home, "task.created") == [{**data, "event_type": TYPE, "priority": "normal"}]


def test_a_result_whose_event_cannot_be_read_ends_its_task_and_says_so(under_way: Path, clock: Clock) -> None:
    king = run_king(under_way, clock)
    Places(under_way).queue_file("events", "dispatched", "evt-1").write_text("{")
    result(under_way)
    run_king(under_way, clock, king)
    assert here(under_way, "tasks", "completed") == [TASK]
    assert f"the event of {TASK} cannot be ended: " in Places(under_way).role_log("king").read_text()


def test_a_king_that_is_killed_leaves_a_gap_of_64_numbers(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "pending", **event("evt-1"))
    new_king(court_home, clock).job.turn(None)
    put(court_home, "events", "pending", **event("evt-2"))
    new_king(court_home, clock).job.turn(None)
    assert here(court_home, "tasks", "pending") == [TASK, "task-20260207-066"]


def test_numbers_that_were_not_used_are_given_back(court_home: Path, clock: Clock) -> None:
    for number in (1, 2):
        put(court_home, "events", "pending", **event(f"evt-{number}"))
        run_king(court_home, clock)
    assert here(court_home, "tasks", "pending") == [TASK, "task-20260207-002"]
    assert here(court_home, "messages", "pending") == ["msg-20260207-001", "msg-20260207-002"]


class RollCall:
    """Say what the check of the chamberlain finds."""

    wait = 10.0

    def __init__(self, what: What) -> None:
        self._finding = RollCallFinding("chamberlain", what, "chamberlain 1")

    def call(self, threshold: float, period: float) -> list[RollCallFinding]:
        assert (threshold, period) == (120.0, 5.0)
        return [self._finding]

    def someone_ended(self) -> bool:
        return False


@pytest.mark.parametrize(("what", "is_told"), [(What.RESTARTED, True), (What.STARTED, False)])
def test_a_chamberlain_that_hung_is_told_of(court_home: Path, clock: Clock, what: What, is_told: bool) -> None:
    king = new_king(court_home, clock)
    king.job._roll_call = RollCall(what)  # type: ignore[assignment]
    king.job._next_check = 0.0
    king.job.turn(None)
    messages = [(message["type"], message["content"]) for message in all_of(court_home, "messages", "pending")]
    assert messages == ([("notification", f"[alert] chamberlain: {what}")] if is_told else [])
    king.services.log.flush()
    assert f"chamberlain: {what}" in Places(court_home).role_log("king").read_text()
    king.job.turn(None)
    assert len(all_of(court_home, "messages", "pending")) == len(messages), "once in ten seconds"


def test_events_orders_manifests_and_results_wake_the_king(court_home: Path, clock: Clock) -> None:
    places = Places(court_home)
    pending = {places.folder(kind, "pending") for kind in ("events", "orders")}
    assert new_king(court_home, clock).job.folders().keys() == {*pending, places.manifests, places.results}


def test_an_event_that_nobody_wants_is_discarded_with_its_reason(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "pending", **event(type="jira.ticket.assigned"))
    run_king(court_home, clock)
    noted = read(court_home, "events", "completed", "evt-1")
    assert (noted["status"], noted["task_id"]) == ("discarded", None)
    assert noted["discarded_reason"] == "no general subscribes to jira.ticket.assigned"
    assert noted["discarded_code"] == "unclaimed"
    assert (here(court_home, "tasks", "pending"), messages_of(court_home), logged(court_home)) == (
        [],
        [],
        ["event.discarded"],
    )


def test_events_are_served_by_priority_age_and_id(court_home: Path, clock: Clock) -> None:
    for name, fields in {
        "evt-d": {"priority": "low", "created_at": "2020-01-01T00:00:00Z"},
        "evt-c": {},
        "evt-b": {},
        "evt-old": {"created_at": "2026-02-06T10:00:00Z"},
        "evt-a": {"priority": "high", "created_at": "2026-02-08T10:00:00Z"},
    }.items():
        put(court_home, "events", "pending", **event(name, **fields))
    run_king(court_home, clock)
    served = [record["event_id"] for record in all_of(court_home, "tasks", "pending")]
    assert served == ["evt-a", "evt-old", "evt-b", "evt-c", "evt-d"]


def test_a_general_may_have_a_repo_of_its_own(court_home: Path, clock: Clock) -> None:
    install(court_home, "gen-pr", subscribes=["github.pr.*"], default_repo="acme/default")
    put(court_home, "events", "pending", **event("evt-1"))
    put(court_home, "events", "pending", **event("evt-2", repo="acme/other"))
    run_king(court_home, clock)
    assert [record["repo"] for record in all_of(court_home, "tasks", "pending")] == ["acme/default", "acme/other"]


def test_generals_are_installed_and_removed_while_the_king_runs(court_home: Path, clock: Clock) -> None:
    king = run_king(court_home, clock)
    install(court_home, "gen-jira", subscribes=["jira.*"])
    (Places(court_home).manifests / "notes.yaml").write_text("name: [")
    put(court_home, "events", "pending", **event("evt-1", "jira.ticket.assigned"))
    run_king(court_home, clock, king)
    uninstall(court_home, "gen-jira")
    put(court_home, "events", "pending", **event("evt-2", "jira.ticket.assigned"))
    run_king(court_home, clock, king)
    assert [record["target_general"] for record in all_of(court_home, "tasks", "pending")] == ["gen-jira"]
    assert here(court_home, "events", "completed") == ["evt-2"]
    assert "skips a manifest" in Places(court_home).role_log("king").read_text()


def test_a_king_notes_by_which_manifests_he_works(court_home: Path, clock: Clock) -> None:
    king = run_king(court_home, clock)
    install(court_home, "gen-new")
    assert not manifests.is_in_use(king.services.places, "king", "gen-new")
    run_king(court_home, clock, king)
    assert manifests.is_in_use(king.services.places, "king", "gen-new")


def test_a_manifest_that_is_broken_for_a_moment_costs_no_event(court_home: Path, clock: Clock) -> None:
    places = Places(court_home)
    install(court_home, "gen-jira", subscribes=["jira.*"])
    king = run_king(court_home, clock)
    for number, text in enumerate(("name: [", "", "name: gen-other\ndescription: x\ntimeout_seconds: 60\n")):
        places.manifest("gen-jira").write_text(text)
        put(court_home, "events", "pending", **event(f"evt-{number}", "jira.ticket.assigned"))
        run_king(court_home, clock, king)
    (places.manifests / "gen-new.yaml").write_text("name: [")
    run_king(court_home, clock, king)
    assert [made["target_general"] for made in all_of(court_home, "tasks", "pending")] == ["gen-jira"] * 3
    logged_lines = places.role_log("king").read_text()
    assert logged_lines.count("keeps the old manifest of gen-jira") == 3, (
        "once for each of the mistakes, whatever else changes"
    )
    assert "gen-jira.yaml: name: says 'gen-other', but the file is called gen-jira.yaml" in logged_lines
    (places.manifests / "gen-new.yaml").unlink()
    install(court_home, "gen-jira", subscribes=[])
    put(court_home, "events", "pending", **event("evt-9", "jira.ticket.assigned"))
    run_king(court_home, clock, king)
    assert here(court_home, "events", "completed") == ["evt-9"], "it is corrected"


Damage = Callable[[Path], object]
DAMAGES: dict[str, Damage] = {
    "broken": lambda path: path.write_text("name: ["),
    "empty": lambda path: path.write_text(""),
    "gone": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "unreadable": lambda path: path.chmod(0),
}


def mend(path: Path, text: str) -> None:
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_king_that_starts_while_a_manifest_is_broken_serves_its_general(
    damage: str, court_home: Path, clock: Clock
) -> None:
    install(court_home, "gen-jira", subscribes=["jira.*"])
    run_king(court_home, clock)
    DAMAGES[damage](Places(court_home).manifest("gen-jira"))
    put(court_home, "events", "pending", **event("evt-1", "jira.ticket.assigned"))
    put(court_home, "events", "pending", **event("evt-2", "cron.nobody.knows"))
    run_king(court_home, clock)
    assert [made["target_general"] for made in all_of(court_home, "tasks", "pending")] == ["gen-jira"]
    assert here(court_home, "events", "completed") == ["evt-2"]


@pytest.mark.parametrize("damage", ["broken", "empty", "a folder", "unreadable"])
def test_events_that_nobody_takes_wait_while_a_manifest_that_was_never_accepted_is_broken(
    damage: str, court_home: Path, clock: Clock
) -> None:
    install(court_home, "gen-jira", subscribes=["jira.*"])
    path = Places(court_home).manifest("gen-jira")
    whole = path.read_text()
    DAMAGES[damage](path)
    said = {"user": "U1", "text": "jira?", "channel": "C1", "message_ts": "1.2"}
    put(court_home, "events", "pending", **event("evt-1", "jira.ticket.assigned"))
    put(court_home, "events", "pending", **event("evt-2", "slack.channel.message", payload=said))
    put(court_home, "events", "pending", **event("evt-3"))
    king = run_king(court_home, clock)
    assert here(court_home, "events", "pending") == ["evt-1", "evt-2"]
    assert [made["target_general"] for made in all_of(court_home, "tasks", "pending")] == ["gen-pr"]
    mend(path, whole)
    run_king(court_home, clock, king)
    assert here(court_home, "events", "pending") == []
    assert here(court_home, "events", "dispatched") == ["evt-1", "evt-3"]


def test_an_answer_waits_for_a_general_whose_manifest_cannot_be_read(asked: Path, clock: Clock) -> None:
    path = Places(asked).manifest("gen-pr")
    whole = path.read_text()
    path.write_text("name: [")
    answer(asked, "evt-1")
    king = run_king(asked, clock)
    assert here(asked, "events", "pending") == ["evt-1"]
    mend(path, whole)
    run_king(asked, clock, king)
    assert resumed_by(asked) == ["evt-1"]


@pytest.mark.parametrize("is_running", [True, False])
def test_a_manifest_that_is_put_back_after_uninstall_can_be_lost_again(
    is_running: bool, court_home: Path, clock: Clock
) -> None:
    install(court_home, "gen-jira", subscribes=["jira.*"])
    king, path = run_king(court_home, clock), Places(court_home).manifest("gen-jira")
    kept = path.read_text()
    packages.uninstall(Places(court_home), king.services.disk, "gen-jira")
    king = run_king(court_home, clock, king)
    assert here(court_home, "events", "pending") == []
    note = Places(court_home).wanted("gen-jira")
    wait_until(lambda: later_than(note, path, kept), SOON, "the clock goes on")
    king = run_king(court_home, clock, king if is_running else None)
    path.unlink()
    put(court_home, "events", "pending", **event("evt-1", "jira.ticket.assigned"))
    run_king(court_home, clock, king)
    assert [made["target_general"] for made in all_of(court_home, "tasks", "pending")] == ["gen-jira"]
    assert manifests.lost(Places(court_home)) == ["gen-jira"]


def later_than(note: Path, path: Path, text: str) -> bool:
    """Write a file, and return whether the kernel's coarse clock has gone on since the note was written."""
    path.write_text(text)
    return path.stat().st_ctime_ns > note.stat().st_mtime_ns


def test_half_a_manifest_is_not_taken_over_while_somebody_writes_it(court_home: Path, clock: Clock) -> None:
    install(court_home, "gen-jira", subscribes=["jira.*"])
    king = run_king(court_home, clock)
    path = Places(court_home).manifest("gen-jira")
    whole = path.read_text()
    with path.open("w") as file:
        file.write(whole.replace("jira.*", "jira.other"))
        file.flush()
        put(court_home, "events", "pending", **event("evt-1", "jira.ticket.assigned"))
        run_king(court_home, clock, king)
    assert here(court_home, "events", "dispatched") == ["evt-1"]
    put(court_home, "events", "pending", **event("evt-2", "jira.other"))
    run_king(court_home, clock, king)
    assert here(court_home, "events", "dispatched") == ["evt-1", "evt-2"]


def test_an_uninstalled_general_gets_nothing_any_more(court_home: Path, clock: Clock) -> None:
    install(court_home, "gen-jira", subscribes=["jira.*"])
    run_king(court_home, clock)
    uninstall(court_home, "gen-jira")
    put(court_home, "events", "pending", **event("evt-1", "jira.ticket.assigned"))
    run_king(court_home, clock)
    assert here(court_home, "events", "completed") == ["evt-1"]
    assert not manifests.accepted(Places(court_home), "gen-jira").exists()


def test_a_persons_message_is_answered_where_it_was_written(court_home: Path, clock: Clock) -> None:
    install(court_home, "gen-pr", subscribes=["github.pr.*"], keywords=["리뷰"])
    payload = {"user": "U1", "text": "리뷰해줘", "channel": "C1", "message_ts": "1.2"}
    put(court_home, "events", "pending", **event("evt-slack-msg-1-2", "slack.channel.message", payload=payload))
    run_king(court_home, clock)
    (message,) = all_of(court_home, "messages", "pending")
    assert message["channel"] == "C1"
    assert message["source_ref"]["message_ts"] == "1.2"


@pytest.mark.parametrize("where", ["environment", ".env", "king.yaml", "nowhere"])
def test_the_default_channel(court_home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where != "nowhere":
        (Places(court_home).config / "king.yaml").write_text("slack: {default_channel: from-king.yaml}\n")
    if where in ("environment", ".env"):
        (court_home / ".env").write_text("SLACK_DEFAULT_CHANNEL=from-.env\n")
        (court_home / ".env").chmod(0o600)
    if where == "environment":
        monkeypatch.setenv("SLACK_DEFAULT_CHANNEL", "from-environment")
    put(court_home, "events", "pending", **event())
    run_king(court_home, clock)
    assert [record["channel"] for record in all_of(court_home, "messages", "pending")] == [
        "kingdom" if where == "nowhere" else f"from-{where}"
    ]


@pytest.mark.parametrize(
    ("health", "served"),
    [
        ("green", ["evt-high", "evt-normal", "evt-low"]),
        ("yellow", ["evt-high"]),
        ("orange", []),
        ("red", []),
    ],
)
def test_health_holds_events_in_pending(court_home: Path, clock: Clock, health: str, served: list[str]) -> None:
    vitals(court_home, health)
    for priority in ("low", "normal", "high"):
        put(court_home, "events", "pending", **event(f"evt-{priority}", priority=priority))
    run_king(court_home, clock)
    assert [record["event_id"] for record in all_of(court_home, "tasks", "pending")] == served
    assert len(here(court_home, "events", "pending")) == 3 - len(served)
    assert messages_of(court_home) == [("thread_start", TASK, f"[start] {TYPE}")] * len(served) or health == "green"


WANTED_BY = {
    # what arrives: the general that gets it, and at which health it is served
    "a program's, for a model": (event("evt-1", "ask.model"), {"green"}),
    "a program's, for no model": (event("evt-1", "ask.program"), {"green", "yellow", "orange", "red"}),
    "a program's, for nobody": (event("evt-1", "ask.nobody"), {"green", "yellow", "orange", "red"}),
    "said, for a model": (event("evt-1", "console.message", payload={"text": "think"}), {"green", "yellow"}),
    "said, for nobody": (
        event("evt-1", "slack.app_mention", payload={"text": "hm"}),
        {"green", "yellow", "orange", "red"},
    ),
    "said, for no model": (
        event("evt-1", "console.message", payload={"text": "brief me"}),
        {"green", "yellow", "orange", "red"},
    ),
    "said with low priority, for a model": (
        event("evt-1", "slack.channel.message", payload={"text": "think"}, priority="low"),
        {"green", "yellow"},
    ),
}


@pytest.mark.parametrize("health", ["green", "yellow", "orange", "red"])
@pytest.mark.parametrize("what", WANTED_BY)
def test_people_and_what_needs_no_model_pass(court_home: Path, clock: Clock, what: str, health: str) -> None:
    install(court_home, "gen-model", keywords=["think"], subscribes=["ask.model"])
    install(court_home, "gen-program", keywords=["brief me"], subscribes=["ask.program"], engine="command")
    vitals(court_home, health)
    arrives, served_at = WANTED_BY[what]
    put(court_home, "events", "pending", **arrives)
    king = run_king(court_home, clock)
    assert (here(court_home, "events", "pending") == []) is (health in served_at)
    install(court_home, "gen-model", keywords=["think"], subscribes=["ask.*"], needs_model=False)
    install(court_home, "gen-program", keywords=["brief me"], engine="command", needs_model=True)
    run_king(court_home, clock, king)
    passes = health in served_at or what != "said, for no model"
    assert (here(court_home, "events", "pending") == []) is passes, "the manifests say otherwise now"


def test_a_run_that_needs_no_model_is_held_by_no_health(court_home: Path, clock: Clock) -> None:
    plan = {"name": "daily", "cron": "0 22 * * *", "task_type": "t"}
    install(court_home, "gen-a", schedules=[plan])
    install(court_home, "gen-test", schedules=[plan], engine="command")
    king = run_king(court_home, clock)
    clock.set("2026-02-07T22:00:05Z")
    vitals(court_home, "red", "2026-02-07T22:00:00Z")
    run_king(court_home, clock, king)
    assert [made["target_general"] for made in all_of(court_home, "tasks", "pending")] == ["gen-test"]
    plans = json.loads((Places(court_home).own("king") / "schedules.json").read_text())["schedules"]
    assert {plan["general"]: plan["held_since"] for plan in plans} == {
        "gen-a": "2026-02-07T22:00:00Z",
        "gen-test": None,
    }


def test_running_soldiers_count_against_max_soldiers(court_home: Path, clock: Clock) -> None:
    install(court_home, "gen-other")
    beats(court_home, "gen-other")
    for number in range(4):
        put(court_home, "tasks", "in_progress", **task(f"task-20260207-10{number}", event_id="evt-x"))
        put(court_home, "tasks", "pending", **task(f"task-20260207-11{number}", "gen-other", event_id="evt-x"))
    for number in range(4):
        put(court_home, "events", "pending", **event(f"evt-{number}"))
    king = run_king(court_home, clock)
    assert here(court_home, "events", "dispatched") == ["evt-0", "evt-1"]
    result(court_home, "task-20260207-100", status="skipped")
    run_king(court_home, clock, king)
    assert here(court_home, "events", "dispatched") == ["evt-0", "evt-1", "evt-2"]


def test_a_general_with_a_limit_of_its_own_leaves_room_for_others(court_home: Path, clock: Clock) -> None:
    install(court_home, "gen-slow", subscribes=["slow.*"], max_soldiers=2)
    beats(court_home, "gen-slow")
    put(court_home, "tasks", "in_progress", **task("task-20260207-100", "gen-slow", event_id="evt-x"))
    for number in range(20):
        put(court_home, "events", "pending", **event(f"evt-{number:02}", "slow.work"))
    put(court_home, "events", "pending", **event("evt-99"))
    king = run_king(court_home, clock)
    assert here(court_home, "events", "dispatched") == ["evt-00", "evt-99"]
    result(court_home, "task-20260207-100", status="skipped")
    run_king(court_home, clock, king)
    assert here(court_home, "events", "dispatched") == ["evt-00", "evt-01", "evt-99"]


def test_what_nobody_takes_waits_for_no_room_and_takes_none(court_home: Path, clock: Clock) -> None:
    (Places(court_home).config / "king.yaml").write_text("concurrency: {max_soldiers: 1}\n")
    for number, kind in enumerate(("nobody.wants", TYPE, "nobody.wants", TYPE, "nobody.wants")):
        put(court_home, "events", "pending", **event(f"evt-{number}", kind))
    run_king(court_home, clock)
    assert here(court_home, "events", "completed") == ["evt-0", "evt-2", "evt-4"]
    assert here(court_home, "events", "dispatched") == ["evt-1"]


@pytest.mark.parametrize(("count", "settled"), [(BATCH - 1, True), (BATCH, False)])
def test_a_full_group_of_events_may_not_have_been_the_last(
    court_home: Path, clock: Clock, count: int, settled: bool
) -> None:
    (Places(court_home).config / "king.yaml").write_text("concurrency: {max_soldiers: 1000}\n")
    for number in range(count):
        put(court_home, "events", "pending", **event(f"evt-{number}", type="nobody.wants"))
    turn = new_king(court_home, clock).job.turn(None)
    assert (turn.worked, turn.settled) == (True, settled)


def test_answers_of_people_pass_every_gate(court_home: Path, clock: Clock) -> None:
    vitals(court_home, "red")
    for number in range(10):
        put(court_home, "tasks", "in_progress", **task(f"task-20260207-10{number}"))
    write(Places(court_home).checkpoint(TASK), {"target_general": "gen-pr", "thread_task_id": TASK})
    put(court_home, "events", "pending", **event("evt-1", priority="high"))
    put(court_home, "events", "pending", **event("evt-2", "slack.human_response", payload={"task_id": TASK}))
    run_king(court_home, clock)
    assert here(court_home, "events", "pending") == ["evt-1"]
    (resumed,) = all_of(court_home, "tasks", "pending")
    assert (resumed["type"], resumed["thread_task_id"]) == ("resume", TASK)
    assert messages_of(court_home) == [("thread_update", TASK, "answer received, resuming")]
    by = {"task_id": resumed["id"], "target_general": "gen-pr"}
    assert of_events(court_home, "task.resumed") == [{**by, "original_task_id": TASK}]


@pytest.fixture
def asked(court_home: Path) -> Path:
    """A task of gen-pr has asked in the thread of another."""
    checkpoint = {"target_general": "gen-pr", "task_id": TASK, "thread_task_id": "task-20260206-009"}
    write(Places(court_home).checkpoint(TASK), checkpoint)
    return court_home


def answer(home: Path, name: str, text: str = "yes", at: str = MORNING) -> None:
    payload = {"task_id": TASK, "human_response": text, "channel": "C1"}
    put(home, "events", "pending", **event(name, "slack.human_response", payload=payload, created_at=at))


def resumed_by(home: Path) -> list[str]:
    return [record["event_id"] for state in ("pending", "in_progress") for record in all_of(home, "tasks", state)]


ALREADY = f"[failed] the question of {TASK} is already answered; `kingdom why {TASK}` shows by whom"


@pytest.mark.parametrize("together", [True, False])
def test_a_second_answer_is_told_that_it_comes_too_late(asked: Path, clock: Clock, together: bool) -> None:
    assert notes.asks(Places(asked), TASK)
    answer(asked, "evt-2", "no", "2026-02-07T09:59:58Z")
    if not together:
        run_king(asked, clock)
    answer(asked, "evt-1")
    run_king(asked, clock)
    assert resumed_by(asked) == ["evt-2"]
    assert not notes.asks(Places(asked), TASK)
    assert read(asked, "events", "completed", "evt-1")["status"] == "failed"
    update, late = all_of(asked, "messages", "pending")
    assert (update["type"], update["context"]) == ("thread_update", {"answers": TASK})
    assert (late["type"], late["task_id"], late["content"]) == ("notification", "task-20260206-009", ALREADY)


def test_a_duplicate_of_a_reply_is_harmless(asked: Path, clock: Clock) -> None:
    for _ in range(3):
        answer(asked, "evt-1")
        run_king(asked, clock)
    assert resumed_by(asked) == ["evt-1"]
    assert [kind for kind, _, _ in messages_of(asked)] == ["thread_update"]


def test_a_king_killed_after_taking_an_answer_goes_on_with_that_one(asked: Path, clock: Clock) -> None:
    king = new_king(asked, clock)
    notes.note_answer(king.services.places, king.services.disk, TASK, "evt-taken")
    answer(asked, "evt-taken")
    answer(asked, "evt-before", at="2026-02-06T10:00:00Z")
    run_king(asked, clock)
    assert resumed_by(asked) == ["evt-taken"]
    assert read(asked, "events", "completed", "evt-before")["status"] == "failed"


def goes_on(home: Path, clock: Clock, name: str, **fields: Any) -> None:
    """Its general takes a task, and it ends like this; of a question it leaves the checkpoint."""
    places = Places(home)
    os.rename(places.queue_file("tasks", "pending", name), places.queue_file("tasks", "in_progress", name))
    if fields["status"] == "needs_human":
        thread = read(home, "tasks", "in_progress", name)["thread_task_id"] or name
        checkpoint = {"target_general": "gen-pr", "task_id": name, "thread_task_id": thread}
        write(places.checkpoint(name), checkpoint)
    result(home, name, **fields)
    run_king(home, clock)


@pytest.mark.parametrize("way", ["human_response", "thread.reply"])
def test_question_after_question_stays_in_the_first_thread(court_home: Path, clock: Clock, way: str) -> None:
    second, third = "task-20260207-002", "task-20260207-003"
    put(court_home, "events", "pending", **event())
    run_king(court_home, clock)
    goes_on(court_home, clock, TASK, status="needs_human", question="which?")
    for number, (asker, next_one) in enumerate(((TASK, second), (second, third))):
        question = all_of(court_home, "messages", "pending")[-1]
        assert (question["type"], question["task_id"]) == ("human_input_request", TASK)
        payload = {"text": "yes", "human_response": "yes", "reply_context": question["context"]["reply_context"]}
        put(court_home, "events", "pending", **event(f"evt-slack-{number}", f"slack.{way}", payload=payload))
        run_king(court_home, clock)
        resumed = read(court_home, "tasks", "pending", next_one)
        assert (resumed["payload"]["original_task_id"], resumed["thread_task_id"]) == (asker, TASK)
        ending = {"status": "success"} if next_one == third else {"status": "needs_human", "question": "and now?"}
        goes_on(court_home, clock, next_one, **ending)
    assert {task_id for _, task_id, _ in messages_of(court_home)} == {TASK}
    assert [kind for kind, _, _ in messages_of(court_home)] == [
        "thread_start",
        *(["human_input_request", "thread_update"] * 2),
        "notification",
    ]


def test_an_answer_that_nobody_can_go_on_with_leaves_the_question_open(asked: Path, clock: Clock) -> None:
    uninstall(asked, "gen-pr")
    answer(asked, "evt-1")
    run_king(asked, clock)
    assert notes.asks(Places(asked), TASK)
    install(asked, "gen-pr", subscribes=["github.pr.*"])
    answer(asked, "evt-2")
    run_king(asked, clock)
    assert resumed_by(asked) == ["evt-2"]


@pytest.mark.parametrize("where", [{}, {"thread_ts": "1.2"}])
def test_a_lost_answer_is_told_to_the_person(court_home: Path, clock: Clock, where: dict[str, str]) -> None:
    """In its thread if it has one: else it is told beside the answer, which begins none."""
    payload = {"task_id": "task-20260101-001", "channel": "C1", "user": "U1", "message_ts": "3.4", **where}
    put(court_home, "events", "pending", **event("evt-2", "slack.human_response", payload=payload))
    run_king(court_home, clock)
    assert read(court_home, "events", "completed", "evt-2")["status"] == "failed"
    (message,) = all_of(court_home, "messages", "pending")
    assert (message["type"], message["channel"], message["source_ref"]["user"]) == ("notification", "C1", "U1")
    assert message.get("thread_ts") == where.get("thread_ts")
    assert message["content"].startswith("[failed] the question of task-20260101-001 is no longer open")
    assert "evt-2: the question of task-20260101-001 is no longer open" in Places(court_home).system_log.read_text()


@pytest.mark.parametrize("wandering", ["../../x", "", 5, {"a": 1}, "x" * 300])
def test_even_a_nonsensical_answer_is_told_to_the_person(court_home: Path, clock: Clock, wandering: object) -> None:
    payload = {"task_id": wandering, "channel": "C1"}
    put(court_home, "events", "pending", **event("evt-2", "slack.human_response", payload=payload))
    run_king(court_home, clock)
    (message,) = all_of(court_home, "messages", "pending")
    assert (message["task_id"], message["channel"]) == ("evt-2", "C1")


@pytest.mark.parametrize("state", ["dispatched", "completed", "gone after retention"])
def test_a_duplicate_event_creates_nothing(court_home: Path, clock: Clock, state: str) -> None:
    put(court_home, "events", "pending", **event())
    run_king(court_home, clock)
    if state != "dispatched":
        os.rename(
            Places(court_home).queue_file("tasks", "pending", TASK),
            Places(court_home).queue_file("tasks", "in_progress", TASK),
        )
        result(court_home)
        run_king(court_home, clock)
    if state == "gone after retention":
        Places(court_home).queue_file("events", "completed", "evt-1").unlink()
        Places(court_home).queue_file("tasks", "completed", TASK).unlink()
    messages = messages_of(court_home)
    put(court_home, "events", "pending", **event())
    run_king(court_home, clock)
    assert here(court_home, "events", "pending") == []
    assert len([*here(court_home, "tasks", "pending"), *here(court_home, "tasks", "completed")]) == (state[0] != "g")
    assert messages_of(court_home) == messages
    if state == "gone after retention":
        again = read(court_home, "events", "completed", "evt-1")
        assert (again["status"], again["discarded_reason"]) == ("discarded", f"duplicate of {TASK}")
    (told,) = of_events(court_home, "event.discarded")
    assert (told["event_id"], told["reason"]) == ("evt-1", f"duplicate of {TASK}")
    if state == "dispatched":
        assert read(court_home, "events", "dispatched", "evt-1")["task_id"] == TASK


def test_a_duplicate_does_not_keep_the_first_from_ending(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "pending", **event())
    run_king(court_home, clock)
    put(court_home, "events", "pending", **event())
    run_king(court_home, clock)
    os.rename(
        Places(court_home).queue_file("tasks", "pending", TASK),
        Places(court_home).queue_file("tasks", "in_progress", TASK),
    )
    result(court_home)
    run_king(court_home, clock)
    assert (here(court_home, "events", "dispatched"), here(court_home, "tasks", "completed")) == ([], [TASK])
    assert read(court_home, "events", "completed", "evt-1")["status"] == "completed"


def test_a_copy_of_a_dispatched_event_is_a_duplicate_too(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "pending", **event())
    run_king(court_home, clock)
    put(court_home, "events", "pending", **read(court_home, "events", "dispatched", "evt-1"))
    run_king(court_home, clock)
    assert (here(court_home, "events", "pending"), here(court_home, "tasks", "pending")) == ([], [TASK])


BEGUN = {"task_id": TASK, "status": "dispatched", "letters": {"start": "msg-20260207-001"}}
STARTED = {"id": "msg-20260207-001", "type": "thread_start", "task_id": TASK, "content": "x", "created_at": MORNING}
MOMENTS: dict[str, Callable[[Path], object]] = {
    "after the note": lambda home: None,
    "after the task": lambda home: put(home, "tasks", "pending", **task()),
    "when its general has taken it": lambda home: put(home, "tasks", "in_progress", **task()),
    "after the message": lambda home: (
        put(home, "tasks", "pending", **task()),
        put(home, "messages", "pending", **STARTED),
    ),
    "when the message is out": lambda home: (
        put(home, "tasks", "pending", **task()),
        put(home, "messages", "sent", **STARTED),
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_dispatch_is_finished_under_the_same_ids(court_home: Path, clock: Clock, moment: str) -> None:
    put(court_home, "events", "pending", **event(**BEGUN))
    MOMENTS[moment](court_home)
    (Places(court_home).own("king") / "task-seq").write_text("20260207:001\n")
    (Places(court_home).own("king") / "msg-seq").write_text("20260207:001\n")
    vitals(court_home, "red")
    run_king(court_home, clock)
    assert read(court_home, "events", "dispatched", "evt-1")["task_id"] == TASK
    assert [*here(court_home, "tasks", "pending"), *here(court_home, "tasks", "in_progress")] == [TASK]
    assert [*here(court_home, "messages", "pending"), *here(court_home, "messages", "sent")] == ["msg-20260207-001"]


def test_an_id_that_has_become_somebody_elses_is_not_used_again(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "pending", **event("evt-1", **BEGUN))
    put(court_home, "tasks", "in_progress", **task(event_id="evt-other"))
    put(court_home, "messages", "sent", **STARTED)
    run_king(court_home, clock)
    made = read(court_home, "tasks", "pending", "task-20260207-002")
    assert made["event_id"] == "evt-1"
    (message,) = all_of(court_home, "messages", "pending")
    assert (message["id"], message["task_id"]) == ("msg-20260207-002", "task-20260207-002")


@pytest.mark.parametrize("file", ["missing", "damaged", "put back to an older state"])
def test_lost_numbers_meet_nothing_in_use(court_home: Path, clock: Clock, file: str) -> None:
    for number in range(3):
        put(court_home, "events", "pending", **event(f"evt-{number}"))
    run_king(court_home, clock)
    for kind in ("task", "msg"):
        path = Places(court_home).own("king") / f"{kind}-seq"
        if file == "missing":
            path.unlink()
        else:
            path.write_text("20260207:001\n" if file.startswith("put") else "???")
    put(court_home, "events", "pending", **event("evt-new"))
    run_king(court_home, clock)
    assert len(here(court_home, "tasks", "pending")) == len(here(court_home, "messages", "pending")) == 4
    assert read(court_home, "events", "dispatched", "evt-new")["task_id"] not in (
        "task-20260207-002",
        "task-20260207-003",
    )


@pytest.fixture
def under_way(court_home: Path, clock: Clock) -> Path:
    """One event whose task its general has taken."""
    put(court_home, "events", "pending", **event(colour="blue"))
    run_king(court_home, clock)
    places = Places(court_home)
    os.rename(places.queue_file("tasks", "pending", TASK), places.queue_file("tasks", "in_progress", TASK))
    places.queue_file("messages", "pending", "msg-20260207-001").unlink()
    return court_home


@pytest.mark.parametrize(
    ("fields", "status", "messages"),
    [
        ({"status": "success"}, "completed", [("notification", TASK, f"[complete] {TYPE} — completed")]),
        ({"status": "failed", "error": "no"}, "failed", [("notification", TASK, "[failed] no")]),
        ({"status": "skipped"}, "skipped", []),
        (
            {"status": "needs_human", "question": "which?"},
            "needs_human",
            [("human_input_request", TASK, "[question] which?")],
        ),
    ],
)
def test_a_result_ends_task_and_event(
    under_way: Path, clock: Clock, fields: dict[str, Any], status: str, messages: list[tuple[str, str, str]]
) -> None:
    result(under_way, **fields)
    run_king(under_way, clock)
    ended = read(under_way, "tasks", "completed", TASK)
    assert (ended["status"], ended["outcome"]) == (status, fields["status"])
    kept = read(under_way, "events", "completed", "evt-1")
    assert (kept["status"], kept["colour"], kept["task_id"]) == (status, "blue", TASK)
    assert messages_of(under_way) == messages
    assert (here(under_way, "events", "dispatched"), here(under_way, "tasks", "in_progress")) == ([], [])
    assert Places(under_way).result(TASK).exists(), "others still read it"
    assert logged(under_way)[-1] == ("task.completed" if status == "skipped" else f"task.{status}")


@pytest.mark.parametrize("moment", ["after the note", "after the message", "after the event's end"])
def test_a_completion_is_finished_under_the_same_ids(under_way: Path, clock: Clock, moment: str) -> None:
    places = Places(under_way)
    result(under_way)
    noted = read(under_way, "tasks", "in_progress", TASK)
    noted |= {"outcome": "success", "status": "completed", "letters": {"final": "msg-20260207-002"}}
    write(places.queue_file("tasks", "in_progress", TASK), noted)
    if moment != "after the note":
        put(under_way, "messages", "sent", id="msg-20260207-002", type="notification", content="x", created_at=MORNING)
    if moment == "after the event's end":
        os.rename(places.queue_file("events", "dispatched", "evt-1"), places.queue_file("events", "completed", "evt-1"))
    run_king(under_way, clock)
    assert here(under_way, "tasks", "completed") == [TASK]
    assert here(under_way, "events", "completed") == ["evt-1"]
    assert [*here(under_way, "messages", "pending"), *here(under_way, "messages", "sent")] == ["msg-20260207-002"]


UNREADABLE: Mapping[str, Callable[[Path], object]] = {
    "half": lambda path: path.write_text('{"task_id": "task-2'),
    "empty": lambda path: path.touch(),
    "another one's": lambda path: path.write_text('{"task_id": "task-9", "status": "success"}'),
    "an unknown outcome": lambda path: path.write_text(json.dumps({"task_id": TASK, "status": "great"})),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a pipe": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_an_unreadable_result_is_tried_again_for_ten_minutes(under_way: Path, clock: Clock, what: str) -> None:
    path = Places(under_way).result(TASK)
    UNREADABLE[what](path)
    clock.now = path.lstat().st_mtime
    king = run_king(under_way, clock)
    assert (messages_of(under_way), here(under_way, "tasks", "in_progress")) == ([], [TASK])
    clock.pass_(599)
    run_king(under_way, clock, king)
    assert messages_of(under_way) == []
    clock.pass_(1)
    run_king(under_way, clock, king)
    ((_, _, content),) = messages_of(under_way)
    assert content.startswith("[failed] its result could not be read for 600 s")
    assert read(under_way, "tasks", "completed", TASK)["outcome"] == "failed"


def test_a_result_that_becomes_readable_counts(under_way: Path, clock: Clock) -> None:
    path = Places(under_way).result(TASK)
    path.write_text('{"task_id"')
    clock.now = path.stat().st_mtime
    king = run_king(under_way, clock)
    result(under_way, summary="fine")
    run_king(under_way, clock, king)
    assert messages_of(under_way) == [("notification", TASK, f"[complete] {TYPE} — fine")]


def test_an_unreadable_result_from_the_future_is_not_waited_for_for_ever(under_way: Path, clock: Clock) -> None:
    path = Places(under_way).result(TASK)
    path.write_text("{")
    os.utime(path, (4_000_000_000, 4_000_000_000))
    run_king(under_way, clock)
    assert read(under_way, "tasks", "completed", TASK)["outcome"] == "failed"


def test_unreadable_results_do_not_keep_the_king_from_the_others(court_home: Path, clock: Clock) -> None:
    for number in range(200):
        name = f"task-20260207-{number + 100}"
        put(court_home, "tasks", "in_progress", **task(name))
        Places(court_home).result(name).write_text("{")
    clock.now = Places(court_home).result("task-20260207-100").stat().st_mtime
    put(court_home, "tasks", "in_progress", **task("task-20260207-999"))
    result(court_home, "task-20260207-999")
    king = run_king(court_home, clock)
    assert here(court_home, "tasks", "completed") == ["task-20260207-999"]
    assert king.job.turn({}).wait > 0, "the king does not spin"


@pytest.mark.parametrize("count", [128, 130])
def test_however_many_results_come_at_once_none_is_left_for_later(court_home: Path, clock: Clock, count: int) -> None:
    king = new_king(court_home, clock)
    names = [f"task-20260207-{number + 100}" for number in range(count)]
    for name in names:
        put(court_home, "tasks", "in_progress", **task(name))
    king.job.turn(None)
    for name in names:
        result(court_home, name)
    turn = king.job.turn({Places(court_home).results: [f"{name}.json" for name in names]})
    assert turn.wait == 0 or turn.worked
    while turn.worked:
        turn = king.job.turn({})
    assert here(court_home, "tasks", "completed") == names


def test_an_unreadable_result_is_logged_once_and_again_when_it_has_changed(under_way: Path, clock: Clock) -> None:
    path = Places(under_way).result(TASK)
    path.write_text("{")
    clock.now = path.stat().st_mtime
    king = new_king(under_way, clock)
    for text in ("{", '{"task_id"'):
        path.write_text(text)
        for _ in range(5):
            king.job.turn(None)
    king.services.log.flush()
    assert Places(under_way).role_log("king").read_text().count("cannot read the result") == 2


@pytest.mark.parametrize("name", ["README", "x.tmp", f"{TASK}-checkpoint.json", f"{TASK}-raw.json", "task-none.json"])
def test_other_names_among_the_results_are_left_alone(under_way: Path, clock: Clock, name: str) -> None:
    (Places(under_way).results / name).write_text("{")
    run_king(under_way, clock)
    assert (messages_of(under_way), here(under_way, "tasks", "in_progress")) == ([], [TASK])


def test_a_soldier_cannot_point_a_question_at_another_checkpoint(under_way: Path, clock: Clock) -> None:
    result(under_way, status="needs_human", question="which?", checkpoint_path="/elsewhere")
    run_king(under_way, clock)
    (asked,) = (
        record for record in all_of(under_way, "messages", "pending") if record["type"] == "human_input_request"
    )
    assert asked["context"]["checkpoint_path"] == str(Places(under_way).checkpoint(TASK))


def test_an_event_whose_task_is_lost_ends_within_a_minute_whatever_the_schedules(
    court_home: Path, clock: Clock
) -> None:
    rare = {"intervals": {"schedule_check_seconds": 86400}}
    monotonic = Clock()
    given = replace(services(court_home, "king", clock, king=rare), monotonic=monotonic)
    court = KingJob(given)
    court.turn(None)
    put(court_home, "events", "dispatched", **event(task_id=TASK, status="dispatched"))
    monotonic.pass_(59)
    court.turn({})
    assert here(court_home, "events", "dispatched") == ["evt-1"]
    monotonic.pass_(1)
    court.turn({})
    assert read(court_home, "events", "completed", "evt-1")["status"] == "failed"


def test_an_event_whose_task_ended_before_the_king_was_back_ends_at_once(court_home: Path, clock: Clock) -> None:
    """He was killed between the task and the move of its event, and the general was quicker than his successor."""
    put(court_home, "events", "pending", **event(task_id=TASK, status="dispatched", letters={"start": "msg-x"}))
    put(court_home, "tasks", "in_progress", **task())
    result(court_home)
    run_king(court_home, clock)
    assert here(court_home, "tasks", "completed") == [TASK]
    assert read(court_home, "events", "completed", "evt-1")["status"] == "completed"


def test_a_result_ends_a_task_that_was_claimed_since_the_last_look(court_home: Path, clock: Clock) -> None:
    court = new_king(court_home, clock).job
    court.turn(None)
    put(court_home, "tasks", "in_progress", **task())
    result(court_home)
    assert court.turn({Places(court_home).results: [f"{TASK}.json"]}).worked
    assert here(court_home, "tasks", "completed") == [TASK]


def test_a_run_that_was_noted_and_not_made_is_made_once_under_its_id(daily: Path, clock: Clock) -> None:
    run_king(daily, clock)
    clock.set("2026-02-07T22:00:05Z")
    king = KingContext(services(daily, "king", clock))
    schedules = ScheduleLog(king)
    king.read_manifests()
    schedules.take_over(king.generals)
    run = schedules.next_due(king.gate, look=True)
    assert run is not None
    schedules.note(replace(run, task_id="task-20260207-077", message_ids={"start": "msg-20260207-077"}))
    clock.set("2026-02-07T23:00:00Z")
    run_king(daily, clock)
    assert here(daily, "tasks", "pending") == ["task-20260207-077"]


def test_a_proclamation_is_a_message_of_its_own(under_way: Path, clock: Clock) -> None:
    result(under_way, proclamation={"channel": "C0TEAMCH", "message": "PR News"}, notify_channel="C9")
    run_king(under_way, clock)
    assert messages_of(under_way) == [
        ("notification", TASK, f"[complete] {TYPE} — completed"),
        ("notification", f"proclamation-{TASK}", "PR News"),
    ]
    assert [record["channel"] for record in all_of(under_way, "messages", "pending")] == ["C9", "C0TEAMCH"]


def test_a_damaged_file_of_an_ended_task_stops_nobody(under_way: Path, clock: Clock) -> None:
    places = Places(under_way)
    os.rename(places.queue_file("tasks", "in_progress", TASK), places.queue_file("tasks", "completed", TASK))
    places.queue_file("tasks", "completed", TASK).write_text("{damaged")
    put(under_way, "events", "pending", **event("evt-2"))
    run_king(under_way, clock)
    assert "evt-2" in here(under_way, "events", "dispatched")


@pytest.mark.parametrize("kind", ["events", "tasks"])
def test_what_cannot_be_read_is_moved_to_dead_and_the_rest_is_served(court_home: Path, clock: Clock, kind: str) -> None:
    (Places(court_home).folder(kind, "pending") / "bad.json").write_text("{")
    put(court_home, "events", "pending", **event())
    run_king(court_home, clock)
    assert here(court_home, kind, "dead") == ["bad"]
    assert here(court_home, "events", "dispatched") == ["evt-1"]


GARBAGE: dict[str, Callable[[Path], object]] = {
    "half a task": lambda folder: (folder / "bad.json").write_text("{"),
    "a note": lambda folder: (folder / "README").write_text("do not touch"),
    "a folder": lambda folder: (folder / "bad.json").mkdir(),
    "a pipe": lambda folder: os.mkfifo(folder / "bad.json"),
    "a link to itself": lambda folder: (folder / "bad.json").symlink_to("bad.json"),
}


def test_an_id_that_is_used_for_something_else_is_set_aside_with_its_reason(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "pending", **event())
    run_king(court_home, clock)
    put(court_home, "events", "pending", **event(payload={"pr_number": "8"}))
    run_king(court_home, clock)
    assert here(court_home, "events", "pending") == []
    assert read(court_home, "events", "dead", "evt-1")["payload"] == {"pr_number": "8"}
    why = json.loads((Places(court_home).folder("events", "dead") / "evt-1.json.reason").read_text())["reason"]
    assert why == f"another event of this id became {TASK}; give this one another id"


@pytest.mark.parametrize("what", GARBAGE)
def test_unreadable_tasks_do_not_count_against_max_soldiers(court_home: Path, clock: Clock, what: str) -> None:
    (Places(court_home).config / "king.yaml").write_text("concurrency: {max_soldiers: 1}\n")
    GARBAGE[what](Places(court_home).folder("tasks", "in_progress"))
    put(court_home, "events", "pending", **event())
    clock.pass_(3600 * 24 * 365 * 50)
    run_king(court_home, clock)
    assert os.listdir(Places(court_home).folder("tasks", "in_progress")) == []
    assert len(list(Places(court_home).folder("tasks", "dead").glob("*.reason"))) == 1
    assert here(court_home, "events", "dispatched") == ["evt-1"]


def test_a_foreign_events_strange_notes_stop_nobody(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "pending", **event("evt-a", letters={"start": "../../config/king"}))
    put(court_home, "events", "pending", **event("evt-b", letters={"start": 5}))
    put(court_home, "events", "pending", **event("evt-c", task_id="../x"))
    put(court_home, "events", "pending", **event("evt-d"))
    run_king(court_home, clock)
    assert here(court_home, "events", "dead") == ["evt-a", "evt-b", "evt-c"]
    assert here(court_home, "events", "dispatched") == ["evt-d"]


def test_a_half_written_event_is_read_again_soon_and_not_moved_to_dead(court_home: Path, clock: Clock) -> None:
    path = Places(court_home).folder("events", "pending") / "evt-1.json"
    king = run_king(court_home, clock)
    path.write_text('{"id": ')
    clock.now = path.stat().st_mtime + 0.1
    turn = king.job.turn({path.parent: [path.name]})
    assert turn.busy
    assert 0 < turn.wait <= 0.5
    write(path, event())
    run_king(court_home, clock, king)
    assert (here(court_home, "events", "dead"), here(court_home, "events", "dispatched")) == ([], ["evt-1"])


@pytest.fixture
def daily(court_home: Path) -> Path:
    plan = {"name": "daily", "cron": "0 22 * * *", "task_type": "daily-test", "payload": {"description": "x"}}
    install(court_home, "gen-test", schedules=[plan])
    return court_home


def scheduled(home: Path) -> list[tuple[str, str | None]]:
    return [(record["id"], record["scheduled_for"]) for record in all_of(home, "tasks", "pending")]


def test_a_run_is_made_at_its_minute_and_once(daily: Path, clock: Clock) -> None:
    king = run_king(daily, clock)
    clock.set("2026-02-07T21:59:59Z")
    run_king(daily, clock, king)
    assert scheduled(daily) == []
    for at in ("22:00:00", "22:00:30", "22:01:00", "23:00:00"):
        clock.set(f"2026-02-07T{at}Z")
        run_king(daily, clock, king)
        run_king(daily, clock)
    assert scheduled(daily) == [("task-20260207-001", "2026-02-07T22:00:00Z")]
    made = read(daily, "tasks", "pending", TASK)
    assert (made["event_id"], made["priority"], made["type"]) == ("schedule-daily", "low", "daily-test")
    assert made["payload"] == {"description": "x"}
    assert messages_of(daily) == [("thread_start", TASK, "[start] schedule.daily-test")]
    about = {"task_id": TASK, "target_general": "gen-test", "event_type": "daily-test", "priority": "low"}
    assert of_events(daily, "task.created") == [about]


def test_a_schedule_seen_for_the_first_time_starts_now(daily: Path, clock: Clock) -> None:
    clock.set("2026-02-07T22:30:00Z")
    run_king(daily, clock)
    assert scheduled(daily) == []


@pytest.mark.parametrize(
    ("catch_up", "made"),
    [
        ("skip", []),
        ("latest", ["2026-02-09T22:00:00Z"]),
        ("all", ["2026-02-07T22:00:00Z", "2026-02-08T22:00:00Z", "2026-02-09T22:00:00Z"]),
    ],
)
def test_after_an_absence_runs_are_caught_up_with_as_wanted(
    court_home: Path, clock: Clock, catch_up: str, made: list[str]
) -> None:
    plan = {"name": "daily", "cron": "0 22 * * *", "task_type": "t", "catch_up": catch_up}
    install(court_home, "gen-test", schedules=[plan])
    run_king(court_home, clock)
    clock.set("2026-02-10T10:00:00Z")
    run_king(court_home, clock)
    assert [due for _, due in scheduled(court_home)] == made
    run_king(court_home, clock)
    assert len(scheduled(court_home)) == len(made)


@pytest.mark.parametrize("catch_up", ["skip", "latest", "all"])
def test_a_run_that_the_gate_holds_waits(court_home: Path, clock: Clock, catch_up: str) -> None:
    plan = {"name": "daily", "cron": "0 22 * * *", "task_type": "t", "catch_up": catch_up}
    install(court_home, "gen-test", schedules=[plan])
    king = run_king(court_home, clock)
    clock.set("2026-02-07T22:00:05Z")
    vitals(court_home, "orange", "2026-02-07T22:00:00Z")
    run_king(court_home, clock, king)
    assert scheduled(court_home) == []
    clock.set("2026-02-07T23:30:00Z")
    vitals(court_home, "orange", "2026-02-07T23:30:00Z")
    run_king(court_home, clock, king)
    vitals(court_home, "green", "2026-02-07T23:30:00Z")
    run_king(court_home, clock)
    assert [due for _, due in scheduled(court_home)] == ["2026-02-07T22:00:00Z"]


def the_plan(home: Path) -> dict[str, Any]:
    (plan,) = json.loads((Places(home).own("king") / "schedules.json").read_text())["schedules"]
    return {key: plan[key] for key in ("next", "last", "held_since", "held_because")}


def test_runs_obey_the_number_of_soldiers_and_tell_what_holds_them(daily: Path, clock: Clock) -> None:
    king = run_king(daily, clock)
    assert (the_plan(daily)["last"], the_plan(daily)["held_since"]) == (None, None)
    for number in range(10):
        put(daily, "tasks", "in_progress", **task(f"task-20260207-10{number}"))
    clock.set("2026-02-07T22:00:05Z")
    run_king(daily, clock, king)
    assert scheduled(daily) == []
    seen = the_plan(daily)
    assert (seen["last"], seen["held_since"]) == (None, "2026-02-07T22:00:00Z")
    assert seen["held_because"].startswith("concurrency.max_soldiers is 10, and 10 tasks run or could run now")
    clock.set("2026-02-08T22:00:05Z")
    run_king(daily, clock)
    assert the_plan(daily)["held_since"] == "2026-02-07T22:00:00Z", "since then, though a newer run took its place"
    result(daily, "task-20260207-100", status="skipped")
    run_king(daily, clock)
    assert [due for _, due in scheduled(daily)] == ["2026-02-08T22:00:00Z"]
    assert the_plan(daily) == {
        "next": "2026-02-09T22:00:00Z",
        "last": "2026-02-08T22:00:00Z",
        "held_since": None,
        "held_because": None,
    }


def test_a_held_run_starts_when_there_is_room_and_not_at_the_next_look(daily: Path, clock: Clock) -> None:
    king = run_king(daily, clock)
    for number in range(10):
        put(daily, "tasks", "in_progress", **task(f"task-20260207-10{number}"))
    clock.set("2026-02-07T22:00:05Z")
    run_king(daily, clock, king)
    for number in range(10):
        Places(daily).queue_file("tasks", "in_progress", f"task-20260207-10{number}").unlink()
    vitals(daily, "red", "2026-02-07T22:00:05Z")
    king.job.turn({})
    assert the_plan(daily)["held_because"].startswith("the machine is red")
    vitals(daily, "green", "2026-02-07T22:00:05Z")
    king.job.turn({})
    assert scheduled(daily) == [(TASK, "2026-02-07T22:00:00Z")]
    assert not king.job.turn({}).worked
    assert (the_plan(daily)["held_since"], the_plan(daily)["held_because"]) == (None, None)


@pytest.mark.parametrize("hours", [1, 24, 24 * 400])
def test_a_clock_that_jumps_ahead_and_back_makes_each_run_once(daily: Path, clock: Clock, hours: int) -> None:
    king = run_king(daily, clock)
    clock.set("2026-02-07T21:30:00Z")
    run_king(daily, clock, king)
    clock.pass_(3600 * hours)
    run_king(daily, clock, king)
    ahead = scheduled(daily)
    assert len(ahead) == 1
    for at in ("07T21:30:00Z", "07T21:59:00Z", "07T22:00:10Z", "07T22:30:00Z", "08T21:59:00Z", "08T22:00:00Z"):
        clock.set(f"2026-02-{at}")
        run_king(daily, clock, king)
        run_king(daily, clock)
    dues = [due for _, due in scheduled(daily)]
    assert len(dues) == len(set(dues))
    assert {"2026-02-07T22:00:00Z", "2026-02-08T22:00:00Z"} <= set(dues)
    assert len(dues) == (3 if hours > 24 else 2)


def test_a_run_that_was_made_waits_no_more_though_its_king_ends_at_once(daily: Path, clock: Clock) -> None:
    king = run_king(daily, clock)
    clock.set("2026-02-07T22:00:00Z")
    king.job.turn(None)
    assert [due for _, due in scheduled(daily)] == ["2026-02-07T22:00:00Z"]
    noted = read_json(Places(daily).own("king") / "schedule-sent.json")["gen-test:daily"]
    assert (noted["waiting"], noted["last"], "task_id" in noted) == ([], "2026-02-07T22:00:00Z", False)


@pytest.mark.parametrize(
    ("noted", "back", "made_up"),
    [
        ("2026-02-07", "2026-02-08T09:00:00Z", []),
        ("2026-02-08", "2026-02-08T22:10:00Z", []),
        ("2026-02-07", "2026-02-08T22:10:00Z", ["2026-02-08T22:00:00Z"]),
        ("2026-02-06", "2026-02-08T09:00:00Z", ["2026-02-07T22:00:00Z"]),
    ],
)
def test_a_run_that_another_king_has_made_is_not_made_again(
    daily: Path, clock: Clock, noted: str, back: str, made_up: list[str]
) -> None:
    run_king(daily, clock)
    page = Places(daily).own("king") / "schedule-sent.json"
    write(page, {**read_json(page), "daily": noted})
    clock.set(back)
    king = run_king(daily, clock)
    assert [due for _, due in scheduled(daily)] == made_up
    clock.set("2026-02-09T22:00:00Z")
    run_king(daily, clock, king)
    assert scheduled(daily)[-1][1] == "2026-02-09T22:00:00Z"


RUN = {"due": "2026-02-07T22:00:00Z", "task_id": TASK, "letter_id": "msg-20260207-001"}
RUN_MOMENTS: dict[str, Callable[[Path], object]] = {
    "after the note": lambda home: None,
    "after the task": lambda home: put(home, "tasks", "pending", **task(general="gen-test", scheduled_for=RUN["due"])),
    "after the message": lambda home: (
        put(home, "tasks", "in_progress", **task(general="gen-test", scheduled_for=RUN["due"])),
        put(home, "messages", "sent", **STARTED),
    ),
}


@pytest.mark.parametrize("moment", RUN_MOMENTS)
def test_a_begun_run_is_finished_under_the_same_ids(daily: Path, clock: Clock, moment: str) -> None:
    page = {"handled": RUN["due"], "waiting": [RUN["due"]], **RUN}
    write(Places(daily).own("king") / "schedule-sent.json", {"gen-test:daily": page})
    RUN_MOMENTS[moment](daily)
    clock.set("2026-02-07T22:05:00Z")
    vitals(daily, "red", "2026-02-07T22:05:00Z")
    run_king(daily, clock)
    run_king(daily, clock)
    assert [*here(daily, "tasks", "pending"), *here(daily, "tasks", "in_progress")] == [TASK]
    assert [*here(daily, "messages", "pending"), *here(daily, "messages", "sent")] == ["msg-20260207-001"]


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[]",
        '{"gen-test:daily": "2026-02-06"}',
        '{"daily": "yesterday"}',
        '{"daily": 7}',
        '{"gen-test:daily": {}}',
        '{"gen-test:daily": {"handled": 5}}',
        '{"gen-test:daily": {"handled": "soon"}}',
        '{"gen-test:daily": {"handled": "2026-02-07T10:00:00Z", "task_id": 1}}',
    ],
)
def test_a_damaged_schedule_log_starts_anew(daily: Path, clock: Clock, damage: str) -> None:
    (Places(daily).own("king") / "schedule-sent.json").write_text(damage)
    king = run_king(daily, clock)
    clock.set("2026-02-07T22:00:00Z")
    run_king(daily, clock, king)
    assert len(scheduled(daily)) == 1


def test_when_each_schedule_runs_next_can_be_read(daily: Path, clock: Clock) -> None:
    run_king(daily, clock)
    (plan,) = json.loads((Places(daily).own("king") / "schedules.json").read_text())["schedules"]
    assert (plan["general"], plan["name"], plan["next"]) == ("gen-test", "daily", "2026-02-07T22:00:00Z")


def test_a_schedule_that_cannot_be_kept_is_told_and_the_others_run(court_home: Path, clock: Clock) -> None:
    plans = [
        {"name": "bad", "cron": "0 0 30 2 *", "task_type": "t"},
        {"name": "lost", "cron": "0 22 * * *", "task_type": "t", "timezone": "America"},
        {"name": "good", "cron": "0 22 * * *", "task_type": "t"},
    ]
    install(court_home, "gen-test", schedules=plans)
    king = run_king(court_home, clock)
    clock.set("2026-02-07T22:00:00Z")
    run_king(court_home, clock, king)
    assert len(scheduled(court_home)) == 1
    log = Places(court_home).role_log("king").read_text()
    assert "gen-test: schedule 'bad'" in log
    assert "gen-test: schedule 'lost'" in log


def test_a_configuration_that_is_wrong_in_one_thing_is_not_taken_over_in_another(
    court_home: Path, clock: Clock
) -> None:
    king = run_king(court_home, clock)
    roomy = {"concurrency": {"max_soldiers": 1}, "slack": {"default_channel": "two"}}
    with pytest.raises(BadConfig, match="there is no time zone"):
        king.job.reload(services(court_home, "king", clock, king=roomy, system={"timezone": "Mars/Base"}))
    put(court_home, "events", "pending", **event("evt-1"))
    put(court_home, "events", "pending", **event("evt-2"))
    run_king(court_home, clock, king)
    assert here(court_home, "events", "dispatched") == ["evt-1", "evt-2"]
    assert {record["channel"] for record in all_of(court_home, "messages", "pending")} == {"kingdom"}


def test_task_numbers_follow_the_day_of_the_kingdoms_zone(court_home: Path, clock: Clock) -> None:
    (Places(court_home).config / "system.yaml").write_text("timezone: Asia/Seoul\n")
    clock.set("2026-02-07T16:00:00Z")
    put(court_home, "events", "pending", **event())
    run_king(court_home, clock)
    assert here(court_home, "tasks", "pending") == ["task-20260208-001"]


def test_results_of_foreign_generals_end_their_tasks(court_home: Path, clock: Clock) -> None:
    endings: dict[str, dict[str, Any]] = {
        "task-1": {"status": "killed"},
        "task-2": {"status": "success", "memory_updates": None, "metrics": None, "proclamation": {}},
    }
    for name, fields in endings.items():
        put(court_home, "tasks", "in_progress", **task(name, repo="", payload=None, priority="urgent"))
        result(court_home, name, **fields)
    king = run_king(court_home, clock)
    assert [(name, content) for _, name, content in messages_of(court_home)] == [
        ("task-1", "[failed] unknown"),
        ("task-2", f"[complete] {TYPE} — completed"),
    ]
    assert read(court_home, "tasks", "completed", "task-1")["repo"] is None
    assert "the result of task-2: dropped what does not fit in metrics" in king.services.places.system_log.read_text()


def test_an_event_of_a_foreign_king_has_no_repository(court_home: Path, clock: Clock) -> None:
    put(court_home, "events", "pending", **event(repo=""))
    run_king(court_home, clock)
    assert [task["repo"] for task in all_of(court_home, "tasks", "pending")] == [None]
    assert [content for _, _, content in messages_of(court_home)] == [f"[start] {TYPE}"]


@pytest.mark.parametrize(
    ("reported", "noted", "beside"), [("s-1", None, None), (None, "s-1", "s-9"), (None, None, "s-1")]
)
def test_a_question_tells_other_envoys_where_it_belongs_and_how_to_go_on(
    court_home: Path, clock: Clock, reported: str | None, noted: str | None, beside: str | None
) -> None:
    places = Places(court_home)
    asker = {"source": "slack", "event_id": "evt-1", "channel": "C1", "message_ts": "1.2", "user": "U"}
    put(court_home, "tasks", "in_progress", **task(reply_to=asker))
    write(places.checkpoint(TASK), {"task_id": TASK, "target_general": "gen-pr", "session_id": noted})
    if beside:
        places.session_id(TASK).write_text(f"{beside}\n")
    result(court_home, status="needs_human", question="which?", **({"session_id": reported} if reported else {}))
    run_king(court_home, clock)
    (question,) = all_of(court_home, "messages", "pending")
    assert (question["channel"], question["thread_ts"]) == ("C1", "1.2")
    assert question["reply_context"] == question["context"]["reply_context"]
    assert (question["reply_context"]["general"], question["reply_context"]["session_id"]) == ("gen-pr", "s-1")


def test_two_replies_to_one_question_are_one_answer(court_home: Path, clock: Clock) -> None:
    write(Places(court_home).checkpoint(TASK), {"task_id": TASK, "target_general": "gen-pr", "session_id": "s-1"})
    for number in (1, 2):
        payload = {"text": "yes", "channel": "C1", "thread_ts": "1.2", "reply_context": {"task_id": TASK, "repo": ""}}
        put(court_home, "events", "pending", **event(f"evt-{number}", "slack.thread.reply", payload=payload))
    run_king(court_home, clock)
    (resumed,) = all_of(court_home, "tasks", "pending")
    assert (resumed["type"], resumed["payload"]["session_id"], resumed["repo"]) == ("resume", "s-1", None)
    assert sorted(event["status"] for event in all_of(court_home, "events", "completed")) == ["failed"]


def durable_king(home: Path, clock: Clock) -> King:
    """Return a king that has handled an event, and writes durably."""
    king = new_king(home, clock)
    king.services.disk.durability = "power"
    put(home, "events", "pending", **event("evt-0", TYPE))
    while king.job.turn(None).worked:
        pass
    return king


DISPATCHED = [
    "sync drafts",
    "show events/pending",
    "sync events/pending",
    "show messages/pending, tasks/pending",
    "sync messages/pending, state/king/done.idx, tasks/pending",
    "show events/dispatched",
    "sync events/dispatched, events/pending",
]
COMPLETED = [
    "sync drafts",
    "show tasks/in_progress",
    "sync tasks/in_progress",
    "show messages/pending",
    "sync messages/pending",
    "show events/completed, events/dispatched",
    "sync events/completed, events/dispatched",
    "show tasks/completed",
    "sync tasks/completed, tasks/in_progress",
]


def test_a_group_is_durable_in_the_order_of_the_hand_over_and_with_few_syncs(
    court_home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notes before anything follows from them, that before the causes move."""
    king = durable_king(court_home, clock)
    for number in range(1, 6):
        put(court_home, "events", "pending", **event(f"evt-{number}", TYPE))
    with monkeypatch.context() as patch:
        steps = syncs.noted(patch, court_home)
        king.job.turn(None)
    assert steps.take() == DISPATCHED
    names = here(court_home, "tasks", "pending")
    for name in names:
        os.rename(*(Places(court_home).queue_file("tasks", state, name) for state in ("pending", "in_progress")))
        write(Places(court_home).result(name), {"task_id": name, "status": "success"})
    with monkeypatch.context() as patch:
        steps = syncs.noted(patch, court_home)
        king.job.turn(None)
    assert steps.take() == COMPLETED
    assert (len(names), here(court_home, "tasks", "completed")) == (6, names)


def test_what_an_error_left_unsynced_is_synced_before_its_event_moves(
    court_home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    king = durable_king(court_home, clock)
    put(court_home, "events", "pending", **event("evt-1", TYPE))
    with monkeypatch.context() as patch:
        patch.setattr(ReplayIndex, "add", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            king.job.turn(None)
    assert here(court_home, "events", "pending") == ["evt-1"]
    with monkeypatch.context() as patch:
        steps = syncs.noted(patch, court_home)
        king.job.turn(None)
    assert steps.take()[-3:] == [
        "sync events/pending, messages/pending, state/king/done.idx, tasks/pending",
        "show events/dispatched",
        "sync events/dispatched, events/pending",
    ]
