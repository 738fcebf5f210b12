"""The process that serves one soldier: it is asked to end, its disk is full, it was forked from one that is loaded."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kingdom.disk.codec import read_json
from kingdom.disk.lock import Lock, is_locked
from kingdom.home.places import Places
from kingdom.records.soldiers import BY_ITSELF, OVER_LIMIT, STOPPED, SoldierOrder
from kingdom.runtime.cgroup import Cgroup
from kingdom.runtime.processes import carries, stat_fields
from kingdom.soldier import sandbox, serve, warm
from tests.fixtures import founded, write
from tests.records.test_soldiers import ORDER
from tests.waiting import SOON, wait_until

TASK, SECRET = "task-20260207-001", "sesame-3f9a2b"
Serves = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def places(home: Path) -> Places:
    places = founded(home)
    places.env_file.write_text(f"TOKEN={SECRET}\n")
    places.env_file.chmod(0o600)
    return places


@pytest.fixture
def order(places: Places) -> SoldierOrder:
    folder = places.soldier_folder(TASK)
    (folder / "work").mkdir(parents=True)
    files = {name: str(folder / name) for name in ("prompt", "out", "err", "program")}
    for path in files.values():
        Path(path).touch()
    own = {"workspace": str(folder / "work"), "result_path": str(folder / "work/result.json")}
    limits = {**ORDER.limits, "processes": 200}
    return ORDER._replace(task_id=TASK, engine="command", sandbox=False, env={}, limits=limits, **files, **own)


@pytest.fixture
def serves(places: Places, order: SoldierOrder) -> Iterator[Serves]:
    """Start a process that serves a soldier with this engine, once the engine runs."""
    children: list[subprocess.Popen[bytes]] = []

    def start(script: str, **fields: Any) -> subprocess.Popen[bytes]:
        Path(order.program).write_text(f"#!/bin/sh\n{script}\n")
        Path(order.program).chmod(0o755)
        write(places.home / "order.json", order._replace(**fields).to_json())
        own = {"KINGDOM_HOME": str(places.home), "KINGDOM_ORDER": str(places.home / "order.json")}
        children.append(
            subprocess.Popen([sys.executable, "-P", "-m", "kingdom.soldier", TASK], env={**os.environ, **own})
        )
        wait_until(lambda: Path(order.out).read_text(), SOON, "the engine says a word", (Path(order.out).parent,))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.wait()


def reported(places: Places, child: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert child.wait(SOON) == 0
    return dict(read_json(places.raw_result(TASK)))


@pytest.mark.parametrize("how", [STOPPED, BY_ITSELF])
def test_the_last_words_of_one_that_ends_are_without_secrets(
    serves: Serves, places: Places, order: SoldierOrder, how: str
) -> None:
    child = serves(f"echo {SECRET}; echo {SECRET} >&2; {'sleep 300' if how == STOPPED else 'exit 3'}")
    if how == STOPPED:
        child.terminate()
    report = reported(places, child)
    assert (report["ended"], report["seen"]) == (how, "*" * len(SECRET))
    assert Path(order.out).read_text() == "*" * len(SECRET) + "\n"


def test_its_engine_gives_way_to_the_roles(serves: Serves, places: Places, order: SoldierOrder) -> None:
    reported(places, serves("cut -d' ' -f19 /proc/self/stat"))
    assert int(Path(order.out).read_text()) == min(19, os.nice(0) + sandbox.GIVES_WAY)


def test_its_engine_is_in_a_control_group_of_its_own(serves: Serves, places: Places, order: SoldierOrder) -> None:
    probe = Cgroup(places.home, "probe")
    probe.create(1)
    if not probe.is_there():
        pytest.skip("NO CONTROL GROUPS HERE")
    probe.kill_all()
    reported(places, serves("cat /proc/self/cgroup"))
    assert TASK in Path(order.out).read_text()


def test_one_that_the_kernel_ends_for_its_processor_time_is_over_its_limit(serves: Serves, places: Places) -> None:
    report = reported(places, serves("echo begins; kill -XCPU $$"))
    told = "a process with more than 60 s of processor time"
    assert (report["ended"], report["seen"]) == (OVER_LIMIT, told)


def test_orphans_that_end_while_the_engine_runs_are_waited_for(serves: Serves, places: Places, home: Path) -> None:
    child = serves(f"(sh -c 'echo $$ >{home}/orphan' &); echo begins; read -r _ <{fifo(home)}")
    orphan = wait_until(lambda: (home / "orphan").exists() and (home / "orphan").read_text().strip(), SOON, "it ran")
    wait_until(lambda: not Path(f"/proc/{orphan}").exists(), SOON, "not even a zombie is left")
    fifo(home).write_text("\n")
    assert reported(places, child)["ended"] == BY_ITSELF


def fifo(home: Path) -> Path:
    if not (home / "fifo").exists():
        os.mkfifo(home / "fifo")
    return home / "fifo"


def test_a_report_for_which_there_was_no_room_is_written_when_what_it_made_is_gone(
    serves: Serves, places: Places, order: SoldierOrder
) -> None:
    """No room is here a folder of its own in the report's place."""
    (places.raw_result(TASK) / "deep").mkdir(parents=True)
    own = [order.workspace, str(places.raw_result(TASK))]
    assert reported(places, serves("echo begins; sleep 0.3", may_write=own))["ended"] == BY_ITSELF


def test_one_that_is_asked_twice_has_its_time_to_end_all_the_same(
    serves: Serves, places: Places, order: SoldierOrder
) -> None:
    child = serves("trap 'echo ends; sleep 0.5; echo bye; exit' TERM; echo begins; while :; do sleep 0.05; done")
    child.terminate()
    wait_until(lambda: "ends" in Path(order.out).read_text(), SOON, "it is about to end")
    child.terminate()
    assert reported(places, child)["ended"] == STOPPED
    assert "bye" in Path(order.out).read_text()


def test_on_a_full_disk_what_a_soldier_made_goes_and_its_streams_are_empty(home: Path, order: SoldierOrder) -> None:
    (Path(order.workspace) / "deep").mkdir()
    for stream in (order.out, order.err):
        Path(stream).write_text("x")
        os.chmod(stream, 0o400)
    serve._make_room(order._replace(may_write=[order.workspace]))
    assert list(Path(order.workspace).iterdir()) == []
    assert [Path(stream).read_text() for stream in (order.out, order.err)] == ["", ""]
    assert [os.stat(stream).st_mode & 0o777 for stream in (order.out, order.err)] == [0o600, 0o600]


@pytest.fixture
def asks(places: Places) -> Iterator[Callable[..., tuple[int, socket.socket]]]:
    """Fork a warm server with so many seconds of patience."""
    forked: list[int] = []

    def start(idle_seconds: float) -> tuple[int, socket.socket]:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if (pid := os.fork()) == 0:
            ours.close()
            os.environ["KINGDOM_HOME"] = str(places.home)
            warm.IDLE_SECONDS = idle_seconds
            os._exit(warm.serve_warm(its.detach()))
        its.close()
        forked.append(pid)
        return pid, ours

    yield start
    for pid in forked:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@pytest.mark.parametrize("why", ["nobody asks", "its general is gone"])
def test_a_warm_server_ends_when_there_is_nothing_more_to_do(
    asks: Callable[..., tuple[int, socket.socket]], why: str
) -> None:
    pid, ours = asks(0.1 if why == "nobody asks" else SOON)
    if why == "its general is gone":
        ours.close()
    wait_until(lambda: has_ended(pid), SOON, "it has ended")
    ours.close()


def test_a_warm_server_that_is_stopped_ends_with_its_general(asks: Callable[..., tuple[int, socket.socket]]) -> None:
    told, tells = os.pipe()
    if (general := os.fork()) == 0:
        server, _ours = asks(SOON)
        os.write(tells, b"%d" % server)
        signal.pause()
    server = int(os.read(told, 20))
    os.close(told)
    os.close(tells)
    try:
        wait_until(lambda: (stat_fields(server) or [b""])[0] == b"S", SOON, "it waits for requests")
        os.kill(server, signal.SIGSTOP)
        os.kill(general, signal.SIGKILL)
        wait_until(lambda: stat_fields(server) is None, SOON, "it has ended")
    finally:
        for pid in (general, server):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(general, 0)


def test_who_is_forked_is_a_process_of_its_own_and_the_warm_server_lets_go_of_its_lock(
    asks: Callable[..., tuple[int, socket.socket]], places: Places, order: SoldierOrder
) -> None:
    Path(order.program).write_text(f"#!/bin/sh\nread -r _ <{fifo(places.home)}\n")
    Path(order.program).chmod(0o755)
    write(places.home / "order.json", order.to_json())
    own = {"KINGDOM_HOME": str(places.home), "KINGDOM_ORDER": str(places.home / "order.json"), "KINGDOM_SOLDIER": TASK}
    request = {"environment": {"PATH": os.environ["PATH"], **own}, "errors": str(places.home / "errors")}
    server, ours = asks(SOON)
    lock = Lock(places.home / "lock", TASK)
    lock.acquire()
    socket.send_fds(ours, [json.dumps(request).encode()], [lock.fileno()])
    pid = int(ours.recv(64))
    lock.release()
    wait_until(lambda: os.getsid(pid) == pid, SOON, "a session of its own")
    wait_until(lambda: carries(pid, frozenset({f"KINGDOM_SOLDIER={TASK}".encode()})), SOON, "its marker")
    wait_until(lambda: os.readlink(f"/proc/{pid}/cwd") == str(places.home), SOON, "its folder")
    assert is_locked(places.home / "lock")
    fifo(places.home).write_text("\n")
    wait_until(lambda: places.raw_result(TASK).exists(), SOON, "its report")
    wait_until(lambda: not is_locked(places.home / "lock"), SOON, "nobody holds its lock")
    assert not has_ended(server)
    ours.close()


def test_of_those_that_are_asked_for_at_once_each_holds_its_own_lock_alone(
    asks: Callable[..., tuple[int, socket.socket]], places: Places, order: SoldierOrder
) -> None:
    Path(order.program).write_text(f"#!/bin/sh\n[ $KINGDOM_SOLDIER = second ] || read -r _ <{fifo(places.home)}\n")
    Path(order.program).chmod(0o755)
    server, ours = asks(SOON)
    os.kill(server, signal.SIGSTOP)  # it finds both
    for name in ("first", "second"):
        write(places.home / f"{name}.json", order._replace(task_id=name).to_json())
        places.soldier_folder(name).mkdir()
        about = {"KINGDOM_HOME": str(places.home), "KINGDOM_ORDER": str(places.home / f"{name}.json")}
        environment = {"PATH": os.environ["PATH"], "KINGDOM_SOLDIER": name, **about}
        request = {"environment": environment, "errors": str(places.home / "errors")}
        lock = Lock(places.home / f"{name}.lock", name)
        lock.acquire()
        socket.send_fds(ours, [json.dumps(request).encode()], [lock.fileno()])
        lock.release()
    os.kill(server, signal.SIGCONT)
    assert int(ours.recv(64)) != int(ours.recv(64))
    wait_until(lambda: places.raw_result("second").exists(), SOON, "the second's report")
    wait_until(lambda: not is_locked(places.home / "second.lock"), SOON, "nobody holds the second's lock")
    assert is_locked(places.home / "first.lock")
    fifo(places.home).write_text("\n")
    wait_until(lambda: places.raw_result("first").exists(), SOON, "the first's report")
    ours.close()
