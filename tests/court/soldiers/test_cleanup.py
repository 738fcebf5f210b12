"""What soldiers leave is removed, however much and however shut it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.court.soldiers.cleanup import FEW, REMOVED, finish_removals, remove_tree
from tests.waiting import SOON, wait_until


def flat(folder: Path) -> None:
    (folder / "file").touch()


def many(folder: Path) -> None:
    for number in range(FEW + 1):
        (folder / str(number)).touch()


def deep(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)


def shut(folder: Path) -> None:
    deep(folder)
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)


@pytest.fixture
def disk(home: Path) -> Disk:
    (home / "tmp").mkdir()
    return Disk(home / "tmp", durability="process")


@pytest.mark.parametrize("fill", [flat, many, deep, shut])
def test_a_folder_is_gone_from_its_name_at_once_and_from_the_disk_soon(
    home: Path, disk: Disk, fill: Callable[[Path], None]
) -> None:
    folder = home / "place" / "task-1"
    folder.mkdir(parents=True)
    fill(folder)
    remove_tree(disk, folder)
    assert not folder.exists()
    wait_until(lambda: not list((home / "place").iterdir()), SOON, "nothing is left", [home / "place"])


def test_what_is_not_there_is_no_error(home: Path, disk: Disk) -> None:
    remove_tree(disk, home / "none")


def test_what_a_killed_life_was_removing_is_removed(home: Path) -> None:
    (home / f".task-1-abcd{REMOVED}" / "deep").mkdir(parents=True)
    (home / "task-2").mkdir()
    finish_removals(home)
    wait_until(lambda: [path.name for path in home.iterdir()] == ["task-2"], SOON, "the rest is removed", [home])


def test_what_somebody_else_has_removed_meanwhile_is_removed(home: Path) -> None:
    folder = home / "folder"
    deep(folder)
    remove_tree(Disk(home / "tmp", durability="process", guard=lambda: shutil.rmtree(folder)), folder)
    assert not folder.exists()
