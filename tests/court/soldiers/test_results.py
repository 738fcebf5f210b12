"""What a soldier's report means: one row for each way in which it can come back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.home import schemas
from kingdom.base.home.places import Places
from kingdom.base.log import Log
from kingdom.base.records.messages import Result, Task
from kingdom.base.records.soldiers import RawReport
from kingdom.court.soldiers import results
from kingdom.court.soldiers.results import Final, QuotaReached, Retryable
from tests import fixtures as tools


def a_report(**fields: Any) -> RawReport:
    return RawReport.from_json(schemas.check("raw-report", {"attempt": 0, **fields}))


def a_task(**fields: Any) -> Task:
    return Task.from_json(schemas.check("task", tools.task(**fields)))


TRACEBACK = """begins
Traceback (most recent call last):
  File "run.py", line 3, in <module>
    a["x"]
    ~^^^^^
KeyError: 'x'"""
REPORTS: list[tuple[dict[str, Any], str]] = [
    ({"code": 0, "seen": "bye", "result": None}, "no result (ended with code 0): bye"),
    ({"code": 3, "seen": "", "result": None}, "no result (ended with code 3): no output"),
    ({"code": 1, "seen": TRACEBACK, "result": None}, "no result (ended with code 1): begins\nKeyError: 'x'"),
    ({"code": None, "ended": "resource", "seen": "612 processes"}, "no result (resource): 612 processes"),
    ({"result": {"status": "failed", "error": "no tests"}}, "no tests"),
    ({"result": {"status": "failed"}}, "failed without a reason"),
    ({"result": {"status": "fine"}}, "no valid result: "),
    ({"result": {"status": "success", "task_id": "task-9"}}, "no valid result: its task_id is task-9, and this is "),
]


@pytest.mark.parametrize(("report", "why"), REPORTS)
def test_a_failure_says_what_was_seen(report: dict[str, Any], why: str) -> None:
    outcome = results.read(a_task(), a_report(**report))
    assert isinstance(outcome, Retryable)
    assert outcome.why.startswith(why)


@pytest.mark.parametrize("status", ["success", "skipped", "needs_human"])
def test_a_final_result_is_not_tried_again(status: str) -> None:
    outcome = results.read(a_task(), a_report(result={"status": status, "question": "which?"}))
    assert isinstance(outcome, Final)
    assert (outcome.result.status, outcome.result.task_id) == (status, "task-20260207-001")


def test_what_another_try_cannot_change_is_not_tried_again() -> None:
    outcome = results.read(a_task(), a_report(result={"status": "failed", "error": "too long", "final": True}))
    assert isinstance(outcome, Final)
    assert (outcome.result.status, outcome.result.error) == ("failed", "too long")
    assert "final" not in outcome.result.to_json()


def test_a_limit_is_no_failure_whatever_the_status_says() -> None:
    quota = {"resets_at": "2026-02-07T12:00:00Z"}
    met = results.read(a_task(), a_report(result={"status": "failed", "quota": quota, "metrics": {"cost_usd": 2}}))
    assert isinstance(met, QuotaReached)
    assert (met.quota, met.result.metrics) == (quota, {"cost_usd": 2})


def test_the_last_of_many_failures_keeps_what_its_result_brought() -> None:
    failed = Retryable(
        "no tests (and more)", Result(task_id="task-20260207-001", status="failed", metrics={"cost_usd": 1})
    )
    final = results.final_failure(a_task(attempt=1), failed, 2.5)
    assert (final.status, final.error) == ("failed", "no tests (and more)")
    assert final.metrics == {"duration_seconds": 2.5, "cost_usd": 1, "retry_count": 1}


@pytest.mark.parametrize("noted", [{"spent_usd": "much"}, {"spent_usd": 1e308}, {"spent_tokens": [1]}, {}])
def test_a_damaged_note_of_what_was_spent_counts_as_none(noted: dict[str, Any]) -> None:
    result = Result(task_id="task-1", status="failed", metrics={"cost_usd": 0.5, "tokens_used": 7})
    assert results.spent(a_task(**noted), result) == {"spent_usd": 0.5, "spent_tokens": 7}


@pytest.mark.parametrize(
    "metrics", [{"cost_usd": 1e308}, {"cost_usd": 10**400}, {"tokens_used": 10**400}, {"duration_seconds": "12"}, None]
)
def test_a_field_that_may_be_missing_fails_no_task(metrics: Any) -> None:
    outcome = results.read(a_task(), a_report(result={"status": "success", "metrics": metrics}))
    assert isinstance(outcome, Final)
    assert outcome.result.metrics == {}
    assert "metrics" in str(outcome.result.warnings)


def test_warnings_are_added_to_those_of_the_soldier() -> None:
    outcome = results.read(a_task(), a_report(result={"status": "success", "warnings": ["one"], "metrics": None}))
    assert isinstance(outcome, Final)
    warned = results.with_warnings(outcome.result, ["three"])
    assert warned.warnings is not None
    assert (warned.warnings[0], len(warned.warnings), warned.warnings[-1]) == ("one", 3, "three")


def test_killed_is_tried_again_like_any_failure() -> None:
    outcome = results.read(a_task(), a_report(result={"status": "killed"}))
    assert outcome == Retryable("failed without a reason", Result(task_id="task-20260207-001", status="failed"))


def test_no_text_of_a_result_keeps_a_secret(home: Path) -> None:
    log = Log(Places(home), "gen-x", Disk(home / "tmp"), tools.Clock(), ["sesame"])
    told = "it is sesame"
    fields: dict[str, Any] = {
        **dict.fromkeys(("summary", "error", "question", "reason", "notify_channel", "checkpoint_path"), told),
        "proclamation": {"channel": told, "message": told},
        "memory_updates": [told],
        "metrics": {"files_touched": [told], told: 1, "cost_usd": 0.5},
        "session_id": told,
        "warnings": [told],
        "of_its_own": {"deep": [told]},
    }
    result = Result.from_json({"task_id": "task-1", "status": "success", **fields})
    cleaned = results.redacted(result, log.clean_json)
    assert "sesame" not in str(cleaned.to_json())
    assert (cleaned.session_id, cleaned.summary, cleaned.metrics["cost_usd"]) == (None, "it is [hidden]", 0.5)
    kept = results.redacted(replace(result, session_id="session-7"), lambda value: value)
    assert kept == replace(result, session_id="session-7")


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"budget_usd": 2.0, "budget_tokens": None}, "its budget of 2 USD is used up"),
        ({"budget_usd": 2.1, "budget_tokens": 500}, "its budget of 500 tokens is used up"),
        ({"budget_usd": 2.1, "budget_tokens": 501}, None),
        ({"budget_usd": None, "budget_tokens": None}, None),
    ],
)
def test_a_budget_is_used_up_when_all_of_it_is_spent(limits: dict[str, Any], said: str | None) -> None:
    assert results.budget_reached(limits, {"spent_usd": 2.0, "spent_tokens": 500.0}) == said
