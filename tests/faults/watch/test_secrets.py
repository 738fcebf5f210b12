"""Row 20: tokens in .env and in the environment of who types `up` are nowhere else afterwards."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kingdom.demo.standins.faults import says
from kingdom.demo.standins.github import GitHub
from kingdom.demo.standins.jira import Jira
from tests.faults import homes, trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import WORKING_GENERAL, Kingdom, Load, kingdom, one_of
from tests.fixtures import content
from tests.waiting import SOON, wait_until

IN_FILE, IN_SHELL = "canary-1f0a9c77e2", "canary-b83d5510c4"
SOLDIER = """#!/bin/sh
# Leaves its prompt and environment, and reports the token of the file as if it had found it.
cat >"$KINGDOM_HOME/prompt-seen"
env >"$KINGDOM_HOME/env-seen"
printf '{"task_id": "%s", "status": "failed", "error": "canary-1f0a9c77e2"}' "$KINGDOM_TASK_ID" \\
    >"$KINGDOM_RESULT_PATH"
echo "$KINGDOM_TASK_ID $$" >>"$KINGDOM_HOME/ended"
"""


def check_secrets(tree: Path, launcher: str) -> tuple[int, list[str]]:
    """Return in how many places was looked, and where a token stands."""
    shell = {"SLACK_BOT_TOKEN": IN_SHELL, "ANTHROPIC_API_KEY": IN_SHELL}
    with GitHub() as hub, Jira() as tickets:
        return _looked_through(tree, launcher, shell, hub, tickets)


def _looked_through(
    tree: Path, launcher: str, shell: dict[str, str], hub: GitHub, tickets: Jira
) -> tuple[int, list[str]]:
    """GitHub takes the token, and repeats it in an error; Jira refuses its own."""
    hub.token = IN_FILE
    hub.notify(1, "comment", title="a title")
    hub.once(says({"message": f"who is {IN_FILE}?"}, 500))
    polling = {"github": {"base_url": hub.address, "interval_seconds": 0.5}}
    config = {"king": {"retry": {"max_attempts": 1}}, "sentinel": {"polling": polling}}
    env = f"SLACK_BOT_TOKEN={IN_FILE}\nOTHER_TOKEN={IN_FILE}\nGH_TOKEN={IN_FILE}\nJIRA_API_TOKEN={IN_FILE}\n"
    env += f"JIRA_URL={tickets.address}\nJIRA_USER_EMAIL=kingdom@example.com\n"
    with kingdom(launcher, tree=tree, env=shell, config=config, manifest=WORKING_GENERAL) as court:
        court.places.env_file.write_text(env)
        court.places.env_file.chmod(0o600)
        court.up()
        load = Load(court)
        (court.places.package(homes.GENERAL) / "run").write_text(SOLDIER)
        load.arrive(2)
        load.wait_done(60)
        wait_until(lambda: len(court.messages("sent")) >= 4, SOON, "both ends are told")
        wait_until(lambda: hub.unread() == [] and tickets.requests, SOON, "the sentinel has looked")
        asked = ("status", "doctor", "tasks", "events", "connect", "connect github --check", "connect jira --check")
        told = {f"$ kingdom {words}": said(court, words) for words in asked}
        places = {**told, **processes(court), **files(court), **tmux(court)}
    wrong = [where for where, text in places.items() if re.search(f"{IN_FILE}|{IN_SHELL}", text)]
    return len(places), wrong


def said(court: Kingdom, words: str) -> str:
    done = court.cli(*words.split())
    return done.stdout + done.stderr


def processes(court: Kingdom) -> dict[str, str]:
    return {
        f"/proc/{pid}/cmdline": Path(f"/proc/{pid}/cmdline").read_text(errors="replace") for pid in court.processes()
    }


def files(court: Kingdom) -> dict[str, str]:
    """Whatever lies in the home but .env and the soldier's own program."""
    own = {court.places.env_file, court.places.package(homes.GENERAL) / "run"}
    return {
        str(path.relative_to(court.home)): content(path).decode(errors="replace")
        for path in court.home.rglob("*")
        if path.is_file() and path not in own
    }


def tmux(court: Kingdom) -> dict[str, str]:
    """The environment that its server would give to a pane."""
    if court.launcher != "tmux":
        return {}
    asked = [shutil.which("tmux") or "tmux", "-S", os.path.relpath(court.places.roles_socket, court.home)]
    done = subprocess.run([*asked, "show-environment", "-g"], cwd=court.home, capture_output=True, text=True)
    assert "PATH=" in done.stdout, done.stderr
    return {"tmux show-environment": done.stdout}


@pytest.mark.parametrize("launcher", one_of("tmux"))
def test_tokens_stand_nowhere_but_in_their_file(launcher: str, figure: Figure) -> None:
    looked, wrong = check_secrets(trees.program(), launcher)
    figure(f"row 20 secrets, {launcher}: 2 tokens, looked at in {looked} places, {len(wrong)} hits")
    assert wrong == []
