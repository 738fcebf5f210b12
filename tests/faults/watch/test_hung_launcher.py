"""A launcher that is stopped or hangs: it is seen though every role beats, and `down` ends everything all the same."""

from __future__ import annotations

import os
import signal

import pytest

from kingdom.court.steward.base import ANSWER_SECONDS
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import BACK_WITHIN, LAUNCHERS, ROLES, kingdom, one_of
from tests.waiting import SOON, wait_until


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_down_ends_everything_under_a_launcher_that_does_not_answer(launcher: str, figure: Figure) -> None:
    # Nobody else is to end it first.
    with kingdom(launcher, config={"system": {"heartbeat": {"threshold_seconds": 600}}}) as court:
        court.up()
        os.kill(court.launcher_pid(), signal.SIGSTOP)
        told = " ".join(court.cli("doctor").stdout.split())
        assert f"BAD launcher: {launcher} could not" in told
        assert "it has not answered within 5 s, and may be stopped or hang" in told
        assert court.cli("status").returncode == 0, "every role works"
        done = court.cli("down")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith("Stopped chamberlain, envoy, ")
        assert done.stderr.count("\n") == 1
        assert "has not answered within 5 s" in done.stderr
        assert "it is killed, and its roles are ended one by one" in done.stderr
        wait_until(lambda: not court.processes(), SOON, f"nobody is left of {court.processes()}")
    figure(f"launcher stopped, {launcher}: down ended every role, 0 processes left")


@pytest.mark.parametrize("launcher", one_of("supervisord"))
def test_a_launcher_that_hangs_is_replaced_though_every_role_beats(launcher: str) -> None:
    # More than an answer may take: who waits for it must not be taken for hung itself.
    threshold = 3 * ANSWER_SECONDS
    with kingdom(launcher, config={"system": {"heartbeat": {"threshold_seconds": threshold}}}) as court:
        court.up()
        old, pid = court.pids(), court.launcher_pid()
        os.kill(pid, signal.SIGSTOP)
        court.wait_for_beats(*ROLES, seconds=2 * threshold + BACK_WITHIN, not_by=old)
        assert court.launcher_pid() != pid
        assert court.steward.statuses().keys() >= set(ROLES)
