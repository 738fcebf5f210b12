"""The picture of a home with a long past is as quick as that of a fresh one, and as right as its chamberlain's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.lock import Lock
from kingdom.base.home.places import Places
from kingdom.court import picture

NOW = 1_795_000_000.0
SYSTEM: dict[str, Any] = {"heartbeat": {"threshold_seconds": 120}, "roles": {}}


@pytest.fixture
def places(home: Path) -> Places:
    places = Places(home)
    for folder in places.folders():
        folder.mkdir(parents=True, exist_ok=True)
    places.manifests.mkdir(parents=True, exist_ok=True)
    for number in range(3):
        places.queue_file("tasks", "completed", f"task-{number}").write_text('{"outcome": "failed"}')
    return places


def dashboard(places: Places, **changes: Any) -> None:
    known = {
        "taken_at": NOW,
        "queues": {"tasks": {"completed": 100_000}},
        "failures": [{"what": "x", "why": "y", "at": 1}],
    }
    places.dashboard.write_text(json.dumps({**known, **changes}))


def completed(places: Places) -> int:
    return picture.of(places, SYSTEM, NOW).queues["tasks"]["completed"]


def test_small_folders_are_counted(places: Places) -> None:
    dashboard(places)
    view = picture.of(places, SYSTEM, NOW)
    assert view.queues["tasks"]["completed"] == 3
    assert len(view.failures) == 3


def test_large_folders_are_as_the_chamberlain_saw_them_last(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "LARGE_FOLDER_BYTES", 0)
    dashboard(places)
    view = picture.of(places, SYSTEM, NOW)
    assert view.queues["tasks"]["completed"] == 100_000
    assert view.queues["tasks"]["pending"] == 0
    assert [failure["what"] for failure in view.failures] == ["x"]
    assert picture.queues_of(places)["tasks"]["completed"] == 3, "an exact count is taken anew"


def test_of_many_results_the_last_picture_says_which_ask(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    for task in ("task-1", "task-2", "task-3"):
        places.checkpoint(task).write_text('{"question": "which?"}')
    dashboard(places, questions=["task-2", "task-1"])
    assert set(picture.of(places, SYSTEM, NOW).questions) == {"task-1", "task-2", "task-3"}, "few are looked at"
    monkeypatch.setattr(picture, "LARGE_FOLDER_BYTES", 0)
    places.answered("task-2").parent.mkdir(parents=True)
    places.answered("task-2").write_text('{"event_id": "evt-1"}')
    assert picture.of(places, SYSTEM, NOW).questions == ("task-1",), "an answer counts at once"
    for damaged in (None, "task-1", [5], ["../x"]):
        dashboard(places, questions=damaged)
        assert set(picture.of(places, SYSTEM, NOW).questions) == {"task-1", "task-3"}


@pytest.mark.parametrize(
    "changes",
    [
        {"taken_at": NOW - 31},
        {"taken_at": NOW + 31},
        {"taken_at": "now"},
        {"queues": None},
        {"queues": {"tasks": {"completed": "many"}}},
        {"queues": {"tasks": 5}},
    ],
    ids=str,
)
def test_an_old_or_damaged_picture_is_not_believed(
    changes: dict[str, Any], places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture, "LARGE_FOLDER_BYTES", 0)
    dashboard(places, **changes)
    assert completed(places) == 3


@pytest.mark.parametrize("failures", [None, "x", [5], [{"why": "y"}]])
def test_damaged_failures_are_looked_for(failures: Any, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "LARGE_FOLDER_BYTES", 0)
    dashboard(places, failures=failures)
    assert len(picture.of(places, SYSTEM, NOW).failures) == 3


def test_the_newest_failures_are_found_among_many(places: Places) -> None:
    for number in (*range(880, 1120), 99):
        path = places.queue_file("tasks", "completed", f"task-20261118-{number:03}")
        path.write_text(json.dumps({"outcome": "failed"}))
        os.utime(path, (1000 + number,) * 2)
    names = [failure["what"] for failure in picture.of(places, SYSTEM, NOW).failures]
    assert names == [f"task-20261118-{number}" for number in range(1119, 1114, -1)]


def test_a_failure_that_was_tried_again_is_no_longer_news(places: Places) -> None:
    places.queue_file("tasks", "completed", "task-0").write_text('{"outcome": "failed", "retried_as": ["task-9"]}')
    assert {failure["what"] for failure in picture.of(places, SYSTEM, NOW).failures} == {"task-1", "task-2"}


def test_a_role_says_for_how_long_it_has_been_up_and_how_often_it_came_back(places: Places) -> None:
    lock = Lock(places.lock("king"), "king")
    lock.acquire()
    places.heartbeat("king").write_text(json.dumps({"pid": os.getpid(), "state": "idle", "seq": 1}))
    places.run.mkdir(exist_ok=True)
    places.starts("king").write_text("streak 0\nrestarts 4\n123 456\n")
    (king,) = picture.take(places, ["king"], time.time(), 120.0).roles
    assert king.restarts == 4
    assert king.up_seconds is not None
    assert 0 < king.up_seconds < time.clock_gettime(time.CLOCK_BOOTTIME)
    for spoilt in ("restarts\n", "restarts -1\n", "restarts x\n", "\0"):
        places.starts("king").write_text(spoilt)
        assert picture.take(places, ["king"], time.time(), 120.0).roles[0].restarts == 0
    lock.release()
    (king,) = picture.take(places, ["king"], time.time(), 120.0).roles
    assert king.up_seconds is None


HOLDS = """
import json, os, sys
from pathlib import Path
from kingdom.base.disk.lock import Lock
lock, heartbeat, state, other = sys.argv[2:]
Lock(Path(lock), "king").acquire()
Path(heartbeat).write_text(json.dumps({"pid": int(other) or os.getpid(), "seq": 3, "state": state}))
print("held", flush=True)
sys.stdin.read()
"""
GONE = 4_194_303  # no process has it
LOCK_HOLDERS = [
    ("kingdom.king", "stopped", 0, "absent"),
    ("kingdom.king", "crashed", 0, "absent"),
    ("kingdom.king", "idle", 0, "idle"),
    ("kingdom.king", "stopped", GONE, "starting"),
    ("kingdom.king", "crashed", GONE, "starting"),
    ("kingdom.king", "idle", GONE, "starting"),
    ("another-king", "stopped", GONE, "foreign"),
]


@contextmanager
def holder(places: Places, program: str, state: str, pid: int) -> Iterator[None]:
    """Let another process hold the king's lock, beside a heartbeat with this state and pid (0: its own)."""
    words = [program, places.lock("king"), places.heartbeat("king"), state, str(pid)]
    places.heartbeat("king").parent.mkdir(parents=True)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLDS, *words], **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield


@pytest.mark.parametrize(("program", "state", "pid", "seen"), LOCK_HOLDERS)
def test_a_lock_that_is_held_says_who_plays_a_role(
    program: str, state: str, pid: int, seen: str, places: Places
) -> None:
    """One of ours that ends, or has just started, is no other program."""
    with holder(places, program, state, pid):
        (king,) = picture.take(places, ["king"], time.time(), 120.0).roles
    assert king.state == seen
    assert king.beats == (seen != "absent")


def test_a_role_that_starts_after_a_long_rest_is_not_taken_for_hung(places: Places) -> None:
    with holder(places, "kingdom.king", "stopped", GONE):
        os.utime(places.heartbeat("king"), (NOW - 9000, NOW - 9000))
        (king,) = picture.take(places, ["king"], time.time(), 120.0).roles
        assert king.state == "starting"
        (king,) = picture.take(places, ["king"], time.time(), 0.0).roles
        assert king.state == "silent", "it has had its time"


def test_what_waits_longest_stands_first(places: Places) -> None:
    for age, kind, name in ((5, "events", "evt-1"), (50, "tasks", "task-9"), (20, "messages", "msg-1")):
        path = places.queue_file(kind, "pending", name)
        path.write_text('{"type": "a.b"}')
        os.utime(path, (NOW - age,) * 2)
    view = picture.of(places, SYSTEM, NOW)
    assert [waits["id"] for waits in view.waiting] == ["task-9", "msg-1", "evt-1"]
    assert view.oldest == {"kind": "tasks", "id": "task-9", "seconds": 50.0}


def test_an_old_count_holds_as_long_as_its_folder_is_as_it_was(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "LARGE_FOLDER_BYTES", 0)
    listed: list[str] = []
    monkeypatch.setattr(picture, "_count", lambda folder: listed.append(f"{folder.parent.name}/{folder.name}") or 3)
    folder = places.folder("tasks", "completed")
    changed = {
        kind: {state: os.stat(places.folder(kind, state)).st_mtime_ns for state in states}
        for kind, states in picture.MOVES.items()
    }
    dashboard(places, taken_at=NOW - 86_400, changed=changed)
    seen = picture.of(places, SYSTEM, NOW)
    assert (seen.queues["tasks"]["completed"], "tasks/completed" in listed) == (100_000, False)
    assert [failure["what"] for failure in seen.failures] == ["x"]
    (folder / "task-4.json").write_text("{}")
    seen = picture.of(places, SYSTEM, NOW)
    assert (seen.queues["tasks"]["completed"], "tasks/completed" in listed) == (3, True)
    assert [failure["what"] for failure in seen.failures] != ["x"]
