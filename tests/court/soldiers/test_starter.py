"""Serving processes come from one that is loaded; when that fails, each from a Python of its own for a while."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.base.disk.lock import Lock
from kingdom.base.runtime.role import Services
from kingdom.court.soldiers import starter as starting
from kingdom.court.soldiers.starter import Starter
from tests.fixtures import Clock, services
from tests.shell_roles import runs
from tests.waiting import SOON, wait_until

TASK = "task-20260207-001"


@pytest.fixture
def given(home: Path) -> Services:
    return services(home, "gen-pr", Clock())


@pytest.fixture
def starter(given: Services, monkeypatch: pytest.MonkeyPatch) -> Iterator[Starter]:
    monkeypatch.setattr(starting, "ANSWER_SECONDS", SOON)
    starter = Starter(given.places.home, given.log, given.alarm)
    yield starter
    starter.close()
    for child in starter._children:
        child.wait(SOON)


@pytest.fixture
def lock(home: Path) -> Iterator[Lock]:
    lock = Lock(home / "lock", TASK)
    lock.acquire()
    yield lock
    lock.release()


def start(starter: Starter, lock: Lock, home: Path) -> int | None:
    """Start one that has no order: it says so and ends."""
    own = {"KINGDOM_HOME": str(home), "KINGDOM_SOLDIER": TASK, "KINGDOM_ORDER": str(home / "none.json")}
    environment = {"PATH": os.environ["PATH"], **own}
    serving = starter.start(environment, home / "errors", lock)
    return None if serving is None else starter.wait(serving)


def said(given: Services) -> str:
    given.log.flush()
    log = given.places.role_log("gen-pr")
    return log.read_text() if log.exists() else ""


def test_one_that_is_loaded_starts_them_all_until_it_was_idle_for_long(
    starter: Starter, lock: Lock, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(starter, lock, home)
    server = starter._server
    assert server is not None
    assert first not in (None, server.pid)
    wait_until(lambda: starter.reap() == {first}, SOON, "it has ended: its order leads nowhere")
    assert start(starter, lock, home) not in (None, first)
    assert starter._server is server
    monkeypatch.setattr(starting, "IDLE_SECONDS", 0.0)
    assert start(starter, lock, home) is not None
    assert starter._server is not server
    starter.reap()
    wait_until(lambda: (starter.reap(), starter._children)[1] == [], SOON, "the one before has ended and is waited for")
    assert server.returncode is not None


def test_one_that_was_idle_for_fifty_seconds_may_be_about_to_end_and_is_not_asked(
    starter: Starter, lock: Lock, home: Path
) -> None:
    for idle, is_kept in ((0.0, False), (48.0, True), (50.2, False)):
        before, starter._last_use = starter._server, time.monotonic() - idle
        assert start(starter, lock, home) is not None
        assert (starter._server is before) == is_kept, idle


def test_one_that_does_not_answer_is_not_waited_for(
    starter: Starter, lock: Lock, home: Path, given: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(starting, "MODULE", ("/bin/sh", "-c", "exec sleep 300", "silent"))
    assert start(starter, lock, home) is None
    assert "a preloaded process did not answer for 0.1 s" in said(given)


def test_when_it_fails_the_next_are_started_without_it_for_a_minute(
    starter: Starter, lock: Lock, home: Path, given: Services
) -> None:
    assert start(starter, lock, home) is not None
    server = starter._server
    assert server is not None
    server.kill()
    server.wait(SOON)
    assert start(starter, lock, home) is None, "it is open whether it was started"
    assert "starts soldiers directly for 60 s: a preloaded process has ended" in said(given)
    assert (starter._server, starter._socket) == (None, None)
    assert 0 < starter._slow_until - time.monotonic() <= 60
    assert start(starter, lock, home) is None, "it is not asked"
    assert starter._server is None
    starter._slow_until = time.monotonic()
    assert start(starter, lock, home) is not None
    assert starter._server is not None, "it is tried again"


def test_what_ends_is_waited_for_and_what_runs_is_kept(starter: Starter, lock: Lock, home: Path) -> None:
    pid = starter.start_slowly(TASK, {"PATH": os.environ["PATH"], "KINGDOM_HOME": str(home)}, home / "errors", lock)
    (child,) = starter._children
    assert child.pid == pid
    wait_until(lambda: (starter.reap(), starter._children)[1] == [], SOON, "its end is taken")
    assert not runs(pid)
    assert (home / "errors").exists()


def test_what_is_forked_says_where_it_failed(starter: Starter, lock: Lock, home: Path) -> None:
    assert start(starter, lock, home) is not None
    errors = home / "errors"
    wait_until(lambda: errors.exists() and "none.json" in errors.read_text(), SOON, "it says what is wrong")
    assert errors.stat().st_mode & 0o777 == 0o600


def test_one_that_has_ended_is_waited_for_when_the_next_is_started(starter: Starter, lock: Lock, home: Path) -> None:
    first = start(starter, lock, home)
    wait_until(lambda: first and not runs(first), SOON, "it has ended")
    assert start(starter, lock, home) is not None
    wait_until(lambda: not Path(f"/proc/{first}").exists(), SOON, "not even a zombie is left")


def test_it_starts_with_nothing_of_anybodys_secrets(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "canary-1")
    monkeypatch.setenv("LANG", "C.UTF-8")
    told = starter._environment()
    assert told.keys() <= {"PATH", "LANG", "LC_ALL", "PYTHONPATH", "KINGDOM_HOME", "KINGDOM_ROOM"}
    assert (told["LANG"], told["PATH"]) == ("C.UTF-8", os.environ["PATH"])


def test_a_process_whose_socket_does_not_arrive_is_a_failure(
    starter: Starter, lock: Lock, home: Path, given: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is for a general that has no descriptor left."""
    answer = "import socket, sys; s = socket.socket(fileno=int(sys.argv[2])); s.recv(1); s.send(b'4711'); s.recv(1)"
    monkeypatch.setattr(starting, "MODULE", (sys.executable, "-c", answer))
    assert start(starter, lock, home) is None
    assert "a preloaded process has ended" in said(given)
