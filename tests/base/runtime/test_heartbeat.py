"""The heartbeat file of a role."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kingdom.base.home.code import installed_code
from kingdom.base.home.places import Places
from kingdom.base.runtime.heartbeat import HEARTBEAT_BYTES, Heartbeat
from tests.fixtures import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_heartbeat_is_one_record_of_one_size_written_in_place(home: Path, clock: Clock) -> None:
    path = Places(home).heartbeat("king")
    heartbeat = Heartbeat(Places(home), "king", clock)
    heartbeat.write("idle")
    first = os.stat(path)
    assert path.read_text().endswith("\n")
    assert json.loads(path.read_text()) == {
        "pid": os.getpid(),
        "role": "king",
        "seq": 1,
        "state": "idle",
        "time": "2026-02-07T10:00:00Z",
        "worked": False,
        "code": installed_code(),
    }
    clock.pass_(1)
    heartbeat.write("busy " * 100)
    second = os.stat(path)
    assert (first.st_size, second.st_size, second.st_ino) == (HEARTBEAT_BYTES, HEARTBEAT_BYTES, first.st_ino)
    assert first.st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("later", "state", "worked", "seq"),
    [
        (0.0, "idle", False, 1),
        (0.9, "idle", False, 1),
        (1.0, "idle", False, 2),
        (0.0, "busy", False, 2),
        (0.0, "idle", True, 2),
    ],
)
def test_the_same_words_are_written_once_a_second(
    home: Path, clock: Clock, later: float, state: str, worked: bool, seq: int
) -> None:
    heartbeat = Heartbeat(Places(home), "king", clock)
    heartbeat.write("idle")
    clock.pass_(later)
    heartbeat.write(state, worked)
    assert json.loads(Places(home).heartbeat("king").read_text())["seq"] == seq


def test_a_heartbeat_of_ours_is_never_empty(home: Path, clock: Clock) -> None:
    """An empty file is another program's, which only touches it: ours would stand by beside itself."""
    Heartbeat(Places(home), "king", clock)
    assert json.loads(Places(home).heartbeat("king").read_text())["state"] == "starting"


def test_who_has_worked_once_has_worked(home: Path, clock: Clock) -> None:
    heartbeat = Heartbeat(Places(home), "king", clock)
    said = []
    for worked in (False, True, False):
        heartbeat.write("idle", worked)
        clock.pass_(1)
        said.append(json.loads(Places(home).heartbeat("king").read_text())["worked"])
    assert said == [False, True, True]
