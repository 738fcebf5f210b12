"""Folders that are deleted in one step, and what is in them afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import current_thread

import pytest

from kingdom.base.disk import trash
from kingdom.base.disk.trash import Trash


@pytest.fixture
def deleting(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is deleted, and the name of the thread that does it."""
    seen: list[tuple[str, str]] = []
    real = shutil.rmtree

    def rmtree(path: Path, ignore_errors: bool = False) -> None:
        seen.append((path.name, current_thread().name))
        real(path, ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    return seen


def moved(bin_: Trash, folder: Path) -> Path:
    (folder / "inbox").mkdir(parents=True)
    for number in range(50):
        (folder / "inbox" / str(number)).write_text("x")
    place = bin_.place()
    folder.rename(place)
    return place


@pytest.mark.parametrize(("large", "by"), [(1 << 18, "MainThread"), (0, "trash")])
def test_a_large_folder_is_deleted_by_a_thread_and_a_small_one_at_once(
    home: Path, monkeypatch: pytest.MonkeyPatch, deleting: list[tuple[str, str]], large: int, by: str
) -> None:
    monkeypatch.setattr(trash, "LARGE", large)
    bin_ = Trash(home / "trash")
    for name in ("a", "b"):
        bin_.delete(moved(bin_, home / name))
    bin_.close()
    assert deleting == [("1", by), ("2", by)]
    assert list((home / "trash").iterdir()) == []


def test_a_folder_within_counts_by_its_own_size(
    home: Path, monkeypatch: pytest.MonkeyPatch, deleting: list[tuple[str, str]]
) -> None:
    bin_ = Trash(home / "trash")
    place = moved(bin_, home / "queue")
    for number in range(200):
        (place / "inbox" / f"{number}-{'x' * 200}").touch()
    assert (place / "inbox").stat().st_size > place.stat().st_size
    monkeypatch.setattr(trash, "LARGE", place.stat().st_size)
    bin_.delete(place)
    bin_.close()
    assert deleting == [("1", "trash")]


def test_what_a_killed_life_left_goes_and_what_this_life_deletes_is_left_alone(home: Path) -> None:
    (home / "trash" / "1" / "inbox").mkdir(parents=True)
    bin_ = Trash(home / "trash")
    bin_.empty()
    assert not (home / "trash").exists()
    place = moved(bin_, home / "queue")
    bin_.empty()
    assert place.exists()


def test_a_link_in_a_folder_goes_without_what_it_points_to(home: Path) -> None:
    (home / "elsewhere").mkdir()
    bin_ = Trash(home / "trash")
    place = moved(bin_, home / "queue")
    (place / "link").symlink_to(home / "elsewhere")
    bin_.delete(place)
    assert (home / "elsewhere").exists()
    assert not place.exists()
