"""A general, killed or cut off from its disk at every file call: every task claimed is served by one soldier at
a time and ends with one result, whoever of its lives writes that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import parse_json
from kingdom.base.disk.lock import is_locked
from kingdom.base.home.places import Places
from tests.faults import homes, oracle
from tests.faults.sweep import FAULTS, KILL, QUICK_POINTS, QUICK_STATES, Step, none_bad, power_cuts, processes_of, sweep

ARGV = ("-m", "kingdom.general", homes.GENERAL, "--once")
WELL, ASKS, BADLY, RUNNING = (f"task-20260207-00{number}" for number in range(1, 5))
EXPECTED = {WELL: "success", ASKS: "needs_human", BADLY: "failed"}

SOLDIER = """#!/bin/sh
# Notes each time that it was sent, and whether one of the same task is out already.
cat > /dev/null
echo "$KINGDOM_TASK_ID" >> "$KINGDOM_HOME/served"
exec 9> "$KINGDOM_HOME/out-$KINGDOM_TASK_ID"
flock --nonblock 9 || echo "$KINGDOM_TASK_ID twice at once" >> "$KINGDOM_HOME/twice"
case $KINGDOM_TASK_ID in
*-001) sleep 0.4; result='"status": "success", "summary": "ok", "memory_updates": ["tabs, not spaces"]' ;;
*-002) result='"status": "needs_human", "question": "May I?"' ;;
*) result='"status": "failed", "error": "no compiler"' ;;
esac
echo "{\\"task_id\\": \\"$KINGDOM_TASK_ID\\", $result}" > "$KINGDOM_RESULT_PATH"
"""


def prepare(home: Path) -> None:
    """Three tasks: one that goes well, one that asks and one that fails twice."""
    retry = {"max_attempts": 2, "backoff_seconds": 0}
    homes.make(home, config={"king": {"retry": retry}})
    homes.install(home, homes.GENERAL, sandbox="off")
    arm(home, SOLDIER)
    homes.put(home, "tasks", "pending", *(homes.task(name, f"evt-{name}") for name in EXPECTED))
    homes.put(home, "tasks", "pending", homes.task("task-20260207-009", "evt-x", target_general="gen-other"))


def arm(home: Path, script: str) -> None:
    package = Places(home).package(homes.GENERAL)
    package.mkdir(parents=True, mode=0o700, exist_ok=True)
    (package / "prompt.md").write_text("Do {{TASK_ID}}")
    (package / "run").write_text(script)
    (package / "run").chmod(0o700)


def check(home: Path) -> list[str]:
    return [*oracle.tidy(home), *_results(home), *_soldiers(home), *_memory(home)]


def check_attempts(home: Path) -> list[str]:
    """A general that was killed finds its soldiers again: nobody is sent twice for the same attempt."""
    served = (home / "served").read_text().split()
    attempts = {WELL: 1, ASKS: 1, BADLY: 2}
    return check(home) + [
        line
        for task, wanted in attempts.items()
        for line in oracle.exactly(f"soldiers for {task}", wanted, served.count(task))
    ]


def _results(home: Path) -> list[str]:
    places = Places(home)
    states = oracle.states_of(home, "tasks")
    wrong = [] if states.get("task-20260207-009") == ["pending"] else ["another general's task was taken"]
    for task, status in EXPECTED.items():
        if states.get(task) != ["in_progress"]:
            wrong.append(f"{task} lies in {states.get(task)}")
        found = read(places.result(task))
        if found.get("status") != status:
            wrong.append(f"the result of {task}: {found.get('status')} {found.get('error') or found.get('reason')}")
        asked = places.checkpoint(task).exists()
        if asked != (status == "needs_human"):
            wrong.append(f"{task}: {'a' if asked else 'no'} checkpoint")
    return wrong


def _soldiers(home: Path) -> list[str]:
    """Nobody of theirs is left, nobody was sent while another was out, and no attempt was one too many."""
    places = Places(home)
    wrong = [f"still out: {room.name}" for room in places.soldiers.iterdir() if is_locked(room / "lock")]
    wrong += [f"a process is left: {pid}" for pid in processes_of(home)]
    try:
        rows = parse_json(places.sessions.read_bytes()) if places.sessions.exists() else []
        wrong += [f"on the roll: {row['task_id']}" for row in rows]
    except ValueError as error:
        wrong.append(f"sessions.json: {error}")
    wrong += (home / "twice").read_text().splitlines() if (home / "twice").exists() else []
    return wrong


def _memory(home: Path) -> list[str]:
    learned = Places(home).general_memory(homes.GENERAL) / "learned-patterns.md"
    times = learned.read_text().count("tabs, not spaces") if learned.exists() else 0
    return oracle.exactly("lessons learned", 1, times)


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


GENERAL = Step("general", ARGV, prepare, check, timeout=30, steady=False)

KILLED = replace(GENERAL, check=check_attempts)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_file_call_of_a_general_loses_a_task(fault: str, figure: oracle.Figure) -> None:
    report = none_bad(sweep(KILLED if fault == KILL else GENERAL, fault, budget=QUICK_POINTS), figure)
    assert len(report.missed) <= max(3, report.tried / 5), report.details


def test_no_power_cut_under_a_general_loses_a_task(figure: oracle.Figure) -> None:
    none_bad(power_cuts(GENERAL, budget=QUICK_STATES), figure)
