"""What a page about the protocol says to type is typed in a fresh home, and what it says to write is valid."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from kingdom.base.home.places import Places, find_data
from kingdom.cli.init import furnish
from kingdom.council.bodies import faults_of_body
from kingdom.council.mime import TYPES, build_message, faults

PAGE = (Path(__file__).parent / "protocol.md").read_text()
FENCED = re.compile(r"^## (\S+)$|^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCHEMAS = {path.name.partition(".")[0]: path for path in (find_data() / "schemas" / "council").glob("*.json")}

PRELUDE = """\
set -eu
PATH={bin}:$PATH
body_yaml='task_id: "task_001"
title: "t"' message_file=written.mime
FROM=coordinator TO=ignitian_1 TYPE=task_assignment PRIORITY=high BODY_YAML=$body_yaml
"""
"""What the page takes for granted: these variables, a message.mime, a task.mime, and a python3."""


def blocks(kind: str) -> list[tuple[str, str]]:
    """Return the blocks of one kind, each with the heading that it stands under."""
    found, head = [], ""
    for match in FENCED.finditer(PAGE):
        if match[1]:
            head = match[1]
        elif match[2] == kind:
            found.append((head, match[3]))
    return found


def test_shell_blocks_run_as_they_stand(tmp_path: Path) -> None:
    places = Places(tmp_path / "castle")
    furnish(places)
    (example,) = (text for _, text in blocks(""))
    (places.home / "message.mime").write_text(example)
    task = places.home / "workspace/queue/ignitian_1/processed/task.mime"
    task.parent.mkdir(parents=True)
    task.write_text(example)
    prelude = PRELUDE.format(bin=find_data() / ".venv" / "bin")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("KINGDOM_", "PYTHON"))}
    said = []
    for _, block in blocks("bash"):
        done = subprocess.run(["bash", "-c", prelude + block], cwd=places.home, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), block
        said.append(done.stdout)
    built, parsed, body, status, header, goal, named, sent, looked = said

    assert built == status == header == goal == named == sent == ""
    written = json.loads(_parsed(places, "written.mime"))
    assert (written["to"], written["repository"], written["issue"]) == (["ignitian_1"], "owner/repo", "42")
    assert json.loads(parsed)["message_id"] == "<1770263544.12345.abcdef@ignite.local>"
    assert body == example.partition("\n\n")[2]
    edited = json.loads(_parsed(places, "message.mime"))
    assert (edited["status"], edited["retry_count"], edited["body"]) == ("delivered", "3", body)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", str(edited["processed_at"]))

    (goal_file,) = (places.home / "workspace/queue/leader/processed").iterdir()
    assert re.fullmatch(r"user_goal_\d{16}\.mime", goal_file.name)
    assert json.loads(_parsed(places, goal_file))["body"] == 'goal: "READMEファイルを作成する"'
    tasks = sorted(path.name for path in (places.home / "workspace/queue/ignitian_1").glob("*.mime"))
    assert len(tasks) == 2
    assert "goal: " in looked
    assert all(f"workspace/queue/ignitian_1/{name}\n" in looked for name in tasks)
    assert "\n4\n{" in looked, "the goal, two tasks and task.mime"
    assert looked.endswith('"body": ' + json.dumps(body, ensure_ascii=False) + "\n}\n")


def _parsed(places: Places, path: str | Path) -> str:
    command = ["python3", "scripts/lib/ignite_mime.py", "parse", str(path)]
    return subprocess.run(command, cwd=places.home, capture_output=True, text=True, check=True).stdout


BODIES = blocks("yaml")


def test_the_page_has_what_is_tried() -> None:
    assert len(blocks("bash")) == 9
    assert len(BODIES) == 11
    assert len(blocks("")) == 1


@pytest.mark.parametrize(("kind", "body"), BODIES, ids=[f"{kind}-{place}" for place, (kind, _) in enumerate(BODIES)])
def test_a_body_of_the_page_is_valid(kind: str, body: str) -> None:
    senders, receivers, _ = TYPES[kind]
    names = [words.split()[0].replace("{n}", "1") for words in (senders, receivers)]
    raw = build_message(from_agent=names[0], to_agents=names[1], msg_type=kind, body=body)
    assert faults(raw.encode()) == []
    assert faults(raw.encode(), faults_of_body) == []


def test_the_whole_example_of_the_page_is_valid() -> None:
    ((_, example),) = blocks("")
    assert faults(example.encode(), faults_of_body) == []


@pytest.mark.parametrize("kind", TYPES)
def test_schema_and_codec_ask_for_the_same_fields(kind: str) -> None:
    schema = json.loads(SCHEMAS[kind].read_text())
    plain = {field for field in TYPES[kind][2].split() if "|" not in field}
    one_of = {field for words in TYPES[kind][2].split() if "|" in words for field in words.split("|")}
    assert set(schema["required"]) == plain
    assert schema.get("additionalProperties", True) is True
    if one_of:
        assert {field for part in schema["anyOf"] for field in part["required"]} == one_of


def test_every_type_has_one_schema() -> None:
    assert set(SCHEMAS) == set(TYPES)


# a type · a body · what is wrong with it ("" where nothing is)
JUDGED = [
    ("user_goal", "goal: x", ""),
    ("user_goal", "goal: x\nmore: [1, 2]", ""),
    ("user_goal", "type: user_goal\nfrom: user\npayload: {goal: x}", ""),
    ("user_goal", "goal: [", "the body: "),
    ("user_goal", "goal: x\ngoal: y", "a second time"),
    ("user_goal", "- x", "it is no YAML mapping"),
    ("user_goal", "", "it is no YAML mapping"),
    ("user_goal", "goal: &a [*a]", "the body"),
    ("user_goal", "goal: 3", "goal must be string"),
    ("user_goal", "other: 3", "must contain ['goal']"),
    ("task_list", "tasks: []", "tasks must contain at least 1 items"),
    ("task_list", "tasks: [{task_id: 1}]", "must contain"),
    ("task_completed", "{task_id: 1, status: done}", "the body of a task_completed"),
    ("task_completed", "{task_id: 1, status: success}", "the body of a task_completed"),
    ("task_completed", "{task_id: 1, status: error, error: {type: a}}", ""),
    ("evaluation_result", "{task_id: 1, verdict: pass}", ""),
    ("strategy_response", "strategy: in words", ""),
    ("strategy_response", "strategy: {approach: a}", ""),
    ("github_event", "event_type: issue_opened", ""),
    ("github_event", "event_type: opened", "event_type must be an event of GitHub"),
    ("improvement_suggestion", "{title: t, proposed_improvement: {}, priority: medium}", ""),
    ("of_tomorrow", "a: 1", ""),
    ("../event", "a: 1", ""),
]


@pytest.mark.parametrize(("kind", "body", "fault"), JUDGED)
def test_a_body_is_judged_by_its_type(kind: str, body: str, fault: str) -> None:
    found = faults_of_body(kind, body)
    assert bool(found) == bool(fault)
    assert fault in "".join(found)
