"""The files of one topic, as their writer and their reader handle them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.hall.topics.base import PositionGone
from kingdom.hall.topics.batches import Batches, BatchLine, BatchReading
from tests.waiting import SOON, wait_until


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "topics" / "chat.v1"


def writer(folder: Path, durability: str = "process") -> Batches:
    disk = Disk(folder.parents[1] / "scratch", durability=durability)  # type: ignore[arg-type]
    disk.sweep_scratch()
    batches = Batches(folder, disk)
    batches.make()
    return batches


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_was_prepared_and_never_written_is_gone_with_its_writer(folder: Path) -> None:
    before = descriptors()
    batches = writer(folder)
    for number in range(3):
        batches.prepare()
        assert batches.append([b'{"n":%d}\n' % number]) == number
    batches.prepare()
    batches.close()
    assert list((folder.parents[1] / "scratch").iterdir()) == []
    assert descriptors() <= before


def test_a_writer_finds_a_folder_that_took_the_place_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    before = descriptors()
    batches = writer(folder, "power")
    batches.append([b"{}\n"])
    batches.prepare()
    folder.rename(folder.with_name("aside"))
    folder.mkdir()
    synced.clear()
    assert batches.append([b"{}\n"]) == 0
    assert str(folder) in synced
    batches.prepare()
    with (folder / "groups/removal.lock").open() as lock:
        assert batches.append([b"{}\n"]) == 1
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    batches.close()
    assert len(list(folder.glob("*.jsonl"))) == 2
    assert descriptors() <= before


def test_a_number_that_another_writer_took_is_not_given_away_again(folder: Path) -> None:
    one, other = writer(folder), writer(folder)
    assert [one.append([b"a\n"]), other.append([b"b\n", b"c\n"]), other.append([b"d\n"])] == [0, 1, 3]
    one.prepare()
    assert one.append([b"e\n"]) == 4
    one.close()


def test_nothing_is_removed_while_somebody_appends(folder: Path) -> None:
    batches = writer(folder)
    for _ in range(3):
        batches.append([b"{}\n"])
    lock = folder / "groups/removal.lock"
    assert lock.stat().st_mode & 0o777 == 0o600
    with lock.open() as appends:
        fcntl.flock(appends, fcntl.LOCK_SH)
        assert batches.trim(None, 0.0, 1) == 0
        assert len(batches.names()) == 3
    assert batches.trim(None, 0.0, 1) == 2
    assert batches.names() == [f"{2:020}.jsonl"]


def test_what_is_to_survive_a_power_cut_must_be_in_its_folder(folder: Path) -> None:
    away = folder.with_name("away")
    Batches(away, Disk(folder, durability="process")).sync()
    with pytest.raises(FileNotFoundError):
        Batches(away, Disk(folder, durability="power")).sync()


def test_a_reader_whose_topic_was_emptied_goes_on_at_the_first_event_that_comes(folder: Path) -> None:
    batches = writer(folder)
    reading = BatchReading(batches, "chat.v1", "somebody", 5)
    assert reading.read(10) == []
    with pytest.raises(PositionGone, match="from 5 on, up to 0"):
        reading.check()
    reading.check()
    batches.append([b"first\n"])
    assert numbered(reading.read(10)) == [(0, b"first", 0)]


def damage(folder: Path, first: int, *lines: bytes) -> None:
    """Overwrite a file, as an editor would."""
    (folder / f"{first:020}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def numbered(lines: Sequence[BatchLine]) -> list[tuple[int, bytes, int]]:
    return [(line.number, line.data, line.surplus) for line in lines]


def test_a_file_with_lines_too_many_hides_nothing_of_those_behind_it(folder: Path) -> None:
    batches = writer(folder)
    for lines in ([b"a\n"], [b"b\n", b"c\n"], [b"d\n"], [b"e\n"]):
        batches.append(lines)
    damage(folder, 1, b"b", b"c", b"x", b"y")
    found = [(0, b"a", 0), (1, b"b", 0), (2, b"c", 0), (2, b"x", 1), (2, b"y", 2), (3, b"d", 0), (4, b"e", 0)]
    for start in range(5):
        reading = BatchReading(batches, "chat.v1", "somebody", start)
        read = [line for _ in range(9) for line in reading.read(1)]
        assert numbered(read) == [line for line in found if line[0] >= start]
        reading.check()


def test_surplus_lines_come_with_the_event_before_them(folder: Path) -> None:
    batches = writer(folder)
    batches.append([b"a\n"])
    batches.append([b"b\n"])
    damage(folder, 0, b"a", b"x", b"y")
    reading = BatchReading(batches, "chat.v1", "somebody", None)
    assert [line.data for line in reading.read(1)] == [b"a", b"x", b"y"], "else a position would be between them"
    assert [line.data for line in reading.read(1)] == [b"b"]


def test_a_writer_notices_that_its_newest_file_was_changed(folder: Path) -> None:
    batches, others = writer(folder), writer(folder)
    batches.append([b"a\n"])
    damage(folder, 0, b"a", b"x")
    reading = BatchReading(others, "chat.v1", "somebody", None)
    assert numbered(reading.read(9)) == [(0, b"a", 0), (1, b"x", 0)]
    assert batches.append([b"b\n", b"c\n"]) == 2
    assert numbered(reading.read(9)) == [(2, b"b", 0), (3, b"c", 0)]
    damage(folder, 2, b"b")
    assert batches.append([b"d\n"]) == 4, "a reader has passed number 3"


def test_a_reader_goes_back_to_a_file_that_came_within_the_lines_it_has_read(folder: Path) -> None:
    batches = writer(folder)
    batches.append([b"a\n"])
    batches.append([b"b\n"])
    last = (folder / f"{1:020}.jsonl").rename(folder.parent / "kept")
    damage(folder, 0, b"a", b"x", b"y")
    reading = BatchReading(batches, "chat.v1", "somebody", None)
    assert len(reading.read(9)) == 3
    last.rename(folder / f"{1:020}.jsonl")
    found = wait_until(lambda: reading.read(9), SOON, "the file that came")
    assert numbered(found) == [(1, b"b", 0)]
    reading.check()
