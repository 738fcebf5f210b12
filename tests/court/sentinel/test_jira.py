"""Jira's tickets: first sight, a change of status and what people write become events, once; what we do does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.base.home.places import Places
from kingdom.base.times import moment
from kingdom.court.sentinel.watchers.adf import DEEPEST, plain
from kingdom.demo.standins.faults import Fault, cuts, drops, fails, limits, passes, says
from kingdom.demo.standins.jira import CLOUD, SITE, Jira, document, person
from tests.court.sentinel.sentinels import SECRETS, Sentinel
from tests.fixtures import Clock

Build = Callable[..., Sentinel]
PERIOD = 300.0


@pytest.fixture
def build(home: Path, clock: Clock, tickets: Jira) -> Build:
    """A new life of the sentinel in one home."""

    def built(more: dict[str, Any] | None = None, **others: Any) -> Sentinel:
        secrets = {name: value for name, value in SECRETS.items() if name != "GH_TOKEN"}
        return Sentinel(home, clock, {"jira": more or {}}, {**secrets, "JIRA_URL": tickets.address}, **others)

    return built


@pytest.fixture
def sentinel(build: Build, tickets: Jira) -> Sentinel:
    """One that has seen QP-1, a period ago."""
    tickets.ticket("QP-1")
    sentinel = build()
    sentinel.settle()
    sentinel.time.pass_(PERIOD)
    return sentinel


def later_event(sentinel: Sentinel) -> dict[str, Any]:
    """Return the event that came after the ticket was assigned."""
    (event,) = [event for event in sentinel.all() if event["type"] != "jira.ticket.assigned"]
    return event


def remember(home: Path, **state: Any) -> None:
    """What another sentinel has left."""
    own = Places(home).own("sentinel")
    make_folder(own)
    (own / "jira-state.json").write_text(json.dumps(state))


def test_a_ticket_that_is_seen_first_is_assigned(build: Build, tickets: Jira) -> None:
    tickets.ticket("QP-123", text="It is slow.\nVery.")
    sentinel = build()
    assert sentinel.settle() == ["evt-jira-QP-123-20260207100000"]
    event = sentinel.one()
    assert (event["type"], event["priority"], event["repo"]) == ("jira.ticket.assigned", "normal", None)
    assert event["payload"] == {
        "headline": "QP-123 Make it faster",
        "ticket_key": "QP-123",
        "summary": "Make it faster",
        "status": "To Do",
        "previous_status": None,
        "url": f"{tickets.address}/browse/QP-123",
        "priority": "High",
        "labels": ["speed"],
        "description": "It is slow.\nVery.",
        "updated_at": "2026-02-07T19:00:00.000+0900",
        "comments": [],
    }


def test_a_token_with_scopes_is_used_at_the_one_address_that_takes_it(home: Path, clock: Clock, tickets: Jira) -> None:
    tickets.has_scopes = True
    tickets.ticket("QP-123")
    secrets = {**SECRETS, "JIRA_URL": f"{tickets.address}/ex/jira/{CLOUD}"}
    sentinel = Sentinel(home, clock, {"jira": {}}, {name: secrets[name] for name in secrets if name != "GH_TOKEN"})
    sentinel.settle()
    assert sentinel.one()["payload"]["url"] == f"{SITE}/browse/QP-123"


def test_a_change_of_status_by_others_is_updated(sentinel: Sentinel, tickets: Jira) -> None:
    tickets.move("QP-1", "In Progress")
    sentinel.settle()
    moved = later_event(sentinel)
    assert (moved["type"], moved["payload"]["status"]) == ("jira.ticket.updated", "In Progress")
    assert moved["payload"]["previous_status"] == "To Do"


def test_words_of_others_are_commented_with_what_they_say(sentinel: Sentinel, tickets: Jira) -> None:
    tickets.comment("QP-1", "please hurry")
    sentinel.settle()
    said = later_event(sentinel)
    assert (said["type"], said["priority"]) == ("jira.ticket.commented", "low")
    (comment,) = said["payload"]["comments"]
    assert (comment["author"], comment["text"]) == ("dana", "please hurry")


def test_what_we_and_programs_do_never_comes_back(build: Build, tickets: Jira) -> None:
    tickets.ticket("QP-1")
    sentinel = build()
    sentinel.settle()
    for by in (tickets.me, person("automation", is_app=True)):
        sentinel.time.pass_(PERIOD)
        tickets.move("QP-1", f"moved by {by['displayName']}", by)
        tickets.comment("QP-1", "done", by)
        sentinel.settle()
    assert sentinel.types() == ["jira.ticket.assigned"]


def test_other_edits_are_nothing(sentinel: Sentinel, tickets: Jira) -> None:
    tickets.edit("QP-1")
    sentinel.settle()
    assert sentinel.types() == ["jira.ticket.assigned"]


def test_a_move_with_words_is_one_event_that_carries_them(sentinel: Sentinel, tickets: Jira) -> None:
    tickets.move("QP-1", "Done")
    tickets.comment("QP-1", "it is done")
    sentinel.settle()
    moved = later_event(sentinel)
    assert moved["type"] == "jira.ticket.updated"
    assert moved["payload"]["comments"][0]["text"] == "it is done"


@pytest.mark.parametrize("first", ["move", "comment", "nothing"])
@pytest.mark.parametrize("then", ["move", "comment"])
def test_what_happens_within_the_second_of_what_was_seen_is_heard_once(
    build: Build, tickets: Jira, clock: Clock, first: str, then: str
) -> None:
    """Also when it comes in the same millisecond, and when a life ends right after it was made."""
    tickets.ticket("QP-1")
    sentinel = build()
    sentinel.settle()
    acts = {"move": tickets.move, "comment": tickets.comment, "nothing": lambda *_, **__: None}
    if first != "nothing":
        sentinel.time.pass_(PERIOD)
    second = clock.now
    acts[first]("QP-1", "once", at=second)
    sentinel.settle()
    before = len(sentinel.events())
    for number in range(2):
        acts[then]("QP-1", f"again {number}", at=second)
        sentinel.time.pass_(20)
        reborn = build()
        reborn.turn_until(lambda life=reborn, made=before + number: len(life.events()) > made)
        assert len(build().settle()) == before + number + 1
    assert len(build().look(PERIOD)) == before + 2


def test_tickets_that_are_not_seen_for_long_are_forgotten_and_no_others(
    build: Build, tickets: Jira, home: Path, clock: Clock
) -> None:
    known = {f"OLD-{number}": {"status": "Done", "updated": "2026-02-01T18:58:00.000+0900"} for number in range(6000)}
    known = {"QP-1": {"status": "To Do", "updated": "2026-02-07T18:58:00.000+0900"}, **known}
    remember(home, last_check="2026/02/07 09:58", known_issues=known)
    for key in ("QP-1", "QP-2"):
        tickets.ticket(key)
    sentinel = build()
    assert len(sentinel.settle()) == 1
    kept = sentinel.state("jira")["known_issues"]
    assert len(kept) == 5000
    assert {"QP-1", "QP-2", "OLD-5999"} <= kept.keys()


def test_the_newest_of_many_comments_is_heard(build: Build, tickets: Jira) -> None:
    tickets.ticket("QP-1")
    for number in range(30):
        tickets.comment("QP-1", f"old {number}")
    sentinel = build()
    sentinel.settle()
    sentinel.time.pass_(PERIOD)
    tickets.comment("QP-1", "new")
    sentinel.settle()
    assert [comment["text"] for comment in later_event(sentinel)["payload"]["comments"]] == ["new"]


def test_the_first_look_goes_ten_minutes_back(build: Build, tickets: Jira, clock: Clock) -> None:
    tickets.ticket("OLD-1", at=clock.now - 3600)
    tickets.ticket("NEW-1", at=clock.now - 500)
    sentinel = build()
    assert sentinel.settle() == ["evt-jira-NEW-1-20260207095140"]


def test_every_page_is_read(build: Build, tickets: Jira) -> None:
    tickets.page_size = 7
    for number in range(30):
        tickets.ticket(f"QP-{number}")
    assert len(build().settle()) == 30


@pytest.mark.parametrize("seconds", [300, 3600, 86400 * 3])
def test_a_restart_loses_nothing_however_long_it_was_away(build: Build, tickets: Jira, seconds: int) -> None:
    sentinel = build()
    sentinel.settle()
    sentinel.time.pass_(30)
    tickets.ticket("QP-1")
    sentinel.time.pass_(seconds)
    assert len(build().settle()) == 1


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_clock_that_is_set_loses_nothing(build: Build, tickets: Jira, clock: Clock, step: int) -> None:
    theirs = Clock()
    tickets.clock = theirs
    sentinel = build()
    sentinel.settle()
    theirs.pass_(1800)
    tickets.ticket("QP-1")
    theirs.pass_(1800)
    clock.pass_(step)
    sentinel.time.now += PERIOD
    assert len(sentinel.settle()) == 1


def test_its_clock_may_differ_from_ours(build: Build, tickets: Jira) -> None:
    tickets.skew = 5400.0
    tickets.ticket("QP-1")
    sentinel = build()
    sentinel.settle()
    sentinel.time.pass_(PERIOD)
    tickets.ticket("QP-2")
    assert len(sentinel.settle()) == 2
    assert len(sentinel.look(PERIOD)) == 2


def test_a_killed_life_that_had_made_the_event_does_not_make_another(build: Build, tickets: Jira) -> None:
    tickets.ticket("QP-1")
    sentinel = build()
    sentinel.turn_until(sentinel.events)
    # The ticket changes before the next life looks: its event would have another id.
    sentinel.time.pass_(60)
    tickets.edit("QP-1")
    assert build().settle() == ["evt-jira-QP-1-20260207100000"]


def test_after_a_change_over_what_was_known_is_not_seen_first_again(
    build: Build, tickets: Jira, home: Path, clock: Clock
) -> None:
    remember(
        home,
        last_check="2026/02/07 09:58",
        known_issues={"QP-1": {"status": "To Do", "updated": "20260207095800000"}, "QP-2": "In Progress"},
    )
    tickets.ticket("QP-1", at=clock.now - 60)
    tickets.ticket("QP-2", at=clock.now - 60)
    tickets.ticket("QP-3", at=clock.now - 60)
    tickets.comment("QP-1", "hello", at=clock.now - 30)
    sentinel = build()
    sentinel.settle()
    assert sorted((event["payload"]["ticket_key"], event["type"]) for event in sentinel.all()) == [
        ("QP-1", "jira.ticket.commented"),
        ("QP-2", "jira.ticket.updated"),
        ("QP-3", "jira.ticket.assigned"),
    ]


@pytest.mark.parametrize("at", ["2026-02-07T18:58:00.000+0900", "20260207095800000"])
def test_a_known_issue_may_be_known_by_the_time_of_its_change(build: Build, tickets: Jira, home: Path, at: str) -> None:
    remember(home, last_check="2026/02/07 09:58", known_issues={"QP-1": at})
    tickets.ticket("QP-1")
    sentinel = build()
    assert sentinel.settle() == []
    sentinel.time.pass_(PERIOD)
    tickets.move("QP-1", "Done")
    assert len(sentinel.settle()) == 1


def test_a_move_since_that_time_is_told(build: Build, tickets: Jira, home: Path) -> None:
    remember(home, last_check="2026/02/07 09:58", known_issues={"QP-1": "2026-02-07T18:58:00.000+0900"})
    tickets.ticket("QP-1", at=moment("2026-02-07T09:57:00Z"))
    tickets.move("QP-1", "In Progress")
    tickets.move("QP-1", "Done")
    sentinel = build()
    sentinel.settle()
    (event,) = sentinel.all()
    assert (event["type"], event["payload"]["previous_status"]) == ("jira.ticket.updated", "To Do")


def test_a_list_of_known_issues_is_read_as_well(build: Build, tickets: Jira, home: Path) -> None:
    remember(home, last_check="2026/02/07 09:58", known_issues=["QP-1"])
    tickets.ticket("QP-1")
    assert build().settle() == []


@pytest.mark.parametrize("fault", [drops(), cuts(), fails(500), fails(503), says([]), says({"issues": "none"})])
@pytest.mark.parametrize("before", [(), (passes(),)])
def test_a_service_that_fails_is_told_once_and_nothing_is_lost_or_doubled(
    build: Build, tickets: Jira, before: tuple[Fault, ...], fault: Fault
) -> None:
    tickets.ticket("QP-1")
    tickets.once(*before, fault, fault, fault)
    sentinel = build()
    sentinel.settle()
    for _ in range(5):
        sentinel.look(900)
    assert sentinel.events() == ["evt-jira-QP-1-20260207100000"]
    assert len([line for line in sentinel.said().splitlines() if " error " in line]) == 1
    assert sentinel.shows("jira")["state"] == "ok"


def test_a_limit_is_waited_out_exactly(build: Build, tickets: Jira) -> None:
    tickets.ticket("QP-1")
    tickets.once(passes(), limits(1000, 429))
    sentinel = build()
    sentinel.settle()
    sentinel.look(999)
    assert len(tickets.requests) == 2
    assert len(sentinel.look(1)) == 1


def test_a_ticket_of_another_shape_is_told_and_keeps_none_back(build: Build, tickets: Jira) -> None:
    tickets.ticket("QP-1")
    tickets.ticket("QP-2")
    tickets.tickets["QP-1"]["fields"]["status"] = None
    tickets.ticket("../x")
    sentinel = build()
    assert sentinel.settle() == ["evt-jira-QP-2-20260207100000"]
    sentinel.look(PERIOD)
    assert sentinel.said().count("has an unknown format") == 2


def test_without_all_three_lines_it_is_off(build: Build, tickets: Jira, home: Path, clock: Clock) -> None:
    sentinel = Sentinel(home, clock, {}, {"JIRA_URL": tickets.address})
    sentinel.settle()
    assert tickets.requests == []
    assert "jira is off: no JIRA_USER_EMAIL, JIRA_API_TOKEN in .env" in sentinel.said()


TEXT = {"type": "text", "text": "hello"}


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (document("one\n\ntwo"), "one\ntwo"),
        ("already plain", "already plain"),
        (None, ""),
        ({"type": "doc", "content": [{"type": "heading", "content": [TEXT]}]}, "hello"),
        (
            {
                "type": "bulletList",
                "content": [
                    {"type": "listItem", "content": [{"type": "paragraph", "content": [TEXT]}]},
                    {"type": "listItem", "content": [{"type": "paragraph", "content": [TEXT]}]},
                ],
            },
            "- hello\n- hello",
        ),
        ({"type": "codeBlock", "content": [{"type": "text", "text": "a = 1\nb = 2"}]}, "a = 1\nb = 2"),
        (
            {
                "type": "paragraph",
                "content": [
                    {"type": "mention", "attrs": {"id": "1", "text": "@dana"}},
                    {"type": "text", "text": " look "},
                    {"type": "emoji", "attrs": {"shortName": ":ok:"}},
                    {"type": "hardBreak"},
                    {"type": "inlineCard", "attrs": {"url": "https://x.example.com"}},
                ],
            },
            "@dana look :ok:\nhttps://x.example.com",
        ),
        (
            {
                "type": "paragraph",
                "content": [
                    {
                        "type": "text",
                        "text": "here",
                        "marks": [{"type": "link", "attrs": {"href": "https://y.example"}}],
                    }
                ],
            },
            "here (https://y.example)",
        ),
        ({"type": "paragraph", "content": "odd"}, ""),
        ({"type": "mediaSingle", "content": [{"type": "media", "attrs": {"id": "1"}}]}, "[attachment]"),
        (
            {
                "type": "tableRow",
                "content": [{"type": "tableCell", "content": [{"type": "paragraph", "content": [TEXT]}]}] * 2,
            },
            "hello | hello |",
        ),
    ],
)
def test_a_document_is_made_plain(node: Any, text: str) -> None:
    assert plain(node) == text


@pytest.mark.parametrize(("deep", "text"), [(DEEPEST, "hello"), (DEEPEST + 1, ""), (500, "")])
def test_a_document_nested_without_end_is_cut(deep: int, text: str) -> None:
    node: dict[str, Any] = TEXT
    for _ in range(deep):
        node = {"type": "paragraph", "content": [node]}
    assert plain(node) == text
