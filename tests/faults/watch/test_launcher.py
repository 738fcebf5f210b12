"""Row 9: the chamberlain killed or hung, the launcher killed -9, under load: all is back, nothing doubled or lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.faults import trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import BACK_WITHIN, LAUNCHERS, ROLES, WORKING_GENERAL, Kingdom, Load, kingdom, since
from tests.shell_roles import runs
from tests.waiting import SOON, wait_until

BLOWS = ("launcher killed", "chamberlain killed", "chamberlain hung")
TRIED = (
    [(blow, launcher) for blow in BLOWS for launcher in LAUNCHERS] if trees.CAMPAIGN else [(BLOWS[0], "supervisord")]
)
ROUNDS = 10 if trees.CAMPAIGN else 1
FINISHED_WITHIN = 60.0


def check_blow(tree: Path, launcher: str, blow: str, took: list[float]) -> list[str]:
    with kingdom(launcher, tree=tree, manifest=WORKING_GENERAL) as court:
        court.up()
        load = Load(court)
        (court.home / "slow").write_text("5")
        load.arrive(2)
        wait_until(lambda: len(load.lines("begun")) >= 2, SOON, "soldiers are out")
        soldiers = [int(line.split()[1]) for line in load.lines("begun")]
        (court.home / "slow").write_text("0.05")
        load.arrive(3)
        began = time.monotonic()
        old = strike(court, blow)
        load.arrive(3)
        wrong = [f"soldier {pid} died with its {blow}" for pid in soldiers if not (runs(pid) or ended(load, pid))]
        try:
            court.wait_for_beats(*old, seconds=BACK_WITHIN, not_by=old)
        except AssertionError as late:
            return [*wrong, f"{blow}: {late}\n{court.logs()}"]
        took.append(since(began))
        load.arrive(1)
        load.wait_done(FINISHED_WITHIN)
        wait_until(lambda: len(load.lines("ended")) == load.put, SOON, "every soldier has ended")
        wait_until(lambda: not load.wrong(), SOON, f"all is well: {load.wrong()}")
        for role in ROLES:
            playing = court.role_processes(role)
            wrong += [] if len(playing) == 1 else [f"{role} is played by {playing}"]
        wrong += [] if court.steward.launcher_runs() else ["no launcher stands"]
        return wrong + [f"soldier {pid} did not end its task" for pid in soldiers if not ended(load, pid)]


def ended(load: Load, pid: int) -> bool:
    return any(line.split()[1] == str(pid) for line in load.lines("ended"))


def strike(court: Kingdom, blow: str) -> dict[str, int]:
    """Returns the lives that must give way to others."""
    if blow == "launcher killed":
        old = court.pids()
        os.kill(court.launcher_pid(), signal.SIGKILL)
        return old
    kind = "kill" if blow == "chamberlain killed" else "busy"
    return {"chamberlain": court.cause_fault("chamberlain", kind)}


@pytest.mark.parametrize(("blow", "launcher"), TRIED)
def test_service_comes_back(blow: str, launcher: str, figure: Figure) -> None:
    took: list[float] = []
    for _ in range(ROUNDS):
        assert check_blow(trees.program(), launcher, blow, took) == []
    figure(
        f"row 9 {blow}, {launcher}: back {len(took)} of {ROUNDS}, slowest {max(took):.1f} s of {BACK_WITHIN:g} s; "
        "0 roles doubled, 0 items lost, 0 soldiers harmed"
    )
