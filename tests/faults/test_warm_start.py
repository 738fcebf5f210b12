"""The process that forks serving processes is killed at every step: each task is done once all the same."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from kingdom.disk.codec import read_json
from kingdom.home.places import Places
from kingdom.runtime.processes import carriers, soldier_markers, tree
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


def at(call: str) -> Fault:
    """Kill the server when it makes this call next. Its children are not traced."""

    def attach(server: int) -> subprocess.Popen[bytes]:
        inject = f"inject={call}:signal=KILL:when=1"
        argv = [strace(), "-p", str(server), "-o", os.devnull, "-e", f"trace={call}", "-e", inject]
        tracer = subprocess.Popen(argv, stderr=subprocess.PIPE)
        assert tracer.stderr is not None
        assert b"attached" in tracer.stderr.readline()
        return tracer

    return attach


def send(number: signal.Signals) -> Fault:
    return lambda server: os.kill(server, number)


FAULTS: dict[str, Fault] = {
    "killed while idle": send(signal.SIGKILL),
    "stopped": send(signal.SIGSTOP),
    "killed before it reads the request": at("recvmsg"),
    "killed before it forks": at("clone"),
    "killed while it reads the order": at("openat"),
    "killed before it answers": at("sendto"),
    "killed after it has answered": at("wait4"),
    "killed before it writes a report": at("rename"),
    "killed after it has written a report": at("kill"),
}
QUICK = (
    *("stopped", "killed before it reads the request", "killed before it answers", "killed after it has answered"),
    *("killed before it writes a report", "killed after it has written a report"),
)


@pytest.mark.parametrize("name", FAULTS if trees.CAMPAIGN else QUICK)
def test_each_task_is_done_once_whatever_becomes_of_the_warm_server(name: str, figure: Figure) -> None:
    wrong = check(trees.program(), name)
    figure(f"warm server {name}: {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)


def test_a_killed_general_leaves_no_warm_server() -> None:
    assert check_general_killed(trees.program()) == []


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
    """Do a task, let the fault happen, and do two more. Return what is wrong then."""
    with general_at_work(program) as (general, places):
        done(places, 1)
        (server,) = warm_servers(general)
        tracer = FAULTS[name](server)
        try:
            done(places, 2)
            done(places, 3)
        except AssertionError as error:
            if tracer is not None:
                tracer.terminate()
                tracer.communicate()
            return [str(error)]
        general.send_signal(signal.SIGTERM)
        general.wait(SECONDS)
        if tracer is not None:
            tracer.communicate(timeout=SECONDS)
        expected = [task_id(number) for number in (1, 2, 3)]
        wrong = [] if lives(places) == expected else [f"soldiers ran for {lives(places)}"]
        told = places.role_log(homes.GENERAL).read_text().count(SLOWLY)
        wrong += [] if told == 1 else [f"that soldiers start slowly was said {told} times"]
        wrong += [f"a process is left: {pid}" for pid in processes_of(places.home)]
        return wrong


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
    **{f"warm server {name}": partial(check, name=name) for name in FAULTS},
    "warm server, its general killed": check_general_killed,
}


@contextmanager
def general_at_work(program: Path) -> Iterator[tuple[subprocess.Popen[bytes], Places]]:
    home = trees.new_folder()
    places = homes.make(home)
    homes.install(home, homes.GENERAL, engine="command", sandbox="off")
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
