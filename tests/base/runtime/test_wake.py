"""A sleeper wakes for arrivals, descriptors, threads, signals and time, and for nothing else."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.home.places import is_hidden
from kingdom.base.runtime.wake import Alarm, ProcessExits, Waker
from tests.waiting import SOON

A_WHILE = 0.2


@pytest.fixture
def folder(home: Path) -> Path:
    (home / "pending").mkdir()
    return home / "pending"


@pytest.fixture
def waker(folder: Path) -> Iterator[Waker]:
    waker = Waker([folder])
    yield waker
    waker.close()


def test_a_renamed_file_wakes_at_once_by_name(waker: Waker, folder: Path, home: Path) -> None:
    (home / "draft").write_text("{}")
    (home / "draft").rename(folder / "a.json")
    began = time.monotonic()
    assert waker.wait(SOON) == {folder: ["a.json"]}
    assert time.monotonic() - began < 1
    assert waker.wait(0) == {}


def test_a_linked_file_wakes_too(waker: Waker, folder: Path, home: Path) -> None:
    (home / "draft").write_text("{}")
    os.link(home / "draft", folder / "a.json")
    assert waker.wait(SOON) == {folder: ["a.json"]}


def test_a_file_written_in_place_wakes_when_it_begins_and_when_it_is_whole(waker: Waker, folder: Path) -> None:
    with open(folder / "a.json", "w") as file:
        assert waker.wait(SOON) == {folder: ["a.json"]}
        file.write("{}")
    assert waker.wait(SOON) == {folder: ["a.json"]}


@pytest.mark.parametrize("name", [".a.json", "a.json.tmp", ".tmp-1"])
def test_unfinished_names_wake_nobody_who_reads(waker: Waker, folder: Path, name: str) -> None:
    assert is_hidden(name)
    (folder / name).write_text("{}")
    assert slept(waker, A_WHILE)


def test_names_that_are_no_news_wake_nobody(folder: Path) -> None:
    waker = Waker([folder], ignored={folder: ("-raw.json",)})
    (folder / "task-1-raw.json").write_text("{}")
    assert slept(waker, 0.03)
    os.link(folder / "task-1-raw.json", folder / "task-1.json")
    assert waker.wait(SOON) == {folder: ["task-1.json"]}
    waker.close()


def test_only_renamed_files_are_news_to_who_writes_in_the_folder_as_well(folder: Path) -> None:
    waker = Waker([folder], only_renamed=True)
    (folder / "a.json").write_text("{}")
    assert slept(waker, 0.03)
    (folder / "a.json").rename(folder / "b.json")
    assert waker.wait(SOON) == {folder: ["b.json"]}
    waker.close()


def test_nothing_is_heard_when_the_time_is_up(waker: Waker) -> None:
    began = time.monotonic()
    assert waker.wait(0.03) == {}
    assert time.monotonic() - began >= 0.03


def slept(waker: Waker, most: float) -> bool:
    """Whether the whole time went by."""
    began = time.monotonic()
    assert waker.wait(most) == {}
    return time.monotonic() - began >= most


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    yield (alarm := Alarm())
    alarm.close()


@pytest.fixture(params=["inotify", "poll"])
def alarmed(request: pytest.FixtureRequest, folder: Path, alarm: Alarm) -> Iterator[Waker]:
    waker = Waker([folder], request.param)
    waker.add_descriptor(alarm.fileno(), alarm.clear)
    yield waker
    waker.close()


def test_a_signal_ends_the_sleep(alarmed: Waker, alarm: Alarm) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        alarm.ring_on_signals()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert not slept(alarmed, SOON)
        assert slept(alarmed, 0.03)
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGUSR1, before)


def test_a_thread_that_rings_ends_the_sleep(alarmed: Waker, alarm: Alarm) -> None:
    for _ in range(2):
        thread = threading.Thread(target=alarm.ring)
        thread.start()
        assert not slept(alarmed, SOON)
        thread.join()
        assert slept(alarmed, 0.03)


def test_ringing_never_blocks_and_is_answered_once(alarmed: Waker, alarm: Alarm) -> None:
    for _ in range(100_000):
        alarm.ring()
    assert not slept(alarmed, SOON)
    assert slept(alarmed, 0.03)


def test_a_byte_on_a_socket_ends_the_sleep_once(alarmed: Waker, alarm: Alarm) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        alarm.add(ours.fileno())
        theirs.send(b"x")
        assert not slept(alarmed, SOON)
        assert slept(alarmed, 0.03), "what nobody has read does not wake again"
        theirs.send(b"x")
        assert not slept(alarmed, SOON), "but more of it does"


def test_a_closed_descriptor_leaves_room_for_another_of_its_number(alarmed: Waker, alarm: Alarm) -> None:
    for _ in range(2):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            alarm.add(ours.fileno())
            theirs.send(b"x")
            assert not slept(alarmed, SOON)


GOING: dict[str, Callable[[Path], object]] = {
    "removed": shutil.rmtree,
    "moved away": lambda folder: folder.rename(folder.with_name("elsewhere")),
}


@pytest.mark.parametrize("how", GOING)
def test_a_folder_that_comes_back_is_watched_again(waker: Waker, folder: Path, how: str) -> None:
    GOING[how](folder)
    told = [waker.wait(0.05) for _ in range(3)]
    assert None in told, "its loss is told: look everywhere"
    folder.mkdir()
    assert waker.wait(SOON) is None, "its return is told: look everywhere"
    (folder / "a.json").touch()
    assert "a.json" in (waker.wait(SOON) or {}).get(folder, [])


def test_what_does_not_come_while_it_is_looked_for_wakes_later(waker: Waker, folder: Path) -> None:
    later = threading.Timer(A_WHILE, (folder / "a.json").symlink_to, ["."])
    later.start()
    assert waker.wait(SOON, eager=0.001) == {folder: ["a.json"]}
    later.join()


def test_it_looks_no_longer_than_it_would_sleep(waker: Waker, folder: Path) -> None:
    assert waker.wait(0.02, eager=10 * SOON) == {}
    (folder / "a.json").symlink_to(".")
    assert waker.wait(SOON, eager=SOON) == {folder: ["a.json"]}


def test_many_arrivals_are_told_at_once(waker: Waker, folder: Path) -> None:
    names = [f"{number:0200}.json" for number in range(200)]
    for name in names:
        (folder / name).symlink_to(".")
    assert waker.wait(SOON) == {folder: names}


def test_too_many_arrivals_mean_look_everywhere(waker: Waker, folder: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 100_000:
        pytest.skip("this machine's queue of arrivals is too long to fill")
    (folder / "a").touch()
    for _ in range(most // 2 + 2):
        os.rename(folder / "a", folder / "b")
        os.rename(folder / "b", folder / "a")
    assert waker.wait(SOON) is None


def test_polling_hears_time_alone(folder: Path) -> None:
    waker = Waker([folder], "poll")
    assert waker.polls
    (folder / "a.json").write_text("{}")
    assert waker.wait(0.02) == {}
    waker.close()


def test_where_nothing_can_be_watched_it_polls(home: Path) -> None:
    waker = Waker([home / "not-there"])
    assert waker.polls
    assert waker.wait(0) == {}
    waker.close()


def test_closing_gives_every_descriptor_back(folder: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        Waker([folder]).close()
        Alarm().close()
        Alarm()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_the_end_of_a_watched_process_ends_the_sleep_and_is_told_once(
    waker: Waker, stranger: subprocess.Popen[bytes]
) -> None:
    ends = ProcessExits()
    waker.add_descriptor(ends.fileno(), ends.note)
    ends.watch(stranger.pid)
    ends.watch(stranger.pid)
    assert waker.wait(0) == {}
    assert not ends.new()
    stranger.kill()
    assert waker.wait(SOON) == {}
    assert select.select([ends.fileno()], [], [], 0)[0] == [], "it ends one sleep, also when nobody asks"
    assert ends.new()
    assert not ends.new()


def test_watching_processes_gives_every_descriptor_back(stranger: subprocess.Popen[bytes]) -> None:
    ends = ProcessExits()
    before = len(os.listdir("/proc/self/fd"))
    ends.watch(stranger.pid)
    stranger.kill()
    assert select.select([ends.fileno()], [], [], SOON)[0]
    ends.note()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_who_has_ended_before_is_not_watched(stranger: subprocess.Popen[bytes]) -> None:
    stranger.kill()
    stranger.wait()
    ends = ProcessExits()
    ends.watch(stranger.pid)
    assert not ends.new()


def test_a_signal_after_the_end_rings_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    alarm = Alarm()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        alarm.ring_on_signals()
        alarm.close()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert capfd.readouterr().err == ""
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_to_one_that_was_rung_too_often_is_no_trouble(alarm: Alarm, capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        alarm.ring_on_signals()
        for _ in range(100_000):
            alarm.ring()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert capfd.readouterr().err == ""
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGUSR1, before)


def test_a_file_that_the_sleeper_has_rewritten_itself_does_not_wake_it(home: Path) -> None:
    waker = Waker([home])
    disk = Disk(home / ".scratch", durability="process")
    disk.rewrite(home / "own.json", b"{}")
    assert waker.wait(0.05, disk.rewritten) == {}
    disk.rewritten.clear()
    disk.rewrite(home / "own.json", b"{}")
    disk.rewrite(home / "other.json", b"{}")
    assert waker.wait(5.0, {str(home / "own.json")}) == {home: ["other.json"]}
    waker.close()


def test_an_alarm_that_nobody_closed_hears_no_signals_once_its_descriptors_are_gone() -> None:
    alarm = Alarm()
    alarm.ring_on_signals()
    del alarm  # as at the end of a process that has crashed
    assert signal.set_wakeup_fd(-1) == -1


def test_who_watches_nothing_takes_none_of_the_users_instances() -> None:
    def instances() -> int:
        links = (os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink())
        return sum(link == "anon_inode:inotify" for link in links)

    before = instances()
    idle = Waker(())
    try:
        assert instances() == before
        assert idle.wait(0.01) == {}
    finally:
        idle.close()
