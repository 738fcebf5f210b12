"""Validate payloads: by a JSON Schema, and by field rules as older configurations have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from kingdom.base.home import schemas
from kingdom.mq import ecmascript_patterns, time_limit

Check = Callable[[str], str]
"""Takes a payload as it was published, returns what is wrong with it, or nothing."""

Judge = Callable[[Any], str]
"""The same for a payload that was parsed."""

SECONDS, SECONDS_PER_CHARACTER, MOST_SECONDS = 0.02, 5e-7, 1.0
"""Processor time for judging one payload: a pattern may take for ever on what a stranger publishes."""

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_MISSING = object()


def checker(schema: Mapping[str, Any] | None, rules: Sequence[Mapping[str, Any]]) -> Check | None:
    """Return the check of payloads by a schema and rules; None when everything is accepted."""
    judges: list[Judge] = []
    if schema is not None:
        judges.append(_by_schema(schema))
    judges += [_by_rule(rule) for rule in usable(rules)[0]]
    if not judges:
        return None

    def check(payload: str) -> str:
        try:
            value = orjson.loads(payload)
        except orjson.JSONDecodeError:
            value = payload
        seconds = min(MOST_SECONDS, SECONDS + SECONDS_PER_CHARACTER * len(payload))
        found = time_limit.within(seconds, lambda: next((wrong for judge in judges if (wrong := judge(value))), ""))
        return f"judging it by its schema takes more than {seconds * 1000:.0f} ms" if found is None else found

    return check


def usable(rules: Sequence[Any]) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the rules that can be judged by, and a sentence for each that cannot: a broken one drops out alone."""
    good: list[Mapping[str, Any]] = []
    wrong: list[str] = []
    for number, rule in enumerate(rules, 1):
        if isinstance(rule, Mapping) and rule.get("type") == "custom":
            continue  # older configurations may name code that we do not have
        try:
            _by_rule(rule)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            wrong.append(f"rule {number} has no effect: {why}")
        else:
            good.append(rule)
    return good, wrong


def _by_schema(schema: Mapping[str, Any]) -> Judge:
    judge = schemas.judge(_plain(schema))
    return lambda payload: f"payload {wrong}" if (wrong := judge(payload)) else ""


def _plain(schema: Mapping[str, Any]) -> Any:
    """Return configuration as plain dicts and lists: it may come in read-only mappings."""
    return orjson.loads(orjson.dumps(schema, default=dict))


def _by_rule(rule: Mapping[str, Any]) -> Judge:
    kind = rule["type"]
    if kind not in RULES:
        raise ValueError(f"no rule of type {kind!r}; known are {', '.join(RULES)}")
    if not rule["field"] or not isinstance(rule["field"], str):
        raise ValueError("its field is empty or no text")
    field = rule["field"].removeprefix("payload.")
    path = field.split(".")
    wanted = RULES[kind](rule)

    def check(payload: Any) -> str:
        value = _at(payload, path)
        if value is _MISSING:
            wrong = "missing required field: payload." + field if kind == "required" else ""
        else:
            wrong = "" if wanted(value) else f"payload.{field} does not satisfy {_told(rule)}"
        return str(rule.get("errorMessage") or wrong) if wrong else ""

    return check


def _told(rule: Mapping[str, Any]) -> str:
    bound = next((rule[key] for key in ("expectedType", "value", "values") if key in rule), "")
    return f"{rule['type']} {bound}".strip()


def _at(payload: Any, path: Sequence[str]) -> Any:
    for part in path:
        if isinstance(payload, dict) and part in payload:
            payload = payload[part]
        elif isinstance(payload, list) and part.isdigit() and int(part) < len(payload):
            payload = payload[int(part)]
        else:
            return _MISSING
    return payload


def _required(rule: Mapping[str, Any]) -> Callable[[Any], bool]:
    """Accept an object that has the key, also with null."""
    return lambda value: True


def _type(rule: Mapping[str, Any]) -> Callable[[Any], bool]:
    expected = rule["expectedType"]
    if expected not in _TYPES:
        raise ValueError(f"no type {expected!r}; known are {', '.join(_TYPES)}")
    types = _TYPES[expected]
    if expected == "integer":
        return lambda value: (
            not isinstance(value, bool)
            and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
        )
    if expected == "number":
        return lambda value: isinstance(value, types) and not isinstance(value, bool)
    return lambda value: isinstance(value, types)


def _length(compare: Callable[[int, float], bool]) -> Callable[[Mapping[str, Any]], Callable[[Any], bool]]:
    def rule_of(rule: Mapping[str, Any]) -> Callable[[Any], bool]:
        bound = float(rule["value"])
        return lambda value: not isinstance(value, (str, list)) or compare(_size_of(value), bound)

    return rule_of


def _size_of(value: str | list[Any]) -> int:
    """Return how long a value is, of a text its length in UTF-8."""
    return len(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else len(value)


def _size(compare: Callable[[float, float], bool]) -> Callable[[Mapping[str, Any]], Callable[[Any], bool]]:
    def rule_of(rule: Mapping[str, Any]) -> Callable[[Any], bool]:
        bound = float(rule["value"])
        return lambda value: (
            not isinstance(value, (int, float)) or isinstance(value, bool) or compare(float(value), bound)
        )

    return rule_of


def _pattern(rule: Mapping[str, Any]) -> Callable[[Any], bool]:
    wanted = ecmascript_patterns.compiled(str(rule["value"]))
    return lambda value: not isinstance(value, str) or wanted.fullmatch(value) is not None


def _enum(rule: Mapping[str, Any]) -> Callable[[Any], bool]:
    """Accept one of the listed texts; what is no text passes."""
    allowed = list(rule["values"])
    return lambda value: not isinstance(value, str) or value in allowed


RULES: Mapping[str, Callable[[Mapping[str, Any]], Callable[[Any], bool]]] = {
    "required": _required,
    "type": _type,
    "minLength": _length(lambda size, bound: size >= bound),
    "maxLength": _length(lambda size, bound: size <= bound),
    "minValue": _size(lambda value, bound: value >= bound),
    "maxValue": _size(lambda value, bound: value <= bound),
    "pattern": _pattern,
    "enum": _enum,
}
