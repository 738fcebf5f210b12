"""Channels that only speak: a webhook and e-mail, against servers on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places
from kingdom.court.envoy.job import EnvoyJob
from kingdom.demo.standins.server import Answer
from tests.court.envoy.envoys import Envoy, traces
from tests.court.envoy.servers import Hook, MailServer, by_hook, by_mail, mail_server
from tests.court.envoy.slacks import turn_until
from tests.fixtures import Clock, here, message, put, read, services


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as hook:
        yield hook


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture
def begin(home: Path, clock: Clock) -> Iterator[Callable[..., Envoy]]:
    begun: list[Envoy] = []

    def begin(secrets: dict[str, str], **config: Any) -> Envoy:
        given = services(home, "envoy", clock, envoy={"retry": {"backoff_seconds": 0}, **config})
        given = replace(given, secrets=secrets)
        begun.append(Envoy(given, EnvoyJob(given)))
        return begun[-1]

    yield begin
    for envoy in begun:
        envoy.job.close()


def post(home: Path, envoy: Envoy, name: str = "msg-1", **fields: Any) -> None:
    put(home, "messages", "pending", **message(name, **fields))
    envoy.job.turn(None)
    turn_until(envoy, lambda: name in here(home, "messages", "sent"), f"{name} is sent")


@pytest.mark.parametrize(
    ("format", "body"),
    [
        ("text", {"text": "hi @​everyone"}),
        ("content", {"content": "hi @​everyone", "allowed_mentions": {"parse": []}}),
        ("card", "TextBlock"),
    ],
)
def test_a_webhook_takes_one_post_for_each_message(
    home: Path, hook: Hook, begin: Callable[..., Envoy], format: str, body: Any
) -> None:
    envoy = begin(by_hook(hook), webhook={"format": format, "seconds_between_posts": 0, "rooms": {"ops": "OPS"}})
    post(home, envoy, content="hi @everyone")
    post(home, envoy, "msg-2", channel="ops")
    assert len(hook.bodies) == 2
    assert hook.bodies[0] == body or body in json.dumps(hook.bodies[0])
    assert [request.path for request in hook.requests] == ["/hooks/canary-77", "/hooks/canary-ops"]
    assert [request.headers["idempotency-key"] for request in hook.requests] == ["msg-1", "msg-2"]
    assert traces(home) == []


FAILURES = [
    Answer(429, headers={"retry-after": "0"}),
    Answer(500),
    Answer(502, b"<html>"),
    Answer(408),
    Answer(cut=True),
]


def test_a_webhook_that_fails_loses_nothing(home: Path, hook: Hook, begin: Callable[..., Envoy]) -> None:
    envoy = begin(by_hook(hook), webhook={"seconds_between_posts": 0})
    hook.failures += FAILURES
    post(home, envoy)
    assert hook.bodies == [{"text": "content of msg-1"}]
    assert "tries" not in read(home, "messages", "sent", "msg-1")


def test_an_address_may_have_a_query(home: Path, hook: Hook, begin: Callable[..., Envoy]) -> None:
    envoy = begin({"WEBHOOK_URL": f"{hook.address}?key=canary-77"}, webhook={})
    post(home, envoy)
    assert [(request.path, request.query) for request in hook.requests] == [("/", {"key": ["canary-77"]})]


def test_while_a_webhook_wants_to_be_left_alone_the_envoy_rests(
    home: Path, hook: Hook, begin: Callable[..., Envoy]
) -> None:
    envoy = begin(by_hook(hook), webhook={})
    hook.failures += [Answer(429, headers={"retry-after": "60"})]
    put(home, "messages", "pending", **message())
    turn_until(envoy, lambda: envoy.job.turn(None) and hook.requests, "it was asked")
    turn_until(envoy, lambda: not envoy.job.turn({}).worked, "it rests")
    assert here(home, "messages", "pending") == ["msg-1"]


@pytest.mark.parametrize(("format", "longest"), [("text", 3900), ("content", 1900), ("card", 3900)])
def test_what_a_webhook_does_not_take_in_one_post_is_several(
    home: Path, hook: Hook, begin: Callable[..., Envoy], format: str, longest: int
) -> None:
    envoy = begin(by_hook(hook), webhook={"format": format, "seconds_between_posts": 0})
    post(home, envoy, "msg-1", content="x" * longest)
    assert len(hook.bodies) == 1
    post(home, envoy, "msg-2", content="x" * (longest + 1))
    assert len(hook.bodies) == 3


def test_what_a_webhook_refuses_is_filed_with_its_reason(home: Path, hook: Hook, begin: Callable[..., Envoy]) -> None:
    envoy = begin(by_hook(hook), webhook={"seconds_between_posts": 0})
    hook.failures += [Answer(404, b"no such hook")] * 3
    put(home, "messages", "pending", **message())
    turn_until(envoy, lambda: envoy.job.turn(None) and here(home, "messages", "failed"), "it is given up")
    assert read(home, "messages", "failed", "msg-1")["refused_because"].endswith("HTTP 404 no such hook")


def test_an_address_is_asked_for_and_shown_nowhere(home: Path, hook: Hook, begin: Callable[..., Envoy]) -> None:
    envoy = begin({}, webhook={})
    put(home, "messages", "pending", **message())
    turn_until(envoy, lambda: "WEBHOOK_URL in .env is no address" in _log(home), "it says so")
    assert here(home, "messages", "pending") == ["msg-1"]
    envoy = begin({"WEBHOOK_URL": "http://chat.example/hooks/canary-77"}, webhook={})
    turn_until(envoy, lambda: envoy.job.turn(None) or "must begin with https" in _log(home), "it says so")
    assert "canary-77" not in _log(home)


def _log(home: Path) -> str:
    path = Places(home).role_log("envoy")
    return path.read_text() if path.exists() else ""


def test_a_tasks_mails_hang_under_its_first(home: Path, mail: MailServer, begin: Callable[..., Envoy]) -> None:
    envoy = begin({}, email=by_mail(mail))
    post(home, envoy, "msg-1", type="thread_start", task_id="task-1", content="[start] 왕 ⚔")
    post(home, envoy, "msg-2", task_id="task-1", content="[complete] done\nin two lines")
    post(home, envoy, "msg-3", channel="ops")
    first, second, third = mail.letters
    assert first["Message-ID"] == "<msg-1@home.example>"
    assert (second["References"], second["To"]) == ("<msg-1@home.example>", "me@home.example")
    assert second["Subject"] == "[complete] done in two lines"
    assert third["To"] == "ops@home.example"
    assert first.get_payload(decode=True).decode() == "[start] 왕 ⚔\r\n"  # type: ignore[union-attr]


def test_a_mail_server_that_is_busy_loses_nothing_and_one_that_refuses_says_why(
    home: Path, mail: MailServer, begin: Callable[..., Envoy]
) -> None:
    envoy = begin({}, email=by_mail(mail))
    mail.refusals += [b"451 later\r\n"]
    post(home, envoy)
    mail.refusals += [b"550 no such thing\r\n"] * 3
    put(home, "messages", "pending", **message("msg-2"))
    turn_until(envoy, lambda: envoy.job.turn(None) and here(home, "messages", "failed"), "it is given up")
    assert "550" in read(home, "messages", "failed", "msg-2")["refused_because"]
    assert len(mail.letters) == 1


@pytest.mark.parametrize("goodbye", [b"421 too busy\r\n", b"500 what?\r\n", b""])
def test_a_mail_that_was_taken_is_sent_once_whatever_the_goodbye(
    home: Path, mail: MailServer, begin: Callable[..., Envoy], goodbye: bytes
) -> None:
    envoy = begin({}, email=by_mail(mail))
    mail.goodbyes += [goodbye] * 5
    post(home, envoy)
    post(home, envoy, "msg-2")
    assert [letter["Message-ID"] for letter in mail.letters] == ["<msg-1@home.example>", "<msg-2@home.example>"]


def test_an_address_that_is_refused_is_told_once_and_the_others_have_the_mail(
    home: Path, mail: MailServer, begin: Callable[..., Envoy]
) -> None:
    mail.unknown.add("gone@home.example")
    envoy = begin({}, email={**by_mail(mail), "to": "me@home.example, gone@home.example"})
    for name in ("msg-1", "msg-2"):
        post(home, envoy, name)
    turn_until(envoy, lambda: "refuses gone@home.example (550 no such mailbox)" in _log(home), "it says so")
    assert _log(home).count("gone@home.example") == 1
    assert len(mail.letters) == 2


def test_a_password_goes_over_no_open_line(home: Path, begin: Callable[..., Envoy]) -> None:
    part = {"host": "mail.example", "security": "none", "from": "k@home.example", "to": "me@home.example"}
    envoy = begin({"SMTP_USER": "me", "SMTP_PASSWORD": "canary"}, email=part)
    put(home, "messages", "pending", **message())
    turn_until(envoy, lambda: envoy.job.turn(None) or "is for a server on this machine" in _log(home), "it says so")
