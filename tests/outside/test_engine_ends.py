"""What each real program says of its end, and what its general makes of it: the whole table, fault by fault."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kingdom.base.times import moment
from kingdom.demo.standins.model import Step, in_turn
from tests.outside.outside import CANARY, KEYS, TASK, Home, report, service, shell

RESET = int(time.time()) + 7200
DONE = {"status": "success", "summary": "looked at it"}
SUBSCRIBER = {
    "anthropic-ratelimit-unified-status": "rejected",
    "anthropic-ratelimit-unified-reset": str(RESET),
    "anthropic-ratelimit-unified-representative-claim": "five_hour",
    "anthropic-ratelimit-unified-5h-status": "rejected",
    "anthropic-ratelimit-unified-5h-reset": str(RESET),
}


class Row(NamedTuple):
    engine: str
    what: str
    steps: tuple[Step, ...]
    #: What must be in the result; a text is looked for in the field.
    ends: Mapping[str, Any]
    manifest: Mapping[str, Any] = {}
    secrets: Mapping[str, str | None] = {}
    #: The service refuses the connection.
    dead: bool = False
    runtime: Mapping[str, Any] = {}


def failed(engine: str, what: str, *steps: Step, error: str, **more: Any) -> Row:
    return Row(engine, what, steps, {"status": "failed", "error": error}, **more)


def set_up(engine: str, what: str, *steps: Step, reason: str, **more: Any) -> Row:
    return Row(engine, what, steps, {"status": "skipped", "reason": f"^needs set-up: .*{reason}"}, **more)


def looks(engine: str) -> Step:
    return shell(engine, "echo looked", text="I look first.")


ENDS = [
    Row("claude", "a file", (report("claude", **DONE), Step("Done.")), DONE),
    Row("claude", "the schema", (Step(tool="StructuredOutput", input=DONE), Step("x")), DONE),
    Row("claude", "last words", (Step(json.dumps(DONE)),), DONE),
    Row("claude", "words in a fence", (Step(f"```json\n{json.dumps(DONE)}\n```"),), DONE),
    failed("claude", "no result", Step("I am done."), error="no result; its last words: 'I am done.'"),
    failed("claude", "400", Step(error=400, kind="invalid_request_error", message="odd"), error="400.*odd"),
    failed("claude", "404", Step(error=404, kind="not_found_error", message="x"), error="selected model"),
    failed("claude", "500", Step(error=500, message="boom"), error="500 boom"),
    failed("claude", "refused connection", Step("x"), error="ECONNREFUSED", dead=True),
    failed(
        "claude",
        "prompt too long",
        Step(error=400, kind="invalid_request_error", message="prompt is too long: 250000 tokens > 200000 maximum"),
        error="the prompt is too long",
    ),
    failed("claude", "line cut twice", Step("hel", cut=True), error="."),
    failed("claude", "no word any more", Step("x", hangs=True), error="^timeout: ", manifest={"timeout_seconds": 30}),
    failed(
        "claude",
        "most turns",
        looks("claude"),
        error="maximum number of turns.*I look first",
        runtime={"max_turns": 2},
    ),
    failed(
        "claude",
        "its budget",
        shell("claude", "echo looked", text="I look first.", usage={"input_tokens": 60000}),
        error="maximum budget.*I look first",
        manifest={"limits": {"budget_usd": 0.5}},
    ),
    set_up("claude", "401", Step(error=401, kind="authentication_error", message="no"), reason="401 no"),
    set_up("claude", "403", Step(error=403, kind="permission_error", message="no"), reason="authenticate"),
    set_up("claude", "no key", Step("x"), reason="has no key", secrets={KEYS["claude"]: None}),
    set_up("claude", "no program", Step("x"), reason="is not there", runtime={"command": "/nowhere/claude"}),
    Row("codex", "a file", (report("codex", **DONE), Step("Done.")), DONE),
    Row("codex", "the schema, in its last words", (Step(json.dumps({**DONE, "error": None})),), DONE),
    failed("codex", "no result", Step("I am done."), error="no result; its last words: 'I am done.'"),
    failed("codex", "400", Step(error=400, kind="invalid_request_error", message="odd"), error="odd"),
    failed("codex", "404", Step(error=404, kind="model_not_found", message="no such model"), error="no such model"),
    failed("codex", "500", Step(error=500, message="boom"), error="high demand"),
    failed("codex", "refused connection", Step("x"), error="Connection failed", dead=True),
    failed(
        "codex",
        "prompt too long",
        Step(fails_in_stream=True, kind="context_length_exceeded", message="too long"),
        error="the prompt is too long",
    ),
    failed("codex", "line cut twice", Step("hel", cut=True), error="stream"),
    failed("codex", "no word any more", Step("x", hangs=True), error="^timeout: ", manifest={"timeout_seconds": 30}),
    set_up("codex", "401", Step(error=401, kind="invalid_api_key", message="no"), reason="401"),
    set_up("codex", "no key", Step("x"), reason="has no key", secrets={KEYS["codex"]: None}),
    # It takes ten times as long as the others to begin: the rest of its words is judged in tests/court/soldiers.
    Row("opencode", "a file", (report("opencode", **DONE), Step("Done.")), DONE),
    set_up("codex", "no program", Step("x"), reason="is not there", runtime={"command": "/nowhere/codex"}),
]

LIMITS = [
    ("claude", "429", Step(error=429, kind="rate_limit_error", message="slow down"), {}, None),
    ("claude", "529", Step(error=529, kind="overloaded_error", message="Overloaded"), {}, None),
    (
        "claude",
        "a subscription's limit",
        Step(error=429, kind="rate_limit_error", message="limit", headers=SUBSCRIBER),
        {KEYS["claude"]: None, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-played"},
        RESET,
    ),
    (
        "claude",
        "no credit",
        Step(error=400, kind="invalid_request_error", message="Your credit balance is too low to use this."),
        {},
        None,
    ),
    ("codex", "429", Step(error=429, kind="rate_limit_exceeded", message="slow down"), {}, None),
    (
        "codex",
        "a quota",
        Step(error=429, kind="insufficient_quota", message="You exceeded your current quota"),
        {},
        None,
    ),
    (
        "codex",
        "a subscription's limit",
        Step(error=429, kind="usage_limit_reached", message="limit", about={"resets_at": RESET, "plan_type": "plus"}),
        {},
        RESET,
    ),
    (
        "codex",
        "a limit in the stream",
        Step(fails_in_stream=True, kind="rate_limit_exceeded", message="Please try again in 1.5s."),
        {},
        None,
    ),
]


def a_home(folder: Path, row: Row, address: Any) -> Home:
    home = Home(folder, row.engine, address, **row.manifest)
    home.secrets = {name: value for name, value in {**home.secrets, **row.secrets}.items() if value is not None}
    if row.runtime:
        system = json.loads(json.dumps(home.runtime)) | dict(row.runtime)
        home.configure("system", {"runtime": {row.engine: system}})
    return home


@pytest.mark.parametrize(("engine", "row"), [(row.engine, row) for row in ENDS], ids=lambda part: _id(part))
def test_an_end_is_judged_by_what_the_program_says(engine: str, row: Row, home: Path) -> None:
    with nullcontext() if row.dead else service(engine, in_turn(*row.steps)) as model:
        ours = a_home(home, row, model)
        result = ours.do()
    for key, wanted in row.ends.items():
        found = str(result[key])
        assert found == wanted or re.search(wanted, found), f"{key}: {found}\n{ours.log()}"
    assert CANARY not in json.dumps(result)


@pytest.mark.parametrize("engine", ["claude", "codex"])
def test_a_model_that_is_killed_while_it_answers_and_comes_back_is_asked_again(engine: str, home: Path) -> None:
    steps = (shell(engine, "echo looked"), Step("hel", dies=3.0), shell(engine, "echo again"), report(engine, **DONE))
    with service(engine, in_turn(*steps, Step("Done."))) as model:
        ours = Home(home, engine, model)
        ours.configure("king", {"retry": {"max_attempts": 3, "backoff_seconds": 1}})
        result = ours.do()
        told = [json.dumps(body) for body in model.asked]
    assert {key: result[key] for key in DONE} == DONE, ours.log()
    assert "again" in told[-1]


def _id(part: object) -> str:
    return part.what.replace(" ", "-") if isinstance(part, Row) else str(part)


@pytest.mark.parametrize(
    ("engine", "what", "step", "secrets", "reset"), LIMITS, ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_limit_lets_the_account_rest_and_fails_no_task(
    engine: str, what: str, step: Step, secrets: dict[str, str | None], reset: int | None, home: Path
) -> None:
    with service(engine, in_turn(step)) as model:
        ours = a_home(home, Row(engine, what, (), {}, secrets=secrets), model)
        ours.put()
        with ours.at_work():
            ours.until(lambda: ours.waiting().get("waits_because"), "the task waits")
    task = ours.waiting()
    assert f"the account {engine} has reached its limit" in task["waits_because"]
    rest = json.loads(ours.places.budgets.read_text())[f"rests {engine}"]
    until = moment(rest["until"])
    if reset is None:
        assert 50 < until - time.time() < 1000, rest
    else:
        # Codex names it to the minute.
        assert abs(until - reset) <= 60, (rest, reset)
    assert task["attempt"] == 0
    assert not ours.places.result(TASK).exists()


def test_after_a_limit_one_task_probes_and_the_others_follow(home: Path) -> None:
    """Three tasks, a limit, and an account that works again: the breaker is the account's, not the task's."""
    limit = Step(error=429, kind="rate_limit_error", message="slow down")
    with service("claude", in_turn(limit, limit, Step(json.dumps(DONE)))) as model:
        ours = Home(home, "claude", model, max_soldiers=1)
        rules = {"shortest_rest_seconds": 0.1, "default_rest_seconds": 0.1}
        ours.configure("general", {"quota": rules})
        for number in (1, 2, 3):
            ours.put(f"task-20261119-00{number}")
        with ours.at_work():
            ours.until(lambda: len(list(ours.places.results.glob("task-*-00?.json"))) == 3, "three results")
    results = [ours.result(f"task-20261119-00{number}")["status"] for number in (1, 2, 3)]
    assert results == ["success"] * 3
    assert not any(key.startswith("rests") for key in json.loads(ours.places.budgets.read_text()))


def test_what_was_not_allowed_is_told_where_there_is_no_sandbox(home: Path) -> None:
    """By claude: codex answers a refused write to its model alone."""
    outside = home / "not-there"
    step = Step(tool="Write", input={"file_path": str(outside), "content": "x"})
    with service("claude", in_turn(step, Step(json.dumps(DONE)))) as model:
        result = Home(home, "claude", model, sandbox="off").do()
    assert result["status"] == "success"
    assert any("was not allowed to use Write" in warning for warning in result["warnings"]), result
    assert not outside.exists()


@pytest.mark.parametrize("engine", ["claude", "codex"])
def test_cost_and_tokens_are_those_of_one_run_also_after_a_resume(engine: str, home: Path) -> None:
    """Claude sums the cost of a session up, and codex its tokens."""
    asks = {"status": "needs_human", "question": "Which one?"}
    with service(engine, in_turn(Step(json.dumps(asks)))) as model:
        ours = Home(home, engine, model)
        first = ours.do()
        model.script = in_turn(Step(json.dumps(DONE)))
        second = answer(ours, first, "task-20261119-002")
        third_words = model.asked[-1]
    assert second["session_id"] == first["session_id"], ours.log()
    assert second["metrics"]["tokens_used"] == first["metrics"]["tokens_used"]
    if engine == "claude":
        assert second["metrics"]["cost_usd"] == pytest.approx(first["metrics"]["cost_usd"])
    assert "Which one?" in json.dumps(third_words), "it goes on in the same session"


def answer(home: Home, asked: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The task that the king would make of a person's answer, done."""
    payload = {
        "original_task_id": TASK,
        "checkpoint_path": str(home.places.checkpoint(TASK)),
        "human_response": "the first",
        "session_id": asked["session_id"],
    }
    return home.do(task, type="resume", payload=payload, thread_task_id=TASK)


@pytest.mark.parametrize("engine", ["claude", "codex"])
def test_an_answer_whose_session_is_gone_begins_a_new_one(engine: str, home: Path) -> None:
    asks = {"status": "needs_human", "question": "Which one?"}
    with service(engine, in_turn(Step(json.dumps(asks)))) as model:
        ours = Home(home, engine, model)
        first = ours.do()
        model.script = in_turn(Step(json.dumps(DONE)))
        second = answer(ours, {"session_id": "0a0a0a0a-0000-4000-8000-000000000000"}, "task-20261119-002")
    assert second["status"] == "success", ours.log()
    assert second["session_id"] != first["session_id"]


@pytest.mark.parametrize("engine", ["claude", "codex"])
def test_a_session_that_the_program_does_not_know_is_a_failure_with_its_words(engine: str, home: Path) -> None:
    """The home thinks it has it; what held it is gone."""
    with service(engine, in_turn(Step(json.dumps({"status": "needs_human", "question": "Which one?"})))) as model:
        ours = Home(home, engine, model)
        first = ours.do()
        own = ours.places.engine_home("gen-pr", TASK) / "home"
        for path in sorted(own.rglob("*.jsonl")):
            path.unlink()
        second = answer(ours, first, "task-20261119-002")
    assert second["status"] == "failed"
    assert re.search("No conversation found|no rollout found", second["error"]), second
