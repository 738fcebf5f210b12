"""What a model's program says and leaves is judged right, and a defect in the judgement is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from tests.faults import homes, mutants, oracle, trees
from tests.faults.changes import drop, replace
from tests.faults.mutants import Check, Mutant
from tests.machine import needs_sandbox

CLAUDE, CODEX = "kingdom.court.soldiers.engines.claude", "kingdom.court.soldiers.engines.codex"
ENDINGS, PREPARE, HOMES = (
    "kingdom.court.soldiers.engines.endings",
    "kingdom.court.soldiers.prepare",
    "kingdom.court.soldiers.engine_homes",
)

MUTANTS = [
    Mutant(
        "an error called success is a success",
        CLAUDE,
        replace('not A.get("is_error") and A.get("subtype") == "success"', 'A.get("subtype") == "success"'),
        "judged",
        quick=True,
    ),
    Mutant("a limit is a failure", ENDINGS, replace("A.kind == LIMIT", "False"), "judged"),
    Mutant("a warning of a limit is a limit", CLAUDE, replace('A.get("status") != "rejected"', "False"), "judged"),
    Mutant("a key that is refused is a failure", ENDINGS, replace("A.kind == SET_UP", "False"), "judged"),
    Mutant("the cost of a session is that of a run", CLAUDE, replace("max(0.0, A - B)", "A"), "judged"),
    Mutant("tokens of a session are those of a run", CODEX, replace("int(A - B)", "int(A)"), "judged"),
    Mutant("a turn that failed is forgotten", CODEX, replace("A, B = (True, str(C))", "A = True"), "judged"),
    Mutant(
        "what it lays into its HOME stays", "kingdom.court.soldiers.engine_homes:EngineHome", drop("_keep_only"), "left"
    ),
    Mutant("keys stay in sessions", "kingdom.court.soldiers.engine_homes", drop("streams.hide_in"), "left", quick=True),
    Mutant("what renews a sign-in is lent", CLAUDE, replace('{**A, "refreshToken": ""}', "A"), "lent"),
    Mutant("tokens that were lent are told", HOMES, replace("_without(A, B)", "A"), "lent"),
    Mutant("what it prints of lent tokens is kept", HOMES, drop("streams.repair"), "lent"),
    Mutant(
        "the owner's files of keys may be read", "kingdom.court.soldiers", replace("_secrets_of_owner(A)", "()"), "lent"
    ),
]

JUDGES = """
import json, sys
from kingdom.base.records.soldiers import SoldierOrder
from kingdom.court.soldiers import engines
for engine, code, totals, lines in json.load(open("cases.json")):
    open("out", "w").write("".join(json.dumps(line) + "\\n" for line in lines))
    open("err", "w").close()
    order = dict.fromkeys(SoldierOrder._fields[:23], "") | {"out": "out", "err": "err", "limits": {}, "env": {}}
    order |= {"result_path": "none.json", "session_totals": totals, "sandbox": True}
    print(json.dumps(engines.load(engine).result(SoldierOrder(**order), code)))
"""


BEGUN = {"type": "system", "subtype": "init", "session_id": "s"}


def claude(**end: Any) -> list[dict[str, Any]]:
    plain = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "session_id": "s"}
    return [
        {"type": "system", "subtype": "init", "session_id": "s"},
        {**plain, "total_cost_usd": 0.5, "usage": {}, **end},
    ]


def codex(*events: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "thread.started", "thread_id": "s"}, *events]


DONE = '{"status": "success"}'
NEAR = {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed_warning", "resetsAt": 1795057293}}
SAYS = {"type": "item.completed", "item": {"type": "agent_message", "text": DONE}}
USED = {"type": "turn.completed", "usage": {"input_tokens": 100, "output_tokens": 20}}
FAILED = {"type": "turn.failed", "error": {"message": "it broke"}}

Judge = Callable[[dict[str, Any]], bool]
CASES: list[tuple[str, int, dict[str, float], list[dict[str, Any]], Judge]] = [
    ("claude", 0, {"cost_usd": 0.3}, claude(result=DONE), lambda found: found["metrics"]["cost_usd"] == 0.2),
    ("claude", 1, {}, claude(is_error=True, result=DONE), lambda found: found["status"] == "failed"),
    ("claude", 1, {}, claude(is_error=True, result="x", api_error_status=529), lambda found: "quota" in found),
    (
        "claude",
        1,
        {},
        claude(is_error=True, result="x", api_error_status=401),
        lambda found: found["status"] == "skipped",
    ),
    (
        *("claude", 1, {}, [NEAR, *claude(is_error=True, result="x", api_error_status=429)]),
        lambda found: "resets_at" not in found.get("quota", {"resets_at": 0}),
    ),
    ("codex", 0, {"tokens": 70.0}, codex(SAYS, USED), lambda found: found["metrics"]["tokens_used"] == 50),
    ("codex", 1, {}, codex(SAYS, FAILED), lambda found: found.get("error", "").startswith("it broke")),
]


def judged(tree: Path, near: str) -> list[str]:
    """Each recorded end is judged as it should be."""
    folder = trees.new_folder()
    (folder / "cases.json").write_text(json.dumps([case[:4] for case in CASES]))
    told = trees.run(tree, folder, ["-c", f"import os; os.chdir({str(folder)!r})\n{JUDGES}"], timeout=60)
    results = [json.loads(line) for line in told.stdout.splitlines()]
    if len(results) != len(CASES):
        return [f"{len(results)} of {len(CASES)} were judged: {told.stderr[-500:]}"]
    return [f"{case[0]} {case[3]}: {found}" for case, found in zip(CASES, results, strict=True) if not case[4](found)]


KEY, TOKEN, RENEWS = "sk-ant-key-0123456789abcdef", "sk-ant-oat-0123456789abcdef", "sk-ant-ort-fedcba9876543210"
PROGRAM = """#!/bin/sh
cat >/dev/null
echo '{"type": "system", "subtype": "init", "session_id": "s-1"}'
key=$ANTHROPIC_API_KEY$(sed -n 's/.*"accessToken": "\\([^"]*\\)".*/\\1/p' "$HOME/.claude/.credentials.json" 2>/dev/null)
owners=$(cat "$KINGDOM_HOME/.claude/.credentials.json" 2>/dev/null; cat "$HOME/.claude/.credentials.json" 2>/dev/null)
mkdir -p "$HOME/.claude/projects/x"
echo "it is $key" >"$HOME/.claude/projects/x/s-1.jsonl"
echo planted >"$HOME/.claude/settings.json"
case $owners in *ort*) renews=yes ;; *) renews=no ;; esac
printf '{"status": "failed", "error": "renews: %s, it is %s"}' "$renews" "$key" >"$KINGDOM_RESULT_PATH"
end='"type": "result", "subtype": "success", "is_error": false, "session_id": "s-1"'
echo "{$end, \\"result\\": \\"$key\\"}"
"""


def visited(tree: Path, key: str | None) -> list[str]:
    """A soldier that plants a setting, looks for the owner's files, and tells its key wherever it can."""
    home = trees.new_folder() / "home"
    home.mkdir(mode=0o700)
    program = home / "claude"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    runtime = {"runtime": {"claude": {"command": str(program)}}}
    places = homes.make(home, config={"system": runtime, "king": {"retry": {"max_attempts": 1}}})
    homes.install(home, homes.GENERAL, engine="claude")
    places.package(homes.GENERAL).mkdir(parents=True)
    (places.package(homes.GENERAL) / "prompt.md").write_text("Do it.\n")
    signed_in = {"claudeAiOauth": {"accessToken": TOKEN, "refreshToken": RENEWS}}
    homes.write(home / ".claude" / ".credentials.json", signed_in)
    if key is not None:
        places.env_file.write_text(f"ANTHROPIC_API_KEY={key}\n")
        places.env_file.chmod(0o600)
    homes.put(home, "tasks", "pending", homes.task("task-1", "evt-1", repo=None, type="console.message"))
    trees.run(tree, home, ["-m", "kingdom.general", homes.GENERAL, "--once"], timeout=60)
    if not places.result("task-1").exists():
        return ["no result"]
    error = read_json(places.result("task-1"))["error"]
    found = [] if error.startswith("renews: no, it is [hidden]") else [f"it was told: {error}"]
    own = places.engine_home(homes.GENERAL, "task-1") / "home"
    found += [f"{path} stayed" for path in own.rglob("*") if path.is_file() and "projects" not in path.parts]
    if not list(own.rglob("s-1.jsonl")):
        found.append("its session is gone")
    kept = [
        path for folder in (places.state, places.logs, places.queue) for path in folder.rglob("*") if path.is_file()
    ]
    secrets = [secret.encode() for secret in (KEY, TOKEN, RENEWS)]
    return found + [f"a key lies in {path}" for path in kept if path.is_file() and _holds(path, secrets)]


def _holds(path: Path, secrets: list[bytes]) -> bool:
    return any(secret in path.read_bytes() for secret in secrets)


CHECKS: dict[str, Check] = {
    "judged": judged,
    "left": lambda tree, near: visited(tree, KEY),
    "lent": lambda tree, near: visited(tree, None),
}

_caught: list[bool] = []


@needs_sandbox
@pytest.mark.parametrize("check", CHECKS)
def test_what_a_program_says_and_leaves_is_judged_right(check: str) -> None:
    assert CHECKS[check](trees.program(), "") == []


@pytest.mark.parametrize("mutant", mutants.chosen(MUTANTS), ids=lambda mutant: mutant.name)
def test_a_defect_in_the_judgement_is_seen(mutant: Mutant) -> None:
    caught = mutants.is_caught(mutant, CHECKS[mutant.caught_by])
    _caught.append(caught)
    assert caught, f"{mutant.caught_by} does not see that {mutant.name}"


def test_the_score(figure: oracle.Figure) -> None:
    figure(f"defects of engines seen: {sum(_caught)} of {len(_caught)}")
