"""Validate JSON by the schemas in `schemas/` and fill in their defaults, which stand nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import fastjsonschema

from kingdom.errors import BadMessage
from kingdom.home.places import find_schema
from kingdom.words import closest

Schema = dict[str, Any]


@cache
def load(name: str) -> Schema:
    """Return a schema by its name: `event`, `config/king`."""
    loaded: Schema = json.loads(find_schema(name).read_text("utf-8"))
    return loaded


@cache
def _compiled(name: str) -> Callable[[Any], Any]:
    checker: Callable[[Any], Any] = fastjsonschema.compile(load(name))
    return checker


def check(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return the value with its schema's defaults filled in; BadMessage names the first field that does not fit."""
    try:
        checked: dict[str, Any] = _compiled(name)(value)
    except fastjsonschema.JsonSchemaValueException as misfit:
        raise BadMessage(what=name, why=_plain(misfit)) from None
    return checked


def judge(schema: Schema) -> Callable[[Any], str]:
    """Return a function for a schema of the user's own: it takes a value and returns what is wrong with it, or ""."""
    compiled = fastjsonschema.compile(schema, use_default=False)

    def judged(value: Any) -> str:
        try:
            compiled(value)
        except fastjsonschema.JsonSchemaValueException as misfit:
            return _plain(misfit)
        return ""

    return judged


def errors_in(name: str, value: object) -> list[tuple[tuple[str | int, ...], str]]:
    """Return every field that does not fit, as (path, sentence), for people who correct a file by hand."""
    import jsonschema

    found = jsonschema.Draft7Validator(load(name)).iter_errors(value)
    return sorted((misfit for error in found for misfit in _misfits(error)), key=str)


def with_defaults(schema: Schema, value: Any) -> Any:
    """Fill in defaults at every depth: a group that is missing gets the defaults of an empty one."""
    if isinstance(value, dict):
        properties: Schema = schema.get("properties", {})
        missing = {key: part["default"] for key, part in properties.items() if key not in value and "default" in part}
        return {key: with_defaults(properties.get(key, {}), part) for key, part in {**value, **missing}.items()}
    if isinstance(value, list):
        return [with_defaults(schema.get("items", {}), part) for part in value]
    return value


def _plain(misfit: fastjsonschema.JsonSchemaValueException) -> str:
    field = ".".join(str(part) for part in misfit.path[1:])
    sentence = str(misfit.message).removeprefix(misfit.name or "").strip()
    return f"{field} {sentence}".strip()[:300]


def _misfits(error: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    place = tuple(error.absolute_path)
    if error.validator != "additionalProperties":
        yield place, _sentence(error)
        return
    known = sorted(error.schema.get("properties", {}))
    for key in sorted(set(error.instance) - set(known), key=str):
        # An unknown key is its own place, not its group's.
        near = closest(str(key), known)
        yield (*place, key), f"unknown key {key!r}{near or ';'} known are {', '.join(known)}"


def _sentence(error: Any) -> str:
    if error.validator == "pattern":
        return f"{error.instance!r} does not match {error.validator_value}"
    return str(error.message)[:300]
