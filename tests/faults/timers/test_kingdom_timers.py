"""Row 35: a kingdom at rest and one at work, with every interval as shipped, for longer than any of its timers."""

import http.client
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kingdom.base.runtime.role import GRACE_SECONDS
from kingdom.demo.standins.slack import Slack
from tests.court.envoy.slacks import SECRETS
from tests.faults import homes, trees
from tests.faults.oracle import Figure
from tests.faults.timers.long import LONG
from tests.faults.watch.kingdoms import LAUNCHERS, ROLES, WORKING_GENERAL, Kingdom, Load, kingdom
from tests.shell_roles import runs
from tests.waiting import SOON, wait_until

pytestmark = LONG
THRESHOLD = 120.0
"""As shipped: a role that is silent for so long is taken for hung."""
SECONDS = THRESHOLD + 80
"""Longer than that, than parts of roles may stand still, 90 s, and than serving processes idle, 60 s."""
HALL = ("gateway", "worker")
ALL = (*ROLES, *HALL)
CONFIG = {
    "system": {
        "heartbeat": {"threshold_seconds": THRESHOLD},
        "roles": {"mailbox": True, "gateway": True, "worker": True},
    },
    "chamberlain": {"intervals": {"roll_call_seconds": 5}},
    "hall": {"port": 0, "registration": "open"},
}


@contextmanager
def _court(launcher: str, slack: Slack) -> Iterator[tuple[Kingdom, Load]]:
    part = {"api_url": slack.api_url, "people": ["U0ANN"]}
    with kingdom(launcher, config={**CONFIG, "envoy": {"slack": part}}, manifest=WORKING_GENERAL) as court:
        secrets = court.places.env_file
        secrets.write_text("".join(f"{name}={value}\n" for name, value in SECRETS.items()))
        secrets.chmod(0o600)
        load = Load(court)
        court.up()
        court.wait_for_beats(*ALL)
        yield court, load


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_kingdom_at_rest_loses_no_role_and_no_connection(launcher: str, figure: Figure) -> None:
    with Slack() as slack, _court(launcher, slack) as (court, load):
        slack.wait_until(lambda seen: seen.lines, SOON)
        lines = [*slack._lines]
        _serve_one(load)
        lives = {role: court.pid(role) for role in ALL if role != "sentinel"}
        began = time.monotonic()
        with _held_rpc(court) as asks_again:
            took = _replaced_after(court, "sentinel")
            _rest(SECONDS - (time.monotonic() - began))
            assert asks_again()
        assert court.lives_on(lives)
        assert slack._lines == lines
        _serve_one(load)
        slack.say("are you there?")
        slack.wait_until(lambda seen: not seen.unacknowledged(), SOON)
    figure(
        f"row 35 at rest under {launcher} for {SECONDS:g} s: 0 of {len(lives)} roles replaced, 0 connections lost;"
        f" a hung role was ended after {took:.0f} s"
    )


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_kingdom_at_work_loses_no_role_and_no_connection(launcher: str, figure: Figure) -> None:
    with Slack() as slack, _court(launcher, slack) as (court, load):
        slack.wait_until(lambda seen: seen.lines, SOON)
        lines = [*slack._lines]
        lives = {role: court.pid(role) for role in ALL}
        until, said = time.monotonic() + SECONDS, 0
        while time.monotonic() < until:
            slack.say(f"number {said}")
            said += 1
            court.steward.statuses()
            _serve_one(load)
            slack.wait_until(lambda seen: not seen.unacknowledged(), SOON)
            _rest(1.0)
        assert court.lives_on(lives)
        assert slack._lines == lines
        assert court.missed() == []
    figure(
        f"row 35 at work under {launcher} for {SECONDS:g} s: {load.put} events, {said} messages in Slack,"
        f" 0 of {len(lives)} roles replaced, 0 connections lost"
    )


def test_a_hung_role_that_nobody_watches_is_ended_by_the_kernel(figure: Figure) -> None:
    with kingdom(LAUNCHERS[-1], config=CONFIG) as court:
        command = [court.env["KINGDOM_PYTHON"], "-m", "kingdom.king"]
        environment = trees.environment(court.tree, court.home)
        with subprocess.Popen(command, cwd=court.home, env=environment) as king:
            try:
                court.wait_for_beats("king", seconds=SOON)
                began = time.monotonic()
                court.cause_fault("king", "read")
                code = king.wait(THRESHOLD + GRACE_SECONDS + SOON)
            finally:
                king.kill()
        took = time.monotonic() - began
    assert code == -signal.SIGALRM
    assert took > THRESHOLD + GRACE_SECONDS - THRESHOLD / 4 - 1, "a turn may last so long"
    figure(f"row 35 a hung role that nobody watches: ended by the kernel after {took:.0f} s")


def _serve_one(load: Load) -> None:
    before = load.done()
    load.arrive()
    wait_until(lambda: load.done() > before, 2 * SOON, "another event is completed")


def _replaced_after(court: Kingdom, role: str) -> float:
    """Let a role hang; return after how long it was ended."""
    began = time.monotonic()
    hung = court.cause_fault(role, "read")
    wait_until(lambda: not runs(hung), THRESHOLD + SOON, "a hung role is ended")
    took = time.monotonic() - began
    assert took > 0.75 * THRESHOLD - 1, "it may have beaten a quarter of the threshold ago"
    court.wait_for_beats(role, seconds=SOON, not_by={role: hung})
    return took


def _rest(seconds: float) -> None:
    threading.Event().wait(max(0.0, seconds))


@contextmanager
def _held_rpc(court: Kingdom) -> Iterator[Callable[[], bool]]:
    """Keep one connection to supervisord open; what is returned asks on it again. Under tmux there is none."""
    if court.launcher != "supervisord":
        yield lambda: True
        return
    line = http.client.HTTPConnection("localhost")
    line.sock = socket.socket(socket.AF_UNIX)
    line.sock.connect(str(court.places.supervisor_socket))
    body = "<methodCall><methodName>supervisor.getState</methodName><params/></methodCall>"

    def ask() -> bool:
        line.request("POST", "/RPC2", body, {"Content-Type": "text/xml"})
        return "RUNNING" in line.getresponse().read().decode()

    assert ask()
    yield ask
    line.close()


TALKS = 'for second in $(seq {seconds}); do echo "second $second"; sleep 1; done'
ENGINES = {
    "gen-silent": ("quiet.*", 400, "sleep 330", "success"),
    "gen-chatty": ("chatty.*", 400, TALKS.format(seconds=330), "success"),
    "gen-late": ("late.*", 30, "sleep 300", "failed"),
    "gen-extended": ("extended.*", 40, TALKS.format(seconds=60), "success"),
}
"""What each general takes, how long a task of it may take, how its engine behaves, and how that ends."""
RESULT = """printf '{"task_id": "%s", "status": "success", "summary": "done"}' "$KINGDOM_TASK_ID" \\
    >"$KINGDOM_RESULT_PATH"
"""


def test_an_engine_is_ended_by_its_own_time_alone_silent_or_not(figure: Figure) -> None:
    config = {**CONFIG, "king": {"retry": {"max_attempts": 1}}}
    with kingdom(LAUNCHERS[-1], config=config) as court:
        for name, (takes, seconds, script, _) in ENGINES.items():
            _install(court, name, takes, seconds, script)
        court.up()
        began = time.monotonic()
        for name, (takes, *_) in ENGINES.items():
            event = homes.event(f"evt-test-{name}", type=takes.replace("*", "it"), priority="high", repo=None)
            homes.put(court.home, "events", "pending", event)
        wait_until(lambda: len(_ends(court)) == len(ENGINES), 400 + 3 * SOON, "every task has ended")
        took = time.monotonic() - began
        assert _ends(court) == {name: end for name, (*_, end) in ENGINES.items()}
    figure(f"row 35 engines, silent and talking for 330 s, over their time and extended: all as listed, {took:.0f} s")


def _install(court: Kingdom, name: str, takes: str, seconds: int, script: str) -> None:
    package = court.places.package(name)
    package.mkdir(parents=True, mode=0o700)
    (package / "prompt.md").write_text("Do {{TASK_ID}}")
    (package / "run").write_text(f"#!/bin/sh\ncat >/dev/null\n{script}\n{RESULT}")
    (package / "run").chmod(0o700)
    homes.install(court.home, name, **WORKING_GENERAL, subscribes=[takes], timeout_seconds=seconds)


def _ends(court: Kingdom) -> dict[str, str]:
    tasks = [json.loads(path.read_text()) for path in court.places.folder("tasks", "completed").glob("*.json")]
    return {task["target_general"]: task["outcome"] for task in tasks}
