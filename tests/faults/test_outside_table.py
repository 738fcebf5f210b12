"""Fault by service: what people see of it, and that nothing is lost, doubled or said again and again.

A row is a way to fail, a column a service; every cell begins with one thing that happens, lets the service fail twice
(or die, and be gone at the next try) and then work again. Sources have to make one event of it, channels one post, an
engine one more try or a rest. test_slack_calls.py does the same to each call of Slack's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kingdom.base.home.places import Places
from kingdom.court.connections import web
from kingdom.court.envoy.channels import email as email_channel
from kingdom.court.envoy.channels import webhook as webhook_channel
from kingdom.court.envoy.job import EnvoyJob
from kingdom.demo.standins import faults
from kingdom.demo.standins.github import TOKEN, GitHub
from kingdom.demo.standins.jira import Jira
from kingdom.demo.standins.server import Answer
from kingdom.demo.standins.slack import Slack
from tests.court.envoy.envoys import Envoy
from tests.court.envoy.servers import Hook, by_hook, by_mail, mail_server
from tests.court.envoy.slacks import SECRETS, settings, turn_until
from tests.court.general.rig import GENERAL, TASK, GeneralRig, started_ago
from tests.court.sentinel.sentinels import SECRETS as OF_SOURCES
from tests.court.sentinel.sentinels import Sentinel
from tests.court.soldiers.test_engine_endings import DONE, TURN, begins, ends, fails, item, says, turn_failed
from tests.faults import trees
from tests.fixtures import Clock, here, message, put, services, task

CUT, BROKEN, LIMITED, HALF, ODD, SHUT = "no answer", "5xx", "a limit", "half an answer", "no JSON", "token refused"
HANG, KILL = "it hangs", "it is killed"
EVERY = (CUT, BROKEN, LIMITED, HALF, ODD, SHUT, HANG, KILL)
SHORT_SECONDS = 1.0
"""A call may take so long where a service hangs."""
MOST_LINES = 1
"""Lines that complain of one outage, and alerts about it."""


class Seen(NamedTuple):
    """What came of one thing that happened while a service failed."""

    #: How often it was made, posted or taken up again: once is right.
    made: int
    #: The lines that people could read about the outage.
    lines: list[str]
    #: Messages to people about it.
    alerts: int = 0
    #: What people could read of it, if that is no line of `lines`.
    told: str = ""


Cell = Callable[[str, Path], Seen]
SOURCE_FAULTS: Mapping[str, faults.Fault] = {
    CUT: faults.drops(),
    BROKEN: faults.fails(503),
    LIMITED: faults.limits(1),
    HALF: faults.cuts(),
    ODD: faults.fails(200),
}


def github(fault: str, home: Path) -> Seen:
    with GitHub() as hub:
        clock = Clock()
        hub.clock = clock
        hub.notify()
        if fault == SHUT:
            hub.token = "ghp_another"
        else:
            hub.once(*_met_by(hub, fault))
        sentinel = Sentinel(home, clock, {"github": {"base_url": hub.address}})
        return _seen_by(sentinel, lambda: hub.rise() if fault == KILL else setattr(hub, "token", TOKEN))


def jira(fault: str, home: Path) -> Seen:
    with Jira() as tickets:
        clock = Clock()
        tickets.clock = clock
        tickets.ticket("QP-1")
        refused = faults.says({"errorMessages": ["not you"]}, 401)
        tickets.once(*([refused] * 2 if fault == SHUT else _met_by(tickets, fault)))
        known = {name: OF_SOURCES[name] for name in ("JIRA_USER_EMAIL", "JIRA_API_TOKEN")}
        known["JIRA_URL"] = tickets.address
        return _seen_by(Sentinel(home, clock, {"jira": {}}, known), tickets.rise if fault == KILL else lambda: None)


def _met_by(service: faults.FaultyStandIn, fault: str) -> list[faults.Fault]:
    """What the next two requests meet; one that was killed meets none."""
    if fault == KILL:
        return [faults.dies(service)]
    return [faults.hangs(service) if fault == HANG else SOURCE_FAULTS[fault]] * 2


def _seen_by(sentinel: Sentinel, mend: Callable[[], None]) -> Seen:
    sentinel.settle()
    sentinel.look(1000)
    mend()
    for _ in range(3):
        sentinel.look(1000)
    lines = [line for line in sentinel.said().splitlines() if " error " in line]
    sentinel.job.close()
    return Seen(len(sentinel.events()), lines)


POSTED: Mapping[str, Mapping[str, Any]] = {
    CUT: {"cut": True},
    BROKEN: {"status": 503},
    LIMITED: {"status": 429, "retry_after": 0.1},
    HALF: {"half": True},
    ODD: {"garbage": True},
    SHUT: {"error": "token_revoked"},
    HANG: {"hangs": True},
    KILL: {"dies": SHORT_SECONDS},
}
"""How a call of Slack's fails."""


def slack(fault: str, home: Path) -> Seen:
    with Slack() as service:
        service.fail("chat.postMessage", **POSTED[fault], times=1 if fault == KILL else 2)
        seconds = {"call_seconds": SHORT_SECONDS} if fault == HANG else {}
        with _envoy(home, settings(service, **seconds), SECRETS) as envoy:
            seen = _posted(home, envoy)
            return seen._replace(made=len(service.from_kingdom()))


ANSWERED: Mapping[str, Answer] = {
    CUT: Answer(cut=True),
    BROKEN: Answer(502, b"<html>"),
    LIMITED: Answer(429, headers={"retry-after": "0"}),
    HALF: Answer(503, headers={"content-length": "100"}, parts=[b"half"]),
    SHUT: Answer(401, b"no"),
}


def webhook(fault: str, home: Path) -> Seen:
    with Hook() as hook:
        if fault == KILL:
            hook.failures.append(lambda _: hook.die(SHORT_SECONDS) or Answer(cut=True))
        else:
            hook.failures += [faults.hangs(hook) if fault == HANG else ANSWERED[fault]] * 2
        config = {"webhook": {"seconds_between_posts": 0}, "retry": {"backoff_seconds": 0}}
        with _envoy(home, config, by_hook(hook)) as envoy:
            return _posted(home, envoy)._replace(made=len(hook.bodies))


REFUSED = {
    CUT: b"",
    BROKEN: b"451 later\r\n",
    LIMITED: b"452 too many\r\n",
    HALF: b"25",
    ODD: b"what?\r\n",
    SHUT: b"530 sign in\r\n",
}


def email(fault: str, home: Path) -> Seen:
    with mail_server() as server:
        if fault == KILL:
            server.refusals.append(lambda: server.die(SHORT_SECONDS))
        else:
            server.refusals += [server.closing.wait if fault == HANG else REFUSED[fault]] * 2
        with _envoy(home, {"email": by_mail(server), "retry": {"backoff_seconds": 0}}, {}) as envoy:
            return _posted(home, envoy)._replace(made=len(server.letters))


@contextmanager
def _envoy(home: Path, config: Mapping[str, Any], secrets: Mapping[str, str]) -> Iterator[Envoy]:
    given = replace(services(home, "envoy", Clock(), envoy=config), secrets=secrets)
    envoy = Envoy(given, EnvoyJob(given))
    yield envoy
    envoy.job.close()


def _posted(home: Path, envoy: Envoy) -> Seen:
    put(home, "messages", "pending", **message("msg-1"))
    turn_until(envoy, lambda: envoy.job.turn(None) and "msg-1" in here(home, "messages", "sent"), "it is sent")
    path = Places(home).role_log("envoy")
    said = path.read_text().splitlines() if path.exists() else []
    alerts = [name for state in ("pending", "sent") for name in here(home, "messages", state) if name != "msg-1"]
    return Seen(0, [line for line in said if " error " in line], len(alerts))


ENDED: Mapping[str, Any] = {
    CUT: [says("half")],
    BROKEN: [fails("API Error: 500 boom", 500)],
    LIMITED: [fails("Request rejected (429)", 429)],
    HALF: turn_failed("stream disconnected before completion"),
    ODD: turn_failed("no JSON"),
    SHUT: [fails("Invalid API key", 401)],
    HANG: [says("half")],
    KILL: [says("half")],
}
LAST = {HANG: "exec sleep 600", KILL: "kill -9 $$"}
"""What its program does then, instead of ending with 1."""
WELL: Mapping[str, Any] = {"claude": [ends(result=DONE)], "codex": [item(DONE), TURN]}
MODEL = """#!/bin/sh
cat >/dev/null
echo x >>{home}/tries
if [ "$(wc -l <{home}/tries)" -le {times} ]; then cat {home}/fails; {last}; fi
echo x >>{home}/done
cat {home}/works
"""
"""A program that ends twice as the real ones were seen to, and then does the work; tests/outside plays the same with
those."""


def engine(fault: str, home: Path) -> Seen:
    """A general sends it until there is a result. A refused key is not tried again: people mend it and ask again."""
    name, key = ("codex", "OPENAI_API_KEY") if fault in (HALF, ODD) else ("claude", "ANTHROPIC_API_KEY")
    clock = Clock()
    rig = GeneralRig(home, clock)
    services(home, "king", clock, king={"retry": {"max_attempts": 3, "backoff_seconds": 60}})
    rig.manifest(engine=name)
    for file, lines in (("fails", ENDED[fault]), ("works", WELL[name])):
        (home / file).write_text("".join(f"{json.dumps(line)}\n" for line in [*begins(name), *lines]))
    program = home / "model"
    times = 1 if fault == SHUT else 2
    program.write_text(MODEL.format(home=home, times=times, last=LAST.get(fault, "exit 1")))
    program.chmod(0o755)
    given = services(home, GENERAL, clock, system={"runtime": {name: {"command": str(program)}}})
    rig.restart(replace(given, secrets={key: "sk-played-0123456789"}))
    served = [TASK, "task-20260207-002"] if fault == SHUT else [TASK]
    try:
        ended = [_served(rig, clock, one, times if fault == HANG else 0) for one in served]
    finally:
        rig.end()
    assert ended == ["skipped", "success"][-len(served) :], rig.log()
    complaints = [line for line in rig.log() if line.startswith(("warn", "error")) and "SANDBOX" not in line]
    told = (complaints or [f"skipped: {rig.result(TASK)['reason']}"])[0]
    works, tries = ((home / name).read_text().count("x") for name in ("done", "tries"))
    assert tries == (2 if fault == SHUT else 3), "it is asked no oftener than it has to be"
    lines = [line for line in complaints if line.startswith("error")]
    return Seen(works, lines, len(here(home, "messages", "pending")), told)


def _served(rig: GeneralRig, clock: Clock, name: str, hung: int) -> str:
    """How a task ends, with as much time between its tries as they want, and for those that hang."""
    put(rig.home, "tasks", "pending", **task(name))

    def tries() -> int:
        return len(path.read_text()) // 2 if (path := rig.home / "tries").exists() else 0

    def seen() -> bool:
        look = rig.soldier(name).look(0)
        if not look.is_running:
            clock.pass_(600)
        elif look.stopping is None and look.started is not None and look.started.attempt < tries() <= hung:
            started_ago(rig, 100)
        return rig.places.result(name).exists()

    rig.until(seen, f"a result of {name}")
    return str(rig.result(name)["status"])


SERVICES: Mapping[str, tuple[Cell, tuple[str, ...]]] = {
    "github": (github, EVERY),
    "jira": (jira, EVERY),
    "slack": (slack, EVERY),
    "webhook": (webhook, tuple(fault for fault in EVERY if fault != ODD)),
    "email": (email, EVERY),
    "engine": (engine, EVERY),
}
"""Of a webhook and of a mail server nobody can ask what they took: a lost answer there may double (docs/connect.md), so
that these fail before they have taken anything. What a webhook says to a success is all one."""


@pytest.fixture(autouse=True)
def _short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a service hangs, it is not waited for as long as usual."""
    if request.node.callspec.params["fault"] == HANG:
        monkeypatch.setattr(web, "PATIENT", web.Deadlines(read=SHORT_SECONDS))
        monkeypatch.setattr(webhook_channel, "CALL_SECONDS", SHORT_SECONDS)
        monkeypatch.setattr(email_channel, "CALL_SECONDS", SHORT_SECONDS)


CELLS = [(name, fault) for name, (_, those) in SERVICES.items() for fault in those]


@pytest.mark.parametrize(("service", "fault"), CELLS if trees.CAMPAIGN else CELLS[::3])
def test_a_service_that_fails_loses_and_doubles_nothing_and_bothers_nobody(
    service: str, fault: str, home: Path, record_property: Callable[[str, object], None]
) -> None:
    seen = SERVICES[service][0](fault, home)
    told = seen.told or (" ".join(seen.lines[0].split()[2:]) if seen.lines else "nothing")
    lost, doubled = int(seen.made == 0), max(0, seen.made - 1)
    figure = f"{service} x {fault}: people see {json.dumps(told[:90])}; {lost} lost, {doubled} doubled"
    record_property("figure", f"{figure}, {len(seen.lines)} lines, {seen.alerts} alerts")
    assert seen.made == 1, figure
    assert len(seen.lines) <= MOST_LINES, seen.lines
    assert seen.alerts == int(service == "slack" and fault == SHUT)
