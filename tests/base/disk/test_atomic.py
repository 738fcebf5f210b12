"""Files appear whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import pytest

from kingdom.base.disk import atomic
from kingdom.base.disk.atomic import MOST_OPEN, Disk, Durability
from kingdom.base.disk.bulk import FileBatch, Relay
from kingdom.base.disk.codec import to_line
from kingdom.base.errors import Collision, LockLost


@pytest.fixture
def disk(home: Path) -> Disk:
    return Disk(home / "scratch", durability="process")


def test_a_new_file_never_replaces_another(disk: Disk, home: Path) -> None:
    disk.create(home / "a", b"first")
    with pytest.raises(Collision, match="nothing was overwritten"):
        disk.create(home / "a", b"second")
    assert (home / "a").read_bytes() == b"first"
    assert os.listdir(home / "scratch") == []


def test_a_group_of_new_files_tells_which_places_were_taken(disk: Disk, home: Path) -> None:
    disk.create(home / "b", b"old")
    assert disk.create_all([(home / "a", b"1"), (home / "b", b"2"), (home / "c", b"3")]) == [home / "b"]
    assert [(home / name).read_bytes() for name in "abc"] == [b"1", b"old", b"3"]


def test_nothing_of_a_group_shows_when_one_of_it_cannot_be_written(disk: Disk, home: Path) -> None:
    def items() -> Any:
        yield home / "a", b"1"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        disk.create_all(items())
    assert not (home / "a").exists()
    assert os.listdir(home / "scratch") == []


def test_a_link_at_the_place_counts_as_taken(disk: Disk, home: Path) -> None:
    (home / "a").symlink_to("nowhere")
    with pytest.raises(Collision):
        disk.create(home / "a", b"x")
    assert not (home / "nowhere").exists()


def test_a_move_never_replaces_and_tells_what_is_gone(disk: Disk, home: Path) -> None:
    disk.create(home / "a", b"a")
    disk.create(home / "b", b"b")
    with pytest.raises(Collision):
        disk.move(home / "a", home / "b")
    with pytest.raises(FileNotFoundError):
        disk.move(home / "gone", home / "c")
    stuck = disk.move_all([(home / "a", home / "b"), (home / "gone", home / "d"), (home / "a", home / "c")])
    assert stuck == [(home / "a", home / "b"), (home / "gone", home / "d")]
    assert (home / "b").read_bytes() == b"b"
    assert (home / "c").read_bytes() == b"a"


def test_a_folder_that_is_missing_is_no_moved_file(disk: Disk, home: Path) -> None:
    disk.create(home / "a", b"a")
    with pytest.raises(FileNotFoundError):
        disk.move_all([(home / "a", home / "gone" / "a")])
    assert (home / "a").exists()


def test_files_are_for_their_owner_alone(disk: Disk, home: Path) -> None:
    disk.create(home / "a", b"x")
    disk.append(home / "log", b"x\n")
    assert [(home / name).stat().st_mode & 0o777 for name in ("a", "log", "scratch")] == [0o600, 0o600, 0o700]


def test_what_a_killed_life_left_is_swept(disk: Disk, home: Path) -> None:
    (home / "scratch").mkdir()
    (home / "scratch" / "17-1.tmp").write_bytes(b"half")
    assert disk.sweep_scratch() == 1
    assert os.listdir(home / "scratch") == []


def test_a_folder_that_somebody_made_among_unfinished_files_stays(home: Path) -> None:
    """It kept every role, and the stores of the queue, from starting."""
    scratch = home / "scratch"
    writers = [
        Disk(scratch).sweep_scratch,
        FileBatch(str(scratch), durability="process").sweep,
        Relay(str(scratch), most_spares=1).sweep,
    ]
    for sweep in writers:
        (scratch / "notes").mkdir(parents=True, exist_ok=True)
        (scratch / "17-1.tmp").write_bytes(b"half")
        sweep()
        assert os.listdir(scratch) == ["notes"]


def test_power_safe_groups_of_any_size(home: Path) -> None:
    disk = Disk(home / "scratch", durability="power")
    for size in (1, 20):
        disk.create_all((home / f"{size}-{n}", b"x") for n in range(size))
    assert len(list(home.glob("*-*"))) == 21


TWICE = ["a", "a/log", "a/log"]
"""The name of a log is durable once."""


def append_after_removal(disk: Disk, log: Path) -> None:
    disk.append(log, b"x\n", sync=True)
    log.unlink()
    disk.append(log, b"x\n", sync=True)


SYNCED: dict[str, tuple[Callable[[Disk, Path], object], list[str]]] = {
    # what is done, and what is synced for it, in order where it matters
    "create": (lambda disk, home: disk.create(home / "b" / "new", b"x"), ["scratch", "b"]),
    "rewrite": (lambda disk, home: disk.rewrite(home / "a" / "old", b"x"), ["scratch", "a"]),
    "move": (lambda disk, home: disk.move(home / "a" / "old", home / "b" / "old"), ["a", "b"]),
    "move all": (lambda disk, home: disk.move_all([(home / "a" / "old", home / "b" / "old")]), ["a", "b"]),
    "remove": (lambda disk, home: disk.remove(home / "a" / "old"), ["a"]),
    "append": (lambda disk, home: disk.append(home / "a" / "old", b"x", sync=True), ["a", "a/old"]),
    "append twice": (lambda disk, home: [disk.append(home / "a" / "log", b"x\n", sync=True) for _ in range(2)], TWICE),
    "append after its removal": (lambda disk, home: append_after_removal(disk, home / "a" / "log"), [*TWICE, "a"]),
    "rewrite and move": (
        lambda disk, home: disk.rewrite_and_move([(home / "a" / "old", home / "b" / "old", b"x")]),
        ["scratch", "a", "b"],
    ),
    "move all without a sync": (
        lambda disk, home: disk.move_all([(home / "a" / "old", home / "b" / "old")], sync=False),
        [],
    ),
    "drafts beside a log": (lambda disk, home: with_a_log(disk, home), ["scratch", "a/log", "a"]),
    "append to a log": (lambda disk, home: disk.append(home / "a" / "old", b"x"), []),
}


@pytest.mark.parametrize("what", SYNCED)
@pytest.mark.parametrize("durability", ["power", "process"])
def test_what_is_promised_is_synced(
    home: Path, monkeypatch: pytest.MonkeyPatch, what: str, durability: Durability
) -> None:
    act, names = SYNCED[what]
    for name in ("a", "b"):
        (home / name).mkdir()
    (home / "a" / "old").touch()
    seen: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: seen.append(os.readlink(f"/proc/self/fd/{fd}")))
    act(Disk(home / "scratch", durability=durability), home)
    found = [str(Path(name).relative_to(home)) for name in seen]
    assert sorted("scratch" if name.endswith(".tmp") else name for name in found) == sorted(
        names if durability == "power" else []
    )
    until_written = found[: max((at for at, name in enumerate(found) if name.endswith(".tmp")), default=0)]
    assert not {"a", "b"}.intersection(until_written), "content comes first"


def test_a_group_is_on_its_way_before_one_file_is_waited_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system then commits its journal once for all of them."""
    done: list[str] = []

    class Libc:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2

        def sync_file_range(self, fd: int, *_: int) -> int:
            done.append("start")
            return -1  # a hint: what it cannot do is no error

    monkeypatch.setattr(atomic, "_libc", Libc)
    monkeypatch.setattr(os, "fsync", lambda fd: done.append("folder" if S_ISDIR(os.fstat(fd).st_mode) else "wait"))
    disk = Disk(home / "scratch", durability="power")
    disk.create_all((home / name, b"x") for name in "abc")
    assert done == ["start"] * 3 + ["wait"] * 3 + ["folder"]
    done.clear()
    disk.create(home / "d", b"x")
    assert done == ["wait", "folder"], "there is nothing to gain"


def test_a_large_group_does_not_hold_all_its_files_open(home: Path) -> None:
    disk = Disk(home / "scratch", durability="power")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + MOST_OPEN + 8, limit[1]))
    try:
        disk.create_all((home / f"f-{number}", b"x") for number in range(300))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert len(list(home.glob("f-*"))) == 300


def test_a_log_that_somebody_has_removed_needs_no_sync(home: Path) -> None:
    with Disk(home / "scratch", durability="power").drafts(logs=[home / "gone"]):
        pass


def with_a_log(disk: Disk, home: Path) -> None:
    disk.append(home / "a" / "log", b"x\n")
    with disk.drafts([(home / "b" / "new", b"x")], logs=[home / "a" / "log"]):
        pass


class OldLibc:
    """A C library whose file system knows no renaming without replacing."""

    def __init__(self, code: int) -> None:
        self._code = code

    def renameat2(self, *_: object) -> int:
        ctypes.set_errno(self._code)
        return -1


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS])
def test_without_renameat2_nothing_is_replaced_either(
    disk: Disk, home: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(atomic, "_libc", lambda: OldLibc(code))
    disk.create(home / "a", b"first")
    with pytest.raises(Collision):
        disk.create(home / "a", b"second")
    disk.create(home / "b", b"other")
    with pytest.raises(Collision):
        disk.move(home / "b", home / "a")
    assert [(home / name).read_bytes() for name in "ab"] == [b"first", b"other"]
    disk.move(home / "b", home / "c")
    assert sorted(os.listdir(home)) == ["a", "c", "scratch"]
    assert os.listdir(home / "scratch") == []


def test_another_error_of_a_rename_is_told(disk: Disk, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "_libc", lambda: OldLibc(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        disk.create(home / "a", b"x")
    assert os.listdir(home) == ["scratch"]


WRITES: dict[str, Callable[[Disk, Path], object]] = {
    "create": lambda disk, home: disk.create(home / "new", b"x"),
    "rewrite": lambda disk, home: disk.rewrite(home / "old", b"x"),
    "move": lambda disk, home: disk.move(home / "old", home / "new"),
    "move all": lambda disk, home: disk.move_all([(home / "old", home / "new")]),
    "remove": lambda disk, home: disk.remove(home / "old"),
    "append": lambda disk, home: disk.append(home / "old", b"x"),
    "append where possible": lambda disk, home: disk.append_where_possible([(home / "old", b"x")]),
}


@pytest.mark.parametrize("what", WRITES)
def test_nothing_is_written_without_the_right_to(home: Path, what: str) -> None:
    def guard() -> None:
        raise LockLost(path=home / "lock", role="king")

    (home / "old").write_bytes(b"as it was")
    with pytest.raises(LockLost):
        WRITES[what](Disk(home / "scratch", durability="process", guard=guard), home)
    assert (home / "old").read_bytes() == b"as it was"
    assert not (home / "new").exists()
    assert not (home / "scratch").exists() or os.listdir(home / "scratch") == []


def test_a_sweep_makes_the_scratch_folder_for_its_owner_alone(home: Path) -> None:
    assert Disk(home / "deep" / "scratch").sweep_scratch() == 0
    assert os.stat(home / "deep" / "scratch").st_mode & 0o777 == 0o700
    atomic.make_folder(home / "made")
    assert os.stat(home / "made").st_mode & 0o777 == 0o700


def test_a_torn_line_does_not_swallow_the_next_one(disk: Disk, home: Path) -> None:
    (home / "log").write_bytes(b'{"n": 1}\n{"n": 2')
    disk.append(home / "log", to_line({"n": 3}))
    disk.append(home / "log", to_line({"n": 4}))
    assert (home / "log").read_bytes().split(b"\n") == [b'{"n": 1}', b'{"n": 2', b'{"n": 3}', b'{"n": 4}', b""]


def test_a_disk_that_fills_up_tears_one_line_at_most(home: Path) -> None:
    """A file size limit is the full disk that every machine has."""
    script = """
import resource, signal, sys
from pathlib import Path
from kingdom.base.disk import atomic
from kingdom.base.disk.atomic import Disk, Durability
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
home = Path(sys.argv[1])
disk = Disk(home / "scratch", durability="process")
def limit(size): resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
limit(25)
try:
    for n in range(5): disk.append(home / "log", b"line %d....\\n" % n)
except OSError as full: print(full.errno)
limit(1000)
disk.append(home / "log", b"after\\n")
"""
    ended = subprocess.run([sys.executable, "-c", script, home], capture_output=True, text=True, check=True)
    assert ended.stdout == "27\n"
    assert (home / "log").read_text().split("\n") == ["line 0....", "line 1....", "lin", "after", ""]


def test_a_write_cut_short_at_any_byte_leaves_the_old_file_and_no_draft(home: Path) -> None:
    script = """
import os, resource, signal, sys
from pathlib import Path
from kingdom.base.disk import atomic
from kingdom.base.disk.atomic import Disk, Durability
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
home = Path(sys.argv[1])
disk = Disk(home / "scratch", durability="process")
disk.create(home / "old", b"as it was")
for size in range(100):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    for write, path in ((disk.create, home / "new"), (disk.rewrite, home / "old")):
        try: write(path, b"x" * 100)
        except OSError as full: print(size, full.errno)
    assert not (home / "new").exists() and (home / "old").read_bytes() == b"as it was", size
    assert os.listdir(home / "scratch") == [], size
"""
    ended = subprocess.run([sys.executable, "-c", script, home], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split("\n") == [f"{size} 27" for size in range(100) for _ in range(2)] + [""]


@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize("has_room", [False, True])
def test_a_file_takes_the_first_name_that_is_free(home: Path, size: int, has_room: bool) -> None:
    disk = Disk(home / "scratch", durability="power")
    disk.create(home / "a", b"old")
    with disk.new_file() as new:
        if has_room:
            new.make_room()
        new.write(b"x" * size)
        assert [new.take(home / name) for name in "ab"] == [False, True]
    assert [(home / name).read_bytes() for name in "ab"] == [b"old", b"x" * size]
    assert os.listdir(home / "scratch") == []


def test_a_file_that_took_no_name_leaves_nothing(disk: Disk, home: Path) -> None:
    with disk.new_file() as new:
        new.make_room()
    assert os.listdir(home / "scratch") == []
