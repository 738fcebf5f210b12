"""`kingdom up --foreground`, as systemd and containers run it, and what systemd is told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.base.disk.lock import Lock
from kingdom.base.home.places import Places
from kingdom.cli.foreground import GONE_SECONDS, HUNG_SECONDS, ForegroundState, Watch, states
from tests.shell_roles import runs
from tests.waiting import SOON, wait_until

THRESHOLD = 120.0


@pytest.fixture
def systemd(home: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(home / "notify"))
        line.settimeout(SOON)
        yield line


def environment(home: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folder = str(home / "home")
    return {"PATH": path, "HOME": str(home), "KINGDOM_HOME": folder, "NOTIFY_SOCKET": str(home / "notify")}


def told(line: socket.socket, state: str) -> list[str]:
    """Wait for this state, and return all states that were told up to it."""
    found: list[str] = []
    while state not in found:
        found += line.recv(4096).decode().splitlines()
    return found


def test_it_says_when_every_role_works_and_stops_them_all_when_it_is_asked_to_end(
    home: Path, systemd: socket.socket
) -> None:
    subprocess.run([sys.executable, "-m", "kingdom", "init"], env=environment(home), check=True, capture_output=True)
    (home / "home/config/system.yaml").write_text("log: {format: json}\n")
    (home / "home/config/hall.yaml").write_text("port: 0\n")
    command = [sys.executable, "-m", "kingdom", "up", "--foreground"]
    with subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert "WATCHDOG=1" in told(systemd, "READY=1")
            beats = [json.loads(beat.read_bytes()) for beat in (home / "home").glob("state/*/heartbeat")]
            assert len(beats) > 4
            assert {beat["state"] for beat in beats} <= {"idle", "working"}
        finally:
            process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=SOON)
    assert process.returncode == 0
    assert "Stopped chamberlain, envoy, " in said
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert {line["role"] for line in lines} >= {"king", "envoy", "chamberlain"}, "the log, for collectors"
    told(systemd, "STOPPING=1")
    wait_until(lambda: not any(runs(beat["pid"]) for beat in beats), SOON, "no role is left")


def test_a_role_in_a_unit_of_its_own_speaks_for_itself(home: Path, systemd: socket.socket) -> None:
    subprocess.run([sys.executable, "-m", "kingdom", "init"], env=environment(home), check=True, capture_output=True)
    with subprocess.Popen([sys.executable, "-m", "kingdom.envoy"], env=environment(home)) as process:
        assert told(systemd, "READY=1") == ["READY=1", "WATCHDOG=1"]
        process.send_signal(signal.SIGTERM)
        told(systemd, "STOPPING=1")
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (ForegroundState([], [], 0), ["READY=1", "WATCHDOG=1", "STATUS=every role works"]),
        (ForegroundState(["envoy"], [], 0), ["WATCHDOG=1", "STATUS=envoy not up"]),
        (ForegroundState([], ["king", "envoy"], 0), ["READY=1", "STATUS=king, envoy hung"]),
        (ForegroundState(["envoy"], ["king"], 0), ["STATUS=envoy not up; king hung"]),
    ],
)
def test_ready_is_said_of_all_and_well_while_none_hangs(found: ForegroundState, says: list[str]) -> None:
    assert states(found) == says


def test_a_role_whose_heartbeat_stands_still_hangs_and_a_kingdom_without_roles_is_gone(home: Path) -> None:
    places = Places(home)
    now = [0.0]
    watch = Watch(places, lambda: now[0])
    lock = Lock(places.lock("king"), "king")
    places.own("king").mkdir(parents=True, exist_ok=True)
    lock.acquire(0)
    try:
        places.heartbeat("king").write_text("1")
        assert watch.look().hung == []
        now[0] = THRESHOLD + HUNG_SECONDS
        assert watch.look().hung == []
        now[0] += 1
        assert watch.look().hung == ["king"]
        places.heartbeat("king").write_text("2")
        assert watch.look() == ForegroundState(watch.look().not_up, [], 0.0)
    finally:
        lock.release()
    now[0] += GONE_SECONDS + 1
    assert watch.look().gone == GONE_SECONDS + 1
