"""The process that serves one soldier: it is asked to end, its disk is full, it was forked from one that is loaded."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.disk.codec import read_json
from kingdom.home.places import Places
from kingdom.records.soldiers import STOPPED, SoldierOrder
from kingdom.soldier import serve, warm
from tests.fixtures import founded, write
from tests.records.test_soldiers import ORDER
from tests.waiting import SOON, wait_until

TASK, SECRET = "task-20260207-001", "sesame-3f9a2b"
Serves = Callable[[str], subprocess.Popen[bytes]]


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
    return ORDER._replace(engine="command", sandbox=False, env={}, limits=limits, **files, **own)


@pytest.fixture
def serves(places: Places, order: SoldierOrder) -> Iterator[Serves]:
    """Start a process that serves a soldier with this engine, once the engine runs."""
    children: list[subprocess.Popen[bytes]] = []

    def start(script: str) -> subprocess.Popen[bytes]:
        Path(order.program).write_text(f"#!/bin/sh\n{script}\n")
        Path(order.program).chmod(0o755)
        write(places.home / "order.json", order.to_json())
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


def test_the_last_words_of_one_that_is_asked_to_end_are_without_secrets(serves: Serves, places: Places) -> None:
    child = serves(f"echo {SECRET}; echo {SECRET} >&2; sleep 300")
    child.terminate()
    report = reported(places, child)
    assert (report["ended"], report["seen"]) == (STOPPED, "*" * len(SECRET))


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
