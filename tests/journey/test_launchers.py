"""What people do with launchers: storms of commands, plain supervisorctl, debuggers; and the reasons they are told."""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kingdom.base.disk.lock import holder_pid
from kingdom.base.runtime.processes import tracer
from kingdom.court.steward import STEWARDS
from tests.faults import trees
from tests.journey.conftest import founded
from tests.journey.kingdoms import Kingdom
from tests.waiting import wait_until

WORKERS, COMMANDS = 6, 40
ROLES = ("chamberlain", "envoy", "king", "gen-briefing", "gen-herald")
STORM = (
    ("up",),
    ("down",),
    ("restart", "king"),
    *((word, role) for word in ("start", "stop", "restart") for role in ("king", "gen-herald")),
)
BUSY = 180.0
INSIDE = ("Traceback", "SHUTDOWN_STATE", "can't find", "no such", "no server", "lost server", "Errno")
"""What no person should have to read."""


def processes_of(kingdom: Kingdom, role: str) -> list[str]:
    words = f"kingdom.general {role} " if role.startswith("gen-") else f"kingdom.{role} "
    return [line for line in kingdom.processes() if words in line]


@trees.in_campaigns
@pytest.mark.parametrize("launched", STEWARDS, indirect=True)
def test_a_storm_of_commands_ends_in_one_kingdom(launched: Kingdom) -> None:
    chance = random.Random(9)
    storms = [[chance.choice(STORM) for _ in range(COMMANDS)] for _ in range(WORKERS)]
    ends: Counter[str] = Counter()
    bad: list[str] = []

    def blow(commands: list[tuple[str, ...]]) -> None:
        for command in commands:
            done = launched.run(*command, seconds=180)
            ends[f"{command[0]} {done.returncode}"] += 1
            said = done.stdout + done.stderr
            if done.returncode not in (0, 1, 3) or done.stderr.count("\n") > 1 or any(word in said for word in INSIDE):
                bad.append(f"{command}: {done.returncode}: {said}")

    with ThreadPoolExecutor(WORKERS) as crowd:
        list(crowd.map(blow, storms))
    print(f"{WORKERS * COMMANDS} commands of {WORKERS} people: {dict(sorted(ends.items()))}, {len(bad)} bad")
    assert not bad, "\n".join(bad)
    launched.run("up")
    for role in ("king", "gen-herald"):
        launched.run("start", role)
    # On a busy machine a role may take longer to come up than these commands wait for it.
    wait_until(lambda: launched.run("up").returncode == 0, BUSY, f"all are up; {launched.complaints()}")
    assert {role: len(processes_of(launched, role)) for role in ROLES} == dict.fromkeys(ROLES, 1)
    assert "- Roles: 6 of 6 at work" in launched.run("say", "brief me", seconds=BUSY).stdout
    launched.ok("down")
    assert launched.processes() == []


@pytest.fixture(scope="module")
def supervised() -> Iterator[Kingdom]:
    yield from founded("supervisord")


def control(kingdom: Kingdom, *words: str) -> str:
    """Plain supervisorctl."""
    conf = kingdom.places.supervisor_conf
    command = [sys.executable, "-m", "supervisor.supervisorctl", "-c", str(conf), *words]
    done = subprocess.run(
        command, cwd=kingdom.home, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    return done.stdout + done.stderr


def test_supervisorctl_tail_shows_a_roles_log(supervised: Kingdom) -> None:
    assert "king: starts, pid " in control(supervised, "tail", "king")
    assert "gen-herald: starts, pid " in control(supervised, "tail", "gen-herald")


def test_start_all_leaves_what_is_switched_off(supervised: Kingdom) -> None:
    supervised.ok("stop", "gen-herald")
    control(supervised, "start", "all")
    said = supervised.places.last_words("mailbox")
    supervised.until(
        lambda: said.exists() and "is switched off" in said.read_text(), "the mailbox says why", said.parent
    )
    for role in ("mailbox", "gen-herald"):
        supervised.until(lambda role=role: not processes_of(supervised, role), f"{role} does not run")
    assert supervised.run("status").returncode == 0
    supervised.ok("start", "gen-herald")


BESIDE = [("restart", "king"), ("down",), ("start", "king"), ("stop", "gen-herald")]


@trees.in_campaigns
def test_commands_beside_a_shutdown_wait_for_its_end(supervised: Kingdom) -> None:
    for command in BESIDE:
        control(supervised, "shutdown")
        done = supervised.run(*command)
        assert done.stderr.count("\n") <= 1, done.stderr
        assert not any(word in done.stdout + done.stderr for word in INSIDE), done.stderr
        supervised.run("start", "gen-herald")
        supervised.ok("up")
        supervised.run("start", "gen-herald")
        assert "under supervisord" in supervised.ok("up"), "the launcher that it ran under"


DEBUGGER = """
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if libc.ptrace(16, int(sys.argv[1]), None, None):  # PTRACE_ATTACH stops it
    sys.exit(f"may not attach: {os.strerror(ctypes.get_errno())}")
print("attached", flush=True)
time.sleep(600)
"""


def quick_to_notice(kingdom: Kingdom) -> None:
    (kingdom.places.config / "system.yaml").write_text(
        "launcher: supervisord\nheartbeat: {threshold_seconds: 3}\nroles: {gateway: false, worker: false}\n"
    )
    (kingdom.places.config / "chamberlain.yaml").write_text(
        "intervals: {vitals_seconds: 3600, roll_call_seconds: 0.5}\n"
    )


@pytest.fixture
def watchful() -> Iterator[Kingdom]:
    yield from founded("supervisord", quick_to_notice)


@trees.in_campaigns
def test_a_role_that_a_debugger_holds_is_replaced(watchful: Kingdom) -> None:
    before = watchful.beat("gen-herald")["pid"]
    debugger = subprocess.Popen([sys.executable, "-c", DEBUGGER, str(before)], stdout=subprocess.PIPE, text=True)
    try:
        assert debugger.stdout is not None
        if debugger.stdout.readline() != "attached\n":
            pytest.skip("NO DEBUGGER: nobody may attach to a process here")
        assert tracer(before) == debugger.pid
        wait_until(lambda: watchful.beat("gen-herald")["pid"] != before, 60.0, "another gen-herald")
    finally:
        debugger.kill()
        debugger.communicate()


def test_the_holder_of_a_lock_is_the_one_that_the_kernel_names(home: Path) -> None:
    lock = home / "lock"
    lock.write_text(f"pid {os.getpid():<10}\n")
    program = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert holder_pid(lock) == other.pid, "and not the one that held it before"
        waiting = os.open(lock, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(waiting)
        other.communicate()


@trees.in_campaigns
def test_up_tells_one_reason_once_and_no_old_one(own: Kingdom) -> None:
    own.ok("down")
    own.places.env_file.write_text("TOKEN=sesame\n")
    own.places.env_file.chmod(0o644)
    said = own.run("up").stdout
    told = [line for line in said.splitlines() if " not come up: " in line]
    reason = f"{own.places.env_file}: permissions: others may read it; run `chmod 600` on it"
    assert told == [f"  chamberlain, envoy, king, sentinel, gen-briefing, gen-herald have not come up: {reason}"]
    own.places.env_file.chmod(0o600)
    own.ok("up")
    own.ok("down")
    (own.places.config / "king.yaml").write_text("slack: 7\n")
    told = [line for line in own.run("up").stdout.splitlines() if " not come up: " in line]
    wrong = f"{own.places.config}/king.yaml:1: slack: 7 is not of type 'object'"
    assert told == [f"  king, gen-briefing, gen-herald have not come up: {wrong}"]
