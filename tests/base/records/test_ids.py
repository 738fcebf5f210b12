"""Ids that count up: they survive restarts, and no number is given twice."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.records.ids import DailyCounter, highest_number

YESTERDAY, TODAY, TOMORROW = date(2026, 2, 6), date(2026, 2, 7), date(2026, 2, 8)


def numbers(home: Path, used: int = 0) -> DailyCounter:
    return DailyCounter(Disk(home / "tmp", durability="process"), home / "task-seq", lambda day: used)


def test_numbers_are_padded_grow_past_999_and_are_noted_before_use(home: Path) -> None:
    counting = numbers(home)
    assert counting.take(2, TODAY) == ["20260207-001", "20260207-002"]
    assert (home / "task-seq").read_text() == "20260207:002\n"
    assert counting.take(998, TODAY)[-2:] == ["20260207-999", "20260207-1000"]


def test_numbers_survive_a_restart_and_start_anew_each_day(home: Path) -> None:
    numbers(home).take(5, TODAY)
    again = numbers(home)
    assert again.take(1, TODAY) == ["20260207-006"]
    assert again.take(1, TOMORROW) == ["20260208-001"]


def test_numbers_never_go_back_when_the_clock_does(home: Path) -> None:
    counting = numbers(home)
    counting.take(3, TODAY)
    assert counting.take(1, YESTERDAY) == ["20260207-004"]
    assert numbers(home).take(1, YESTERDAY) == ["20260207-005"]


@pytest.mark.parametrize("damage", [None, b"", b"0", b"20260207", b"\xff\xfe", b"20260207:-1", b"20260207:1e3"])
def test_lost_numbers_go_on_after_the_highest_in_use(home: Path, damage: bytes | None) -> None:
    if damage is not None:
        (home / "task-seq").write_bytes(damage)
    assert numbers(home, used=41).take(1, TODAY) == ["20260207-042"]


def test_what_is_in_use_is_looked_for_on_the_day_that_was_noted(home: Path) -> None:
    (home / "task-seq").write_text("20260206:003\n")
    disk = Disk(home / "tmp", durability="process")
    counting = DailyCounter(disk, home / "task-seq", lambda day: {"20260206": 9}.get(day, 0))
    assert counting.take(1, YESTERDAY) == ["20260206-010"]


def test_what_was_noted_ahead_is_given_back(home: Path) -> None:
    disk = Disk(home / "tmp", durability="process")
    counting = DailyCounter(disk, home / "task-seq", lambda day: 0, ahead=5)
    counting.take(2, TODAY)
    assert (home / "task-seq").read_text() == "20260207:007\n"
    disk.rewrite_all(counting.without_rest())
    assert (home / "task-seq").read_text() == "20260207:002\n"
    assert numbers(home).without_rest() == []


def test_a_number_that_could_not_be_noted_is_noted_before_it_is_used(home: Path) -> None:
    folder = home / "counters"
    counting = DailyCounter(Disk(home / "tmp", durability="process"), folder / "seq", lambda day: 0)
    with pytest.raises(OSError, match="seq"):
        counting.take(1, TODAY)
    folder.mkdir()
    assert counting.take(1, TODAY) == ["20260207-001"]
    assert (folder / "seq").read_text() == "20260207:001\n"


def test_numbers_that_were_put_back_to_an_older_state_meet_no_file_in_use(home: Path) -> None:
    (home / "task-seq").write_text("20260207:005\n")
    assert numbers(home, used=10).take(1, TODAY) == ["20260207-011"]


def test_numbers_may_be_noted_ahead_and_given_back(home: Path) -> None:
    counting = DailyCounter(Disk(home / "tmp", durability="process"), home / "seq", lambda day: 0, ahead=10)
    counting.take(2, TODAY)
    assert (home / "seq").read_text() == "20260207:012\n"
    counting.take(10, TODAY)
    assert (home / "seq").read_text() == "20260207:012\n"
    counting.take(1, TODAY)
    assert (home / "seq").read_text() == "20260207:023\n"
    assert counting.without_rest() == [(home / "seq", b"20260207:013\n")]


def test_the_seeds_format_continues(home: Path) -> None:
    (home / "task-seq").write_text("20260207:007\n")
    assert numbers(home).take(1, TODAY) == ["20260207-008"]


def test_a_number_that_could_not_be_noted_is_not_given_away(home: Path) -> None:
    counting = numbers(home)
    counting.take(1, TODAY)
    (home / "task-seq").unlink()
    (home / "task-seq").mkdir()
    with pytest.raises(OSError, match="directory"):
        counting.take(1, TODAY)
    (home / "task-seq").rmdir()
    assert counting.take(1, TODAY) == ["20260207-002"]


def test_the_highest_number_is_looked_for_in_every_folder(home: Path) -> None:
    for name in ("a/task-20260207-003.json", "b/task-20260207-1000.json", "b/task-20260206-2000.json"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).touch()
    for name in ("a/task-20260207-2000.json.reason", "a/xtask-20260207-2001.json", "a/task-20260207-x.json"):
        (home / name).touch()
    used = highest_number([home / "a", home / "b", home / "not-there"], "task-{day}-")
    assert [used(day) for day in ("20260207", "20260206", "20260205")] == [1000, 2000, 0]
