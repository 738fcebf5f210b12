"""Row 7: the wall clock steps, or everything sleeps for a while: nobody is shot, and no hang is missed."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults import oracle, trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import REPLACED_WITHIN, ROLES, THRESHOLD, Kingdom, kingdom, one_of
from tests.waiting import stays

HOUR = 3600
STEPS = {"an hour back": -HOUR, "an hour on": HOUR}
ROUNDS = 10 if trees.CAMPAIGN else 1
OFTEN = {"name": "often", "cron": "*/5 * * * *", "task_type": "look", "catch_up": "latest"}
MANIFEST = {"engine": "command", "sandbox": "off", "schedules": [OFTEN]}
CONFIG = {"king": {"intervals": {"schedule_check_seconds": 0.5}, "concurrency": {"max_soldiers": 50}}}
WAKES_EARLIER = 0.2
DUE_AT_MOST = 4
"""The run that is due now, the one that `latest` catches up after each step forward, and a minute that passes."""


def check_steps(tree: Path, launcher: str) -> list[str]:
    with kingdom(launcher, tree=tree, config=CONFIG, manifest=MANIFEST, env=with_clock()) as court:
        clock(court, 0)
        court.up()
        old = court.pids()
        for step in STEPS.values():
            clock(court, step)
            stays(lambda: court.lives_on(old), 1.5 * THRESHOLD, f"nobody is replaced ({court.logs()})")
        clock(court, 0)
        stays(lambda: court.lives_on(old), THRESHOLD, "nobody is replaced")
        runs = [task["scheduled_for"] for task in oracle.contents(court.home, "tasks") if task.get("scheduled_for")]
        wrong = [
            f"the run of {minute} came {runs.count(minute)} times" for minute in set(runs) if runs.count(minute) > 1
        ]
        wrong += court.missed()
        wrong += [] if runs else ["no run at all, an hour later"]
        return wrong + ([] if len(runs) <= DUE_AT_MOST else [f"a stampede of {len(runs)} runs: {sorted(runs)}"])


def check_hang_after(tree: Path, launcher: str, step: int) -> list[str]:
    """Beats that are an hour young or old hide no hang."""
    with kingdom(launcher, tree=tree, env=with_clock()) as court:
        clock(court, 0)
        court.up()
        clock(court, step)
        old = {role: court.cause_fault(role, "read") for role in ("king", "envoy")}
        clock(court, 0)
        try:
            court.wait_for_beats(*old, seconds=REPLACED_WITHIN, not_by=old)
        except AssertionError as missed:
            return [f"a hang was missed: {missed}"]
        return []


def check_suspend(tree: Path, launcher: str) -> list[str]:
    """All of it stands still for longer than the threshold, the launcher too; the chamberlain is the first to wake."""
    with kingdom(launcher, tree=tree) as court:
        court.up()
        old = court.pids()
        chamberlain = old["chamberlain"]
        others = {court.launcher_pid(), *court.processes()} - {chamberlain}
        for pid in (*others, chamberlain):
            send(pid, signal.SIGSTOP)
        stays(lambda: court.lives_on(old), 2 * THRESHOLD, "all of it sleeps")
        send(chamberlain, signal.SIGCONT)
        stays(lambda: court.lives_on(old), WAKES_EARLIER, "only the chamberlain is awake")
        for pid in others:
            send(pid, signal.SIGCONT)
        court.wait_for_beats(*ROLES)
        stays(lambda: court.lives_on(old), 2 * THRESHOLD, f"nobody is replaced ({court.logs()})")
        return court.missed()


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def with_clock() -> dict[str, str]:
    return {"KINGDOM_CLOCK_FILE": str(trees.new_folder() / "clock")}


def clock(court: Kingdom, seconds: int) -> None:
    """Set the clock of every role; at once, because a file that is empty for a moment is the machine's own time."""
    file = Path(court.env["KINGDOM_CLOCK_FILE"])
    draft = file.with_suffix(".new")
    draft.write_text(str(seconds))
    draft.replace(file)


@pytest.mark.parametrize("launcher", one_of("tmux"))
def test_steps_of_the_clock_replace_nobody(launcher: str, figure: Figure) -> None:
    for _ in range(ROUNDS):
        assert check_steps(trees.program(), launcher) == []
    figure(f"row 7 clock -1 h, +1 h, {launcher}: {ROUNDS} of {ROUNDS}, 0 false restarts, 0 runs doubled, no stampede")


@trees.in_campaigns
@pytest.mark.parametrize("launcher", one_of("tmux"))
@pytest.mark.parametrize("step", STEPS if trees.CAMPAIGN else ["an hour on"])
def test_steps_of_the_clock_hide_no_hang(step: str, launcher: str, figure: Figure) -> None:
    assert check_hang_after(trees.program(), launcher, STEPS[step]) == []
    figure(f"row 7 hangs with the clock {step}, {launcher}: 0 of 2 missed")


@trees.in_campaigns
@pytest.mark.parametrize("launcher", one_of("supervisord"))
def test_a_suspend_replaces_nobody(launcher: str, figure: Figure) -> None:
    assert check_suspend(trees.program(), launcher) == []
    figure(f"row 7 suspend, {launcher}: 0 of {len(ROLES)} replaced after {2 * THRESHOLD:g} s of sleep")
