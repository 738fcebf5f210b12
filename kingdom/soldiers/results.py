"""What came back from a soldier, and what it means. Pure: a report in, a verdict out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kingdom.errors import BadInput
from kingdom.home import schemas
from kingdom.home.manifests import Manifest
from kingdom.records.messages import Result, Task

FINAL = ("success", "skipped", "needs_human")
SPENT = {"spent_usd": "cost_usd", "spent_tokens": "tokens_used"}
"""What a task's tries have cost, noted in it, by what a result calls it."""
BUDGETS = {"budget_usd": ("spent_usd", "USD"), "budget_tokens": ("spent_tokens", "tokens")}
MOST = 1e15
"""Nobody has spent so much: beyond it a sum would not be a number any more."""

Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Done:
    """Its last word: nothing is tried again."""

    result: Result


@dataclass(frozen=True, slots=True)
class Failed:
    """Worth another try. Without a result when there was none that fits."""

    why: str
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class Limited:
    """The engine met a limit of its account, as far as it says how long."""

    quota: Mapping[str, Any]


def judge(task: Task, report: Report) -> Done | Failed | Limited:
    if report.get("result") is None:
        return Failed(_what_was_seen(report))
    try:
        fields = schemas.check("result", {"task_id": task.id, **report["result"]})
    except BadInput as trouble:
        return Failed(f"no valid result: {trouble}")
    if fields["task_id"] != task.id:
        return Failed(f"no valid result: its task_id is {fields['task_id'][:80]}, and this is {task.id}")
    result = Result.from_json(fields)
    if (quota := result.quota) is not None:
        return Limited(quota)
    if result.status not in FINAL:
        return Failed(result.error or "failed without a reason", result)
    return Done(result)


def last_word(task: Task, report: Report, failed: Failed) -> Result:
    result = failed.result or Result(task_id=task.id, status="failed")
    return measured(task, report, result.evolve(error=failed.why))


def measured(task: Task, report: Report, result: Result) -> Result:
    seconds = {"duration_seconds": report["seconds"]} if "seconds" in report else {}
    return result.evolve(metrics={**seconds, **result.metrics, "retry_count": task.attempt})


def spent(task: Task, result: Result | None) -> dict[str, float]:
    """Over all tries so far; a note that somebody has damaged is none."""
    metrics = result.metrics if result else {}
    return {note: _amount(getattr(task, note)) + _amount(metrics.get(name)) for note, name in SPENT.items()}


def used_up(manifest: Manifest, spent: Mapping[str, float]) -> str | None:
    """The budget of a task that it has used up, in words."""
    for limit, (note, unit) in BUDGETS.items():
        most = manifest.limits[limit]
        if most is not None and spent[note] >= most:
            return f"its budget of {most:g} {unit} is used up"
    return None


def fit_to_tell(result: Result, clean: Callable[[str], str], manifest: Manifest) -> Result:
    """A soldier's words go to people and into later prompts: without secrets that it may have come upon."""
    words = {name: getattr(result, name) for name in ("summary", "error", "question", "reason")}
    told = result.proclamation
    return result.evolve(
        **{name: text and clean(text) for name, text in words.items()},
        proclamation=told and {**told, "message": clean(str(told["message"]))},
        memory_updates=[clean(lesson) for lesson in result.memory_updates],
        warnings=_warnings(manifest) or result.warnings,
    )


def _warnings(manifest: Manifest) -> list[str]:
    plugins = ", ".join(manifest.cc_plugins)
    return [f"cc_plugins ({plugins}) are for the engine claude, which did not do this work"] if plugins else []


def _amount(noted: object) -> float:
    return noted if isinstance(noted, int | float) and 0 <= noted < MOST else 0


def _what_was_seen(report: Report) -> str:
    code, seen = report.get("code"), str(report.get("seen") or "nothing was said")
    how = f"ended with code {code}" if code is not None else str(report.get("ended"))
    return f"no result ({how}): {seen}"
