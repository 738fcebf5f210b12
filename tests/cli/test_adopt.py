"""What another kingdom has left is taken over: by copies alone, once, and only when it was asked for twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.king.job import KingJob
from tests.cli.conftest import Held, Terminal
from tests.fixtures import Clock, all_of, services

PETITION: dict[str, Any] = {
    "id": "evt-slack-msg-1",
    "type": "slack.channel.message",
    "source": "slack",
    "repo": "",
    "payload": {"text": "look at it", "user_id": "U1", "channel": "C1", "message_ts": "1.1"},
    "priority": None,
    "created_at": "2026-02-07T10:00:00Z",
    "status": "petitioning",
}
MANIFEST = """\
name: gen-x
description: "x"
timeout_seconds: 1800
mode: auto
keywords: [look]
schedules: []
"""
SEED_KING = "retry: {max_attempts: 4, backoff_seconds: 9}\npetition: {enabled: true}\n"


def lay(folder: Path, files: Mapping[str, str | dict[str, Any] | list[Any]]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def all_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A home in which another kingdom has worked, in the shapes of its kind."""
    return lay(
        tmp_path / "old",
        {
            "config/king.yaml": SEED_KING,
            "config/workspace-claude.md": "Be kind.\n",
            "config/generals/gen-x.yaml": MANIFEST,
            "templates/gen-x.md": "# x {{TASK_ID}}\n",
            "templates/gen-x-b-codex.md": "# x\n",
            "agents/gen-x/reader.md": "Read.\n",
            "memory/repo-acme-shop.md": "- its tests run with make\n",
            "memory/generals/gen-x/learned-patterns.md": "- one\n",
            "queue/events/petitioning/evt-slack-msg-1.json": PETITION,
            "queue/tasks/in_progress/task-20260207-001.json": {"id": "task-20260207-001", "event_id": "e"},
            "state/king/task-seq": "0",
            "state/sentinel/github-state.json": {"etag": 'W/"1"'},
            "state/sentinel/jira-state.json": {"last_check": "2026/02/07 10:00", "known_issues": {"SHOP-1": "To Do"}},
            "state/envoy/awaiting-responses.json": [
                {"task_id": "task-20260207-001", "thread_ts": "1.1", "channel": "C1"}
            ],
            ".env": "GH_TOKEN=ghp_of_the_old_one # theirs\n",
        },
    )


def test_at_first_it_only_says_what_would_be_done(terminal: Terminal, old: Path) -> None:
    before = all_in(terminal.places.config) | all_in(terminal.places.queue)
    said = terminal.ok("adopt", str(old))
    where = "queue/events/pending/evt-slack-msg-1.json"
    assert f"would take {old}/queue/events/petitioning/evt-slack-msg-1.json → {where}\n" in said
    assert f"would take {old}/config/king.yaml → config/king.yaml\n" in said, "ours is the default still"
    assert said.splitlines()[-1].endswith(f" adopt {old} --yes` does it.")
    assert all_in(terminal.places.config) | all_in(terminal.places.queue) == before


def test_a_home_is_taken_over_by_copies_once(terminal: Terminal, old: Path) -> None:
    places, before = terminal.places, all_in(old)
    said = terminal.ok("adopt", str(old), "--yes")
    assert "15 files to take, 0 refused." in said
    assert all_in(old) == before, "nothing is changed where it lies"
    assert json.loads(places.queue_file("events", "pending", "evt-slack-msg-1").read_text()) == PETITION
    for name in before:
        if "petitioning" not in name:
            assert (places.home / name).read_bytes() == before[name], name
    assert places.env_file.stat().st_mode & 0o077 == 0
    assert terminal.ok("adopt", str(old), "--yes") == "0 files to take, 15 are here already, 0 refused.\n"


def test_what_was_served_meanwhile_does_not_come_again(terminal: Terminal, old: Path) -> None:
    terminal.ok("adopt", str(old), "--yes")
    places = terminal.places
    places.queue_file("events", "pending", "evt-slack-msg-1").unlink()
    terminal.event("completed", "evt-slack-msg-1")
    assert terminal.ok("adopt", str(old), "--yes") == "0 files to take, 15 are here already, 0 refused.\n"
    assert not places.queue_file("events", "pending", "evt-slack-msg-1").exists()


def test_what_the_owner_has_written_here_stays(terminal: Terminal, old: Path) -> None:
    mine = terminal.places.config / "king.yaml"
    mine.write_text("retry: {max_attempts: 1}\n")
    said = terminal.ok("adopt", str(old), "--yes")
    assert f"keep config/king.yaml: it differs from {old}/config/king.yaml\n" in said
    assert mine.read_text() == "retry: {max_attempts: 1}\n"


def test_a_home_in_which_another_kingdom_has_worked_gets_its_petitions(terminal: Terminal) -> None:
    lay(terminal.places.home, {"queue/events/petitioning/evt-slack-msg-1.json": PETITION})
    assert "1 file to take, 0 refused." in terminal.ok("adopt", "--yes")
    assert terminal.places.queue_file("events", "pending", "evt-slack-msg-1").exists()
    assert terminal.ok("adopt") == "0 files to take, 1 is here already, 0 refused.\n"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("queue/events/petitioning/evt-2.json", "{", "REFUSED "),
        ("queue/events/petitioning/evt-2.json", {**PETITION, "id": "evt-3"}, "its name is not its id, evt-3"),
        ("queue/events/petitioning/evt-2.json", {"id": "evt-2"}, "evt-2.json: "),
        ("config/generals/gen-y.yaml", "name: gen-y\n", "gen-y.yaml:1"),
        ("config/envoy.yaml", "slack: [", "envoy.yaml"),
        ("state/sentinel/jira-state.json", "{", "jira-state.json: "),
    ],
)
def test_what_cannot_be_taken_is_named_and_the_rest_is_taken(
    name: str, content: str | dict[str, Any], why: str, terminal: Terminal, old: Path
) -> None:
    lay(old, {name: content})
    said = terminal("adopt", str(old), "--yes")
    (line,) = [line for line in said.out.splitlines() if line.startswith("REFUSED")]
    assert why in line
    assert name.rpartition("/")[2] in line
    assert (said.code, said.err) == (1, "")
    assert terminal.places.queue_file("events", "pending", "evt-slack-msg-1").exists()


def test_a_package_is_installed_and_a_folder_of_prompts_goes_to_the_templates(
    terminal: Terminal, tmp_path: Path
) -> None:
    package = lay(
        tmp_path / "theirs", {"manifest.yaml": MANIFEST, "prompt.md": "# x\n", "general-claude.md": "Be kind.\n"}
    )
    assert "4 files to take, 0 refused." in terminal.ok("adopt", str(package), "--yes")
    assert terminal.places.manifest("gen-x").read_text() == MANIFEST
    assert (terminal.places.package("gen-x") / "general-claude.md").read_text() == "Be kind.\n"
    prompts = lay(tmp_path / "prompts", {"gen-x-b.md": "# b\n", "gen-other.md": "# o\n"})
    said = terminal("adopt", str(prompts), "--yes")
    assert f"take {prompts}/gen-x-b.md → templates/gen-x-b.md\n" in said.out
    assert f"REFUSED {prompts}/gen-other.md: no installed general is called so" in said.out
    assert said.code == 1


def test_nobody_may_be_at_work_in_either_home(terminal: Terminal, old: Path) -> None:
    with closing(Held(terminal.places, "king")):
        said = terminal("adopt", str(old))
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "king works in " in said.err
    (old / "state/king/heartbeat").touch()
    (old / "state/king/heartbeat").write_text("alive")
    said = terminal("adopt", str(old))
    assert f"king works in {old}; stop it" in said.err


def test_what_is_no_kingdoms_is_refused(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder, code in (("empty", 78), ("none", 1)):
        said = terminal("adopt", str(tmp_path / folder))
        assert (said.code, said.err.count("\n")) == (code, 1), said


def test_the_king_serves_what_was_petitioned(terminal: Terminal, old: Path) -> None:
    terminal.ok("adopt", str(old), "--yes")
    king = KingJob(services(terminal.places.home, "king", Clock()))
    while king.turn(None).worked:
        pass
    (made,) = [task for task in all_of(terminal.places.home, "tasks", "pending") if task["event_id"] == PETITION["id"]]
    assert (made["target_general"], made["reply_to"]["user"]) == ("gen-x", "U1")
