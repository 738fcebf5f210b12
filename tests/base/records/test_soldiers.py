"""The order, the report and the notes of a soldier: what is written fits the schema and comes back the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kingdom.base.errors import BadMessage
from kingdom.base.home import schemas
from kingdom.base.records.soldiers import ON_DISK, RawReport, SoldierOrder, Started, Stopping

ORDER = SoldierOrder(
    soldier="soldier-task-1-0",
    task_id="task-1",
    general="gen-pr",
    attempt=0,
    engine="command",
    account="command:gen-pr",
    program="/home/generals/gen-pr/run",
    workspace="/home/workspace/gen-pr/task-1",
    prompt="/home/state/prompts/task-1.md",
    result_path="/home/state/soldiers/task-1/result.json",
    out="/home/logs/sessions/soldier-task-1-0.out",
    err="/home/logs/sessions/soldier-task-1-0.err",
    limits={"memory_mb": 2048, "cpu_seconds": 60, "processes": 64, "budget_usd": None, "budget_tokens": None},
    sandbox=True,
    external=True,
    question="May it?",
    may_write=["/home/workspace/gen-pr/task-1"],
    may_not_read=["/home/.env"],
    env={"TMPDIR": "/home/state/soldiers/task-1"},
    session_id="s-1",
    plugins=["friday"],
    may_read=["/h/checkpoint.json"],
    may_remove=[],
    lasting=[],
    arguments=[],
)
REPORT = RawReport(
    attempt=1,
    task_id="task-1",
    ended="by itself",
    exit_code=3,
    output_tail="boom",
    result={"status": "failed"},
    missing_sandbox="this kernel has no Landlock",
    seconds=1.5,
    asks="consent",
)
RECORDS: list[tuple[str, SoldierOrder | RawReport]] = [
    ("soldier-order", ORDER),
    ("raw-report", REPORT),
    ("raw-report", RawReport(0)),
]


def on_disk(value: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(value))
    return read


@pytest.mark.parametrize(("schema", "record"), RECORDS)
def test_what_is_written_fits_its_schema_and_comes_back(schema: str, record: SoldierOrder | RawReport) -> None:
    written = on_disk(record.to_json())
    assert schemas.check(schema, dict(written)) == written
    again = type(record).from_json(written)
    assert on_disk(again.to_json()) == written
    assert set(written) == set(schemas.load(schema)["properties"])


@pytest.mark.parametrize(("schema", "record"), RECORDS[:2])
def test_a_key_that_nobody_knows_is_left_out(schema: str, record: SoldierOrder | RawReport) -> None:
    written = {**on_disk(record.to_json()), "colour": "blue"}
    assert "colour" not in type(record).from_json(schemas.check(schema, written)).to_json()


@pytest.mark.parametrize("key", schemas.load("soldier-order")["required"])
def test_an_order_without_one_of_its_keys_is_refused(key: str) -> None:
    written = ORDER.to_json()
    del written[key]
    with pytest.raises(BadMessage):
        schemas.check("soldier-order", written)


def test_a_report_needs_its_try_alone() -> None:
    report = RawReport.from_json(schemas.check("raw-report", {"attempt": 2}))
    assert report == RawReport(2)


def test_on_disk_the_keys_are_the_old_ones() -> None:
    assert {"code", "seen", "lacking"} <= REPORT.to_json().keys()
    assert ORDER.to_json()["executable"] == ORDER.program
    assert set(ON_DISK) <= {*SoldierOrder._fields, *RawReport._fields}


@pytest.mark.parametrize("note", [Started(7, 99, 1), Started(7, 99, 1, 0.5), Stopping("timeout", 3.5)])
def test_a_note_comes_back(note: Started | Stopping) -> None:
    assert type(note).from_json(on_disk(note.to_json())) == note


@pytest.mark.parametrize("damaged", [{}, {"pid": 1, "start": None, "attempt": 0}, {"pid": "x"}])
def test_a_damaged_note_is_an_error(damaged: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Started.from_json(damaged)
