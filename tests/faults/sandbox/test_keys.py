"""A model's program tells its key everywhere, plants a setting and looks for the owner's files: nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.base.disk.codec import read_json
from tests.faults import homes, trees
from tests.faults.oracle import Figure
from tests.machine import needs_sandbox

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


def visited(key: str | None) -> list[str]:
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
    trees.run(trees.program(), home, ["-m", "kingdom.general", homes.GENERAL, "--once"], timeout=60)
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


@needs_sandbox
@pytest.mark.parametrize("key", [KEY, None], ids=["a key of its own", "signed in as the owner"])
def test_what_a_program_was_given_to_sign_in_is_kept_nowhere(key: str | None, figure: Figure) -> None:
    wrong = visited(key)
    figure(f"keys of a model's program: {len(wrong)} kept")
    assert wrong == []
