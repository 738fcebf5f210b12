"""Read records that other writers may have written: what they spell otherwise becomes our shape, then the schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from kingdom.base.errors import BadMessage
from kingdom.base.home import schemas
from kingdom.base.home.forms import TIME
from kingdom.base.records.messages import Checkpoint, Result
from kingdom.base.records.soldiers import CONSENT

_IN_UTC = re.compile(TIME)

LEVELS = {
    ("event", "priority"): ("high", "normal", "low"),
    ("task", "priority"): ("high", "normal", "low"),
    ("message", "urgency"): ("urgent", "high", "normal"),
}
"""What may stand there. Anything else means normal."""
OBJECTS = ("payload", "context")
"""Fields in which null means an object without keys."""
SAME_STATUS = {"killed": "failed"}
"""Statuses of results, by what they are called elsewhere."""
OLD_CONSENT = "May {} work on text from outside without a cage, yes or no? (`sandbox: off` says yes for good)"
"""How older generals of ours, which wrote no `asks`, ended the question for consent."""


def checked(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return a record's JSON in our shape with all defaults; BadMessage names the first field that does not fit."""
    return schemas.check(kind, _ours(kind, value))


def checkpoint(value: dict[str, Any]) -> Checkpoint:
    """Return a checkpoint. Its fields are checked where they are used."""
    value = _ours("checkpoint", value)
    if "asks" not in value and str(value.get("question")).endswith(OLD_CONSENT.format(value.get("target_general"))):
        value["asks"] = CONSENT
    return Checkpoint.from_json(value)


def result(value: dict[str, Any]) -> tuple[Result, list[str]]:
    """Return a result and what had to be dropped from it: an optional field that does not fit fails no task."""
    value = {**value, "status": _status(value.get("status"))}
    if value.get("notify_channel") == "":
        value["notify_channel"] = None
    try:
        return Result.from_json(schemas.check("result", dict(value))), []
    except BadMessage:
        fitting, dropped = _fitting(schemas.load("result"), value)
        return Result.from_json(schemas.check("result", fitting)), dropped


def _status(status: Any) -> Any:
    return SAME_STATUS.get(status, status) if isinstance(status, str) else status


def _ours(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    value = _with_repo(value)
    for key in OBJECTS:
        if key in value and value[key] is None:
            value[key] = {}
        elif isinstance(part := value.get(key), dict) and isinstance(context := part.get("reply_context"), dict):
            value[key] = {**part, "reply_context": _with_repo(context)}
    if isinstance(context := value.get("reply_context"), dict):
        value["reply_context"] = _with_repo(context)
    for (of, key), known in LEVELS.items():
        if of == kind and value.get(key, "normal") not in known:
            value[key] = "normal"
    if "retry_count" in value and value["retry_count"] is None:
        del value["retry_count"]
    for key in _times(kind):
        if isinstance(at := value.get(key), str):
            value[key] = _in_utc(at)
    return value


@cache
def _times(kind: str) -> tuple[str, ...]:
    """Return the fields of a record that hold a moment."""
    known = schemas.load(kind)["properties"].items()
    return tuple(key for key, rule in known if rule.get("pattern") == TIME)


def _in_utc(at: str) -> str:
    """Return a moment in any form of ISO 8601 that names its offset as our files write it; any other text as it is."""
    if _IN_UTC.fullmatch(at):
        return at
    try:
        found = datetime.fromisoformat(at.strip().upper())
        return found.astimezone(UTC).isoformat().replace("+00:00", "Z") if found.tzinfo else at
    except (ValueError, OverflowError):
        return at


def _with_repo(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy in which an empty `repo` is none."""
    return {**value, "repo": None} if value.get("repo") == "" else dict(value)


def _fitting(schema: schemas.Schema, value: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return an object without the optional fields that do not fit, and a sentence about each."""
    fitting: dict[str, Any] = {}
    dropped: list[str] = []
    for key, part in value.items():
        known = schema["properties"].get(key)
        if known is None or key in schema.get("required", ()) or not schemas.judge(known)(part):
            fitting[key] = part
            continue
        dropped.append(f"dropped what does not fit in {key}: {schemas.judge(known)(part)}")
        if (rest := _fitting_part(known, part)) and not schemas.judge(known)(rest):
            fitting[key] = rest
    return fitting, dropped


def _fitting_part(schema: schemas.Schema, part: Any) -> Any:
    """Return what fits of an object's keys, or of a list's items."""
    if isinstance(part, dict) and "properties" in schema:
        return _fitting(schema, part)[0]
    if isinstance(part, list) and "items" in schema:
        misfit = schemas.judge(schema["items"])
        return [item for item in part if not misfit(item)][: schema.get("maxItems")]
    return None
