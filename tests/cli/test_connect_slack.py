"""Slack's two tokens are tried with all they must be allowed to do; of webhooks and mail servers what can be known."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import yaml

from kingdom.demo.standins.slack import Slack
from tests.cli.conftest import Terminal, typed

BOT, APP = "xoxb-canary-4711", "xapp-canary-4712"


@pytest.fixture
def slack(terminal: Terminal) -> Iterator[Slack]:
    with Slack() as slack:
        told = {"slack": {"api_url": slack.api_url}}
        (terminal.places.config / "envoy.yaml").write_text(yaml.safe_dump(told))
        yield slack


def test_tokens_that_work_are_kept_and_it_says_what_is_missing_then(
    terminal: Terminal, slack: Slack, types: io.StringIO
) -> None:
    typed(types, BOT, APP)
    said = terminal.ok("connect", "slack")
    assert "chat:write" in said
    assert "you are kingdom in home (T0HOME), Socket Mode works; slack.people" in said
    assert terminal.places.env_file.read_text() == f"SLACK_BOT_TOKEN={BOT}\nSLACK_APP_TOKEN={APP}\n"
    assert not {BOT, APP} & set(said.split())
    assert [method for method, _ in slack.calls] == ["auth.test", "apps.connections.open"]
    assert "connection slack: you are kingdom" in terminal("doctor", "--all").out


@pytest.mark.parametrize(
    ("tokens", "scopes", "why"),
    [
        (("xoxb-revoked", APP), None, "invalid_auth (SLACK_BOT_TOKEN, auth.test)"),
        ((BOT, BOT), None, "not_allowed_token_type (SLACK_APP_TOKEN, apps.connections.open)"),
        ((APP, APP), None, "not_allowed_token_type (SLACK_BOT_TOKEN, auth.test)"),
        ((BOT, APP), "chat:write", "lacks the scopes app_mentions:read, channels:history"),
    ],
)
def test_tokens_that_cannot_work_are_not_kept(
    terminal: Terminal, slack: Slack, types: io.StringIO, tokens: tuple[str, str], scopes: str | None, why: str
) -> None:
    slack.scopes = scopes or slack.scopes
    typed(types, *tokens)
    result = terminal("connect", "slack")
    assert (result.code, why in result.err) == (78, True)
    assert not terminal.places.env_file.exists()


def test_a_slack_that_is_down_keeps_them_untried(terminal: Terminal, slack: Slack, types: io.StringIO) -> None:
    slack.fail("auth.test", status=503)
    typed(types, BOT, APP)
    result = terminal("connect", "slack")
    assert (result.code, "not tried" in result.out) == (1, True)
    assert BOT in terminal.places.env_file.read_text()


@pytest.mark.parametrize(
    ("address", "is_kept"),
    [("https://chat.example/hooks/canary", True), ("http://chat.example/hooks/canary", False), ("canary", False)],
)
def test_a_webhooks_address_is_a_secret_that_goes_over_https(
    terminal: Terminal, types: io.StringIO, address: str, is_kept: bool
) -> None:
    typed(types, address)
    result = terminal("connect", "webhook")
    assert terminal.places.env_file.exists() is is_kept
    assert "canary" not in result.out + result.err


def test_mail_needs_a_server_first(terminal: Terminal, types: io.StringIO) -> None:
    typed(types, "me", "canary-password")
    result = terminal("connect", "email")
    assert (result.code, "no section `email`" in result.err, "canary" in result.err) == (78, True, False)
