"""What a running engine and its descendants may use: each limit is seen when it is exceeded, and not before."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kingdom.base.runtime.processes import tree
from kingdom.court.soldier import limits
from kingdom.court.soldier.limits import DISK, MEMORY, OUTPUT, PROCESSES, PROCESSOR, Limits
from kingdom.court.soldiers.streams import LARGEST_OUTPUT

WIDE = {"processes": 10_000, "memory_mb": 1 << 20, "cpu_seconds": 1 << 30}
Starts = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def starts() -> Iterator[Starts]:
    """Start a Python that does something, says so, and waits."""
    children: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", f"import os, sys\n{code}\nprint(flush=True)\nsys.stdin.read()"]
        children.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert children[-1].stdout is not None
        children[-1].stdout.readline()
        return children[-1]

    yield start
    for child in children:
        child.communicate()


def over(home: Path, *streams: str, **some: float) -> limits.Exceeded | None:
    return Limits(str(home), {**WIDE, **some}, streams).exceeded()


def test_within_all_limits_nothing_is_said(home: Path, starts: Starts) -> None:
    starts("")
    assert over(home) is None


def test_so_many_processes_and_no_more(home: Path, starts: Starts) -> None:
    for _ in range(2):
        starts("")
    there = len(tree(os.getpid()))
    assert there >= 2
    assert over(home, processes=there) is None
    assert over(home, processes=there - 1) == (PROCESSES, f"{there} processes, more than {there - 1}")


HOLDS = {
    "its own": "held = bytearray(os.urandom(1 << 20) * 80)",
    "in a file without a name": "held = os.memfd_create('x'); os.write(held, bytes(80 << 20)); again = os.dup(held)",
}


@pytest.mark.parametrize("what", HOLDS)
def test_all_memory_counts_and_what_is_open_twice_once(home: Path, starts: Starts, what: str) -> None:
    starts(HOLDS[what])
    found = over(home, memory_mb=70)
    assert found is not None
    assert found.limit == MEMORY
    (used,) = re.fullmatch(r"(\d+) MB of memory, more than 70", found.why).groups()  # type: ignore[union-attr]
    assert 80 <= int(used) < 160
    assert over(home, memory_mb=int(used) + 20) is None


def test_pages_that_several_share_count_once(home: Path, starts: Starts) -> None:
    starts(f"{HOLDS['its own']}\nfor _ in range(3):\n    if os.fork() == 0: sys.stdin.read(); os._exit(0)")
    pids = tree(os.getpid())
    assert sum(limits._resident(pid) for pid in pids) > 240 << 20
    assert over(home, memory_mb=200) is None
    assert over(home, memory_mb=70) is not None


def test_processor_time_of_the_living_and_of_the_ended_counts(home: Path, starts: Starts) -> None:
    begun, bounds = limits._processor_seconds(tree(os.getpid())), Limits(str(home), {**WIDE, "cpu_seconds": 0}, ())
    child = starts("while os.times().user < 0.5: sum(range(10_000))")
    living = limits._processor_seconds(tree(os.getpid()))
    assert 0.4 < living - begun < 30
    child.communicate()
    assert limits._processor_seconds(tree(os.getpid())) - begun > 0.4, "also when it has ended"
    found = bounds.exceeded()
    assert found is not None
    assert over(home, cpu_seconds=0.4) is None, "the next task is not charged for it"
    assert found.limit == PROCESSOR
    assert re.fullmatch(r"\d+ s of processor time, more than 0", found.why)


def test_output_is_bounded_for_each_stream(home: Path) -> None:
    streams = [str(home / name) for name in ("out", "err")]
    for path in streams:
        Path(path).touch()
    os.truncate(streams[1], LARGEST_OUTPUT)
    assert over(home, *streams) is None
    os.truncate(streams[1], LARGEST_OUTPUT + 1)
    assert over(home, *streams) == (OUTPUT, "more than 64 MB of output")


@pytest.mark.parametrize(
    ("disk", "why"),
    [
        ({}, None),
        ({"f_bavail": 3}, None),
        ({"f_bavail": 2}, "the disk is 98 % full"),
        ({"f_bavail": 0}, "the disk is 100 % full"),
        ({"f_favail": 3}, None),
        ({"f_favail": 2}, "the disk is full: 98 % of its inodes are used"),
        ({"f_files": 0, "f_favail": 0}, None),
        ({"f_blocks": 0, "f_bavail": 0}, None),
    ],
)
def test_a_full_disk_ends_it_before_it_ends_the_kingdom(
    home: Path, monkeypatch: pytest.MonkeyPatch, disk: dict[str, int], why: str | None
) -> None:
    about = SimpleNamespace(**{"f_bavail": 50, "f_blocks": 100, "f_favail": 50, "f_files": 100, **disk})
    monkeypatch.setattr(os, "statvfs", lambda _: about)
    assert over(home) == (None if why is None else (DISK, why))
    assert Limits(str(home), WIDE, ()).exceeded_at_end(0) == (None if why is None else (DISK, why))


def test_what_ended_too_quickly_to_be_seen_is_known_by_its_peak(home: Path) -> None:
    narrow = Limits(str(home), {**WIDE, "memory_mb": 80}, ())
    assert narrow.exceeded_at_end(80) == (MEMORY, "80 MB of memory, more than 80")
    assert narrow.exceeded_at_end(79) is None
