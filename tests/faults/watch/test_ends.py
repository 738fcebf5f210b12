"""Row 10: asked to end at any moment under load, a role ends with 0 in time, and `down` leaves only soldiers."""

from __future__ import annotations

import os
import random
import signal
import time
from itertools import islice
from pathlib import Path

import pytest

from kingdom.court.steward.base import RoleStatus
from tests.faults import strace, trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import (
    REPLACED_WITHIN,
    ROLES,
    WORKING_GENERAL,
    Kingdom,
    Load,
    command_line,
    kingdom,
    one_of,
    since,
)
from tests.shell_roles import runs
from tests.waiting import SOON, stays, wait_until

TIMES = 50 if trees.CAMPAIGN else 2
ENDS_WITHIN = 10.0
FINISHED_WITHIN = 90.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def check_ends(tree: Path, launcher: str, times: int, seed: int, took: list[float]) -> list[str]:
    dice = random.Random(seed)
    wrong: list[str] = []
    with kingdom(launcher, tree=tree, manifest=WORKING_GENERAL) as court:
        court.up()
        load = Load(court)
        (court.home / "slow").write_text("1")
        for number in range(times):
            load.arrive(3)
            stays(lambda: True, dice.random() * 0.5, "a moment")
            if number % 2:
                wrong += end_by_signal(court, dice.choice(ROLES), dice.choice(SIGNALS), took)
            else:
                wrong += end_by_down(court, took)
        (court.home / "slow").write_text("0.01")
        load.wait_done(FINISHED_WITHIN)
        wait_until(lambda: not load.wrong(), SOON, "all messages are posted")
        return wrong + load.wrong()


def end_by_signal(court: Kingdom, role: str, number: signal.Signals, took: list[float]) -> list[str]:
    court.wait_for_beats(role)
    pid = court.pid(role)
    began = time.monotonic()
    os.kill(pid, number)
    if role == "chamberlain" and number is signal.SIGHUP:
        stays(lambda: runs(pid), 0.3, "the chamberlain outlives a hang-up")
        return []
    wait_until(lambda: not runs(pid), ENDS_WITHIN, f"{role} ends by {number.name}")
    took.append(since(began))
    steward = court.steward
    wait_until(lambda: steward.statuses().get(role, RoleStatus()).pid != pid, SOON, "its launcher has noticed")
    word = steward.statuses()[role]
    wrong = [] if word == RoleStatus(code=0) else [f"{role} ended by {number.name}: {word}"]
    done = court.cli("start", role)
    return wrong if done.returncode == 0 else [*wrong, f"start {role}: {done.stdout}{done.stderr}"]


ENDED: tuple[tuple[tuple[str, ...], signal.Signals], ...] = (
    (("king",), signal.SIGTERM),
    (("envoy",), signal.SIGINT),
    (("chamberlain",), signal.SIGTERM),
    (("king", "chamberlain"), signal.SIGTERM),
    (ROLES, signal.SIGTERM),
)
AS_SHIPPED = {"system": {"heartbeat": {"threshold_seconds": 120}}, "chamberlain": {"intervals": {}}}


def check_comes_back(tree: Path, launcher: str, took: list[float]) -> list[str]:
    """Roles that should run and that somebody has ended by a signal: king and chamberlain start each other again.

    Where some stay down, nobody is left to be ended.
    """
    with kingdom(launcher, tree=tree, config=AS_SHIPPED) as court:
        court.up()
        down = (ended for ended in ENDED if not comes_back(court, *ended, took))
        return [f"{' and '.join(roles)} stay down after {number.name}" for roles, number in islice(down, 1)]


def comes_back(court: Kingdom, roles: tuple[str, ...], number: signal.Signals, took: list[float]) -> bool:
    pids, began = {role: court.pid(role) for role in roles}, time.monotonic()
    for pid in pids.values():
        os.kill(pid, number)
    is_back = trees.until(
        lambda: all(court.works(role) and court.pid(role) != pids[role] for role in roles), REPLACED_WITHIN
    )
    took += [since(began)] if is_back else []
    return is_back


def check_down_of_the_new(tree: Path) -> list[str]:
    """A role that its supervisord is just starting ends when it is asked, too."""
    with kingdom("supervisord", tree=tree) as court:
        court.up()
        with strace.slow_forks(court.launcher_pid()):
            old = court.cause_fault("envoy", "kill")
            wait_until(lambda: court.steward.statuses()["envoy"].pid not in (None, old), 20, "its successor is forked")
            done = court.cli("down")
        beat = court.beat("envoy")
        wrong = [] if done.returncode == 0 else [f"down: {done.stdout}{done.stderr}"]
        return wrong + ([f"it had to be killed: {beat}"] if beat["pid"] != old and beat["state"] != "stopped" else [])


def end_by_down(court: Kingdom, took: list[float]) -> list[str]:
    began = time.monotonic()
    done = court.cli("down")
    took.append(since(began))
    wrong = [] if done.returncode == 0 else [f"down: {done.stdout}{done.stderr}"]
    wrong += [] if took[-1] <= ENDS_WITHIN else [f"down took {took[-1]:.1f} s"]
    wrong += [f"left behind: {command_line(pid)}" for pid in court.processes() if not is_of_a_soldier(pid)]
    court.up()
    return wrong


def is_of_a_soldier(pid: int) -> bool:
    try:
        return b"KINGDOM_TASK_ID=" in Path(f"/proc/{pid}/environ").read_bytes() or "kingdom.soldier" in command_line(
            pid
        )
    except OSError:
        return True


@pytest.mark.parametrize("launcher", one_of("supervisord"))
def test_ends_at_any_moment(launcher: str, figure: Figure) -> None:
    took: list[float] = []
    assert check_ends(trees.program(), launcher, TIMES, seed=10, took=took) == []
    figure(
        f"row 10 down, TERM, INT, HUP, {launcher}: {TIMES} of {TIMES}, slowest {max(took):.1f} s of {ENDS_WITHIN:g} s; "
        "0 items lost, 0 processes left"
    )


@trees.in_campaigns
@pytest.mark.parametrize("launcher", one_of("tmux"))
def test_a_role_that_was_ended_by_a_signal_comes_back(launcher: str, figure: Figure) -> None:
    took: list[float] = []
    wrong = check_comes_back(trees.program(), launcher, took)
    back = f"{len(took)} of {len(ENDED)} are back, slowest {max(took, default=0):.1f} s"
    figure(f"ended by a signal under {launcher}: {back}")
    assert not wrong, wrong


@trees.in_campaigns
def test_down_ends_a_role_that_is_just_being_started(figure: Figure) -> None:
    wrong = check_down_of_the_new(trees.program())
    figure(f"down while supervisord starts a role: {len(wrong)} wrong")
    assert not wrong, wrong
