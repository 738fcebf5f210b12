"""The warm server and the serving processes that it forks are killed at every step: each task is done all the same."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.home.places import Places
from kingdom.base.runtime.processes import carriers, soldier_markers, tree
from tests.faults import homes, trees
from tests.faults.oracle import Figure
from tests.faults.strace import strace
from tests.faults.sweep import end_strays, processes_of
from tests.waiting import wait_until

SECONDS = 60.0
SLOWLY = "starts soldiers directly"
PROGRAM = """#!/bin/sh
echo $KINGDOM_TASK_ID >>{home}/lives
sleep 0.1
while [ -e {home}/hold ]; do sleep 0.05; done
echo '{{"status": "success"}}' >"$KINGDOM_RESULT_PATH"
"""

Fault = Callable[[int], "subprocess.Popen[bytes] | None"]
"""Returns the tracer that will do it, if there is one."""


def at(call: str, when: int = 1) -> Fault:
    """Kill the process when it makes this call the next time, or so many times. Its children are not traced."""

    def attach(server: int) -> subprocess.Popen[bytes]:
        inject = f"inject={call}:signal=KILL:when={when}"
        argv = [strace(), "-p", str(server), "-o", os.devnull, "-e", f"trace={call}", "-e", inject]
        tracer = subprocess.Popen(argv, stderr=subprocess.PIPE)
        assert tracer.stderr is not None
        assert b"attached" in tracer.stderr.readline()
        return tracer

    return attach


def stop(server: int) -> None:
    os.kill(server, signal.SIGSTOP)


def kill(server: int) -> None:
    """Kill a process, and return when it is gone: until then it takes requests."""
    ended = os.pidfd_open(server)
    os.kill(server, signal.SIGKILL)
    assert select.select([ended], [], [], SECONDS)[0]
    os.close(ended)


class Case(NamedTuple):
    """A fault in the warm server or in a serving process, and what may follow from it."""

    strikes: Fault
    #: Whether it strikes the warm server, which is asked for one more process; else the one that has served a task.
    server: bool = False
    #: How often soldiers are said to be started directly.
    told: int = 0
    #: How often the task that meets it may have been run.
    runs: int = 1


FAULTS = {
    "warm server killed while idle": Case(kill, server=True, told=1),
    "warm server stopped": Case(stop, server=True, told=1),
    "warm server killed before it reads the request": Case(at("recvfrom"), server=True, told=1),
    "warm server killed before it forks": Case(at("clone"), server=True, told=1),
    "warm server killed before it answers": Case(at("sendmsg"), server=True, told=1),
    "warm server killed after it has answered": Case(at("wait4"), server=True),
    "serving process killed while idle": Case(kill),
    "serving process stopped": Case(stop, told=1),
    "serving process killed before it reads the request": Case(at("recvmsg"), told=1),
    "serving process killed before it has begun": Case(at("sendto"), told=1),
    "serving process killed while it reads the order": Case(at("openat"), runs=2),
    "serving process killed before it starts the engine": Case(at("clone3"), runs=2),
    "serving process killed while the engine runs": Case(at("pidfd_open"), runs=2),
    "serving process killed when the engine has ended": Case(at("wait4"), runs=2),
    "serving process killed before it writes a report": Case(at("rename"), runs=2),
    "serving process killed before it is done": Case(at("sendto", 2)),
}
QUICK = (
    *("warm server stopped", "warm server killed before it answers", "serving process stopped"),
    *("serving process killed while idle", "serving process killed before it has begun"),
    *("serving process killed while the engine runs", "serving process killed before it is done"),
)


@pytest.mark.parametrize("name", FAULTS if trees.CAMPAIGN else QUICK)
def test_each_task_is_done_whatever_becomes_of_the_preloaded_processes(name: str, figure: Figure) -> None:
    wrong = check(trees.program(), name)
    figure(f"{name}: {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)


def test_a_killed_general_leaves_no_warm_server() -> None:
    assert check_general_killed(trees.program()) == []


def test_a_serving_process_that_is_done_is_known_by_its_task_no_more() -> None:
    assert check_idle(trees.program()) == []


def test_a_forked_serving_process_is_found_and_ended_by_its_markers() -> None:
    with general_at_work(trees.program()) as (general, places):
        done(places, 1)
        (places.home / "hold").touch()
        put(places, 2)
        wait_until(lambda: len(lives(places)) == 2, SECONDS, "the second soldier")
        serving = set(tree(warm_servers(general)[0]))
        found = {pid for pid, _ in carriers(soldier_markers(places.home, task_id(2)))}
        assert serving & found
        assert not [pid for pid in serving - found if Path(f"/proc/{pid}").exists()]
        assert all(os.getsid(pid) != os.getsid(general.pid) for pid in serving & found if Path(f"/proc/{pid}").exists())
        (places.home / "hold").unlink()
        ended(places, 2)


def check(program: Path, name: str) -> list[str]:
    """Do a task, let the fault happen, and do three more, two of them at once. Return what is wrong then."""
    case = FAULTS[name]
    with general_at_work(program) as (general, places):
        done(places, 1)
        (server,) = warm_servers(general)
        (serving,) = tree(server)
        tracer = case.strikes(server if case.server else serving)
        try:
            if case.server:
                two_at_once(places, 2, 3)
                done(places, 4)
            else:
                done(places, 2)
                two_at_once(places, 3, 4)
        except AssertionError as error:
            if tracer is not None:
                tracer.terminate()
                tracer.communicate()
            return [str(error)]
        general.send_signal(signal.SIGTERM)
        general.wait(SECONDS)
        if tracer is not None:
            tracer.communicate(timeout=SECONDS)
        counts = Counter(lives(places))
        wrong = [f"{task} ran {count} times" for task, count in counts.items() if count > case.runs]
        wrong += [f"{task_id(number)} never ran" for number in (1, 2, 3, 4) if task_id(number) not in counts]
        wrong += [] if counts.total() <= 3 + case.runs else [f"more than one ran again: {counts}"]
        told = places.role_log(homes.GENERAL).read_text().count(SLOWLY)
        wrong += [] if told == case.told else [f"that soldiers start slowly was said {told} times"]
        wrong += [f"a process is left: {pid}" for pid in processes_of(places.home)]
        return wrong


def two_at_once(places: Places, first: int, second: int) -> None:
    """Do two tasks, the second of which needs a process of its own."""
    (places.home / "hold").touch()
    for number in (first, second):
        put(places, number)
        wait_until(partial(runs, places, number), SECONDS, f"task {number}")
    (places.home / "hold").unlink()
    for number in (first, second):
        ended(places, number)


def runs(places: Places, number: int) -> bool:
    return task_id(number) in lives(places)


def check_idle(program: Path) -> list[str]:
    """Look at a serving process that is done with its task. Return what is wrong with it."""
    with general_at_work(program) as (_, places):
        done(places, 1)
        markers, lock = soldier_markers(places.home, task_id(1)), places.control_folder(homes.GENERAL, task_id(1))
        wait_until(lambda: not lock.exists(), SECONDS, "its traces are cleared")
        return ["it shows the markers of a task that has ended"] if carriers(markers) else []


def check_general_killed(program: Path) -> list[str]:
    """Kill a general whose warm server hangs. Return what is wrong then."""
    with general_at_work(program) as (general, places):
        done(places, 1)
        (server,) = warm_servers(general)
        ended = os.pidfd_open(server)
        os.kill(server, signal.SIGSTOP)
        general.kill()
        wrong = [] if select.select([ended], [], [], 10)[0] else ["the warm server goes on"]
        os.close(ended)
        return wrong


CHECKS: dict[str, Callable[[Path], list[str]]] = {
    **{name: partial(check, name=name) for name in FAULTS},
    "warm server, its general killed": check_general_killed,
    "serving process, idle": check_idle,
}


@contextmanager
def general_at_work(program: Path) -> Iterator[tuple[subprocess.Popen[bytes], Places]]:
    home = trees.new_folder()
    king = {"concurrency": {"max_soldiers": 20}, "retry": {"max_attempts": 2, "backoff_seconds": 0}}
    places = homes.make(home, config={"king": king})
    homes.install(home, homes.GENERAL, engine="command", sandbox="off", max_soldiers=2)
    run = places.package(homes.GENERAL) / "run"
    run.parent.mkdir(parents=True)
    run.write_text(PROGRAM.format(home=home))
    run.chmod(0o700)
    (run.parent / "prompt.md").write_text("Look at {{TASK_ID}}.\n")
    argv = [sys.executable, "-m", "kingdom.general", homes.GENERAL]
    general = subprocess.Popen(argv, cwd=program, env=trees.environment(program, home), stdout=subprocess.DEVNULL)
    try:
        yield general, places
    finally:
        general.kill()
        general.wait()
        end_strays(home)


def task_id(number: int) -> str:
    return f"task-20260207-{number:03}"


def put(places: Places, number: int) -> None:
    homes.put(places.home, "tasks", "pending", homes.task(task_id(number), f"evt-{number}", repo=None))


def ended(places: Places, number: int) -> None:
    path = places.result(task_id(number))
    wait_until(path.exists, SECONDS, f"the result of task {number}", [places.results])
    assert read_json(path)["status"] == "success"


def done(places: Places, number: int) -> None:
    put(places, number)
    ended(places, number)


def lives(places: Places) -> list[str]:
    path = places.home / "lives"
    return path.read_text().split() if path.exists() else []


def warm_servers(general: subprocess.Popen[bytes]) -> list[int]:
    return [pid for pid in tree(general.pid) if is_warm_server(Path(f"/proc/{pid}"), general.pid)]


def is_warm_server(process: Path, parent: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        status, command = (process / "status").read_text(), (process / "cmdline").read_bytes()
        return f"PPid:\t{parent}\n" in status and b"--warm" in command
    return False
