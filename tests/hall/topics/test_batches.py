"""The files of one topic, as their writer and their reader handle them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.hall.topics.base import PositionGone
from kingdom.hall.topics.batches import Batches, Reading


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
    assert descriptors() == before


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
    assert descriptors() == before


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
    reading = Reading(batches, "chat.v1", "somebody", 5)
    assert reading.read(10) == []
    with pytest.raises(PositionGone, match="from 5 on, up to 0"):
        reading.check()
    reading.check()
    batches.append([b"first\n"])
    assert reading.read(10) == [(0, b"first")]
