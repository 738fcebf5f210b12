"""What starting a trivial command costs this machine, in processor time, without anything of a kingdom around it.

Run in a Python of its own, as the size of a process decides what its forks cost: `python -m bench.starts FOLDER`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.figures import median
from kingdom.base.home.places import Places
from kingdom.base.records.soldiers import SoldierOrder
from kingdom.base.runtime.cgroup import Cgroup
from kingdom.court.soldier import serve
from kingdom.court.soldier.sandbox import Prepared
from kingdom.court.soldiers import engines

ROUNDS, TIMES = 5, 40
COMMAND = ["/bin/sh", "-c", "true"]


def measured(root: Path) -> dict[str, float]:
    """Return the milliseconds of processor time of each floor, by its name."""
    words = [sys.executable, "-m", "bench.starts", str(root)]
    done = subprocess.run(words, cwd=Path(__file__).resolve().parent.parent, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def _floors(root: Path) -> dict[str, float]:
    root.mkdir()
    ready, prepared = _ready(root), Prepared()
    ways: dict[str, Callable[[], object]] = {
        "`sh -c true` by posix_spawn": lambda: os.waitpid(os.posix_spawn(COMMAND[0], COMMAND, os.environ), 0),
        "the same by fork and exec, from a Python": _forked,
        "the same in control group, namespaces, Landlock, filter and limits": lambda: _sandboxed(ready, prepared),
    }
    return {name: median([_milliseconds(way) for _ in range(ROUNDS)]) for name, way in ways.items()}


def _milliseconds(way: Callable[[], object]) -> float:
    before = _used()
    for _ in range(TIMES):
        way()
    return (_used() - before) / TIMES * 1e3


def _used() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _forked() -> None:
    if (pid := os.fork()) == 0:
        os.execv(COMMAND[0], COMMAND)
    os.waitpid(pid, 0)


def _sandboxed(ready: serve.Ready, prepared: Prepared) -> None:
    ready.cgroup.create(64)
    os.waitpid(serve._spawn(ready, prepared), 0)
    ready.cgroup.kill_all()


def _ready(root: Path) -> serve.Ready:
    """Make a task whose command is the one above."""
    for name in ("prompt", "out", "err"):
        (root / name).touch()
    paths = {name: str(root / name) for name in ("prompt", "out", "err")}
    order = SoldierOrder(
        soldier="floor",
        task_id="floor",
        general="gen-bench",
        attempt=0,
        engine="command",
        account="command:gen-bench",
        program=COMMAND[0],
        workspace=str(root),
        result_path=str(root / "result.json"),
        limits={"memory_mb": 2048, "cpu_seconds": 3600, "processes": 64},
        sandbox=True,
        external=False,
        question="",
        may_write=[str(root)],
        may_not_read=[],
        env={},
        arguments=COMMAND[1:],
        **paths,
    )
    places = Places(root)
    cgroup = Cgroup(root, "floor")
    return serve.Ready(order, places, engines.load("command"), cgroup, dict(os.environ), None, 0.0)


if __name__ == "__main__":
    print(json.dumps(_floors(Path(sys.argv[1]) / "floor")))
