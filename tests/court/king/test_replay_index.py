"""What became of an event is known for 400 days, in a file that survives what kills its writer."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.court.king.replay_index import ReplayIndex
from tests.fixtures import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


def index(home: Path, clock: Clock) -> ReplayIndex:
    return ReplayIndex(Disk(home / "tmp", durability="process"), home / "done.idx", clock)


def test_what_was_noted_is_known_now_and_after_a_restart(home: Path, clock: Clock) -> None:
    done = index(home, clock)
    assert done.task_of("evt-1") is None
    done.add([("evt-1", "task-1"), ("evt-2", "task-2")])
    for known in (done, index(home, clock)):
        assert [known.task_of(key) for key in ("evt-1", "evt-2", "evt-3")] == ["task-1", "task-2", None]
    assert (home / "done.idx").read_text() == "20260207 evt-1 task-1\n20260207 evt-2 task-2\n"


def test_the_first_note_stands(home: Path, clock: Clock) -> None:
    done = index(home, clock)
    done.add([("evt-1", "task-1")])
    done.add([("evt-1", "task-9"), ("evt-2", "task-2")])
    assert (home / "done.idx").read_text() == "20260207 evt-1 task-1\n20260207 evt-2 task-2\n"


@pytest.mark.parametrize("torn", ["2026", "20260207 evt-2", "20260207 evt-2 task-2026020", "20260207 evt-2 task-2"])
def test_a_torn_last_line_is_forgotten_and_swallows_nothing(home: Path, clock: Clock, torn: str) -> None:
    (home / "done.idx").write_text(f"20260207 evt-1 task-1\n{torn}")
    done = index(home, clock)
    assert [done.task_of(key) for key in ("evt-1", "evt-2")] == ["task-1", None]
    done.add([("evt-2", "task-2"), ("evt-3", "task-3")])
    again = index(home, clock)
    assert [again.task_of(key) for key in ("evt-1", "evt-2", "evt-3")] == ["task-1", "task-2", "task-3"]


def test_a_line_torn_by_a_full_disk_gives_way_to_the_whole_one(home: Path, clock: Clock) -> None:
    done = index(home, clock)
    done.add([("evt-1", "task-1")])
    with open(home / "done.idx", "a") as file:
        file.write("20260207 evt-2 task-20")
    done.add([("evt-2", "task-2026")])
    assert done.task_of("evt-2") == "task-2026"
    assert index(home, clock).task_of("evt-2") == "task-2026"


@pytest.mark.parametrize(
    "damage", [b"", b"\n\n", b"\xff\xfe\x00", b"x y z\n", b"a b c d\n", b"20260207  \n", b"\0" * 4096]
)
def test_a_damaged_file_is_mended(home: Path, clock: Clock, damage: bytes) -> None:
    (home / "done.idx").write_bytes(damage + b"\n20260207 evt-1 task-1\n")
    done = index(home, clock)
    assert done.task_of("evt-1") == "task-1"
    done.add([("evt-2", "task-2")])
    assert [index(home, clock).task_of(key) for key in ("evt-1", "evt-2")] == ["task-1", "task-2"]


def test_one_that_is_removed_under_way_begins_anew(home: Path, clock: Clock) -> None:
    done = index(home, clock)
    done.add([("evt-1", "task-1")])
    (home / "done.idx").unlink()
    assert done.task_of("evt-1") is None
    done.add([("evt-1", "task-1")])
    (home / "done.idx").write_bytes(b"")
    assert done.task_of("evt-1") is None


def test_after_400_days_it_is_forgotten(home: Path, clock: Clock) -> None:
    index(home, clock).add([("evt-1", "task-1")])
    clock.pass_(86_400 * 400)
    assert index(home, clock).task_of("evt-1") == "task-1"
    clock.pass_(86_400)
    done = index(home, clock)
    assert done.task_of("evt-1") is None
    assert (home / "done.idx").read_bytes() == b""


def test_a_key_is_no_part_of_another(home: Path, clock: Clock) -> None:
    done = index(home, clock)
    done.add([("gen-a:daily:2026-02-07T22:00:00Z", "evt-1"), ("evt-10", "task-2")])
    assert [done.task_of(key) for key in ("evt-1", "task-2", "evt-10", "daily")] == [None, None, "task-2", None]


def test_400_days_of_a_busy_court_take_little_memory(home: Path, clock: Clock) -> None:
    lines = (f"20260207 evt-github-{n:08d}-2026-02-07T10:00:00Z task-20260207-{n:05d}\n" for n in range(10_000))
    (home / "done.idx").write_text("".join(lines))
    tracemalloc.start()
    done = index(home, clock)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 10_000 * 16
    assert done.task_of("evt-github-00000007-2026-02-07T10:00:00Z") == "task-20260207-00007"
