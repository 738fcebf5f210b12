"""A file that is laid into a watched folder becomes an event, once, whole, and stays where it is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import to_json
from kingdom.base.times import stamp
from tests.court.sentinel.sentinels import Sentinel
from tests.fixtures import Clock, founded
from tests.waiting import SOON, wait_until

Build = Callable[..., Sentinel]


@pytest.fixture
def build(home: Path, clock: Clock) -> Build:
    def built(**more: Any) -> Sentinel:
        return Sentinel(home, clock, {"files": {"folders": ["inbox"], **more}}, {})

    return built


def lay(home: Path, clock: Clock, name: str, text: str = "hello", age: float = 60.0) -> Path:
    path = home / "inbox" / name
    path.write_text(text)
    os.utime(path, (clock.now - age, clock.now - age))
    return path


def test_a_file_becomes_an_event_with_its_text(build: Build, home: Path, clock: Clock) -> None:
    sentinel = build()
    path = lay(home, clock, "report 한글.txt", "all is well")
    (name,) = sentinel.settle()
    assert name.startswith("evt-files-report+20+")
    event = sentinel.one()
    assert (event["type"], event["source"], event["priority"]) == ("files.arrived", "files", "normal")
    payload = event["payload"]
    assert (payload["path"], payload["name"], payload["text"]) == (str(path), "report 한글.txt", "all is well")
    assert payload["modified_at"] == stamp(clock.now - 60)
    assert path.read_text() == "all is well"


def test_a_file_makes_one_event_until_it_changes(build: Build, home: Path, clock: Clock) -> None:
    sentinel = build()
    lay(home, clock, "a")
    for _ in range(3):
        sentinel.look()
    build().look()
    assert len(sentinel.events()) == 1
    lay(home, clock, "a", "other", age=10)
    assert len(sentinel.look()) == 2


def test_a_file_that_was_taken_away_and_comes_again_is_another(build: Build, home: Path, clock: Clock) -> None:
    sentinel = build()
    path = lay(home, clock, "a")
    sentinel.settle()
    path.unlink()
    sentinel.look()
    lay(home, clock, "a", age=5)
    assert len(sentinel.look()) == 2


@pytest.mark.parametrize("age", [0.0, 0.5])
def test_a_file_that_is_still_written_waits(build: Build, home: Path, clock: Clock, age: float) -> None:
    sentinel = build(settle_seconds=2)
    lay(home, clock, "a", age=age)
    assert sentinel.settle() == []
    assert len(sentinel.look(2.1 - age)) == 1


def test_what_has_lain_there_for_long_makes_no_events(build: Build, home: Path, clock: Clock) -> None:
    sentinel = build()
    for number in range(4):
        lay(home, clock, f"old-{number}", age=3600)
    lay(home, clock, "new", age=30)
    assert len(sentinel.settle()) == 1
    build().look()
    assert sentinel.said().count("4 files in") == 1


def test_what_is_no_file_to_read_makes_no_event(build: Build, home: Path, clock: Clock) -> None:
    sentinel = build()
    lay(home, clock, ".hidden")
    lay(home, clock, "draft.tmp")
    inbox = home / "inbox"
    os.mkfifo(inbox / "pipe")
    (inbox / "link").symlink_to("/etc/passwd")
    (inbox / "folder").mkdir()
    assert sentinel.settle() == []


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * (65 << 10)])
def test_what_is_large_or_no_text_is_named_alone(build: Build, home: Path, clock: Clock, content: bytes) -> None:
    sentinel = build()
    path = lay(home, clock, "a")
    path.write_bytes(content)
    os.utime(path, (clock.now - 60, clock.now - 60))
    sentinel.settle()
    assert sentinel.one()["payload"]["text"] is None
    assert sentinel.one()["payload"]["size"] == len(content)


def test_a_folder_in_the_home_is_made_and_wakes_the_sentinel(build: Build, home: Path) -> None:
    sentinel = build()
    assert stat.S_IMODE((home / "inbox").stat().st_mode) == 0o700
    assert list(sentinel.job.folders()) == [home / "inbox"]


def test_a_folder_elsewhere_that_is_not_there_is_told_and_looked_for(build: Build, tmp_path: Path) -> None:
    sentinel = build(folders=[str(tmp_path / "later")])
    sentinel.settle()
    assert sentinel.shows("files")["state"] == "down"
    (tmp_path / "later").mkdir()
    sentinel.look(20)
    assert sentinel.shows("files")["state"] == "ok"


COMES_AND_GOES = """
import os, sys
folder, at = sys.argv[1], float(sys.argv[2])
names = [f"{folder}/scratch-{number}" for number in range(300)]
while True:
    for name in names:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
        os.utime(name, (at, at))
    for name in names:
        os.unlink(name)
"""


def test_a_file_that_goes_while_its_folder_is_read_is_no_trouble(build: Build, home: Path, clock: Clock) -> None:
    sentinel = build(settle_seconds=1e6)
    program = subprocess.Popen([sys.executable, "-c", COMES_AND_GOES, str(home / "inbox"), str(clock.now)])
    try:
        wait_until(lambda: os.listdir(home / "inbox"), SOON, "it has begun")
        for _ in range(30):
            sentinel.look(10)
            assert sentinel.shows("files")["state"] == "ok", sentinel.said()
    finally:
        program.kill()
        program.wait()


def test_of_many_files_few_are_held_in_memory(build: Build, home: Path, clock: Clock) -> None:
    sentinel = build()
    for number in range(256):
        lay(home, clock, f"{number}", f"{number} {'x' * (60 << 10)}")
    tracemalloc.start()
    try:
        made = sentinel.settle()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(made) == 256
    assert most < 24 << 20, f"{most >> 20} MB"


@pytest.mark.parametrize(("asked", "kept"), [(3600, 3600), (10 * 86400, 86400), (-5, 0)])
def test_a_pause_outlasts_a_life_and_no_pause_is_longer_than_a_day(
    build: Build, home: Path, clock: Clock, asked: int, kept: int
) -> None:
    build()
    own = home / "state/sentinel/files-state.json"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_bytes(to_json({"not_before": stamp(clock.now + asked)}))
    sentinel = build()
    sentinel.job.turn({})
    assert sentinel.shows("files")["next_at"] == stamp(clock.now + kept)


def test_it_runs_as_a_process_of_its_own(home: Path) -> None:
    founded(home)
    (home / "config/sentinel.yaml").write_text("polling: {files: {folders: [inbox]}}\n")
    done = subprocess.run(
        [sys.executable, "-m", "kingdom.sentinel", "--once"], env={**os.environ, "KINGDOM_HOME": str(home)}, check=False
    )
    assert done.returncode == 0
    assert (home / "inbox").is_dir()
    assert b"stopped" in (home / "state/sentinel/heartbeat").read_bytes()
