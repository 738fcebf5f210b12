"""What the programs of models were seen to print, and the result that comes of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.records.soldiers import SoldierOrder
from kingdom.base.times import moment, stamp
from kingdom.court.soldiers import engines
from kingdom.court.soldiers.engines import endings

SESSION = "45ce210f-3f42-463a-a55b-98436cf24a27"
Lines = list[dict[str, Any]]


def begins(engine: str) -> Lines:
    if engine == "opencode":
        return [part("step_start")]
    if engine == "codex":
        return [{"type": "thread.started", "thread_id": SESSION}, {"type": "turn.started"}]
    return [{"type": "system", "subtype": "init", "session_id": SESSION, "model": "m"}]


def says(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "session_id": SESSION, "message": {"role": "assistant", "content": content}, **more}


def answers(id: str, tokens: int) -> dict[str, Any]:
    """A part of an answer of the model: each says what the whole answer used."""
    message = {"id": id, "role": "assistant", "content": [], "usage": {"input_tokens": tokens, "output_tokens": 0}}
    return {"type": "assistant", "session_id": SESSION, "message": message}


def ends(**more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 0}
    plain = {"subtype": "success", "is_error": False, "num_turns": 1, "total_cost_usd": 0.5, "usage": usage}
    return {"type": "result", "session_id": SESSION, **plain, **more}


def fails(told: str, status: int | None = None, **more: Any) -> dict[str, Any]:
    return ends(is_error=True, result=told, api_error_status=status, terminal_reason="api_error", **more)


def item(text: str) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": "item_1", "type": "agent_message", "text": text}}


def turn_failed(message: str) -> Lines:
    return [{"type": "error", "message": message}, {"type": "turn.failed", "error": {"message": message}}]


def part(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "sessionID": "ses_1", "part": {"type": kind, **fields}}


def refused(message: str, status: int) -> dict[str, Any]:
    error = {"name": "APIError", "data": {"message": message, "statusCode": status, "isRetryable": False}}
    return {"type": "error", "sessionID": "ses_1", "error": error}


STOP = part("step_finish", reason="stop", tokens={"total": 120, "input": 100, "output": 20}, cost=0)
TURN = {"type": "turn.completed", "usage": {"input_tokens": 100, "cached_input_tokens": 50, "output_tokens": 20}}
WARNS = {"type": "item.completed", "item": {"id": "item_0", "type": "error", "message": "Model metadata not found."}}
REJECTED = {"status": "rejected", "resetsAt": 1795057293, "rateLimitType": "five_hour"}
HARMLESS = (
    "the login form has no label",
    "cannot apply the patch at line 401",
    "the billing module does not compile",
    "unauthorized_test.py: no such file",
    "the access token parser of this project is broken",
    "no quota table in schema.sql; the credit note is wrong; authentication.py fails",
    "I could not hit your server",
)
"""Failures of the work itself, in words that also stand in complaints about an account."""
DONE = '{"status": "success", "summary": "fine"}'


def judged(
    home: Path, engine: str, lines: Lines, code: int = 0, err: str = "", **order: Any
) -> Mapping[str, Any] | None:
    (home / "out").write_text("not JSON\n" + "".join(f"{json.dumps(line)}\n" for line in lines) + '{"cut off')
    (home / "err").write_text(err)
    made = SoldierOrder(
        soldier="s",
        task_id="task-1",
        general="gen-pr",
        attempt=0,
        engine=engine,
        account=engine,
        program="/bin/true",
        workspace=str(home),
        prompt="",
        result_path=str(home / "result.json"),
        out=str(home / "out"),
        err=str(home / "err"),
        limits={"budget_usd": None},
        sandbox=True,
        **{"external": False, "question": "", "may_write": [], "may_not_read": [], "env": {}, **order},
    )
    return engines.load(engine).result(made, code)


@pytest.mark.parametrize(
    ("engine", "lines", "code", "ends_as"),
    [
        ("claude", [says("bye"), ends(result=DONE)], 0, {"status": "success", "summary": "fine"}),
        ("claude", [ends(result="x", structured_output=json.loads(DONE))], 0, {"status": "success", "summary": "fine"}),
        (
            "claude",
            [says("bye"), ends(result="bye")],
            0,
            {"status": "failed", "error": "no result; its last words: 'bye'"},
        ),
        ("claude", [fails("API Error: 500 boom", 500)], 1, {"status": "failed", "error": "API Error: 500 boom"}),
        (
            "claude",
            [fails("Invalid API key", 401)],
            1,
            {"status": "skipped", "reason": "needs set-up: Invalid API key"},
        ),
        ("claude", [fails("Not logged in · Please run /login")], 1, {"status": "skipped"}),
        ("claude", [fails("no", 401)], 1, {"status": "skipped"}),
        ("claude", [fails("no", 403)], 1, {"status": "skipped"}),
        ("claude", [fails("no", 402)], 1, {"status": "failed"}),
        (
            "claude",
            [
                says("so far"),
                ends(subtype="error_max_turns", is_error=True, errors=["Reached maximum number of turns (2)"]),
            ],
            1,
            {"error": "Reached maximum number of turns (2); it said before: so far", "final": True},
        ),
        (
            "claude",
            [says("half"), ends(subtype="error_during_execution", is_error=True)],
            0,
            {"status": "failed", "error": "error_during_execution; it said before: half", "final": None},
        ),
        (
            "claude",
            [ends(subtype="error_during_execution", is_error=True, errors=["[ede_diagnostic] stop_reason=tool_use"])],
            0,
            {"status": "failed", "error": "error_during_execution", "final": None},
        ),
        (
            "claude",
            [ends(is_error=True, result="Too long", terminal_reason="prompt_too_long")],
            1,
            {"status": "failed", "final": True},
        ),
        (
            "claude",
            [says("half")],
            -9,
            {"error": "claude was ended by signal 9 before it had finished; it said before: half"},
        ),
        ("claude", [says("half")], 143, {"status": "failed"}),
        (
            "claude",
            [answers("a", 100), answers("a", 100), answers("b", 5)],
            -9,
            {"status": "failed", "metrics": {"tokens_used": 105}},
        ),
        ("codex", [WARNS, item("first"), item(DONE), TURN], 0, {"status": "success", "summary": "fine"}),
        ("codex", [WARNS, item("bye"), TURN], 0, {"status": "failed", "error": "no result; its last words: 'bye'"}),
        ("codex", turn_failed("unexpected status 401 Unauthorized: no"), 1, {"status": "skipped"}),
        ("codex", turn_failed("Missing environment variable: `OPENAI_API_KEY`."), 1, {"status": "skipped"}),
        ("codex", turn_failed("Connection failed: error sending request"), 1, {"status": "failed"}),
        ("codex", turn_failed("Codex ran out of room in the model's context window."), 1, {"final": True}),
        ("codex", turn_failed("Your access token could not be refreshed. Please log out."), 1, {"status": "skipped"}),
        (
            "codex",
            [item(DONE), turn_failed("it broke")[-1]],
            1,
            {"status": "failed", "error": "it broke; it said before: " + DONE},
        ),
        *(("codex", turn_failed(told), 1, {"status": "failed", "error": told}) for told in HARMLESS),
        *(("opencode", [refused(told, 400)], 1, {"status": "failed", "error": told}) for told in HARMLESS),
        *(("claude", [fails(told)], 1, {"status": "failed", "error": told}) for told in HARMLESS),
        ("codex", [item("half")], -15, {"status": "failed", "final": None}),
        ("opencode", [part("text", text=DONE), STOP], 0, {"status": "success", "metrics": {"tokens_used": 120}}),
        ("opencode", [part("text", text="bye"), STOP], 0, {"error": "no result; its last words: 'bye'"}),
        ("opencode", [part("text", text="half")], -9, {"status": "failed"}),
        ("opencode", [refused("no", 401)], 1, {"status": "skipped", "reason": "needs set-up: no"}),
        ("opencode", [refused("odd", 400)], 1, {"status": "failed", "error": "odd"}),
    ],
    ids=str,
)
def test_its_words_are_judged(home: Path, engine: str, lines: Lines, code: int, ends_as: dict[str, Any]) -> None:
    result = judged(home, engine, [*begins(engine), *lines], code)
    assert result is not None
    assert {key: result.get(key) for key in ends_as} == ends_as
    assert "quota" not in result


@pytest.mark.parametrize(
    ("engine", "lines", "reset"),
    [
        ("claude", [fails("Request rejected (429)", 429)], None),
        ("claude", [fails("529 Overloaded", 529)], None),
        ("claude", [fails("Credit balance is too low", 400)], None),
        ("claude", [says("limit", error="rate_limit"), fails("You've hit your 5-hour limit")], None),
        ("claude", [{"type": "rate_limit_event", "rate_limit_info": REJECTED}, fails("limit", 429)], 1795057293),
        (
            "claude",
            [
                {"type": "rate_limit_event", "rate_limit_info": {**REJECTED, "status": "allowed_warning"}},
                fails("x", 429),
            ],
            None,
        ),
        ("opencode", [refused("slow", 429)], None),
        ("codex", turn_failed("exceeded retry limit, last status: 429 Too Many Requests"), None),
        ("codex", turn_failed("You've hit your usage limit. Try again later."), None),
        ("codex", turn_failed("Your workspace is out of credits. Add credits to continue."), None),
        ("codex", turn_failed("You've reached your workspace credit limit"), None),
        ("codex", turn_failed("You hit your spend cap"), None),
        ("codex", turn_failed("Quota exceeded. Check your plan and billing details."), None),
    ],
    ids=str,
)
def test_a_limit_names_its_reset_if_the_engine_does(home: Path, engine: str, lines: Lines, reset: int | None) -> None:
    result = judged(home, engine, [*begins(engine), *lines], 1)
    assert result is not None
    assert result["quota"].get("resets_at") == (None if reset is None else stamp(reset))


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ("rate limit exceeded: Please try again in 11.054s.", 11),
        ("You've hit your usage limit. Try again in 2 hours 5 minutes.", 7500),
        ("You've hit your usage limit. Try again in 3 days 1 hour 2 minutes.", 262920),
        ("rate limit exceeded. Please try again in 200ms.", 0),
        ("You've hit your usage limit. Try again in a while.", None),
        ("usage limit: try again at 25:99 PM", None),
    ],
)
def test_codex_says_in_words_when_a_limit_ends(home: Path, told: str, wanted: float | None) -> None:
    result = judged(home, "codex", [*begins("codex"), *turn_failed(told)], 1)
    assert result is not None
    found = result["quota"].get("resets_at")
    rest = None if found is None else moment(found) - os.stat(home / "out").st_mtime
    assert rest == wanted if wanted is None or rest is None else abs(rest - wanted) < 2


def test_what_a_run_used_is_what_its_session_used_more(home: Path) -> None:
    claude = judged(home, "claude", [*begins("claude"), ends(result=DONE)], session_totals={"cost_usd": 0.3})
    assert claude is not None
    assert (claude["metrics"], claude["session_totals"]) == ({"cost_usd": 0.2, "tokens_used": 123}, {"cost_usd": 0.5})
    codex = judged(home, "codex", [*begins("codex"), item(DONE), TURN], session_totals={"tokens": 70.0})
    assert codex is not None
    assert (codex["metrics"], codex["session_totals"]) == ({"tokens_used": 50}, {"tokens": 120.0})


def test_a_file_that_was_written_counts_although_the_engine_failed_after_it(home: Path) -> None:
    (home / "result.json").write_text(DONE)
    result = judged(home, "claude", [*begins("claude"), fails("API Error: 500 boom", 500)], 1)
    assert result is not None
    assert result["status"] == "success"
    assert result["warnings"] == ["after the result was written its engine said: API Error: 500 boom"]


@pytest.mark.parametrize(("code", "how"), [(-9, "by signal 9"), (0, "with code 0"), (1, "with code 1")])
def test_a_program_that_was_ended_says_how(code: int, how: str) -> None:
    assert endings.cut_short("claude", code) == f"claude was ended {how} before it had finished"


@pytest.mark.parametrize("engine", ["claude", "codex"])
def test_a_complaint_before_anything_began_is_the_error(home: Path, engine: str) -> None:
    told = "Error: unexpected argument '--colour' found"
    result = judged(home, engine, [], 2, err=told)
    assert result is None or result["error"] == told  # without a result, the general takes the end of its output


@pytest.mark.parametrize("engine", ["claude", "codex"])
def test_what_it_prints_is_read_by_people(engine: str) -> None:
    used = {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}
    shown = {
        "claude": [says("I look."), {**says(""), "message": {"content": [used]}}, ends(terminal_reason="completed")],
        "codex": [
            item("I look."),
            {"type": "item.started", "item": {"type": "command_execution", "command": "ls"}},
            TURN,
        ],
    }
    lines = [engines.readable(json.dumps(line)) for line in shown[engine]]
    assert lines[0] == "I look."
    assert lines[1].startswith("> ")
    assert lines[2].startswith("· ends")


@pytest.mark.parametrize(
    ("usage", "used", "total"),
    [({"input_tokens": 100}, 30, 100.0), ({"input_tokens": 20, "output_tokens": 5}, 0, 70.0), (None, 0, 70.0)],
)
def test_of_tokens_that_codex_does_not_tell_none_are_counted_and_its_turn_is_complete(
    home: Path, usage: dict[str, int] | None, used: int, total: float
) -> None:
    completed = {"type": "turn.completed", "usage": usage}
    told = judged(home, "codex", [*begins("codex"), item(DONE), completed], session_totals={"tokens": 70.0})
    assert told is not None
    assert (told["status"], told["metrics"], told["session_totals"]) == (
        "success",
        {"tokens_used": used},
        {"tokens": total},
    )
