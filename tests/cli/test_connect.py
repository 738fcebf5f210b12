"""A token goes from a prompt into .env, which only its owner can read, once the service has taken it."""

from __future__ import annotations

import io
import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.lock import Lock
from kingdom.base.home import dotenv
from kingdom.cli.services import SERVICES, load
from kingdom.court.connections import base
from kingdom.demo.standins import github, jira
from kingdom.demo.standins.faults import FaultyStandIn, drops, fails, limits, passes, says
from kingdom.demo.standins.github import GitHub
from kingdom.demo.standins.jira import Jira
from tests.cli.conftest import Terminal, typed
from tests.waiting import SOON, wait_until


@pytest.fixture
def hub(terminal: Terminal) -> Iterator[GitHub]:
    with GitHub() as service:
        told = {"polling": {"github": {"base_url": service.address}}}
        (terminal.places.config / "sentinel.yaml").write_text(yaml.safe_dump(told))
        yield service


@pytest.fixture
def tickets() -> Iterator[Jira]:
    with Jira() as service:
        yield service


def test_a_token_that_works_is_kept_beside_the_other_lines(terminal: Terminal, hub: GitHub, types: io.StringIO) -> None:
    hub.notify()
    env = terminal.places.env_file
    env.write_text("# mine\nOTHER=1 # one\nGH_TOKEN=old\nodd line\nGH_TOKEN=older\n")
    env.chmod(0o600)
    typed(types, github.TOKEN)
    said = terminal.ok("connect", "github")
    assert "Scopes: `notifications`" in said
    assert "you are kingdom-bot, 1 unread notification, scopes notifications, repo" in said
    assert env.read_text() == f"# mine\nOTHER=1 # one\nGH_TOKEN={github.TOKEN}\nodd line\n"
    assert stat.S_IMODE(env.stat().st_mode) == 0o600
    assert github.TOKEN not in said


def test_a_new_env_file_is_its_owners_alone(terminal: Terminal, hub: GitHub, types: io.StringIO) -> None:
    typed(types, github.TOKEN)
    terminal.ok("connect", "github")
    assert stat.S_IMODE(terminal.places.env_file.stat().st_mode) == 0o600


def test_a_token_that_is_refused_is_not_kept(terminal: Terminal, hub: GitHub, types: io.StringIO) -> None:
    typed(types, "ghp_wrong_token")
    said = terminal("connect", "github")
    assert said.code != 0
    assert said.err == "kingdom: GitHub refuses: Bad credentials (HTTP 401); nothing has been changed\n"
    assert not terminal.places.env_file.exists()


def test_a_token_without_the_scope_is_not_kept(terminal: Terminal, hub: GitHub, types: io.StringIO) -> None:
    hub.scopes = "gist"
    typed(types, github.TOKEN)
    said = terminal("connect", "github")
    assert "it needs `notifications`" in said.err
    assert not terminal.places.env_file.exists()


@pytest.mark.parametrize("fault", [drops(), fails(), limits(9)])
def test_of_a_service_that_is_down_the_token_is_kept_and_that_is_said(
    terminal: Terminal, hub: GitHub, types: io.StringIO, fault: object
) -> None:
    hub.once(fault)  # type: ignore[arg-type]
    typed(types, github.TOKEN)
    said = terminal("connect", "github")
    assert (said.code, said.err) == (1, "")
    assert "github: not tried, GitHub" in said.out
    assert dotenv.secrets(terminal.places) == {"GH_TOKEN": github.TOKEN}
    assert "you are kingdom-bot" in terminal.ok("connect", "github", "--check")


@pytest.mark.parametrize(("status", "is_told"), [(403, True), (404, False)])
def test_a_token_that_may_not_read_notifications_is_told_what_it_needs(
    terminal: Terminal, hub: GitHub, types: io.StringIO, status: int, is_told: bool
) -> None:
    hub.once(passes(), fails(status, '{"message": "not accessible by fine-grained tokens"}'))
    typed(types, github.TOKEN)
    said = terminal("connect", "github")
    assert "not accessible by fine-grained tokens" in said.err
    assert ("it needs `notifications`" in said.err) == is_told
    assert not terminal.places.env_file.exists()


ODD = [None, [], {}, 5, "text", {"login": {}}, {"issues": None}]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", ["github", "jira"])
def test_an_answer_of_another_shape_is_one_line(
    terminal: Terminal, hub: GitHub, tickets: Jira, types: io.StringIO, name: str, number: int
) -> None:
    service: FaultyStandIn = hub if name == "github" else tickets
    typed(types, *((github.TOKEN,) if name == "github" else (tickets.address, jira.EMAIL, jira.TOKEN)))
    terminal.ok("connect", name)
    for odd in ODD:
        service.once(*[passes()] * number, says(odd))
        said = terminal("connect", name, "--check")
        assert len((said.out + said.err).splitlines()) == 1, odd
    types.truncate(0)
    types.seek(0)
    service.once(*[passes()] * number, says(None))
    typed(types, "", "", "")
    assert (
        f"{name}: not tried, {name} cannot be reached: its answer has an unknown format"
        in terminal("connect", name).out
    )


def test_a_jira_token_with_scopes_is_told_its_address(terminal: Terminal, tickets: Jira, types: io.StringIO) -> None:
    tickets.has_scopes = True
    typed(types, tickets.address, jira.EMAIL, jira.TOKEN)
    assert "works only at https://api.atlassian.com/ex/jira/CLOUD-ID" in terminal("connect", "jira").err


def test_a_jira_token_with_scopes_is_taken_at_its_address(
    terminal: Terminal, tickets: Jira, types: io.StringIO
) -> None:
    tickets.has_scopes = True
    typed(types, f"{tickets.address}/ex/jira/{jira.CLOUD}", jira.EMAIL, jira.TOKEN)
    assert "you are kingdom-bot" in terminal.ok("connect", "jira")


@pytest.mark.parametrize("address", ["https://[half", "https://", "ftp://x.example", "jira"])
def test_what_can_be_no_address_is_refused_in_one_line(terminal: Terminal, types: io.StringIO, address: str) -> None:
    typed(types, address, jira.EMAIL, jira.TOKEN)
    said = terminal("connect", "jira")
    assert "JIRA_URL must be an address" in said.err
    assert len(said.err.splitlines()) == 1


def test_jira_is_asked_for_line_by_line_and_an_empty_line_keeps_what_is_there(
    terminal: Terminal, tickets: Jira, types: io.StringIO
) -> None:
    tickets.ticket("QP-1")
    typed(types, tickets.address, jira.EMAIL, jira.TOKEN)
    said = terminal.ok("connect", "jira")
    assert "you are kingdom-bot, tickets are found by assignee=currentUser()" in said
    assert [asked.json()["maxResults"] for asked in tickets.requests if asked.method == "POST"] == [1]
    types.truncate(0)
    types.seek(0)
    typed(types, "", "", "")
    terminal.ok("connect", "jira")
    assert dotenv.secrets(terminal.places) == {
        "JIRA_URL": tickets.address,
        "JIRA_USER_EMAIL": jira.EMAIL,
        "JIRA_API_TOKEN": jira.TOKEN,
    }


def test_a_token_is_never_sent_over_plain_http(terminal: Terminal, types: io.StringIO) -> None:
    typed(types, "http://jira.example.com", jira.EMAIL, jira.TOKEN)
    said = terminal("connect", "jira")
    assert "must begin with https" in said.err
    assert jira.TOKEN not in said.err + said.out


def test_a_password_is_never_tried_over_an_open_line(terminal: Terminal, types: io.StringIO) -> None:
    mail = "email: {host: mail.example, security: none, from: k@home.example, to: me@home.example}\n"
    (terminal.places.config / "envoy.yaml").write_text(mail)
    typed(types, "me", "canary-77")
    said = terminal("connect", "email")
    assert "is for a server on this machine" in said.err
    assert not terminal.places.env_file.exists()


def test_a_token_that_the_service_repeats_is_not_shown_by_a_check(terminal: Terminal, hub: GitHub) -> None:
    terminal.places.env_file.write_text(f"GH_TOKEN={github.TOKEN}\n")
    terminal.places.env_file.chmod(0o600)
    hub.once(fails(401, '{"message": "no such token: ' + github.TOKEN + '"}'))
    said = terminal("connect", "github", "--check")
    assert said.code == 1
    assert github.TOKEN not in said.out + said.err


def test_nothing_given_changes_nothing(terminal: Terminal, types: io.StringIO) -> None:
    typed(types, "")
    assert "GH_TOKEN: nothing was given" in terminal("connect", "github").err
    assert not terminal.places.env_file.exists()


def test_the_services_are_listed_with_their_state(terminal: Terminal) -> None:
    terminal.places.env_file.write_text("JIRA_URL=https://x.example.com\nGITHUB_TOKEN=abcdefgh\n")
    terminal.places.env_file.chmod(0o600)
    rows = {line.split()[0]: line for line in terminal.ok("connect").splitlines()}
    assert "set up" in rows["github"]
    assert "incomplete" in rows["jira"]
    assert set(SERVICES) <= rows.keys()


def test_an_unknown_service_is_refused_by_its_name(terminal: Terminal) -> None:
    assert "did you mean 'github'?" in terminal("connect", "gihub").err


def test_no_token_is_taken_from_the_command_line(terminal: Terminal) -> None:
    assert terminal("connect", "github", github.TOKEN).code == 2


def test_a_prompt_on_a_terminal_does_not_echo_the_token(terminal: Terminal, hub: GitHub) -> None:
    ours, theirs = pty.openpty()
    program = "import sys; from kingdom.cli.main import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", program, "connect", "github"], stdin=theirs, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        shown = b""

        def reads(until: bytes) -> bool:
            nonlocal shown
            shown += os.read(ours, 4096)
            return until in shown

        wait_until(lambda: reads(b"GH_TOKEN, token (ghp_"), SOON, "a prompt")
        os.write(ours, f"{github.TOKEN}\n".encode())
        wait_until(lambda: reads(b"Kept in"), SOON, "the end")
        assert child.wait(SOON) == 0
    os.close(ours)
    assert github.TOKEN.encode() not in shown
    assert dotenv.secrets(terminal.places) == {"GH_TOKEN": github.TOKEN}


def test_only_names_and_addresses_are_typed_for_all_to_see() -> None:
    needs = [need for name in SERVICES for need in load(name).needs]
    assert {need.name for need in needs if not need.is_secret} == {"JIRA_URL", "JIRA_USER_EMAIL", "SMTP_USER"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_says_what_it_needs_and_where_to_get_it(name: str) -> None:
    service = load(name)
    assert service.guide
    assert service.serves
    assert any(need.is_secret for need in service.needs)
    assert not base.is_begun(service, {})
    assert base.is_set_up(service, {need.name: "x" for need in service.needs})


@pytest.mark.parametrize(
    ("token", "fault", "mark", "told"),
    [
        (github.TOKEN, None, "ok", "connection github: you are kingdom-bot"),
        ("ghp_wrong_token", None, "BAD", "connection github: GitHub refuses: Bad credentials"),
        (github.TOKEN, fails(503), "warn", "connection github: GitHub cannot be reached: HTTP 503"),
        (github.TOKEN, limits(30), "warn", "connection github: GitHub asks for a pause of 30 s"),
    ],
)
def test_the_doctor_tries_what_is_set_up(
    terminal: Terminal, hub: GitHub, token: str, fault: object, mark: str, told: str
) -> None:
    terminal.places.env_file.write_text(f"GH_TOKEN={token}\n")
    terminal.places.env_file.chmod(0o600)
    if fault is not None:
        hub.once(fault)  # type: ignore[arg-type]
    lines = terminal("doctor", "--all").out.splitlines()
    (line,) = [line for line in lines if "connection" in line]
    assert line.startswith(mark)
    assert told in " ".join(" ".join(lines).split())
    assert token not in " ".join(lines)


def test_the_doctor_names_what_is_missing(terminal: Terminal) -> None:
    terminal.places.env_file.write_text("JIRA_URL=https://x.example.com\n")
    terminal.places.env_file.chmod(0o600)
    assert ".env has no JIRA_USER_EMAIL, JIRA_API_TOKEN" in " ".join(terminal("doctor").out.split())


@pytest.mark.parametrize("value", ["plain", "with space", "#hash", 'a"b', "it's", "  ", "x # y", "'quoted'", "ü=ü"])
def test_what_is_written_into_env_is_read_back(terminal: Terminal, value: str) -> None:
    text = dotenv.with_values("", {"A": value, "B": "2"})
    terminal.places.env_file.write_text(text)
    terminal.places.env_file.chmod(0o600)
    assert dotenv.secrets(terminal.places) == {"A": value, "B": "2"}


@pytest.mark.parametrize("value", ["a\nB=1", "a\rb", "\x1b[2J"])
def test_what_cannot_stand_in_one_line_is_refused(value: str) -> None:
    with pytest.raises(base.KingdomError, match="A cannot stand in"):
        dotenv.with_values("", {"A": value})


@pytest.mark.parametrize(
    ("shown", "mark", "told"),
    [
        ({"state": "ok", "why": ""}, "ok", "watchers: github at work; off: jira"),
        ({"state": "down", "why": "HTTP 502"}, "warn", "watcher github: down: HTTP 502"),
        ({"state": "limited", "why": "w", "until": "2026-02-07T10:00:00Z"}, "warn", "limited until 2026-02-07"),
        ({"state": "refused", "why": "HTTP 401"}, "BAD", "watcher github: refused: HTTP 401"),
    ],
)
def test_the_doctor_tells_how_the_watchers_are(terminal: Terminal, shown: object, mark: str, told: str) -> None:
    make_folder(terminal.places.own("sentinel"))
    terminal.places.watchers.write_text(json.dumps({"github": shown, "jira": {"state": "off", "why": "no token"}}))
    lock = Lock(terminal.places.lock("sentinel"), "sentinel")
    lock.acquire()
    try:
        lines = terminal("doctor", "--all").out.splitlines()
    finally:
        lock.release()
    (line,) = [line for line in lines if told in line]
    assert line.startswith(mark)
