"""The alerts of the chamberlain: one for each matter, few for a storm, none lost by a kill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.home.places import Places
from kingdom.base.times import stamp
from kingdom.court.chamberlain.alerts import Alerts, _is_due
from kingdom.court.chamberlain.job import ChamberlainJob
from tests.fixtures import Clock, all_of, here, services, write


def alerts(home: Path, clock: Clock) -> Alerts:
    return Alerts(services(home, "chamberlain", clock))


def said(home: Path) -> list[str]:
    return [message["content"] for message in all_of(home, "messages", "pending")]


def book(home: Path) -> Path:
    return home / "state/chamberlain/alerts.json"


def note_letter(home: Path, name: str) -> None:
    """Write the file as it is left by a kill between the message's id and its end."""
    pages = read_json(book(home))
    write(book(home), {**pages, "letter": {"id": name, "tells": pages["waiting"]}})


def test_a_problem_is_reported_at_once_and_once(home: Path) -> None:
    clock = Clock()
    ours = alerts(home, clock)
    sent = []
    for _ in range(3):
        ours.tell("missed:king:1", "king hung")
        sent.append(ours.send(clock))
        clock.pass_(60)
    assert sent == [True, False, False]
    assert said(home) == ["[alert] king hung"]
    assert all_of(home, "messages", "pending")[0]["urgency"] == "urgent"


def test_a_problem_that_was_over_is_reported_again(home: Path) -> None:
    clock = Clock()
    ours = alerts(home, clock)
    for _ in range(2):
        ours.tell("red", "the machine is red")
        ours.send(clock)
        ours.forget("red")
        clock.pass_(4000)
    assert said(home) == ["[alert] the machine is red"] * 2


def test_a_problem_that_was_over_before_it_could_be_sent_says_so_and_is_reported_again(home: Path) -> None:
    clock = Clock()
    ours = alerts(home, clock)
    ours.tell("red", "the machine is red")
    ours.send(clock)
    for cause, text in (("refused:king:1", "king refuses king.yaml"), ("disk", "the disk is full"), ("odd", "odd")):
        ours.tell(cause, text)
    ours.forget_all_but("refused:king:", ())
    ours.forget("disk")
    over = stamp(clock())
    ours.tell("disk", "the disk is full again")
    clock.pass_(60)
    ours.forget_all_but("refused:king:", ())
    assert ours.send(clock)
    expected = ["3 things:", f"king refuses king.yaml (over since {over})", "odd", "the disk is full again"]
    assert said(home)[-1].removeprefix("[alert] ").splitlines() == expected
    for cause in ("refused:king:1", "disk"):
        ours.tell(cause, f"{cause} once more")
    clock.pass_(4000)
    ours.send(clock)
    assert said(home)[-1] == "[alert] refused:king:1 once more"


def test_a_storm_is_three_messages_at_most_and_loses_nothing(home: Path) -> None:
    clock = Clock()
    ours = alerts(home, clock)
    for second in range(300):
        ours.tell(f"missed:role-{second}", f"trouble {second}.")
        ours.send(clock)
        clock.pass_(1)
    assert len(said(home)) <= 3
    clock.pass_(1200)
    ours.send(clock)
    told = "\n".join(said(home))
    assert [number for number in range(300) if f"trouble {number}." not in told] == []


@pytest.mark.parametrize(
    ("sent_at", "now", "due"),
    [
        ([], 0.0, True),
        ([100.0], 109.9, False),
        ([100.0], 110.0, True),
        ([100.0, 110.0], 709.9, False),
        ([100.0, 110.0], 710.0, True),
        ([100.0, 110.0, 710.0], 1309.0, False),
        ([100.0, 3690.0], 3700.0, True),  # the first is an hour old
        ([100.0, 3690.0], 3699.9, False),
        ([200.0], 100.0, True),  # the clock was set back
    ],
)
def test_the_pauses_between_the_messages_of_an_hour(sent_at: list[float], now: float, due: bool) -> None:
    assert _is_due(sent_at, now) is due


def test_of_what_was_told_the_last_500_causes_are_known(home: Path) -> None:
    clock = Clock()
    alerts(home, clock).tell("cause-0", "first")
    write(book(home), {"told": [f"cause-{number}" for number in range(500)]})
    ours = alerts(home, clock)
    ours.tell("another", "one more")
    ours.send(clock)
    told = read_json(book(home))["told"]
    assert (len(told), told[0], told[-1]) == (500, "cause-1", "another")


def test_a_message_that_could_not_be_written_keeps_its_id(home: Path) -> None:
    clock = Clock()
    ours = alerts(home, clock)
    ours.tell("a", "first")
    pending = Places(home).folder("messages", "pending")
    pending.rename(home / "aside")
    with pytest.raises(OSError, match="pending"):
        ours.send(clock)
    (home / "aside").rename(pending)
    alerts(home, clock).send(clock)
    assert here(home, "messages", "pending") == ["msg-20260207-chamberlain-001"]


def test_a_message_noted_but_not_delivered_is_delivered_by_the_next_life(home: Path) -> None:
    clock = Clock()
    alerts(home, clock).tell("a", "first")
    note_letter(home, "msg-20260207-chamberlain-001")
    alerts(home, clock).send(clock)
    assert here(home, "messages", "pending") == ["msg-20260207-chamberlain-001"]


def test_a_message_delivered_but_not_noted_is_not_delivered_twice(home: Path) -> None:
    clock = Clock()
    ours = alerts(home, clock)
    ours.tell("a", "first")
    before = book(home).read_bytes()
    ours.send(clock)
    book(home).write_bytes(before)
    note_letter(home, here(home, "messages", "pending")[0])
    alerts(home, clock).send(clock)
    assert said(home) == ["[alert] first"]
    assert read_json(book(home))["told"] == ["a"]


def test_a_damaged_file_starts_anew(home: Path) -> None:
    clock = Clock()
    alerts(home, clock).tell("a", "first")
    book(home).write_bytes(b"")
    ours = alerts(home, clock)
    ours.tell("b", "second")
    ours.send(clock)
    assert said(home) == ["[alert] second"]


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("told", 3),
        ("told", [3]),
        ("sent_at", ["never"]),
        ("waiting", [{"cause": "a"}]),
        ("waiting", [["a"]]),
        ("letter", "msg-20260207-chamberlain-001"),
        ("letter", {"id": "../../x", "tells": [{"cause": "a", "text": "b"}]}),
        ("letter", {"id": "msg-20260207-chamberlain-001", "tells": []}),
        ("unknown", {}),
    ],
)
def test_a_damaged_entry_is_dropped_and_that_is_logged_once(home: Path, name: str, page: Any) -> None:
    clock = Clock()
    alerts(home, clock).tell("a", "first")
    write(book(home), {**read_json(book(home)), name: page})
    role = services(home, "chamberlain", clock)
    ours = Alerts(role)
    ours.tell("b", "second")
    ours.send(clock)
    assert "second" in said(home)[0]
    assert ("first" in said(home)[0]) is (name != "waiting")
    role.log.flush()
    assert f"dropped corrupt entries: {name}" in role.places.role_log("chamberlain").read_text()
    again = services(home, "chamberlain", clock)
    Alerts(again)
    again.log.flush()
    assert role.places.role_log("chamberlain").read_text().count("dropped corrupt") == 1


def test_the_day_in_an_id_is_the_kingdoms(home: Path) -> None:
    """10 in the morning in UTC is the next day on Kiritimati."""
    clock = Clock()
    clock.pass_(3600)
    ours = Alerts(services(home, "chamberlain", clock, system={"timezone": "Pacific/Kiritimati"}))
    ours.tell("a", "first")
    ours.send(clock)
    assert here(home, "messages", "pending") == ["msg-20260208-chamberlain-001"]


def test_a_source_that_refuses_us_is_told_once_until_it_lets_us_in_again(home: Path) -> None:
    clock = Clock()
    chamberlain = ChamberlainJob(replace(services(home, "chamberlain", clock), monotonic=clock))
    Places(home).own("sentinel").mkdir()
    refused = {"state": "refused", "why": "GitHub refuses: Bad credentials (HTTP 401)"}
    for shown in (refused, refused, {"state": "ok", "why": ""}, {"state": "down", "why": "HTTP 502"}, refused):
        write(Places(home).watchers, {"github": shown, "jira": {"state": "off", "why": "no token"}})
        chamberlain.turn(None)
        clock.pass_(4000)
    told = "github refuses the sentinel: GitHub refuses: Bad credentials (HTTP 401)"
    # Line by line: on a busy machine the same message tells that it is red.
    of_it = [line for alert in said(home) for line in alert.splitlines() if "github" in line]
    assert [line.removeprefix("[alert] ") for line in of_it] == [
        f"{told}; `kingdom connect github --check` tries it"
    ] * 2
