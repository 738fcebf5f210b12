"""Which runs are due: by time zone, through summer time, after absences, one for each due minute."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kingdom.base.home.manifests import Schedule
from kingdom.base.times import moment, stamp
from kingdom.court.rules.schedules import ScheduleEntry, due, last_due, misfit, next_run

BERLIN = ZoneInfo("Europe/Berlin")


def entry(cron: str, **fields: Any) -> ScheduleEntry:
    plan = {"name": "daily", "task_type": "t", "payload": {}, "repo": None, "catch_up": "all", "timezone": None}
    return ScheduleEntry("gen-a", None, Schedule(cron=cron, **{**plan, **fields}), needs_model=True)


def runs(plan: ScheduleEntry, after: str, until: str, zone: Any = UTC) -> list[str]:
    return [stamp(when)[5:16] for when in due(plan, moment(after), moment(until), zone)]


def test_a_due_minute_is_due_from_its_first_second_on() -> None:
    plan = entry("30 10 * * *")
    assert runs(plan, "2026-02-07T00:00:00Z", "2026-02-07T10:29:59Z") == []
    assert runs(plan, "2026-02-07T00:00:00Z", "2026-02-07T10:30:00Z") == ["02-07T10:30"]
    assert runs(plan, "2026-02-07T10:30:00Z", "2026-02-07T10:30:59Z") == []


def test_every_due_minute_comes_once_however_often_one_looks() -> None:
    plan, now, seen = entry("*/2 * * * *"), moment("2026-02-07T10:00:00Z"), []
    for second in range(0, 600, 7):
        seen += due(plan, now + second - 7, now + second, UTC)
    assert [stamp(when)[14:16] for when in seen] == ["00", "02", "04", "06", "08"]


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("all", ["02-05T22:00", "02-06T22:00"]), ("latest", ["02-06T22:00"]), ("skip", [])],
)
def test_after_an_absence(catch_up: str, expected: list[str]) -> None:
    plan = entry("0 22 * * *", catch_up=catch_up)
    assert runs(plan, "2026-02-05T10:00:00Z", "2026-02-07T10:00:00Z") == expected


@pytest.mark.parametrize("catch_up", ["all", "latest", "skip"])
def test_without_an_absence_all_are_alike(catch_up: str) -> None:
    plan = entry("0 22 * * *", catch_up=catch_up)
    assert runs(plan, "2026-02-07T21:59:00Z", "2026-02-07T22:00:30Z") == ["02-07T22:00"]


@pytest.mark.parametrize(("seconds", "times"), [(150, 1), (150.5, 0)])
def test_a_run_is_missed_when_it_is_noticed_late(seconds: float, times: int) -> None:
    plan, at = entry("0 22 * * *", catch_up="skip"), moment("2026-02-07T22:00:00Z")
    assert due(plan, at - 60, at + seconds, UTC) == [at] * times


@pytest.mark.parametrize(("catch_up", "count"), [("all", 1000), ("latest", 1), ("skip", 1)])
def test_a_very_long_absence_is_no_stampede_and_the_newest_is_not_lost(catch_up: str, count: int) -> None:
    plan = entry("* * * * *", catch_up=catch_up)
    found = runs(plan, "2025-02-07T00:00:00Z", "2026-02-07T10:00:05Z")
    assert len(found) == count
    if count == 1:
        assert found == ["02-07T10:00"]


def test_what_is_looked_at_is_looked_at_up_to_the_newest() -> None:
    plan, now = entry("0 * * * *"), moment("2026-02-07T10:20:00Z")
    assert last_due(plan, now - 7200, now, UTC) == moment("2026-02-07T10:00:00Z")
    assert last_due(plan, moment("2026-02-07T10:00:00Z"), now, UTC) is None
    assert last_due(plan, now - 7200, moment("2026-02-07T09:59:59.5Z"), UTC) == moment("2026-02-07T09:00:00Z")


@pytest.mark.parametrize(
    ("zone", "own", "at"),
    [
        (UTC, None, "22:00"),
        (BERLIN, None, "21:00"),
        (UTC, "Asia/Seoul", "13:00"),
        (BERLIN, "America/New_York", "03:00"),
    ],
)
def test_its_own_time_zone_comes_before_the_kingdoms(zone: Any, own: str | None, at: str) -> None:
    plan = entry("0 22 * * *", timezone=own)
    assert stamp(next_run(plan, moment("2026-02-07T00:00:00Z"), zone))[11:16] == at


# clock goes ahead in Berlin on 2026-03-29 at 02:00 (+1 → +2), back on 2026-10-25 at 03:00 (+2 → +1)
SUMMER_TIME: list[tuple[str, str, str, list[str]]] = [
    ("0 22 * * *", "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z", ["03-28T21:00", "03-29T20:00"]),
    ("0 22 * * *", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z", ["10-24T20:00", "10-25T21:00"]),
    ("30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z", ["03-29T01:00", "03-30T00:30"]),
    ("30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z", ["10-25T00:30", "10-26T01:30"]),
    ("0 * * * *", "2026-03-29T00:30:00Z", "2026-03-29T02:30:00Z", ["03-29T01:00", "03-29T02:00"]),
    ("0 * * * *", "2026-10-25T00:30:00Z", "2026-10-25T02:30:00Z", ["10-25T01:00", "10-25T02:00"]),
    ("*/30 * * * *", "2026-10-25T00:00:00Z", "2026-10-25T01:30:00Z", ["10-25T00:30", "10-25T01:00", "10-25T01:30"]),
]


@pytest.mark.parametrize(("cron", "after", "until", "expected"), SUMMER_TIME)
def test_through_summer_time_a_daily_run_comes_once_and_an_hourly_one_every_hour(
    cron: str, after: str, until: str, expected: list[str]
) -> None:
    assert runs(entry(cron), after, until, BERLIN) == expected
    assert runs(entry(cron, timezone="Europe/Berlin"), after, until, UTC) == expected
    (newest,) = runs(entry(cron, catch_up="latest"), after, until, BERLIN)
    assert newest == expected[-1]


@pytest.mark.parametrize(
    ("cron", "timezone", "why"),
    [
        ("0 25 * * *", None, "daily"),
        ("every day", None, "must have five fields"),
        ("* * * * * *", None, "must have five fields"),
        ("0 0 30 2 *", None, "daily"),
        ("0 22 * * *", "Mars/Base", "Mars/Base"),
        ("0 22 * * *", "America", "America"),
        ("0 22 * * *", "../../etc/passwd", "etc/passwd"),
    ],
)
def test_what_cannot_be_kept_is_told(cron: str, timezone: str | None, why: str) -> None:
    told = misfit(entry(cron, timezone=timezone))
    assert told is not None
    assert "schedule 'daily'" in told
    assert why in told


@pytest.mark.parametrize("cron", ["0 22 * * 1-5", "*/15 * * * *", "0 0 1 1 *", "5 4 * * sun", "0 0 29 2 *"])
def test_what_can_be_kept_is_kept(cron: str) -> None:
    assert misfit(entry(cron)) is None
    assert misfit(entry(cron, timezone="Asia/Seoul")) is None


def test_a_run_is_named_after_its_minute() -> None:
    at = datetime(2026, 2, 7, 22, tzinfo=UTC).timestamp()
    assert entry("0 22 * * *").run_key(at) == "gen-a:daily:2026-02-07T22:00:00Z"
