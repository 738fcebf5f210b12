"""The programs of models are connected like services: a key from a prompt, or the sign-in of their owner."""

from __future__ import annotations

import base64
import io
import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from kingdom.base.home import dotenv
from kingdom.demo.standins.anthropic import Anthropic
from kingdom.demo.standins.model import Model, Step, in_turn
from kingdom.demo.standins.openai import OpenAI
from tests.cli.conftest import Terminal, typed

KEY = "sk-played-0123456789abcdef"
ENGINES = ("claude", "codex")
VARIABLES = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY"}
LINES = {"claude": (KEY, ""), "codex": (KEY,)}
SIGNED_IN = {"claude": ".claude/.credentials.json", "codex": ".codex/auth.json"}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def owner(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody who is signed in nowhere."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (*VARIABLES.values(), "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CODEX_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def api(engine: str, owner: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    with _served(engine, owner, terminal, monkeypatch) as service:
        yield service


@contextmanager
def _served(engine: str, owner: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    """Its service, and a program of its name that says its version."""
    program = owner / engine
    program.write_text('#!/bin/sh\n[ "$*" = --version ] && env >>"$0.saw" && echo 1.2.3\n')
    program.chmod(0o755)
    with (Anthropic if engine == "claude" else OpenAI)(in_turn(Step("ok"))) as service:
        service.key = KEY
        about = {"command": str(program)}
        if engine == "claude":
            monkeypatch.setenv("ANTHROPIC_BASE_URL", service.address)
        else:
            about["base_url"] = f"{service.address}/v1"
        (terminal.places.config / "system.yaml").write_text(yaml.safe_dump({"runtime": {engine: about}}))
        yield service


def sign_in(owner: Path, engine: str, token: str) -> None:
    path = owner / SIGNED_IN[engine]
    path.parent.mkdir()
    of_claude = {"claudeAiOauth": {"accessToken": token, "refreshToken": "renews-0123456789"}}
    path.write_text(json.dumps(of_claude if engine == "claude" else {"tokens": {"access_token": token}}))


def test_a_key_that_works_is_kept_and_what_was_seen_is_said(
    engine: str, api: Model, terminal: Terminal, types: io.StringIO, owner: Path
) -> None:
    typed(types, *LINES[engine])
    said = terminal.ok("connect", engine)
    assert f"{engine}: 1.2.3; 127.0.0.1 takes {VARIABLES[engine]}, 1 model. Kept in" in said
    assert dotenv.secrets(terminal.places) == {VARIABLES[engine]: KEY}
    assert stat.S_IMODE(terminal.places.env_file.stat().st_mode) == 0o600
    assert KEY not in said
    assert KEY not in (owner / f"{engine}.saw").read_text(), "nobody needs a key to say a version"
    assert [(request.method, request.path) for request in api.requests] == [("GET", "/v1/models")]
    assert "set up" in next(line for line in terminal.ok("connect").splitlines() if line.startswith(engine))


def test_a_key_that_is_refused_is_not_kept(engine: str, api: Model, terminal: Terminal, types: io.StringIO) -> None:
    typed(types, "sk-wrong-0123456789", "")
    said = terminal("connect", engine)
    assert said.code != 0
    assert "key" in said.err
    assert "(HTTP 401); nothing has been changed" in said.err
    assert "sk-wrong" not in said.err + said.out
    assert not terminal.places.env_file.exists()


def test_with_neither_key_nor_sign_in_it_says_what_to_do(
    engine: str, api: Model, terminal: Terminal, types: io.StringIO
) -> None:
    typed(types, "", "")
    said = terminal("connect", engine)
    assert "it has no key: give a key, or sign in with" in said.err
    assert "not set up" in next(line for line in terminal.ok("connect").splitlines() if line.startswith(engine))
    assert not api.requests


def test_what_was_just_given_is_what_is_tried(
    terminal: Terminal, types: io.StringIO, owner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is known already says nothing about a new token, nor does an old one that no longer works."""
    with _served("claude", owner, terminal, monkeypatch) as api:
        for known, given in ((KEY, "sk-wrong-0123456789"), ("sk-wrong-0123456789", KEY)):
            terminal.places.env_file.write_text(f"ANTHROPIC_API_KEY={known}\n")
            terminal.places.env_file.chmod(0o600)
            typed(types, "", given)
            said = terminal("connect", "claude")
            assert api.requests[-1].headers["authorization"] == f"Bearer {given}"
            if given == KEY:
                assert "takes CLAUDE_CODE_OAUTH_TOKEN, 1 model. Kept in" in said.out
            else:
                assert "refuses: CLAUDE_CODE_OAUTH_TOKEN: " in said.err
                assert dotenv.secrets(terminal.places) == {"ANTHROPIC_API_KEY": KEY}
            types.truncate(0)
            types.seek(0)
        both = terminal("connect", "claude", "--check")
        assert "refuses: ANTHROPIC_API_KEY: " in both.err, "each that is set is tried"


def test_a_key_without_its_program_is_kept_and_that_is_said(
    engine: str, api: Model, terminal: Terminal, types: io.StringIO, owner: Path
) -> None:
    (owner / engine).unlink()
    typed(types, *LINES[engine])
    said = terminal("connect", engine)
    assert (said.code, said.err) == (1, "")
    assert f"{engine}: not tried, {engine}: the program" in said.out
    assert dotenv.secrets(terminal.places) == {VARIABLES[engine]: KEY}


def test_what_the_owner_is_signed_in_with_is_named_as_lent(
    engine: str, api: Model, terminal: Terminal, types: io.StringIO, owner: Path
) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 4102444800}).encode()).decode().rstrip("=")
    sign_in(owner, engine, KEY if engine == "claude" else f"head.{claims}.sign")
    typed(types, "", "")
    said = terminal.ok("connect", engine)
    if engine == "claude":
        assert "takes ~/.claude/.credentials.json (lent), 1 model. There was nothing new to keep" in said
        assert api.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    else:
        assert "1.2.3; ~/.codex/auth.json is lent, until 2100-01-01T00:00:00Z, and was not tried" in said
        assert not api.requests
    assert not terminal.places.env_file.exists()
    assert KEY not in said


def test_a_sign_in_that_may_not_be_brought_in_is_not_looked_at(
    engine: str, api: Model, terminal: Terminal, types: io.StringIO, owner: Path
) -> None:
    sign_in(owner, engine, KEY)
    system = terminal.places.config / "system.yaml"
    about = yaml.safe_load(system.read_text())
    system.write_text(yaml.safe_dump({"runtime": {**about["runtime"], "bring": ["git"]}}))
    typed(types, "", "")
    assert "it has no key" in terminal("connect", engine).err
    assert not api.requests


def test_a_key_is_never_sent_over_plain_http(
    owner: Path, terminal: Terminal, types: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://models.example.com")
    typed(types, KEY, "")
    assert "ANTHROPIC_BASE_URL must be an address that begins with https://" in terminal("connect", "claude").err


def test_the_doctor_tries_a_key_and_what_generals_are_signed_in_with(
    engine: str, api: Model, terminal: Terminal, owner: Path
) -> None:
    terminal.places.env_file.write_text(f"{VARIABLES[engine]}=sk-wrong-0123456789\n")
    terminal.places.env_file.chmod(0o600)
    lines = terminal("doctor", "--all").out.splitlines()
    (line,) = [line for line in lines if f"connection {engine}" in line]
    assert line.startswith("BAD")
    terminal.places.env_file.unlink()
    sign_in(owner, engine, KEY)
    assert f"connection {engine}" not in terminal("doctor", "--all").out, "no general uses it"
    system = terminal.places.config / "system.yaml"
    system.write_text(yaml.safe_dump({**yaml.safe_load(system.read_text()), "default_engine": engine}))
    terminal.ok("generals", "install", "gen-pr")
    (line,) = [line for line in terminal("doctor", "--all").out.splitlines() if f"connection {engine}" in line]
    assert line.startswith("ok")
