"""Anomalies are told once while they last, with what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.court import picture
from kingdom.court.chamberlain import anomalies
from kingdom.court.chamberlain.anomalies import ANOMALIES, Facts
from tests.court.chamberlain.test_chronicle import Court
from tests.fixtures import event, put, write

LIMITS = {"consecutive_failures": 3, "timeout_spike": 5, "event_stale_minutes": 30, "restart_spike": 5}


class Watch(Court):
    def look(self) -> list[str]:
        """What is told up to now."""
        chronicle = self.count()
        view = picture.take(self.services.places, [], self.clock(), 120)
        anomalies.tell(Facts(chronicle, view, LIMITS, self.clock()), self.alerts)
        chronicle.read(self.alerts)
        return self.told()

    def fails(self, times: int) -> None:
        self.write(times, "task.failed", "gen-pr", error="no")

    def times_out(self, times: int) -> None:
        self.write(times, "soldier.timeout", "gen-pr", soldier_id="s", timeout_seconds=1)

    def event_waits(self, minutes: float) -> None:
        path = put(self.services.places.home, "events", "pending", **event())
        since = self.clock() - minutes * 60
        os.utime(path, (since, since))

    def has_schedule(self, last: str | None) -> None:
        plan: dict[str, Any] = {"schedule": "gen-brief:daily", "next": "2026-02-07T10:30:00Z", "last": last}
        (self.services.places.own("king")).mkdir(exist_ok=True)
        write(self.services.places.own("king") / "schedules.json", {"schedules": [plan]})
        self.look()
        self.clock.pass_(3600)

    def crashes(self, times: int) -> None:
        for _ in range(times + 1):
            self.write(1, "system.startup", "king", role="king")


TABLE: dict[str, tuple[Callable[[Watch], None], Callable[[Watch], None], str]] = {
    "consecutive_failures": (lambda w: w.fails(2), lambda w: w.fails(1), "gen-pr has failed 3 tasks in a row"),
    "timeout_spike": (lambda w: w.times_out(4), lambda w: w.times_out(1), "5 soldiers ran out of time"),
    "event_stale_minutes": (lambda w: None, lambda w: w.event_waits(31), "evt-1 has waited 31 min"),
    "schedule_never_ran": (
        lambda w: w.has_schedule("2026-02-06T10:30:00Z"),
        lambda w: w.has_schedule(None),
        "gen-brief:daily should have run",
    ),
    "restart_spike": (lambda w: w.crashes(4), lambda w: w.crashes(0), "king was started again 5 times"),
}


@pytest.mark.parametrize("name", ANOMALIES)
def test_what_is_out_of_the_ordinary_is_told_once_and_says_what_to_do(home: Path, name: str) -> None:
    ordinary, one_more, says = TABLE[name]
    watch = Watch(home)
    ordinary(watch)
    assert watch.look() == []
    one_more(watch)
    (told,) = watch.look()
    assert says in told
    assert "`kingdom " in told or "manifest" in told
    assert watch.look() == [told]


def test_a_success_ends_a_row_of_failures_and_the_next_row_is_told(home: Path) -> None:
    watch = Watch(home)
    watch.fails(3)
    watch.look()
    watch.alerts.send(watch.clock)
    watch.write()
    assert watch.look() == []
    watch.fails(3)
    assert len(watch.look()) == 1


def test_a_stop_between_two_starts_is_no_crash(home: Path) -> None:
    watch = Watch(home)
    for _ in range(9):
        watch.write(1, "system.startup", "king", role="king")
        watch.write(1, "system.shutdown", "king", role="king")
    assert watch.look() == []


def test_what_lies_more_than_an_hour_back_is_over(home: Path) -> None:
    watch = Watch(home)
    watch.times_out(5)
    watch.clock.pass_(3700)
    assert watch.look() == []
