"""Agents on the engines of the house: their prompt, session, budget, and what becomes of a message at a limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.home.places import find_codec
from kingdom.base.records import sessions
from tests.council.monitor.conftest import Open
from tests.council.monitor.councils import HANG, TOLD, Council, caged
from tests.fixtures import all_of, founded
from tests.machine import needs_sandbox

pytestmark = needs_sandbox

MODEL = f"""#!/usr/bin/env python3
import json, os, subprocess, sys
prompt, home = sys.stdin.read(), os.environ["HOME"]
path = next(line.removeprefix("- ") for line in prompt.splitlines() if line.startswith("- /"))
said = {{"argv": sys.argv[1:], "prompt": prompt, "cwd": os.getcwd(), "path": path}}
session = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else "session-1"
def say(**event): print(json.dumps({{"session_id": session, **event}}), flush=True)
say(type="system", subtype="init", model="played")
def end(**event): say(type="result", num_turns=1, total_cost_usd=0.25, usage={{"output_tokens": 7}}, **event)
if "LIMIT" in open(path).read() and not os.path.exists("met"):
    open("met", "w")
    end(subtype="success", is_error=True, api_error_status=429, result="usage limit reached")
    sys.exit(1)
sending = [sys.executable, {str(find_codec())!r}, "send", "--from", "architect", "--to", "user", "--type",
           "progress_update", "--reply-to", path, "--body", "repository: a\\nsummary: " + json.dumps(json.dumps(said))]
subprocess.run(sending, check=True, stdout=subprocess.DEVNULL)
os.unlink(path)
end(subtype="success", is_error=False, result="done", structured_output={{"status": "success", "summary": "done"}})
"""
"""A program that acts as Claude Code does; it tells the user what it saw."""


@pytest.fixture
def modelled(home: Path, council: Open) -> Any:
    """Return what opens a council whose architect runs on claude."""

    def opened(general: dict[str, Any] | None = None, **row: Any) -> Council:
        program = home / "bin" / "claude"
        program.parent.mkdir(parents=True)
        program.write_text(MODEL)
        program.chmod(0o700)
        founded(home, system={"runtime": {"claude": {"command": str(program)}}}, general=general or {})
        (home / ".env").write_text("ANTHROPIC_API_KEY=sk-canary-1234567890\nMY_TOKEN=canary\n")
        (home / ".env").chmod(0o600)
        return council({"agents": {"architect": {"engine": "claude", **row}}})

    return opened


def told(council: Council) -> list[dict[str, Any]]:
    """Return what the model's program saw, turn by turn."""
    posts = all_of(council.home, "messages", "pending")
    said = [post["content"] for post in posts if post["type"] == "notification"]
    found = [json.loads(text.partition(": ")[2]) for text in said]
    return sorted(found, key=lambda saw: str(saw["path"]))


def test_a_model_is_told_its_instructions_and_the_path_and_no_word_of_the_message(modelled: Any, home: Path) -> None:
    (home / "agents").mkdir()
    (home / "agents" / "architect.md").write_text("# You judge designs.\n")
    (home / "agents" / "everybody.md").write_text("Be brief.\n")
    opened = modelled(model="played-model", instructions="agents/architect.md")
    sent = opened.write("architect", msg_type="architecture_request", body="{goal: a secret goal, question: q}")
    opened.settle()
    (saw,) = told(opened)
    assert saw["prompt"].startswith("# You judge designs.\n\nBe brief.\n\n## Your messages\n")
    assert (saw["path"], "secret" in json.dumps(saw)) == (str(opened.places.told("architect") / sent.name), False)
    assert ("played-model" in saw["argv"], "--dangerously-skip-permissions" in saw["argv"]) == (True, True)
    assert saw["cwd"] == str(opened.places.workspace("council", "architect"))
    assert opened.everything == []


def test_its_session_goes_on_in_the_same_thread_and_begins_anew_in_another(modelled: Any) -> None:
    opened = modelled()
    for thread in ("t-1", "t-1", "t-2"):
        opened.write("architect", thread_id=thread)
        opened.settle()
    found = told(opened)
    assert ["--resume" in saw["argv"] for saw in found] == [False, True, False]
    assert found[0]["cwd"] == found[1]["cwd"] != found[2]["cwd"]


def test_what_a_turn_costs_is_counted_and_a_budget_that_is_used_up_makes_messages_wait(modelled: Any) -> None:
    opened = modelled(general={"budgets": {"day_usd": 0.25}})
    opened.write("architect")
    opened.settle()
    day = read_json(opened.places.budgets)["spent 2026-02-07"]["council"]
    assert (day["usd"], day["tokens"], list(day["accounts"])) == (0.25, 7, ["claude"])
    waits = opened.write("architect")
    opened.turn()
    assert (opened.names("architect"), len(told(opened))) == ([waits.name], 1)
    assert "architect waits: budgets.day_usd is 0.25 and 0.25 has been spent today" in opened.log
    opened.clock.pass_(86_400)
    opened.settle()
    assert len(told(opened)) == 2


def test_a_limit_of_its_account_is_no_failure_of_a_message(modelled: Any) -> None:
    opened = modelled()
    opened.write("architect", body="goal: LIMIT\n")
    opened.until(lambda: "has reached its limit" in opened.log, "the limit is met")
    opened.turn()
    (name,) = opened.names("architect", "processed")
    assert (opened.message("architect", name).status, opened.message("architect", name).retries) == ("queued", 0)
    opened.clock.pass_(10_000)
    opened.settle()
    assert (len(told(opened)), opened.everything, "retry" in opened.log) == (1, [], False)


def test_an_engine_that_lacks_something_is_a_failure_that_says_what(modelled: Any) -> None:
    opened = modelled(instructions="agents/nobody.md")
    sent = opened.write("architect")
    opened.until(lambda: "retry 1 of 3" in opened.log, "it has failed")
    why = f"it could not be started: its instructions {opened.home}/agents/nobody.md are not there"
    assert opened.message("architect", sent.name).error == why


def test_what_an_agent_says_of_its_failure_is_the_reason(council: Open) -> None:
    said = """echo '{"status": "failed", "error": "no model is free"}' >$KINGDOM_RESULT_PATH"""
    opened = council({"agents": {"architect": caged(said)}})
    sent = opened.write("architect")
    opened.until(lambda: "retry 1 of 3" in opened.log, "it has failed")
    assert opened.message("architect", sent.name).error == "no model is free"


def test_agents_at_work_are_listed_as_soldiers(council: Open) -> None:
    opened = council(architect=HANG)
    opened.write("architect")
    opened.turn()
    (row,) = sessions.read(opened.places)
    assert (row.general, row.task_id, sessions.is_ours(row)) == ("council", "council-architect", True)
    opened.job._turns.running["architect"].soldier.kill()
    opened.settle()
    assert sessions.read(opened.places) == []


def test_several_messages_of_a_thread_are_told_at_once_to_an_agent_that_takes_them(council: Open) -> None:
    row = {"command": ["sh", "-c", TOLD + 'rm "$@"', "agent"], "sandbox": False, "at_once": 3}
    opened = council({"agents": {"leader": row}})
    names = [opened.write(thread_id=thread).name for thread in ("t-1", "t-1", "t-2", "t-1", "t-1")]
    opened.settle()
    first, second, third, fourth, fifth = names
    assert opened.told == [f"leader {first} {second} {fourth}", f"leader {third}", f"leader {fifth}"]


def test_of_several_messages_only_those_that_are_left_have_failed(council: Open) -> None:
    row = {"command": ["sh", "-c", 'rm "$1"', "agent"], "sandbox": False, "at_once": 2}
    opened = council({"agents": {"leader": row}})
    names = [opened.write(thread_id="t-1").name for _ in range(2)]
    opened.until(lambda: "retry 1 of 3" in opened.log, "one has failed")
    assert opened.names("leader", "processed") == names[1:]
