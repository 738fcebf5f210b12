"""The generals that come along, each run as its soldier would run it: what they tell people."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json, to_json
from kingdom.base.home.places import find_data
from kingdom.base.times import stamp
from tests.fixtures import founded, install, put, task, write

TASK = "task-20260207-001"


def result_of(general: str, home: Path, **fields: Any) -> Mapping[str, Any]:
    (home / "task.json").write_bytes(to_json(task(TASK, general, **fields)))
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KINGDOM_")},
        "KINGDOM_HOME": str(home),
        "KINGDOM_TASK_ID": TASK,
        "KINGDOM_TASK_FILE": str(home / "task.json"),
        "KINGDOM_RESULT_PATH": str(home / "result.json"),
    }
    program = find_data() / "generals" / general / "run"
    done = subprocess.run([sys.executable, "-P", program], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    told = read_json(home / "result.json")
    assert (told["task_id"], told["status"]) == (TASK, "success")
    return told


def test_the_briefing_tells_what_is_under_way_without_itself(home: Path) -> None:
    founded(home)
    put(home, "tasks", "in_progress", **task(TASK, "gen-briefing"))
    put(home, "tasks", "in_progress", **task("task-20260207-002", "gen-pr"))
    told = result_of("gen-briefing", home)["summary"]
    assert "; king is not running; sentinel is not running." in told
    assert "Under way: task-20260207-002 (gen-pr, github.pr.review_requested)." in told
    assert TASK not in told


def test_the_briefing_is_not_content_with_what_failed_waits_or_asks(home: Path) -> None:
    places = founded(home)
    pause = {"not_before": "2100-01-01T00:00:00Z", "waits_because": "attempt 1 failed: no tests", "attempt": 1}
    put(home, "tasks", "in_progress", **task("task-20260207-002", **pause))
    put(home, "tasks", "completed", **task("task-20260207-003", outcome="failed"))
    write(places.checkpoint("task-20260207-004"), {"question": "which?"})
    put(home, "tasks", "in_progress", **task(TASK, "gen-briefing"))
    told = result_of("gen-briefing", home)["summary"]
    assert "; 1 thing went wrong in the last day; 1 question waits for you (task-20260207-004)." in told
    assert "task-20260207-002 (gen-pr, github.pr.review_requested, waits: attempt 1 failed: no tests)" in told
    os.utime(places.queue_file("tasks", "completed", "task-20260207-003"), (1000, 1000))
    assert "went wrong in the last day" not in result_of("gen-briefing", home)["summary"]


@pytest.mark.parametrize(("full_at", "tells"), [(1, True), (100, False)])
def test_the_doctor_goes_by_the_configured_limit_of_the_disk(home: Path, full_at: int, tells: bool) -> None:
    founded(home, chamberlain={"thresholds": {"disk_percent": full_at}})
    told = result_of("gen-doctor", home)["summary"]
    assert "king is not running\n    kingdom start king" in told
    assert ("% full" in told) is tells


def test_the_doctor_says_how_busy_the_machine_is(home: Path) -> None:
    load = {"cpu_percent": 97.4, "memory_available_mb": 900.2, "load_average": [9.1, 4.2, 3.0]}
    write(founded(home).resources, {"timestamp": stamp(time.time()), "health": "red", "system": load})
    assert "the machine is red (cpu 97 %), so new work" in result_of("gen-doctor", home)["summary"]


def test_the_herald_names_what_others_can_do(home: Path) -> None:
    founded(home)
    install(home, "gen-pr", subscribes=["github.pr.*"])
    install(home, "gen-herald", subscribes=["console.*"])
    told = result_of("gen-herald", home)["summary"]
    assert "- gen-pr: a general for tests\n    acts on: github.pr.*" in told
    assert "gen-herald" not in told
