"""The chronicle: each internal event that reached the disk is counted once, whatever befalls the log."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.court.chamberlain import event_log
from kingdom.court.chamberlain.alerts import Alerts
from kingdom.court.chamberlain.chronicle import Chronicle, _is_sound
from tests.fixtures import MORNING, Clock, services


class Court:
    """A home whose log tests write, and lives of the chronicle that read it."""

    def __init__(self, home: Path, **system: Any) -> None:
        self.clock = Clock()
        self.services = services(home, "chamberlain", self.clock, system={"timezone": "UTC", **system})
        self.alerts = Alerts(self.services)
        self.log = home / "logs/events.log"
        self.written = 0

    def write(self, number: int = 1, type: str = "task.completed", actor: str = "gen-pr", **data: Any) -> None:
        """Lines that are unlike one another."""
        with self.log.open("a") as log:
            for _ in range(number):
                self.written += 1
                record = {"ts": MORNING, "type": type, "actor": actor, "data": {"task_id": f"t{self.written}", **data}}
                log.write(json.dumps(record) + "\n")

    def rotate(self, name: str) -> None:
        self.log.rename(self.log.with_name(name))

    def count(self) -> Chronicle:
        """What a new life makes of the log."""
        chronicle = Chronicle(self.services)
        while chronicle.read(self.alerts):
            pass
        return chronicle

    def total(self, type: str = "task_completed") -> int:
        totals: dict[str, int] = read_json(self.services.places.analysis / "stats.json")["totals"]
        return totals.get(type, 0)

    def told(self) -> list[str]:
        path = self.services.places.own("chamberlain") / "alerts.json"
        return [alert["text"] for alert in read_json(path)["waiting"]] if path.exists() else []


@pytest.fixture
def court(home: Path) -> Court:
    return Court(home)


def test_each_line_is_counted_once_by_day_and_by_general(court: Court) -> None:
    court.write(3)
    court.write(2, "task.failed", "gen-jira", error="no")
    court.write(1, "task.created", "king", target_general="gen-pr")
    for _ in range(2):
        court.count()
    stats = read_json(court.services.places.analysis / "stats.json")
    both = {"task_completed": 3, "task_failed": 2, "task_created": 1}
    assert stats["totals"] == {**both, "soldier_spawned": 0, "soldier_timeout": 0}
    generals = {"gen-pr": {"task_completed": 3, "task_created": 1}, "gen-jira": {"task_failed": 2}}
    assert stats["days"] == {"2026-02-07": {"totals": both, "generals": generals}}
    assert stats["updated_at"] == MORNING
    failures = read_json(court.services.places.analysis / "failures.json")
    assert failures["days"] == {"2026-02-07": {"gen-jira": {"task_failed": 2}}}
    assert [(row["general"], row["error"]) for row in failures["recent"]] == [("gen-jira", "no")] * 2


def test_a_day_is_one_of_the_kingdoms_zone(home: Path) -> None:
    court = Court(home, timezone="Asia/Seoul")
    court.write()
    record = {"ts": "2026-02-07T15:00:00Z", "type": "task.completed", "actor": "gen-pr", "data": {}}
    with court.log.open("a") as log:
        log.write(json.dumps(record) + "\n")
    court.count()
    assert list(read_json(court.services.places.analysis / "stats.json")["days"]) == ["2026-02-07", "2026-02-08"]


def test_rotation_loses_and_doubles_nothing(court: Court) -> None:
    for number in range(20):
        court.write(2)
        if number % 3:
            court.count()
        court.write(1)
        if number % 2:
            with court.log.open("a") as late:  # a writer that had opened the log before it was renamed
                court.rotate(f"events.log.202602{number:02}")
                late.write(json.dumps({"ts": MORNING, "type": "task.completed", "actor": "a", "data": {}}) + "\n")
                court.written += 1
    court.count()
    assert (court.total(), court.told()) == (court.written, [])


def test_a_long_log_is_read_in_short_turns(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "CHUNK", 1000)
    court.write(30)
    court.rotate("events.log.1")
    court.write(30)
    chronicle, turns = Chronicle(court.services), 1
    while chronicle.read(court.alerts):
        turns += 1
    assert court.total() == court.written
    assert turns >= 3


def test_a_line_without_its_end_waits_for_it(court: Court) -> None:
    court.write()
    whole = json.dumps({"ts": MORNING, "type": "task.completed", "actor": "gen-pr", "data": {}}) + "\n"
    with court.log.open("a") as log:
        log.write(whole[:30])
    court.count()
    assert court.total() == 1
    with court.log.open("a") as log:
        log.write(whole[30:])
    court.count()
    assert court.total() == 2


def test_a_kill_before_the_counts_are_saved_counts_again_from_where_it_was(court: Court) -> None:
    court.write(5)
    Chronicle(court.services)  # a life that ended before it read
    court.count()
    kept = court.services.places.own("chamberlain") / "chronicle.json"
    before = kept.read_bytes()
    court.write(7)
    court.count()
    kept.write_bytes(before)  # as if the last life had not come to save
    court.count()
    assert court.total() == 12


def test_what_a_full_disk_did_not_take_is_saved_later(court: Court) -> None:
    court.write(5)
    chronicle = Chronicle(court.services)
    scratch = court.services.places.scratch("chamberlain")
    shutil.rmtree(scratch)
    scratch.write_text("no folder: nothing can be written")
    with pytest.raises(NotADirectoryError):
        chronicle.read(court.alerts)
    scratch.unlink()
    scratch.mkdir()
    court.write(1)
    chronicle.read(court.alerts)
    assert court.total() == 6


def cut(court: Court, lines: int, torn: int = 0) -> None:
    """Take the last lines out of the log, and some bytes of the one before."""
    left = court.log.read_bytes().splitlines(keepends=True)[:-lines]
    os.truncate(court.log, sum(map(len, left)) - torn)
    if torn:
        court.log.write_bytes(court.log.read_bytes() + b"\n")  # as whoever appends ends a torn line


@pytest.mark.parametrize("new", [1, 3, 30], ids=["it is shorter than it was", "as long", "and longer"])
@pytest.mark.parametrize("torn", [0, 20])
def test_of_a_log_that_was_cut_and_has_grown_again_the_new_lines_are_counted(court: Court, new: int, torn: int) -> None:
    court.write(40)
    court.count()
    cut(court, 3, torn)
    court.write(new)
    for _ in range(2):
        court.count()
    assert (court.total(), court.total("unreadable")) == (40 + new, bool(torn))
    (told,) = court.told()
    assert "events.log was cut: " in told


def test_a_log_of_which_nothing_known_is_left_is_told_and_counts_nothing_twice(court: Court) -> None:
    court.write(20 + event_log.RECENT)
    court.count()
    cut(court, event_log.RECENT + 10)
    court.write(2)
    for _ in range(2):
        court.count()
    (told,) = court.told()
    assert "are not counted, since they may have been counted before" in told
    court.write(5)
    court.count()
    assert court.total() == 20 + event_log.RECENT + 5


@pytest.mark.parametrize("line", [0, 5, 29], ids=["the first", "one in the middle", "the last"])
def test_a_log_that_has_lost_a_line_counts_the_others_once(court: Court, line: int) -> None:
    court.write(30)
    court.count()
    lines = court.log.read_bytes().splitlines(keepends=True)
    other = court.log.with_name("other")
    other.write_bytes(b"".join(lines[:line] + lines[line + 1 :]))
    os.replace(other, court.log)
    court.write(2)
    for _ in range(2):
        court.count()
    assert court.total() == 32
    (told,) = court.told()
    assert f"{len(lines[line])} bytes of {sum(map(len, lines))} are gone" in told


@pytest.mark.parametrize("is_counted_before", [True, False])
def test_a_copy_beside_a_log_is_not_counted(court: Court, is_counted_before: bool) -> None:
    court.write(4)
    if is_counted_before:
        court.count()
    shutil.copy(court.log, court.log.with_name("events.log.mine"))
    court.write(4)
    for _ in range(2):
        court.count()
    assert (court.total(), court.told()) == (8, [])


def test_a_log_that_comes_back_is_not_counted_twice(court: Court) -> None:
    court.write(4)
    court.rotate("events.log.1")
    court.write(4)
    court.count()
    shutil.move(court.log.with_name("events.log.1"), court.log.parent.parent / "packed")
    court.count()
    shutil.copy(court.log.parent.parent / "packed", court.log.with_name("events.log.1"))
    court.count()
    assert (court.total(), court.told()) == (8, [])


def test_cursors_of_logs_that_are_gone_do_not_heap_up(court: Court) -> None:
    for _ in range(event_log.MOST_GONE + 5):
        court.write(1)
        court.count()
        court.rotate("events.log.1")
        court.count()
        court.log.with_name("events.log.1").unlink()
    court.count()
    kept = read_json(court.services.places.own("chamberlain") / "chronicle.json")["cursors"]
    assert (court.total(), len(kept), court.told()) == (court.written, event_log.MOST_GONE, [])


def test_a_log_that_is_cut_is_told_once_with_the_size_of_the_gap_and_counted_on(court: Court) -> None:
    court.write(10)
    court.count()
    lines = court.log.read_bytes().splitlines(keepends=True)
    os.truncate(court.log, sum(map(len, lines[:8])))
    for _ in range(2):
        court.count()
    (told,) = court.told()
    assert f"{len(lines[8]) + len(lines[9])} bytes" in told
    court.write(3)
    court.count()
    assert court.total() == 13
    assert len(court.told()) == 1


def test_a_log_that_is_emptied_in_place_is_told_and_counted_anew(court: Court) -> None:
    court.write(4)
    court.count()
    os.truncate(court.log, 0)
    court.write(40)
    for _ in range(2):
        court.count()
    (told,) = court.told()
    assert "was replaced" in told
    assert court.total() == 44


def test_a_log_that_was_deleted_is_told_once(court: Court) -> None:
    court.write(4)
    court.count()
    court.log.unlink()
    for _ in range(2):
        court.count()
    court.write(2)
    court.count()
    assert (court.total(), len(court.told())) == (6, 1)


def test_a_rotated_log_that_retention_removes_is_no_gap(court: Court) -> None:
    court.write(4)
    court.rotate("events.log.1")
    court.write(4)
    court.count()
    court.log.with_name("events.log.1").unlink()
    court.count()
    assert (court.total(), court.told()) == (8, [])


def test_a_restored_home_counts_nothing_twice(court: Court) -> None:
    court.write(4)
    court.count()
    shutil.copy(court.log, court.log.with_name("copy"))
    os.replace(court.log.with_name("copy"), court.log)
    court.write(1)
    court.count()
    assert (court.total(), court.told()) == (5, [])


@pytest.mark.parametrize(
    "line",
    [b"", b"no json", b"[]", b"{}", b"\xff", b'{"ts": 1, "type": "a", "actor": "a", "data": {}}', b"[" * 100_000],
)
def test_a_line_that_is_no_event_is_counted_as_such_and_harms_no_other(court: Court, line: bytes) -> None:
    court.write()
    with court.log.open("ab") as log:
        log.write(line + b"\n")
    court.write()
    court.count()
    assert court.total() == 2
    assert court.total("unreadable") == (1 if line else 0)


def test_what_is_no_log_is_left_alone(court: Court) -> None:
    court.write()
    os.mkfifo(court.log.with_name("events.log.pipe"))
    court.log.with_name("events.log.link").symlink_to("/dev/zero")
    court.log.with_name("events.log.dir").mkdir()
    court.log.with_name("events.log.1.gz").write_bytes(b"packed\nlines\n")
    court.count()
    assert (court.total(), court.total("unreadable")) == (1, 0)


def test_damaged_counts_begin_anew_with_what_the_logs_hold(court: Court) -> None:
    court.write(3)
    court.count()
    (court.services.places.own("chamberlain") / "chronicle.json").write_text("{")
    court.count()
    assert court.total() == 3


def test_what_happened_an_hour_ago_is_forgotten(court: Court) -> None:
    court.write(type="soldier.timeout")
    chronicle = court.count()
    now = court.clock()
    assert chronicle.times_of("timeouts", now + 3599) == {"gen-pr": [now]}
    assert chronicle.times_of("timeouts", now + 3600) == {}
    kept = court.services.places.own("chamberlain") / "chronicle.json"
    assert read_json(kept)["timeouts"] == {"gen-pr": [now]}
    court.clock.pass_(3600)
    court.count()
    assert read_json(kept)["timeouts"] == {}


@pytest.mark.parametrize("what", ["inode", "first", "last", "offset"])
def test_a_place_in_a_log_may_be_its_beginning_and_never_before_it(what: str) -> None:
    row = {"name": "events.log", "inode": 1, "first": 1, "last": 1, "offset": 1}
    assert _is_sound("cursors", [{**row, what: 0}])
    assert not _is_sound("cursors", [{**row, what: -1}])
