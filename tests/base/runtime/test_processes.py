"""Processes are known by what they carry and when they began, never by their names."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.base.runtime.processes import (
    Markers,
    age,
    carriers,
    carries,
    end,
    end_carriers,
    send,
    soldier_markers,
    started_at,
    stat_fields,
    tasks_at_work,
    tracer,
    tree,
)
from tests.shell_roles import runs
from tests.waiting import SOON, stays, wait_until

TASK = f"task-{secrets.token_hex(4)}-1"
"""Other runs of these tests end what carries theirs."""
MARK = Markers(frozenset({f"KINGDOM_TEST_TASK={TASK}".encode()}))


class Started:
    """Processes that a test has started."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[str]] = []

    def start(self, script: str, task: str = TASK, **more: str) -> subprocess.Popen[str]:
        env = {"PATH": os.environ["PATH"], "KINGDOM_TEST_TASK": task, **more}
        made = subprocess.Popen(
            ["sh", "-c", f"{script}"], env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.all.append(made)
        return made


@pytest.fixture
def started() -> Iterator[Started]:
    started = Started()
    yield started
    end_carriers(MARK)
    for process in started.all:
        process.kill()
        process.communicate()


def pids_said(process: subprocess.Popen[str], count: int) -> list[int]:
    assert process.stdout is not None
    return [int(process.stdout.readline()) for _ in range(count)]


def test_a_process_is_named_by_its_pid_and_start(started: Started) -> None:
    process = started.start("exec sleep 300")
    start = started_at(process.pid)
    assert start is not None
    assert 0 <= age(start) < 60
    process.kill()
    wait_until(lambda: started_at(process.pid) is None, SOON, "its end, zombie or not")
    assert stat_fields(process.pid) is None
    assert started_at(2**22 + 1) is None


def test_a_name_with_spaces_and_brackets_confuses_nobody(started: Started, home: Path) -> None:
    odd = home / ") R 1 (x"
    odd.symlink_to(str(shutil.which("sleep")))
    process = started.start(f"echo $$; exec '{odd}' 300")
    pids_said(process, 1)
    wait_until(lambda: ") R 1 (x" in Path(f"/proc/{process.pid}/stat").read_text(), SOON, "its odd name")
    assert started_at(process.pid) is not None
    assert process.pid in tree(os.getpid())


def test_look_alikes_do_not_carry_the_marker(started: Started) -> None:
    ours = started.start("echo $$; exec sleep 300")
    others = [started.start("echo $$; exec sleep 300", task) for task in (f"{TASK}0", TASK[:-1], f"x{TASK}")]
    others.append(started.start("echo $$; exec sleep 300", "other", NOTE=f"KINGDOM_TEST_TASK={TASK}"))
    for process in (ours, *others):
        pids_said(process, 1)
    wait_until(lambda: [pid for pid, _ in carriers(MARK)] == [ours.pid], SOON, "the markers of this one alone")
    assert not any(carries(process.pid, MARK.environment) for process in others)
    assert end_carriers(MARK) == 1
    assert [runs(process.pid) for process in others] == [True] * 4


def test_the_whole_family_goes_wherever_it_hid(started: Started) -> None:
    process = started.start(
        "echo $$; setsid sh -c 'echo $$; exec sleep 300' & (sh -c 'echo $$; exec sleep 300' &) ; wait"
    )
    family = pids_said(process, 3)
    wait_until(lambda: {*family} <= {pid for pid, _ in carriers(MARK)}, SOON, "their markers")
    assert end_carriers(MARK) >= 3
    wait_until(lambda: not any(map(runs, family)), SOON, "their end")


def test_a_home_may_have_any_name(started: Started, home: Path) -> None:
    odd = home / os.fsdecode(b"caf\xe9")
    started.start("sleep 60", KINGDOM_HOME=str(odd), KINGDOM_SOLDIER="task-1")
    wait_until(lambda: carriers(soldier_markers(odd, "task-1")), SOON, "its markers")
    assert list(tasks_at_work(odd)) == ["task-1"]


def test_who_began_before_is_left_alone(started: Started) -> None:
    process = started.start("echo $$; exec sleep 300")
    pids_said(process, 1)
    start = started_at(process.pid)
    assert start is not None
    # While a program takes the place of the shell its environment cannot be read.
    wait_until(lambda: carriers(MARK, start) == [(process.pid, start)], SOON, "its markers")
    assert carriers(MARK, start + 1) == []
    assert end_carriers(MARK, start + 1) == 0
    assert runs(process.pid)


def test_a_pid_that_names_another_process_now_gets_no_signal(started: Started) -> None:
    process = started.start("exec sleep 300")
    start = started_at(process.pid)
    assert start is not None
    send([(process.pid, start - 1), (2**22 + 1, start)], signal.SIGKILL)
    assert end([(process.pid, start - 1), (2**22 + 1, start)], 1.0) == 0
    stays(lambda: runs(process.pid), 0.2, "it lives")
    send([(process.pid, start)], signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_a_tree_holds_every_descendant_and_no_zombie(started: Started) -> None:
    ended_child = "sh -c 'echo $$' & "
    process = started.start(ended_child + "sh -c 'echo $$; sh -c \"echo \\$\\$; exec sleep 300\"; true'; true")
    family = set(pids_said(process, 3))
    wait_until(lambda: len(tree(process.pid)) == 2, SOON, "the end of the child that only speaks")
    assert set(tree(process.pid)) < family
    assert process.pid not in tree(process.pid)
    assert set(tree(process.pid)) <= set(tree(os.getpid()))


def test_who_hides_what_it_was_started_with_is_known_by_its_mounts(started: Started, home: Path) -> None:
    markers = soldier_markers(home, "task-1")
    assert markers.mount is not None
    own = Path(os.fsdecode(markers.mount))
    own.mkdir(parents=True)
    enter = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    if subprocess.run([*enter, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip("NO MOUNT NAMESPACES HERE")
    hides = 'mount --bind "$0" "$0" && exec env -i sh -c "echo \\$\\$; exec sleep 300"'
    (pid,) = pids_said(started.start(f"{' '.join(enter)} sh -c '{hides}' '{own}'"), 1)
    wait_until(lambda: [found for found, _ in carriers(markers)] == [pid], SOON, "its mounts")
    assert {task: [found for found, _ in there] for task, there in tasks_at_work(home).items()} == {"task-1": [pid]}
    assert end_carriers(markers) == 1
    assert not runs(pid)


TRACED = """
import ctypes, os, signal
ctypes.CDLL(None).ptrace(0, 0, 0, 0)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_debugger_of_a_process_is_found() -> None:
    assert tracer(os.getpid()) is None
    assert tracer(2**22 + 1) is None
    with subprocess.Popen([sys.executable, "-S", "-c", TRACED]) as traced:
        os.waitid(os.P_PID, traced.pid, os.WSTOPPED)
        assert tracer(traced.pid) == os.getpid()
        traced.kill()


HOARDS = """
from kingdom.base.runtime.processes import give_back_memory

def resident():
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1])

much = [bytes(2000) for _ in range(20_000)]
above = bytes(2000)
del much
before = resident()
give_back_memory()
print(before - resident())
"""


def test_freed_memory_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", HOARDS], capture_output=True, text=True, check=True)
    assert int(done.stdout) * os.sysconf("SC_PAGE_SIZE") > 20 << 20


ENDS_WITH_ITS_PARENT = """
import os, signal, sys, time
from kingdom.base.runtime.processes import end_with_parent
if (pid := os.fork()) == 0:
    end_with_parent(signal.SIGTERM)
    print(os.getpid(), flush=True)
    time.sleep(300)
sys.stdin.read()
"""


def test_who_ends_with_its_parent_does_so_however_that_ends() -> None:
    words = [sys.executable, "-c", ENDS_WITH_ITS_PARENT]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        (pid,) = pids_said(parent, 1)
        start = started_at(pid)
        assert start is not None
        parent.kill()
    try:
        wait_until(lambda: started_at(pid) != start, SOON, "its end")
    finally:
        send([(pid, start)], signal.SIGKILL)
