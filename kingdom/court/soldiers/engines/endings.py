"""How a run of a model's program ended, and the result that comes of it: the same for every such engine.

A result is a file that the soldier wrote, else what it gave by the schema, else its last words when they are such an
object. A failure that the engine reports is a failure whatever its exit code says; a limit of its account is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kingdom.base.disk.codec import read_json
from kingdom.base.records.soldiers import SoldierOrder
from kingdom.base.times import stamp
from kingdom.court.soldiers.engines.base import LARGEST_RESULT

FAILURE, FINAL, LIMIT, SET_UP = "failure", "final", "limit", "set-up"
"""What kind of an error an engine reports; another try cannot change a final one."""
LONGEST_LINE = 8 << 20
"""Longer lines of an engine's output are skipped: what ends a run is short."""
MOST_SAID = 1500
"""Characters of an engine's last message that go into a reason."""

STATUSES = ("success", "failed", "skipped", "needs_human")
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "status": {"type": "string", "enum": STATUSES},
    "summary": {"type": ["string", "null"], "description": "success: what was found or done"},
    "error": {"type": ["string", "null"], "description": "failed: what went wrong"},
    "question": {
        "type": ["string", "null"],
        "description": "needs_human: one question; choices at its end, a line each, after `- `",
    },
    "reason": {"type": ["string", "null"], "description": "skipped: why there is nothing to do"},
    "memory_updates": {"type": "array", "items": {"type": "string"}, "description": "lessons for later tasks"},
    "metrics": {
        "type": ["object", "null"],
        "additionalProperties": False,
        "required": ["files_touched"],
        "properties": {"files_touched": {"type": "integer", "description": "how many files were changed"}},
    },
}
SCHEMA = {"type": "object", "additionalProperties": False, "required": [*FIELDS], "properties": FIELDS}
"""What a soldier may end with instead of writing a file. All fields are required, as some services want it."""


class Ending(NamedTuple):
    """What an engine said of a run, in its own words."""

    #: Its last words.
    text: str = ""
    #: What it gave by the schema.
    structured: Mapping[str, Any] | None = None
    #: Why it failed; None when it ended well.
    error: str | None = None
    #: What kind of an error that is.
    kind: str = FAILURE
    #: When a limit ends, in seconds since the epoch, if it says so.
    resets_at: float | None = None
    #: The session in which the engine can go on.
    session_id: str | None = None
    #: What this run used: cost_usd, tokens_used.
    metrics: Mapping[str, Any] = {}
    #: What its session has used in all its runs, as far as the engine counts only that.
    totals: Mapping[str, float] = {}
    #: What people should know beside the result.
    warnings: Sequence[str] = ()


def events(path: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects among the lines of an engine's output; other lines are none of its words."""
    try:
        with open(path, "rb") as out:
            while line := out.readline(LONGEST_LINE):
                if (event := event_of(line)) is not None:
                    yield event
    except FileNotFoundError:
        return


def event_of(line: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object that a line is; None for any other line."""
    if line[:1] not in ("{", b"{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def written(order: SoldierOrder) -> dict[str, Any] | None:
    """Return the result that the soldier wrote; None when it wrote none. BadFile when it is unfit."""
    try:
        return read_json(order.result_path, LARGEST_RESULT)
    except FileNotFoundError:
        return None


def cut_short(engine: str, exit_code: int) -> str:
    """Return the error of a program that was ended from outside, or gave up."""
    how = f"ended by signal {-exit_code}" if exit_code < 0 else f"ended with code {exit_code}"
    return f"{engine} was {how} before it had finished"


def result(order: SoldierOrder, ending: Ending | None) -> dict[str, Any] | None:
    """Return the result of a run that ended so; what the soldier wrote, if anything, of an engine that said nothing.
    BadFile when the soldier's file is unfit."""
    own = written(order)
    if own is not None:
        own.pop("final", None)
    if ending is None:
        return own
    about: dict[str, Any] = {"metrics": dict(ending.metrics)}
    remarks = list(ending.warnings)
    if ending.session_id:
        about["session_id"] = ending.session_id
    if ending.totals:
        about["session_totals"] = dict(ending.totals)
    if own is None and ending.error is None:
        given = ending.structured if ending.structured is not None else _object_in(ending.text)
        own = None if given is None else {key: part for key, part in given.items() if part is not None}
    if own is None:
        return {**_without_own(ending), **about, **({"warnings": remarks} if remarks else {})}
    if ending.error is not None:
        remarks.append(f"after the result was written its engine said: {ending.error[:MOST_SAID]}")
    own_metrics, own_remarks = own.get("metrics"), own.get("warnings")
    if isinstance(own_metrics, dict):
        about["metrics"] = {**own_metrics, **about["metrics"]}
    if remarks:
        own = {**own, "warnings": [*(own_remarks if isinstance(own_remarks, list) else []), *remarks]}
    return {**own, **about}


def _without_own(ending: Ending) -> dict[str, Any]:
    said = ending.text.strip()[-MOST_SAID:]
    if ending.error is None:
        return {"status": "failed", "error": f"no result; its last words: {said!r}" if said else "no result"}
    error = ending.error.strip()[:MOST_SAID]
    if ending.kind == SET_UP:
        return {"status": "skipped", "reason": f"needs set-up: {error}"}
    done: dict[str, Any] = {
        "status": "failed",
        "error": error,
        **({"summary": said} if said and said not in error else {}),
    }
    if ending.kind == LIMIT:
        quota = {"why": error, **({"resets_at": stamp(ending.resets_at)} if ending.resets_at is not None else {})}
        return {**done, "quota": quota}
    if ending.kind == FINAL:
        done["final"] = True
    if "summary" in done:
        done["error"] = f"{error}; it said before: {said}"
    return done


def _object_in(text: str) -> dict[str, Any] | None:
    """Return the result in an engine's last message, with or without a code fence; None when it is none."""
    bare = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    event = event_of(bare)
    return event if event is not None and isinstance(event.get("status"), str) else None
