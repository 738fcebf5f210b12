"""Many small files made durable together, and files that come and go by the thousand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.base.disk import atomic
from kingdom.base.disk.bulk import MOST_UNSEEN, FileBatch, FileIdentity, Relay, SyncMethod


@pytest.fixture
def folders(home: Path) -> tuple[str, str, str]:
    for name in ("scratch", "a", "b"):
        (home / name).mkdir()
    return str(home / "scratch"), str(home / "a"), str(home / "b")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was synced, by the name that it had then, or `all of it`."""
    names: list[str] = []

    def fsync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        names.append(f"{path.name} with {len(os.listdir(path))}" if path.is_dir() else path.name)

    def syncfs(fd: int) -> int:
        names.append("all of it")
        return 0

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(atomic._libc(), "syncfs", syncfs)
    return names


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("size", [0, 1, 1 << 14, (1 << 20) + 3])
def test_what_is_written_moved_and_removed_is_so_after_commit(
    folders: tuple[str, str, str], power: bool, size: int
) -> None:
    scratch, a, b = folders
    batch = FileBatch(scratch, durability="power" if power else "process")
    data = os.urandom(size)
    for name in ("1", "2", "3"):
        batch.create(a, name, data)
    batch.move(a, "1", b, "one")
    assert batch.read(b, "one") == data
    assert (batch.has(a, "1"), batch.has(a, "2"), batch.has(b, "one")) == (False, True, True)
    assert os.path.exists(f"{b}/one") is not power
    batch.commit()
    batch.move(a, "2", b, "two")
    batch.remove(a, "3")
    assert batch.has_removals is power
    with pytest.raises(FileNotFoundError):
        batch.remove(a, "nobody")
    batch.commit()
    assert (os.listdir(a), sorted(os.listdir(b)), os.listdir(scratch)) == ([], ["one", "two"], [])
    assert Path(b, "one").read_bytes() == Path(b, "two").read_bytes() == data
    assert os.stat(f"{b}/one").st_mode & 0o777 == 0o600


def test_content_is_synced_before_it_shows_and_removals_come_last(
    folders: tuple[str, str, str], synced: list[str]
) -> None:
    scratch, a, b = folders
    batch = FileBatch(scratch, durability="power")
    for name in ("old", "gone"):
        batch.create(a, name, b"x")
    batch.commit()
    assert synced == ["1.tmp", "2.tmp", "a with 2"]
    synced.clear()
    batch.create(b, "new", b"x")
    batch.remove(a, "gone")
    batch.move(a, "old", b, "old")
    assert os.path.exists(f"{a}/gone")
    batch.commit()
    assert synced == ["3.tmp", "b with 2", "a with 0"]
    synced.clear()
    batch.commit()
    assert synced == []
    batch.close()


@pytest.mark.parametrize("count", [7, 8, MOST_UNSEEN + 1])
def test_groups_of_any_size_are_synced_and_show(folders: tuple[str, str, str], synced: list[str], count: int) -> None:
    scratch, a, _ = folders
    batch = FileBatch(scratch, durability="power")
    for turn in range(3):  # by each method
        for number in range(count):
            batch.create(a, f"{turn}-{number}", b"%d" % number)
        assert len(os.listdir(a)) == count * turn + (count if count == MOST_UNSEEN else count // MOST_UNSEEN * 512)
        batch.commit()
        drafts = sum(name.endswith(".tmp") for name in synced)
        assert drafts == count or (count >= 8 and drafts + 512 * synced.count("all of it") >= count)
        synced.clear()
        assert len(os.listdir(a)) == count * (turn + 1)
        assert Path(a, f"{turn}-{count - 1}").read_bytes() == b"%d" % (count - 1)
    batch.close()
    assert os.listdir(scratch) == []


def test_the_faster_way_to_sync_is_found() -> None:
    method = SyncMethod()
    tried = []
    for _ in range(SyncMethod.TRIALS * 2):
        tried.append(method.choose())
        method.learn(tried[-1], 1.0 if tried[-1] == "fsync" else 2.0)
    assert tried == ["fsync", "syncfs"] * 4
    assert method.choose() == "fsync"
    for _ in range(SyncMethod.ROUND - 9):
        method.learn(method.choose(), 1.0)
    for seconds in (3.0, 2.0) * SyncMethod.TRIALS:
        method.learn(method.choose(), seconds)
    assert method.choose() == "syncfs"


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("data", [b"", b"short", b"a little longer than what lay there before"])
def test_a_spare_is_written_over_and_keeps_nothing(folders: tuple[str, str, str], power: bool, data: bytes) -> None:
    scratch, a, b = folders
    batch = FileBatch(scratch, durability="power" if power else "process", most_spares=1)
    for name in ("1", "2"):
        batch.create(a, name, b"what lay there before")
    batch.commit()
    inodes = {os.stat(f"{a}/{name}").st_ino for name in ("1", "2")}
    for name in ("1", "2"):
        batch.remove(a, name, b)
    batch.commit()
    assert os.listdir(a) == []
    (spare,) = os.listdir(b)
    assert spare.startswith(".")
    batch.create(a, "new", data)
    batch.commit()
    assert Path(a, "new").read_bytes() == data
    assert os.stat(f"{a}/new").st_ino in inodes
    assert (os.listdir(b), os.listdir(scratch)) == ([], [])


LEFT: dict[str, tuple[Callable[[FileBatch, str], object], int, int]] = {
    # hidden spares and drafts that are left of three and one
    "trim one": (lambda batch, a: batch.trim(1), 2, 0),
    "trim more than there are": (lambda batch, a: batch.trim(9), 0, 0),
    "forget the folder": (lambda batch, a: batch.forget([a], 9), 0, 0),
    "forget a part": (lambda batch, a: batch.forget([a], 2), 1, 0),
    "forget another": (lambda batch, a: batch.forget([f"{a}a", "/b"], 9), 3, 0),
    "close": (lambda batch, a: batch.close(), 0, 0),
    "abandon": (lambda batch, a: batch.abandon(), 3, 0),
}


@pytest.mark.parametrize("how", LEFT)
def test_what_is_left_of_spares_and_drafts(folders: tuple[str, str, str], how: str) -> None:
    scratch, a, b = folders
    act, spares, drafts = LEFT[how]
    batch = FileBatch(scratch, durability="power")
    for name in ("1", "2", "3"):
        batch.create(a, name, b"x")
    batch.commit()
    for name in ("1", "2", "3"):
        batch.remove(a, name, a)
    batch.commit()
    if how in ("close", "abandon"):
        batch.forget([b], 9)
        batch.create(b, "unseen", b"x")  # into a spare
        Path(a, "4").touch()
        batch.remove(a, "4", a)
        spares -= how == "abandon"
    act(batch, a)
    hidden = [name for name in os.listdir(a) if name.startswith(".")]
    assert (len(hidden), len(os.listdir(scratch)), os.listdir(b)) == (spares, drafts, [])
    if how == "abandon":
        batch.commit()
        assert os.path.exists(f"{a}/4")


def test_a_batch_begins_without_the_litter_of_a_killed_life(folders: tuple[str, str, str]) -> None:
    scratch, a, _ = folders
    batch = FileBatch(scratch, durability="process")
    Path(scratch, "7.tmp").touch()
    batch.sweep()
    batch.create(a, "1", b"x")
    assert (os.listdir(scratch), os.listdir(a)) == ([], ["1"])


def relay_of(home: Path, most: int = 2) -> Relay:
    relay = Relay(str(home / "scratch"), most_spares=most)
    relay.sweep()
    return relay


ENDED: dict[str, tuple[Callable[[Path], object], bool]] = {
    # what is done to a file, and whether the next one may be written over it
    "nothing": (lambda path: None, True),
    "it has another name": (lambda path: os.link(path, f"{path}.link"), False),
    "it is very large": (lambda path: path.write_bytes(b"x" * (Relay.LARGEST_SPARE + 1)), False),
    "it is as large as may be": (lambda path: path.write_bytes(b"x" * Relay.LARGEST_SPARE), True),
}


@pytest.mark.parametrize("way", ["end", "end_if_same"])
@pytest.mark.parametrize("what", ENDED)
def test_a_new_file_is_written_over_one_that_ended(home: Path, what: str, way: str) -> None:
    change, again = ENDED[what]
    relay, path = relay_of(home), home / "a"
    relay.put(str(path), b"what lay there before")
    change(path)
    inode = os.stat(path).st_ino
    about = os.lstat(path)
    getattr(relay, way)(str(path), about if way == "end" else FileIdentity.of(about))
    assert path.exists() == (way == "end" and again)
    keep = os.open(home, os.O_RDONLY)  # so that no number is given again
    relay.put(str(home / "b"), b"short")
    os.close(keep)
    assert (home / "b").read_bytes() == b"short"
    if again:
        assert os.stat(home / "b").st_ino == inode
        assert not path.exists()
    elif what == "it has another name":
        assert (home / "a.link").read_bytes() == b"what lay there before"
        assert os.stat(home / "b").st_ino != inode
    assert os.listdir(home / "scratch") == []


def test_no_more_is_kept_than_may_be_and_a_sweep_removes_it(home: Path) -> None:
    relay = relay_of(home)
    for name in "abcd":
        relay.put(str(home / name), b"x")
    for name in "abc":
        relay.end(str(home / name), os.lstat(home / name))
    relay.end_if_same(str(home / "d"), FileIdentity.of(os.lstat(home / "d")))
    assert (os.listdir(home / "scratch"), sorted(os.listdir(home))) == ([], ["a", "b", "scratch"])
    relay.sweep()
    assert os.listdir(home) == ["scratch"]


def test_another_file_at_the_path_stays(home: Path) -> None:
    relay, path = relay_of(home), home / "a"
    relay.put(str(path), b"one")
    first = FileIdentity.of(os.lstat(path))
    relay.put(str(path), b"another")
    assert relay.end_if_same(str(path), first) is False
    assert path.read_bytes() == b"another"
    assert relay.end_if_same(str(path), FileIdentity.of(os.lstat(path))) is True
    assert not path.exists()


def test_a_folder_that_is_missing_leaves_no_draft_and_a_missing_scratch_is_made(home: Path) -> None:
    relay = relay_of(home)
    for put in (relay.put, lambda path, data: relay.put_for(path, data, os.stat(home))):
        with pytest.raises(FileNotFoundError):
            put(str(home / "nowhere" / "a"), b"x")
        assert os.listdir(home / "scratch") == []
    (home / "scratch").rmdir()
    relay.put(str(home / "a"), b"x")
    assert (home / "a").read_bytes() == b"x"
    assert os.stat(home / "a").st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("folder", "mode"), [(0o700, 0o600), (0o711, 0o644), (0o710, 0o640), (0o755, 0o644)])
def test_who_may_enter_the_folder_may_read_what_is_put_there(home: Path, folder: int, mode: int) -> None:
    relay = relay_of(home)
    (home / "box").mkdir()
    (home / "box").chmod(folder)
    relay.put_for(str(home / "box" / "a"), b"x", os.stat(home / "box"))
    assert os.stat(home / "box" / "a").st_mode & 0o777 == mode
    assert (home / "box" / "a").read_bytes() == b"x"
