"""Validate JSON by the schemas in `schemas/` and fill in their defaults, which stand nowhere else.

The library is loaded by the first check: a command that finds nothing configured needs none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from os import PathLike
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from kingdom.base.errors import BadMessage
from kingdom.base.home.forms import asked_for
from kingdom.base.home.places import find_schema
from kingdom.base.words import closest

if TYPE_CHECKING:
    from fastjsonschema import JsonSchemaValueException

Schema = dict[str, Any]
Place = tuple[str | int, ...]
Unknown = tuple[Place, str]


@cache
def load(name: str) -> Schema:
    """Return a schema by its name: `event`, `config/king`."""
    loaded: Schema = json.loads(find_schema(name).read_text("utf-8"))
    return loaded


def compile_early(names: Iterable[str]) -> None:
    """Compile these schemas, which can take longer than everything else on the way of a first record."""
    for name in names:
        _compiled(name, True)


class _Compiler(SourceFileLoader):
    """Compile a schema as Python compiles a module, and keep the code beside it in `__pycache__`, where that may be."""

    def __init__(self, name: str, fill: bool) -> None:
        super().__init__(name, str(find_schema(name)))
        self._fill = fill

    def get_filename(self, name: str | None = None) -> str:
        """Return the path that the code is cached by: there is one for each way to compile a schema."""
        import fastjsonschema

        return f"{self.path.removesuffix('.json')}-{'filled' if self._fill else 'plain'}-{fastjsonschema.VERSION}.json"

    def path_stats(self, path: str | PathLike[str]) -> dict[str, Any]:
        about = dict(super().path_stats(self.path))
        return {**about, "mtime": max(about["mtime"], os.stat(__file__).st_mtime)}

    def get_data(self, path: str) -> bytes:
        return super().get_data(self.path if path == self.get_filename() else path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        import fastjsonschema

        # Without its id: a reference in a reference would be looked for below that, somewhere else.
        schema = {key: part for key, part in json.loads(data).items() if key != "$id"}
        text = fastjsonschema.compile_to_code(schema, use_default=self._fill)
        return super().source_to_code(text.encode(), path)


@cache
def _compiled(name: str, fill: bool) -> Callable[[Any], Any]:
    made = ModuleType(name)
    _Compiler(name, fill).exec_module(made)
    checker: Callable[[Any], Any] = made.validate
    return checker


def check(name: str, value: dict[str, Any], *, fill: bool = True) -> dict[str, Any]:
    """Return the value with its schema's defaults filled in; BadMessage names the first field that does not fit.

    Without `fill` the value is returned as it is: `with_defaults` has seen to it.
    """
    from fastjsonschema import JsonSchemaValueException

    try:
        checked: dict[str, Any] = _compiled(name, fill)(value)
    except JsonSchemaValueException as misfit:
        raise BadMessage(what=name, why=_plain(misfit)) from None
    return checked


@cache
def judge_by_name(name: str) -> Callable[[Any], str]:
    """Return what `judge` does, for one of our own schemas."""
    return judge(load(name))


def judge(schema: Schema) -> Callable[[Any], str]:
    """Return a function for a schema of the user's own: it takes a value and returns what is wrong with it, or ""."""
    import fastjsonschema

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


def with_defaults(schema: Schema | bool, value: Any, root: Schema | None = None) -> Any:
    """Fill in defaults at every depth: a group that is missing gets the defaults of an empty one.

    `$ref` and `allOf` are followed; what `anyOf` offers gets no defaults. `root` is the schema that `$ref` points into.
    """
    if isinstance(schema, bool):
        return value
    root = schema if root is None else root
    if isinstance(value, dict):
        schema = _expanded(schema, root)
        known: Schema = schema.get("properties", {})
        others: Any = schema.get("additionalProperties", {})
        absent = {key: part for key, part in known.items() if key not in value and not isinstance(part, bool)}
        missing = {key: part["default"] for key, part in absent.items() if "default" in part}
        return {key: with_defaults(known.get(key, others), part, root) for key, part in {**value, **missing}.items()}
    if isinstance(value, list):
        items = _expanded(schema, root).get("items", {})
        return [with_defaults(items, part, root) for part in value]
    return value


def with_moved_keys(name: str, value: Any) -> Any:
    """Return a value in which the keys of earlier systems that the schema lists under `moved` stand in their groups."""
    if not isinstance(value, dict):
        return value
    whole = dict(value)
    for old, new in load(name).get("moved", {}).items():
        group, _, key = new.partition(".")
        if old in whole and isinstance(whole.get(group, {}), dict):
            whole[group] = {key: whole.pop(old), **whole.get(group, {})}
    return whole


def forgiving(name: str, value: Any, must_hold: Callable[[Place], bool]) -> tuple[Any, list[tuple[Place, str]]]:
    """Return a value without what does not fit its schema, and the place of each such thing with what is wrong.

    What `must_hold` stays.
    """
    left_out: list[tuple[Place, str]] = []
    whole = json.loads(json.dumps(value))
    while wrong := [(place, why) for place, why in errors_in(name, whole) if place and not must_hold(place)]:
        place, why = wrong[-1]
        left_out.append((place, why))
        group = whole
        for part in place[:-1]:
            group = group[part]
        del group[place[-1]]
    return whole, left_out


def without_unknown(name: str, value: Any) -> tuple[Any, list[Unknown]]:
    """Return a value without the keys that its schema does not know, and the place of each with what it may mean."""
    unknown: list[Unknown] = []
    return _known(load(name), value, (), load(name), unknown), unknown


def _known(schema: Schema | bool, value: Any, at: Place, root: Schema, unknown: list[Unknown]) -> Any:
    if isinstance(schema, bool) or not isinstance(value, dict | list):
        return value
    kind = "object" if isinstance(value, dict) else "array"
    whole = _expanded(next((form for form in schema.get("anyOf", ()) if form.get("type") == kind), schema), root)
    if isinstance(value, list):
        items = whole.get("items", True)
        return [_known(items, part, (*at, number), root, unknown) for number, part in enumerate(value)]
    known: Schema = whole.get("properties", {})
    others: Any = whole.get("additionalProperties", True)
    kept = {}
    for key, part in value.items():
        if key not in known and others is False:
            unknown.append(((*at, key), closest(str(key), list(known))))
        else:
            kept[key] = _known(known.get(key, others), part, (*at, key), root, unknown)
    return kept


def _expanded(schema: Schema | bool, root: Schema) -> Schema:
    """Return a schema with the properties of those that its `$ref` and `allOf` name. True and False have none."""
    if isinstance(schema, bool):
        return {}
    if "$ref" in schema:
        part: Any = root
        for key in schema["$ref"].removeprefix("#/").split("/"):
            part = part[key]
        return _expanded(part, root)
    if "allOf" not in schema:
        return schema
    parts = [*(_expanded(part, root) for part in schema["allOf"]), schema]
    properties = {key: rule for part in parts for key, rule in part.get("properties", {}).items()}
    others = {"additionalProperties": False} if any(part.get("additionalProperties") is False for part in parts) else {}
    return {**schema, **others, "properties": properties}


def _plain(misfit: JsonSchemaValueException) -> str:
    field = ".".join(str(part) for part in misfit.path[1:])
    sentence = str(misfit.message).removeprefix(misfit.name or "").strip()
    if misfit.rule == "pattern":
        sentence = _not_of_form(misfit.value, str(misfit.rule_definition))
    return f"{field} {sentence}".strip()[:300]


def _misfits(error: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    place = tuple(error.absolute_path)
    if error.validator == "anyOf":
        yield from _misfits_of_meant(error)
        return
    if error.validator != "additionalProperties":
        yield place, _sentence(error)
        return
    # A key that is allowed by a bare `true` belongs to those that build on the schema.
    known = sorted(key for key, part in error.schema.get("properties", {}).items() if part is not True)
    for key in sorted(set(error.instance) - set(error.schema.get("properties", {})), key=str):
        # An unknown key is its own place, not its group's.
        near = closest(str(key), known)
        yield (*place, key), f"unknown key {key!r}{near or ';'} known are {', '.join(known)}"


def _misfits_of_meant(error: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield what is wrong by the only form on offer that is of the value's type, where there is just one."""
    forms: dict[int, list[Any]] = {}
    for inner in error.context:
        forms.setdefault(inner.relative_schema_path[0], []).append(inner)
    fitting = [form for form in forms.values() if not any(e.validator == "type" and not e.relative_path for e in form)]
    if len(fitting) != 1:
        yield tuple(error.absolute_path), _sentence(error)
        return
    for inner in fitting[0]:
        yield from _misfits(inner)


def _sentence(error: Any) -> str:
    if error.validator == "not":
        return "is not allowed here"
    if error.validator == "pattern":
        return _not_of_form(error.instance, error.validator_value)
    return str(error.message)[:300]


def _not_of_form(value: object, pattern: str) -> str:
    shown = repr(value)
    return f"must be {asked_for(pattern)}, not {shown if len(shown) <= 60 else f'{shown[:57]}…'}"
