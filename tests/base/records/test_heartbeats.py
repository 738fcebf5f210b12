"""Which heartbeats are those of a foreign role."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from kingdom.base.disk.lock import Lock
from kingdom.base.home.places import Places
from kingdom.base.records.heartbeats import foreign_age, is_played, process_age
from tests.waiting import SOON, wait_until


@pytest.fixture
def places(home: Path) -> Places:
    found = Places(home)
    found.own("king").mkdir(parents=True, exist_ok=True)
    return found


def record(pid: int, state: str = "idle") -> str:
    return json.dumps({"pid": pid, "role": "king", "seq": 3, "state": state})


@pytest.mark.parametrize(
    ("content", "age", "is_foreign"),
    [
        ("2026-11-18T08:00:00Z\n", 0.0, True),
        ("alive", 500.0, True),
        ("", 5.0, True),
        ("alive", -3600.0, False),
        (None, 0.0, False),
        (record(1 << 22), 0.0, False),
        (record(1), 0.0, True),
        (record(1, "stopped"), 0.0, False),
        ("x" * 4096, 0.0, True),
        ("x" * 4097, 0.0, False),
    ],
    ids="a date|long silent|empty|of the future|our own|of the dead|of the living|stopped|long|too long".split("|"),
)
def test_whose_heartbeat(content: str | None, age: float, is_foreign: bool, places: Places) -> None:
    now = time.time()
    places.heartbeat("king").write_text(record(os.getpid()) if content is None else content)
    os.utime(places.heartbeat("king"), (now - age,) * 2)
    assert foreign_age(places, "king", now) == (pytest.approx(age, abs=0.1) if is_foreign else None)


def test_who_has_ended_has_no_age_though_nobody_has_asked_for_its_end() -> None:
    with subprocess.Popen(["true"]) as child:
        state = Path(f"/proc/{child.pid}/stat")
        wait_until(lambda: ") Z " in state.read_text(), SOON, "it has ended")
        assert process_age(child.pid) is None
    assert process_age(os.getpid()) is not None


def test_a_pid_that_was_given_away_since_is_not_the_writer(places: Places) -> None:
    now = time.time()
    other = subprocess.Popen(["sleep", "60"])
    try:
        places.heartbeat("king").write_text(record(other.pid))
        # What is being started has no command line for a moment.
        wait_until(lambda: foreign_age(places, "king", now) is not None, SOON, "its program")
        os.utime(places.heartbeat("king"), (now - 30,) * 2)
        assert foreign_age(places, "king", now) is None
    finally:
        other.kill()
        other.wait()


def test_a_role_is_played_by_ours_or_by_another_program_that_beats(places: Places) -> None:
    lock, beat, now = Lock(places.lock("king"), "king"), places.heartbeat("king"), time.time()
    assert not is_played(places, "king", lambda: 120, now)
    beat.write_text("alive")
    assert is_played(places, "king", lambda: 120, now)
    os.utime(beat, (now - 121,) * 2)
    assert not is_played(places, "king", lambda: 120, now)
    lock.acquire()
    assert is_played(places, "king", lambda: 120, now)
    lock.release()


def test_no_heartbeat_at_all(places: Places) -> None:
    assert foreign_age(places, "king", time.time()) is None
