"""Judge a soldier's report. Pure: a report in, an outcome out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kingdom.base.errors import BadInput
from kingdom.base.records import foreign
from kingdom.base.records.messages import Result, Task
from kingdom.base.records.soldiers import RawReport

SPENT = {"spent_usd": "cost_usd", "spent_tokens": "tokens_used"}
"""What a task's tries have cost: its name in the task, and in a result's metrics."""
BUDGETS = {"budget_usd": ("spent_usd", "USD"), "budget_tokens": ("spent_tokens", "tokens")}
FOR_THE_GENERAL = ("session_totals", "final")
"""What a report holds beside a result. `final`: another try would fail in the same way."""
LARGEST_AMOUNT = 1e15
"""Nobody has spent so much; a sum of larger numbers could overflow."""


@dataclass(frozen=True, slots=True)
class Final:
    """The task ends with this result: nothing is tried again."""

    result: Result


@dataclass(frozen=True, slots=True)
class Retryable:
    """Worth another try. Without a result when there was none that fits."""

    why: str
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class QuotaReached:
    """The engine met a limit of its account, as far as it says how long."""

    quota: Mapping[str, Any]
    #: What the run has cost all the same.
    result: Result


def read(task: Task, report: RawReport) -> Final | Retryable | QuotaReached:
    """Validate the result in a report and return what follows from it."""
    if report.result is None:
        return Retryable(_without_result(report))
    try:
        result, dropped = foreign.result({"task_id": task.id, **_result_alone(report.result)})
    except BadInput as error:
        return Retryable(f"no valid result: {error}")
    if result.task_id != task.id:
        return Retryable(f"no valid result: its task_id is {result.task_id[:80]}, and this is {task.id}")
    result = with_warnings(result, dropped)
    if (quota := result.quota) is not None:
        return QuotaReached(quota, result)
    if result.status == "failed" and report.result.get("final") is not True:
        return Retryable(result.error or "failed without a reason", result)
    return Final(result)


def _result_alone(report: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is for the general alone."""
    return {key: part for key, part in report.items() if key not in FOR_THE_GENERAL}


def final_failure(task: Task, failed: Retryable, seconds: float | None) -> Result:
    """Return the result of a task that failed and is not tried again."""
    result = failed.result or Result(task_id=task.id, status="failed")
    return with_metrics(task, replace(result, error=failed.why), seconds)


def with_metrics(task: Task, result: Result, seconds: float | None) -> Result:
    """Return the result with what we measured ourselves: time, where the engine names none, and tries."""
    measured = {} if seconds is None else {"duration_seconds": seconds}
    return replace(result, metrics={**measured, **result.metrics, "retry_count": task.attempt})


def spent(task: Task, result: Result | None) -> dict[str, float]:
    """Return what all tries so far have cost; a damaged note counts as nothing."""
    metrics = result.metrics if result else {}
    return {note: _amount(getattr(task, note)) + _amount(metrics.get(name)) for note, name in SPENT.items()}


def budget_reached(limits: Mapping[str, Any], spent: Mapping[str, float]) -> str | None:
    """Say which budget of its own a task has used up; None when none."""
    for limit, (note, unit) in BUDGETS.items():
        most = limits[limit]
        if most is not None and spent[note] >= most:
            return f"its budget of {most:g} {unit} is used up"
    return None


def redacted(result: Result, clean_json: Callable[[Any], Any]) -> Result:
    """Return the result without secrets that the soldier may have found: people and later prompts read its words."""
    cleaned = clean_json({**result.to_json(), "task_id": "", "status": ""})
    if cleaned.get("session_id") != result.session_id:
        # No session has such a name: nothing can be resumed by it.
        cleaned["session_id"] = None
    return Result.from_json({**cleaned, "task_id": result.task_id, "status": result.status})


def with_warnings(result: Result, warnings: Sequence[str]) -> Result:
    """Return the result with these warnings after its own."""
    return replace(result, warnings=[*(result.warnings or []), *warnings]) if warnings else result


def _amount(noted: object) -> float:
    return noted if isinstance(noted, int | float) and 0 <= noted < LARGEST_AMOUNT else 0


def _without_result(report: RawReport) -> str:
    how = f"ended with code {report.exit_code}" if report.exit_code is not None else str(report.ended)
    return f"no result ({how}): {_without_calls(report.output_tail) or 'no output'}"


def _without_calls(output: str) -> str:
    """Return a program's last words; of a traceback of Python only what was wrong: people need not read the calls."""
    if '  File "' not in output:
        return output
    return "\n".join(line for line in output.splitlines() if not line.startswith(("Traceback (", "  ")))
