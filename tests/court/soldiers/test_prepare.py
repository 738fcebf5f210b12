"""What a soldier is started with: which engine, which prompt, which variables."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home import manifests, schemas
from kingdom.base.home.manifests import Manifest
from kingdom.base.records import notes
from kingdom.base.records.messages import Task
from kingdom.base.records.soldiers import SoldierOrder
from kingdom.base.runtime.role import Services
from kingdom.court.soldier import sandbox
from kingdom.court.soldiers import prepare
from kingdom.court.soldiers.engines.base import NeedsSetUp
from kingdom.court.soldiers.handle import SoldierHandle
from tests import fixtures
from tests.fixtures import Clock, install, services, write
from tests.machine import needs_sandbox

GENERAL = "gen-pr"


@pytest.fixture
def ours(home: Path) -> Services:
    """A general with a program and a prompt."""
    ours = services(home, GENERAL, Clock())
    package = ours.places.package(GENERAL)
    package.mkdir(parents=True)
    (package / "run").write_text("#!/bin/sh\n")
    (package / "run").chmod(0o755)
    (package / "prompt.md").write_text("The plain prompt.\n")
    return ours


def a_manifest(ours: Services, **fields: Any) -> Manifest:
    install(ours.places.home, GENERAL, **fields)
    return manifests.of(ours.places, GENERAL)


def a_task(**fields: Any) -> Task:
    return Task.from_json(schemas.check("task", fixtures.task(**fields)))


def ordered(ours: Services, task: Task, **fields: Any) -> SoldierOrder:
    manifest = a_manifest(ours, **fields)
    soldier = SoldierHandle(ours.places, GENERAL, task.id)
    workspace = ours.places.workspace(GENERAL, task.id)
    chosen = prepare.choose_engine(ours, manifest)
    asked = notes.checkpoint_answered_by(ours.places, task)
    return prepare.order(ours, manifest, task, asked, soldier, chosen, workspace)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "command"),
        ({"engine": "codex"}, "codex"),
        ({"supported_engines": ["claude", "command"]}, "command"),
        ({"supported_engines": ["claude", "codex"]}, "claude"),
    ],
)
def test_the_manifest_names_the_engine_else_the_default_one_does_it(
    ours: Services, fields: dict[str, Any], name: str
) -> None:
    assert prepare.engine_name(ours, a_manifest(ours, **fields)) == name


def test_the_command_engine_starts_the_generals_program_on_an_account_of_its_own(ours: Services) -> None:
    chosen = prepare.choose_engine(ours, a_manifest(ours))
    assert chosen.program == str(ours.places.package(GENERAL) / "run")
    assert (chosen.name, chosen.account) == ("command", "command:gen-pr")


def test_an_engine_that_is_not_in_the_table_needs_set_up(ours: Services) -> None:
    with pytest.raises(NeedsSetUp, match="needs set-up: the engine 'oracle' of gen-pr is not there"):
        prepare.choose_engine(ours, a_manifest(ours, engine="oracle"))


def test_what_is_ordered_fits_the_schema_and_the_soldier_may_write_its_own_folders_alone(ours: Services) -> None:
    ours.places.env_file.write_text("TOKEN=secret\n")
    order = ordered(ours, a_task(attempt=1), limits={"memory_mb": 64})
    written = json.loads(json.dumps(order.to_json()))
    assert schemas.check("soldier-order", dict(written)) == written
    assert order.may_write == [order.workspace, order.env["TMPDIR"]]
    assert order.lasting == [order.workspace], "a full disk does not cost its work"
    assert str(ours.places.env_file) in order.may_not_read
    assert (order.soldier, order.limits["memory_mb"]) == ("soldier-task-20260207-001-1", 64)
    assert json.loads(Path(order.env["KINGDOM_TASK_FILE"]).read_text())["attempt"] == 1


@pytest.mark.parametrize(("type", "session_id"), [("resume", "s-1"), ("github.pr.mentioned", None)])
def test_a_resumed_task_goes_on_with_its_session(ours: Services, type: str, session_id: str | None) -> None:
    task = a_task(type=type, payload={"session_id": "s-1", "original_task_id": "task-0"})
    assert ordered(ours, task).session_id == session_id


@pytest.mark.parametrize(("of", "may"), [(GENERAL, True), ("gen-other", False)])
def test_whoever_goes_on_may_read_its_own_checkpoint_and_no_others(ours: Services, of: str, may: bool) -> None:
    checkpoint = ours.places.checkpoint("task-0")
    write(checkpoint, {"task_id": "task-0", "target_general": of, "question": "which?"})
    order = ordered(ours, a_task(type="resume", payload={"original_task_id": "task-0"}))
    assert (str(checkpoint) in order.may_read) is may


TICKET = {"ticket_key": "SHOP-7", "summary": "Show prices"}


@pytest.mark.parametrize(
    ("last", "of", "told"),
    [
        ({"payload": TICKET}, GENERAL, True),
        ({"payload": {"original_task_id": "task-0"}, "thread_task_id": "task-0"}, GENERAL, True),
        ({"payload": TICKET, "thread_task_id": "task-gone"}, GENERAL, True),
        ({"payload": TICKET, "thread_task_id": 7}, GENERAL, True),
        ({"payload": TICKET}, "gen-other", False),
        ({"payload": {}, "question": None}, GENERAL, False),
    ],
)
def test_whoever_goes_on_in_a_new_session_knows_the_question_and_what_it_was_about(
    ours: Services, last: dict[str, Any], of: str, told: bool
) -> None:
    """Engines forget sessions, and an answer may come after a week."""
    (ours.places.package(GENERAL) / "prompt.md").write_text("Ticket {{payload.ticket_key}}.\n")
    first = {"task_id": "task-0", "target_general": of, "question": "What?", "type": "jira.ticket.assigned"}
    write(ours.places.checkpoint("task-0"), {**first, "payload": TICKET})
    asked = {"task_id": "task-1", "target_general": of, "question": "In which currency?"}
    write(ours.places.checkpoint("task-1"), {**asked, **last})
    answer = a_task(type="resume", payload={"original_task_id": "task-1", "human_response": "EUR"})
    prompt = Path(ordered(ours, answer).prompt).read_text()
    assert "EUR" in prompt
    assert ("In which currency?" in prompt, "Ticket SHOP-7." in prompt, "Show prices" in prompt) == (told, told, told)


@needs_sandbox
def test_a_soldier_reads_a_mirror_that_came_after_its_warm_server_had_looked(ours: Services) -> None:
    """The last soldier of this general was started within the second, and there was no mirror yet."""
    order = ordered(ours, a_task(repo="acme/app"))
    Path(order.workspace).mkdir(parents=True)
    prepared = sandbox.Prepared()
    prepared.fit(order)
    objects = ours.places.mirrors(GENERAL) / "acme+2f+app.git" / "objects"
    objects.mkdir(parents=True)
    (objects / "ab").write_text("an object")
    child = os.fork()
    if child == 0:
        try:
            sandbox.enter(order, prepared)
            os._exit((objects / "ab").read_text() != "an object")
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("there", "prompt"),
    [
        ([], "The plain prompt."),
        (["prompt-command.md"], "Of prompt-command.md."),
        (["prompt-command.md", "prompt-mentioned.md"], "Of prompt-mentioned.md."),
        (["prompt-mentioned-command.md", "prompt-mentioned.md"], "Of prompt-mentioned-command.md."),
        (["prompt-mentioned.md", "prompt-fix.md"], "Of prompt-fix.md."),
        (["prompt-mentioned.md", "prompt-fix.md", "prompt-fix-command.md"], "Of prompt-fix-command.md."),
    ],
)
def test_the_prompt_for_an_action_comes_before_the_one_for_an_engine(
    ours: Services, there: list[str], prompt: str
) -> None:
    for name in there:
        (ours.places.package(GENERAL) / name).write_text(f"Of {name}.\n")
    action = {"action": "fix"} if any("fix" in name for name in there) else {"action": "../x"}
    order = ordered(ours, a_task(type="github.pr.mentioned", payload=action))
    assert Path(order.prompt).read_text().startswith(prompt)


def test_a_soldier_gets_named_variables_alone(ours: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "a")
    ours = replace(ours, secrets={"GIVEN": "b", "OF_THE_ENGINE": "c", "OTHER": "d"})
    manifest, task = a_manifest(ours, env=["GIVEN"]), a_task()
    engine = prepare.choose_engine(ours, manifest).engine
    monkeypatch.setattr(engine, "variables", ("OF_THE_ENGINE",))
    soldier = SoldierHandle(ours.places, GENERAL, task.id)
    found = prepare.environment(ours, manifest, soldier, engine)
    assert {key: found.get(key) for key in ("A_TOKEN", "GIVEN", "OF_THE_ENGINE", "OTHER")} == {
        "A_TOKEN": None,
        "GIVEN": "b",
        "OF_THE_ENGINE": "c",
        "OTHER": None,
    }


def test_other_kingdoms_name_the_default_engine_elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINGDOM_RUNTIME_ENGINE", raising=False)
    ours = services(home, "gen-pr", Clock(), system={"runtime": {"engine": "codex", "codex": {"command": "codex"}}})
    assert prepare.default_engine(ours) == "codex"
    assert prepare.default_engine(replace(ours, secrets={"KINGDOM_RUNTIME_ENGINE": "command"})) == "command"
    monkeypatch.setenv("KINGDOM_RUNTIME_ENGINE", "claude")
    assert prepare.default_engine(ours) == "claude"
