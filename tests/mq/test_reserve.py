"""Room that a database keeps for the day on which the disk is full: given away then, and taken back later."""

from pathlib import Path

import pytest

from kingdom.mq.stores import reserve
from kingdom.mq.stores.reserve import LEAST_MORE, Reserve

MIB = 1 << 20


class OnSmallDisk(Reserve):
    """A reserve on a disk of which the test says how much is free."""

    room = 30 * MIB

    def free(self) -> int:
        return self.room


@pytest.fixture
def path(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(reserve, "LOOK_AGAIN_SECONDS", 0.0)
    return home / "reserve"


def test_so_much_is_set_aside_as_is_asked_for_but_a_third_of_what_is_free_at_most(path: Path) -> None:
    OnSmallDisk(path, 1)
    assert path.stat().st_size == path.stat().st_blocks * 512 == MIB
    path.unlink()
    OnSmallDisk(path, 100)
    assert path.stat().st_size == 10 * MIB
    OnSmallDisk(path, 1)
    assert path.stat().st_size == 10 * MIB, "what an earlier process has set aside stays"


def test_it_is_taken_back_when_there_is_half_as_much_more(path: Path) -> None:
    kept = OnSmallDisk(path, 4)
    assert kept.restored()
    kept.spend()
    assert (path.exists(), kept.spent) == (False, True)
    kept.room = 6 * MIB + LEAST_MORE - 1
    assert not kept.restored()
    assert not path.exists()
    kept.room += 1
    assert kept.restored()
    assert (path.stat().st_size, kept.spent) == (4 * MIB, False)


def test_it_is_looked_for_room_about_once_a_second(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(reserve, "LOOK_AGAIN_SECONDS", 1.0)
    monkeypatch.setattr(reserve.time, "monotonic", lambda: now)
    kept = OnSmallDisk(path, 4)
    kept.spend()
    assert not kept.restored()
    now, kept.room = 101.0, 0
    assert not kept.restored()
    now, kept.room = 101.9, 30 * MIB
    assert not kept.restored()
    now = 102.0
    assert kept.restored()


def test_where_it_cannot_be_taken_back_nothing_is_left_of_it(path: Path) -> None:
    kept = OnSmallDisk(path, 4)
    kept.spend()
    kept._size = 1 << 62
    kept.room = 1 << 63
    assert not kept.restored()
    assert (path.exists(), kept.spent) == (False, True)
