"""The chamberlain's letters: each trouble once, a storm in few letters, none lost by a kill."""

from __future__ import annotations

from pathlib import Path

from kingdom.chamberlain.alerts import Alerts
from tests.kit import Clock, all_of, here, kit


def alerts(home: Path, clock: Clock) -> Alerts:
    return Alerts(kit(home, "chamberlain", clock))


def said(home: Path) -> list[str]:
    return [letter["content"] for letter in all_of(home, "messages", "pending")]


def test_a_trouble_is_told_at_once_and_once(home: Path) -> None:
    clock = Clock()
    ours = alerts(home, clock)
    for _ in range(3):
        ours.tell("missed:king:1", "king hung")
        ours.send(clock)
        clock.pass_(60)
    assert said(home) == ["[alert] king hung"]
    assert all_of(home, "messages", "pending")[0]["urgency"] == "urgent"


def test_a_trouble_that_was_over_is_told_again(home: Path) -> None:
    clock = Clock()
    ours = alerts(home, clock)
    for _ in range(2):
        ours.tell("red", "the machine is red")
        ours.send(clock)
        ours.forget("red")
        clock.pass_(4000)
    assert said(home) == ["[alert] the machine is red"] * 2


def test_a_storm_is_three_letters_at_most_and_loses_nothing(home: Path) -> None:
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


def test_a_letter_noted_but_not_delivered_is_delivered_by_the_next_life(home: Path) -> None:
    clock = Clock()
    ours = alerts(home, clock)
    ours.tell("a", "first")
    ours._write({**ours._book, "letter": "msg-20260207-chamberlain-001", "told_now": ours._book["waiting"]})
    alerts(home, clock).send(clock)
    assert here(home, "messages", "pending") == ["msg-20260207-chamberlain-001"]


def test_a_letter_delivered_but_not_noted_is_not_delivered_twice(home: Path) -> None:
    clock = Clock()
    ours = alerts(home, clock)
    ours.tell("a", "first")
    before = dict(ours._book)
    ours.send(clock)
    ours._write({**before, "letter": here(home, "messages", "pending")[0], "told_now": before["waiting"]})
    alerts(home, clock).send(clock)
    assert said(home) == ["[alert] first"]


def test_a_damaged_book_starts_anew(home: Path) -> None:
    clock = Clock()
    alerts(home, clock).tell("a", "first")
    (home / "state" / "chamberlain" / "alerts.json").write_bytes(b"")
    ours = alerts(home, clock)
    ours.tell("b", "second")
    ours.send(clock)
    assert said(home) == ["[alert] second"]
