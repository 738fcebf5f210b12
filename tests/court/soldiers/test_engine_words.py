"""The words that each model's program is started with: what of an order becomes which word."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home import manifests
from kingdom.court.soldiers import engines
from kingdom.court.soldiers.engines import claude, codex, endings
from tests.base.records.test_soldiers import ORDER
from tests.fixtures import Clock, install, services

PLAIN: dict[str, Any] = {"session_id": None, "plugins": [], "settings": {}, "mcp": {}, "home": None, "sandbox": True}
ENGINES = ("claude", "codex", "opencode")


def words(engine: str, **fields: Any) -> list[str]:
    return engines.load(engine).argv(ORDER._replace(**{**PLAIN, "program": engine, **fields}))


def differ(engine: str, **fields: Any) -> tuple[list[str], list[str]]:
    """Which words come with these fields, and which are left out."""
    plain, changed = words(engine), words(engine, **fields)
    return list((Counter(changed) - Counter(plain)).elements()), list((Counter(plain) - Counter(changed)).elements())


@pytest.mark.parametrize(
    ("code", "how"), [(-9, "ended by signal 9"), (0, "ended with code 0"), (1, "ended with code 1")]
)
def test_a_program_that_was_cut_short_says_how(code: int, how: str) -> None:
    assert endings.cut_short("claude", code) == f"claude was {how} before it had finished"


def test_a_model_of_its_own_address_is_told_to_opencode_with_the_name_of_its_key_alone() -> None:
    order = ORDER._replace(**{**PLAIN, "settings": {"model": "m-1", "base_url": "http://x"}})
    told = json.loads(engines.load("opencode").environment(order)["OPENCODE_CONFIG_CONTENT"])
    assert (told["autoupdate"], told["share"], told["small_model"]) == (False, "disabled", "kingdom/m-1")
    about = told["provider"]["kingdom"]
    assert about["options"] == {"baseURL": "http://x", "apiKey": "{env:OPENAI_API_KEY}"}
    assert about["models"] == {"m-1": {}}
    plain = engines.load("opencode").environment(ORDER._replace(**PLAIN))
    assert json.loads(plain["OPENCODE_CONFIG_CONTENT"]) == {"autoupdate": False, "share": "disabled"}


def limits(usd: float | None) -> dict[str, Any]:
    return {"limits": {**ORDER.limits, "budget_usd": usd}}


@pytest.mark.parametrize(
    ("engine", "fields", "more"),
    [
        ("claude", {"settings": {"model": "m-1"}}, ["--model", "m-1"]),
        ("claude", {"settings": {"max_turns": 5}}, ["--max-turns", "5"]),
        ("claude", {"session_id": "s-1"}, ["--resume", "s-1"]),
        ("claude", limits(2.5), ["--max-budget-usd", "2.5"]),
        ("claude", limits(0.001), ["--max-budget-usd", "0.01"]),
        ("claude", {"mcp": {"a": {}}}, ["--mcp-config", '{"mcpServers": {"a": {}}}', "--strict-mcp-config"]),
        ("claude", {"settings": {"allowed_tools": ["Read"]}}, []),
        ("codex", {"settings": {"model": "m-1"}}, ["--model", "m-1"]),
        ("codex", {"session_id": "s-1"}, ["resume", "s-1"]),
        ("codex", {"home": "/h"}, ["--output-schema", "/h/.codex/result.schema.json"]),
        ("codex", {"mcp": {"a": {"command": "x"}}}, ["-c", 'mcp_servers.a.command="x"']),
        ("opencode", {"settings": {"model": "m-1"}}, ["--model", "m-1"]),
        ("opencode", {"settings": {"model": "m-1", "base_url": "http://x"}}, ["--model", "kingdom/m-1"]),
        ("opencode", {"session_id": "s-1"}, ["--session", "s-1"]),
    ],
)
def test_what_an_order_says_is_said_to_the_program(engine: str, fields: dict[str, Any], more: list[str]) -> None:
    assert differ(engine, **fields) == (more, [])


@pytest.mark.parametrize(
    ("engine", "fields", "instead"),
    [
        ("claude", {}, (["--permission-mode", "acceptEdits"], ["--dangerously-skip-permissions"])),
        (
            "claude",
            {"settings": {"allowed_tools": ["Read", "Bash"]}},
            (
                ["--permission-mode", "acceptEdits", "--allowedTools", "Read,Bash"],
                ["--dangerously-skip-permissions"],
            ),
        ),
        ("codex", {}, (["--sandbox", "workspace-write"], ["--dangerously-bypass-approvals-and-sandbox"])),
        ("codex", {"session_id": "s-1"}, (["resume", "s-1"], ["--dangerously-bypass-approvals-and-sandbox"])),
        ("opencode", {}, ([], ["--auto"])),
    ],
)
def test_without_our_sandbox_the_program_keeps_its_own_guard(
    engine: str, fields: dict[str, Any], instead: tuple[list[str], list[str]]
) -> None:
    assert differ(engine, sandbox=False, **fields) == instead


@pytest.mark.parametrize(("sandbox", "said"), [(True, "1"), (False, None)])
def test_claude_is_told_that_it_is_in_a_sandbox_where_it_is(sandbox: bool, said: str | None) -> None:
    environment = engines.load("claude").environment(ORDER._replace(**{**PLAIN, "sandbox": sandbox}))
    assert environment.get("IS_SANDBOX") == said


def test_plugins_are_those_that_lie_in_the_soldiers_home(home: Path) -> None:
    (home / ".claude/of-the-owner/friday").mkdir(parents=True)
    more, _ = differ("claude", home=str(home), plugins=["friday", "gone"])
    assert more == ["--plugin-dir", f"{home}/.claude/of-the-owner/friday"]
    assert differ("claude", home=None, plugins=["friday"]) == ([], [])


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ({"type": "text", "part": {"text": "hello"}}, "hello"),
        ({"type": "tool_use", "part": {"tool": "bash", "state": {"input": "왕" * 400}}}, f'> bash "{"왕" * 299}'),
        ({"type": "error", "error": {"data": {"message": "boom"}}}, "! boom"),
        ({"type": "step_start"}, ""),
    ],
)
def test_what_people_see_of_opencode(event: dict[str, Any], shown: str) -> None:
    assert engines.load("opencode").readable(json.dumps({"sessionID": "s-1", **event})) == shown


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ({"type": "system", "subtype": "init", "model": "m-1"}, "· m-1 begins"),
        (
            {"type": "system", "subtype": "api_retry", "error": "overloaded", "error_status": 529},
            "· retries: overloaded 529",
        ),
        ({"type": "system", "subtype": "api_retry", "error": "lost"}, "· retries: lost"),
        ({"type": "system", "subtype": "permission_denied", "message": "no"}, "! no"),
        ({"type": "assistant", "message": {"content": [{"type": "text", "text": "hello"}]}}, "hello"),
        (
            {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Bash", "input": "왕" * 400}]}},
            f'> Bash "{"왕" * 299}',
        ),
        (
            {"type": "user", "message": {"content": [{"type": "tool_result", "is_error": True, "content": "e" * 301}]}},
            f"! {'e' * 300}",
        ),
        ({"type": "user", "message": {"content": [{"type": "tool_result", "content": "fine"}]}}, ""),
        ({"type": "user", "message": {"content": [{"type": "text", "is_error": True, "text": "mine"}]}}, ""),
        ({"type": "result", "subtype": "success", "total_cost_usd": 0.5}, "· ends: success, 0.5 USD"),
    ],
)
def test_what_people_see_of_claude(event: dict[str, Any], shown: str) -> None:
    assert engines.load("claude").readable(json.dumps({"session_id": "s-1", **event})) == shown


NOW = datetime(2026, 2, 7, 10, 0).astimezone()


@pytest.mark.parametrize(
    ("told", "at"),
    [
        ("try again in 2 h 3m 4s", NOW + timedelta(hours=2, minutes=3, seconds=4)),
        ("try again in 500ms", NOW + timedelta(seconds=0.5)),
        ("try again at 10:30 AM", NOW + timedelta(minutes=30)),
        ("try again at 9:59 AM", NOW + timedelta(days=1, minutes=-1)),
        ("try again at 9:30 AM", NOW + timedelta(hours=23, minutes=30)),
        ("try again at Feb 9th, 2026 10:00 AM", NOW + timedelta(days=2)),
        ("try again at Feb 5th, 2026 10:00 AM", NOW - timedelta(days=2)),
        ("try again at Feb 31st, 2026 10:00 AM", None),
        ("try again later", None),
    ],
)
def test_when_a_limit_of_codex_ends(home: Path, told: str, at: datetime | None) -> None:
    (home / "out").touch()
    os.utime(home / "out", (NOW.timestamp(),) * 2)
    found = codex._reset(ORDER._replace(out=str(home / "out")), told)
    assert found == (None if at is None else pytest.approx(at.timestamp()))


@pytest.mark.parametrize(
    ("total", "before", "cost"), [(0.12345678, 0.0, 0.123457), (0.5, 0.2, 0.3), (0.1, 0.2, 0.0), (None, 0.0, 0.0)]
)
def test_what_a_resumed_run_of_claude_cost_is_without_what_its_session_had_cost(
    total: float | None, before: float, cost: float
) -> None:
    order = ORDER._replace(session_totals={"cost_usd": before})
    assert claude._metrics(order, {"total_cost_usd": total, "usage": {"input_tokens": 3}}) == {
        "cost_usd": cost,
        "tokens_used": 3,
    }


def test_codex_finds_the_shape_of_a_result_in_its_home(home: Path) -> None:
    ours = services(home, "gen-pr", Clock())
    install(home, "gen-pr", engine="codex")
    (home / "own").mkdir()
    engines.load("codex").furnish(ours, manifests.of(ours.places, "gen-pr"), home / "own")
    assert json.loads((home / "own" / ".codex/result.schema.json").read_text()) == json.loads(
        json.dumps(endings.SCHEMA)
    )
