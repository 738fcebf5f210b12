"""Where the kernel cannot shut the sandbox: what comes from outside waits for a person, and nobody overlooks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.base.disk.codec import read_json, to_json
from tests.faults import homes, trees
from tests.faults.sandbox import rigs
from tests.faults.sandbox.rigs import Rig

VERSION = "def _landlock_version() -> int:\n"
NO_LANDLOCK = ("kingdom/court/soldier/sandbox.py", VERSION, f"{VERSION}    return -1\n")
SAYS = "this kernel has no Landlock"

ENGINE = """
import json, os
task = json.load(open(os.environ["KINGDOM_TASK_FILE"]))
with open(os.environ["KINGDOM_RESULT_PATH"], "w") as file:
    json.dump({"task_id": os.environ["KINGDOM_TASK_ID"], "status": "success",
               "summary": f"did {task['type']} {task['payload'].get('body')}"}, file)
"""


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with trees.program_with(*NO_LANDLOCK) as tree:
        built = rigs.build(home, tree)
        built.arm(ENGINE)
        yield built


def served(rig: Rig, number: int = 1, **fields: object) -> dict[str, object]:
    task = rig.send(number, **fields)
    ended = rig.serve()
    assert (ended.returncode, ended.stderr) == (0, "")
    return rig.result(task)


def test_text_from_outside_waits_for_a_person(rig: Rig) -> None:
    result = served(rig, payload={"body": "hello"})
    assert result["status"] == "needs_human"
    assert str(result["question"]).startswith(SAYS)
    assert rig.places.checkpoint("task-20260207-001").exists()
    assert f"NO WHOLE SANDBOX for the soldier of task-20260207-001: {SAYS}" in rig.log()


@pytest.mark.parametrize(("answer", "status", "said"), [("Yes.", "success", "summary"), ("no", "skipped", "reason")])
def test_a_person_decides(rig: Rig, answer: str, status: str, said: str) -> None:
    served(rig, payload={"body": "hello"})
    place = rig.places.checkpoint("task-20260207-001")
    payload = {"original_task_id": "task-20260207-001", "checkpoint_path": str(place), "human_response": answer}
    result = served(rig, 2, type="resume", payload=payload)
    assert result["status"] == status
    expected = {"success": "did github.pr.review_requested hello", "skipped": "a person answered 'no'"}[status]
    assert expected in str(result[said])


def test_other_answers_do_not_open_the_sandbox(rig: Rig) -> None:
    """A yes to a question of the soldier's own is no yes to this one."""
    place = rig.places.checkpoint("task-20260207-001")
    homes.write(place, {"task_id": "task-20260207-001", "question": "May I?", "type": "x", "payload": {}})
    payload = {"original_task_id": "task-20260207-001", "checkpoint_path": str(place), "human_response": "yes"}
    assert served(rig, 2, type="resume", payload=payload)["status"] == "needs_human"


@pytest.mark.parametrize(
    "own", [{"scheduled_for": "2026-02-07T10:00:00Z"}, {"type": "console.message"}], ids=["scheduled", "console"]
)
def test_work_without_text_from_outside_goes_on_and_it_is_said(rig: Rig, own: dict[str, str]) -> None:
    assert served(rig, payload={"body": "hello"}, **own)["status"] == "success"
    assert f"NO WHOLE SANDBOX for the soldier of task-20260207-001: {SAYS}" in rig.log()
    assert SAYS in rig.places.system_log.read_text()


def test_who_switches_the_sandbox_off_is_obeyed_and_told(rig: Rig) -> None:
    rig.arm(ENGINE, sandbox="off")
    assert served(rig, payload={"body": "hello"})["status"] == "success"
    assert "NO SANDBOX for its soldiers: its manifest says `sandbox: off`" in rig.log()


def test_a_trusted_general_works_without_a_question_and_it_is_said(rig: Rig) -> None:
    trust = Path(rig.places.config / "general.yaml")
    trust.write_text(f"trusted: [{rigs.OTHER}]\n")
    assert served(rig, payload={"body": "hello"})["status"] == "needs_human"
    trust.write_text(f"trusted: [{rigs.GENERAL}]\n")
    assert served(rig, 2, payload={"body": "hello"})["status"] == "success"
    assert f"NO WHOLE SANDBOX for the soldier of task-20260207-002: {SAYS}" in rig.log()


def test_the_doctor_says_it(rig: Rig) -> None:
    task = rig.home / "task.json"
    task.write_bytes(to_json({"id": "task-1"}))
    env = {"KINGDOM_RESULT_PATH": str(rig.home / "said.json"), "KINGDOM_TASK_FILE": str(task)}
    program = trees.program() / "generals/gen-doctor/run"
    assert trees.run(rig.tree, rig.home, [str(program)], env=env).returncode == 0
    assert SAYS in read_json(rig.home / "said.json")["summary"]


def test_the_command_line_says_it(rig: Rig) -> None:
    asked = trees.run(rig.tree, rig.home, ["-c", "from kingdom.cli.main import main; main(['doctor'])"])
    assert f"warn  sandbox: {SAYS}: soldiers have no whole sandbox" in asked.stdout, asked
    assert "wait for your consent, except those of gen-pr, which config/general.yaml trusts" in asked.stdout, asked
