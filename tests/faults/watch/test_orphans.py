"""Row 11: whatever a soldier leaves behind is gone with its task, and nobody who only looks like one is harmed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults import trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import WORKING_GENERAL, Kingdom, Load, command_line, kingdom, one_of, since
from tests.shell_roles import runs
from tests.waiting import SOON, stays, wait_until

ROLL_CALL = 0.5
ROUNDS_ALLOWED = 2
MACHINE = 3.0
"""What a busy machine may add to two rounds of half a second."""

FLEEING = """#!/bin/sh
# Four that try to outlive their soldier, each noting its pid.
cat >/dev/null
flee='echo $$ >>"$KINGDOM_HOME/fled"; while :; do sleep 1; done'
nohup sh -c "$flee" >/dev/null 2>&1 &
setsid sh -c "$flee" >/dev/null 2>&1 &
(setsid sh -c "($flee) >/dev/null 2>&1 &" &)
sh -c 'trap "" TERM HUP INT; '"$flee" >/dev/null 2>&1 &
while [ "$(wc -l <"$KINGDOM_HOME/fled" 2>/dev/null || echo 0)" -lt 4 ]; do sleep 0.05; done
echo "$KINGDOM_TASK_ID $$" >>"$KINGDOM_HOME/begun"
while [ -e "$KINGDOM_HOME/hold" ]; do sleep 0.05; done
printf '{"task_id": "%s", "status": "success", "summary": "done"}' "$KINGDOM_TASK_ID" >"$KINGDOM_RESULT_PATH"
"""


def check_orphans(tree: Path, launcher: str, serving_killed: bool, took: list[float]) -> list[str]:
    with kingdom(launcher, tree=tree, manifest=WORKING_GENERAL) as court:
        load = Load(court)
        (court.places.package("gen-pr") / "run").write_text(FLEEING)
        (court.home / "hold").touch()
        court.up()
        with innocents(court) as spared:
            load.arrive()
            wait_until(lambda: load.lines("begun"), SOON, f"the soldier is out ({court.logs()})")
            fled = [int(line) for line in load.lines("fled")]
            serving = [pid for pid in court.processes() if {"-m", "kingdom.soldier"} <= set(command_line(pid))]
            began = time.monotonic()
            if serving_killed:
                for pid in serving:
                    os.kill(pid, signal.SIGKILL)
            else:
                (court.home / "hold").unlink()
            allowed = ROUNDS_ALLOWED * ROLL_CALL + MACHINE
            wait_until(lambda: not any(map(runs, fled)), allowed, f"the fled are gone: {fled} ({court.logs()})")
            took.append(since(began))
            (court.home / "hold").unlink(missing_ok=True)
            stays(
                lambda: all(child.poll() is None for child in spared.values()), ROLL_CALL * 3, "the other processes run"
            )
            return [f"{name} was shot" for name, child in spared.items() if child.poll() is not None]


@contextmanager
def innocents(court: Kingdom) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Names like soldiers', our home without a task, a task of another home, a pid that was once a soldier's."""
    home, task = str(court.home), f"task-{time.strftime('%Y%m%d', time.gmtime())}-001"  # as the soldier's own
    cases: dict[str, tuple[list[str], dict[str, str]]] = {
        "soldier-1": (["bash", "-c", "exec -a soldier-1 sleep 60"], {}),
        "soldier-10": (["bash", "-c", "exec -a soldier-10 sleep 60"], {}),
        "kingdom.soldier by name": (["bash", "-c", "exec -a kingdom.soldier sleep 60"], {"KINGDOM_HOME": home}),
        "a task of another home": (["sleep", "60"], {"KINGDOM_HOME": home + "x", "KINGDOM_SOLDIER": task}),
        "a task of no home": (["sleep", "60"], {"KINGDOM_SOLDIER": task}),
        "a program tried by hand": (["sleep", "60"], {"KINGDOM_HOME": home, "KINGDOM_TASK_ID": task}),
        "a reused pid": (["sleep", "60"], {}),
    }
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, (argv, env) in cases.items():
            started[name] = subprocess.Popen(argv, env={"PATH": os.environ["PATH"], **env}, start_new_session=True)
        gone, pid = "task-20261118-099", started["a reused pid"].pid
        row = {"task_id": gone, "soldier": f"soldier-{gone}-0", "pid": pid, "start": 1}
        court.places.sessions.write_text(json.dumps({"sessions": [row]}))
        yield started
    finally:
        for child in started.values():
            child.kill()
            child.wait()


@trees.in_campaigns
@pytest.mark.parametrize("serving_killed", [False, True] if trees.CAMPAIGN else [True])
@pytest.mark.parametrize("launcher", one_of("supervisord"))
def test_nothing_outlives_a_soldier(serving_killed: bool, launcher: str, figure: Figure) -> None:
    took: list[float] = []
    assert check_orphans(trees.program(), launcher, serving_killed, took) == []
    how = "its serving part killed" if serving_killed else "its task ended"
    figure(f"row 11 orphans, {how}, {launcher}: 4 of 4 gone after {max(took):.1f} s, 0 of 6 innocents harmed")
