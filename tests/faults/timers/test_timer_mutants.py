"""The checks of timers, each shown a program with a defect that it must catch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import mutants
from tests.faults.changes import constant, drop, replace
from tests.faults.mutants import Mutant
from tests.faults.oracle import Figure
from tests.faults.timers.hall_timers import wrong_timers
from tests.hall.gateway.halls import running

HALL_SECONDS = 75.0
"""Longer than all that is cut in the hall takes."""
SOCKETS = "kingdom.hall.gateway.sockets"
HERE = "tests/faults/timers"
KINGDOM = f"{HERE}/test_kingdom_timers.py::test_a_kingdom_at_rest_loses_no_role_and_no_connection[supervisord]"
ENGINES = f"{HERE}/test_kingdom_timers.py::test_an_engine_is_ended_by_its_own_time_alone_silent_or_not"
QUEUE = f"{HERE}/test_queue_timers.py::test_a_consumer_waits_as_long_as_it_asks_for_while_another_is_busy"
LEASE = f"{HERE}/test_queue_timers.py::test_a_lease_that_nobody_renews_ends_after_its_time_and_not_before"
TOPICS = f"{HERE}/test_topics_timers.py::test_readers_idle_and_busy_lose_nothing"
ENDS = "tests/hall/gateway/test_unexpected_ends.py::test_an_end_for_no_known_reason_is_told_everywhere"
APP = "kingdom.hall.gateway.app:Application"
MUTANTS = [
    Mutant("strangers stay connected", SOCKETS, constant("SIGN_IN_SECONDS", "36000.0"), "hall"),
    Mutant("a silent client keeps its connection", f"{SOCKETS}:Sockets._drop", drop("frames.cut"), "hall"),
    Mutant("an upgrade may take for ever", SOCKETS, constant("UPGRADE_SECONDS", "36000.0"), "hall"),
    Mutant(
        "HTTP connections are kept for ever",
        "kingdom.hall.gateway.frames",
        constant("KEEP_ALIVE_SECONDS", "36000"),
        "hall",
    ),
    Mutant(
        "the wait for a request goes on after the upgrade to a web socket",
        "kingdom.hall.gateway.frames:HttpProtocol._wait_for_request",
        replace("self.transport.get_protocol() is self", "True"),
        "hall",
    ),
    Mutant(
        "the wait for a request goes on while people are in the hall",
        "kingdom.hall.gateway.frames:HttpProtocol._wait_for_request",
        replace("self.transport.get_protocol() is self", "True"),
        "quiet",
    ),
    Mutant("nobody is ever away", "kingdom.hall.gateway.presence", constant("TTL_SECONDS", "36000.0"), "hall"),
    Mutant(
        "an idle line of Slack is cut",
        "kingdom.court.envoy.channels.slack_socket",
        constant("PING_SECONDS", "30.0"),
        KINGDOM,
    ),
    Mutant(
        "a role without work is taken for hung",
        "kingdom.base.runtime.role:_Loop",
        replace("threshold + GRACE_SECONDS", "min(3.0, threshold + GRACE_SECONDS)"),
        KINGDOM,
    ),
    Mutant(
        "a soldier that says nothing is ended",
        "kingdom.court.general.job",
        replace("base = float(self._general.manifest.timeout_seconds)", "base = 60.0"),
        ENGINES,
    ),
    Mutant(
        "a consumer's wait ends with the time of a call",
        "kingdom.mq.typed_calls:Calls.take",
        replace("self._timeout(timeout) + wait", "self._timeout(timeout)"),
        QUEUE,
    ),
    Mutant(
        "the doctor says nothing of sockets that end for no known reason",
        "kingdom.cli.doctor:_hall",
        replace("_unexpected_ends(said)", "()"),
        ENDS,
        quick=True,
    ),
    Mutant("the log says nothing of them", f"{APP}._keep_house", drop("self._tell_unexpected_ends"), ENDS),
    Mutant(
        "they are not counted",
        f"{SOCKETS}:Sockets._note_unexpected_end",
        replace("self._clients.by_pipe.get(pipe)", "None"),
        ENDS,
    ),
    Mutant(
        "leases never end",
        "kingdom.mq.configuration",
        replace('defaults.setdefault("visibilityTimeoutSec", A)', 'defaults.setdefault("visibilityTimeoutSec", 36000)'),
        LEASE,
    ),
]
KNOWN = {mutant.name: mutant for mutant in MUTANTS}
_caught: list[bool] = []


def in_the_hall(tree: Path) -> list[str]:
    """Return what is wrong with the hall of a tree."""
    with running("gateway", "worker", tree=tree) as hall:
        return asyncio.run(wrong_timers(hall, HALL_SECONDS)).wrong


def in_a_quiet_minute(tree: Path) -> list[str]:
    """Return what is wrong while people are in the hall of a tree."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here: bin/setup web")
    from tests.faults.timers import quiet_hour
    from tests.web.screens import launch

    with playwright.sync_playwright() as program, launch(program) as one, launch(program) as other:
        return quiet_hour.run([one, other], 1, tree).wrong


def checked_by(name: str) -> Callable[[Path], list[str]]:
    """Return the check of this name: that of the hall, or a test of its own."""
    if name in ("hall", "quiet"):
        return {"hall": in_the_hall, "quiet": in_a_quiet_minute}[name]
    return lambda tree: mutants.failing(tree, name, {"KINGDOM_TIMERS": "1"})


@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.chosen(MUTANTS)])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_seeded_defect_is_caught(name: str) -> None:
    check = checked_by(KNOWN[name].caught_by)
    _caught.append(mutants.is_caught(KNOWN[name], lambda tree, _: check(tree)))
    assert _caught[-1], f"{KNOWN[name].caught_by} does not see that {name}"


def test_the_score(figure: Figure) -> None:
    figure(f"timer mutants caught: {sum(_caught)} of {len(_caught)}")
