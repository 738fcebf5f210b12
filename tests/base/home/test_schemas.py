"""The schemas are valid themselves, hold every default, and mean the same to every reader."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kingdom.base.errors import BadMessage
from kingdom.base.home import schemas
from kingdom.base.home.forms import FORMS
from kingdom.base.home.places import find_data
from kingdom.base.records.messages import Event, Message, Order, Result, Task
from tests.base.records.test_soldiers import ORDER
from tests.fixtures import event, message, task

FOLDER = find_data() / "schemas"
ALL = sorted(str(path.relative_to(FOLDER)).removesuffix(".schema.json") for path in FOLDER.rglob("*.schema.json"))


@pytest.mark.parametrize("name", [name for name in ALL if "/" not in name or name.startswith("config/")])
def test_every_schema_is_a_sound_one(name: str) -> None:
    jsonschema.Draft7Validator.check_schema(schemas.load(name))
    schemas.check(name, _least(name))


def _least(name: str) -> dict[str, Any]:
    """The least that fits."""
    return {
        "event": event(),
        "task": task(),
        "message": message(),
        "result": {"task_id": "task-1", "status": "success"},
        "order": {
            "id": "o-1",
            "action": "retry",
            "target": "task-1",
            "by": "you",
            "created_at": "2026-02-07T10:00:00Z",
        },
        "manifest": {"name": "gen-pr", "description": "x", "timeout_seconds": 30},
        "session": {"task_id": "task-1"},
        "soldier-order": ORDER.to_json(),
        "raw-report": {"attempt": 0},
        "output": {"version": 1, "kind": "event"},
    }.get(name, {})


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("config/")])
def test_a_configuration_needs_no_line_and_knows_no_other_key(name: str) -> None:
    assert schemas.errors_in(name, {}) == []
    assert schemas.errors_in(name, schemas.with_defaults(schemas.load(name), {})) == []
    ((where, sentence),) = schemas.errors_in(name, {"unheard_of": 1})
    assert where == ("unheard_of",)
    assert "known are" in sentence


@pytest.mark.parametrize("name", ALL)
def test_every_default_fits_its_own_schema(name: str) -> None:
    definitions = schemas.load(name).get("definitions", {})
    for place, part in _parts(schemas.load(name), name):
        if "default" in part:
            alone = {"definitions": definitions, **part}
            jsonschema.validate(part["default"], alone, cls=jsonschema.Draft7Validator)
            assert place


def _parts(schema: Any, place: str) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(schema, dict):
        return []
    inner = [found for key, part in schema.items() for found in _parts(part, f"{place}.{key}") if key != "default"]
    return [(place, schema), *inner]


NOUNS = {"event": Event, "task": Task, "message": Message, "result": Result, "order": Order}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("event", {"id": "../x"}, "id"),
    ("event", {"id": ".x"}, "id"),
    ("event", {"id": "x" * 201}, "id"),
    ("event", {"id": "x\n"}, "id"),
    ("event", {"id": "왕"}, "id"),
    ("event", {"type": ""}, "type"),
    ("event", {"payload": []}, "payload"),
    ("event", {"priority": "urgent"}, "priority"),
    ("event", {"created_at": "yesterday"}, "created_at"),
    ("event", {"created_at": "2026-02-07T10:00:00+09:00"}, "created_at"),
    ("event", {"created_at": "2026-02-07T10:00:00Z\n"}, "created_at"),
    ("event", {"task_id": "a/b"}, "task_id"),
    ("event", {"letters": {"start": 5}}, "letters"),
    ("event", {"letters": {"start": "../../x"}}, "letters"),
    ("task", {"target_general": "gen-../x"}, "target_general"),
    ("task", {"target_general": "king"}, "target_general"),
    ("task", {"attempt": -1}, "attempt"),
    ("task", {"attempt": "1"}, "attempt"),
    ("task", {"not_before": "soon"}, "not_before"),
    ("task", {"thread_task_id": "../x"}, "thread_task_id"),
    ("message", {"type": "shout"}, "type"),
    ("message", {"urgency": "low"}, "urgency"),
    ("message", {"content": None}, "content"),
    ("message", {"not_before": "soon"}, "not_before"),
    ("message", {"tries": "many"}, "tries"),
    ("message", {"context": "none"}, "context"),
    ("result", {"status": "done"}, "status"),
    ("result", {"status": "needs_human"}, "question"),
    ("result", {"status": "needs_human", "question": ""}, "question"),
    ("result", {"memory_updates": "a"}, "memory_updates"),
    ("result", {"memory_updates": [1]}, "memory_updates"),
    ("result", {"proclamation": {"channel": "x"}}, "proclamation"),
    ("result", {"proclamation": {"channel": "", "message": "x"}}, "channel"),
    ("order", {"action": "destroy"}, "action"),
    ("order", {"target": "../x"}, "target"),
    ("order", {"by": ""}, "by"),
]


@pytest.mark.parametrize(("name", "fields", "field"), WRONG)
def test_what_does_not_fit_is_refused_by_its_field(name: str, fields: dict[str, Any], field: str) -> None:
    whole = {**_least(name), **fields}
    with pytest.raises(BadMessage, match=field) as caught:
        schemas.check(name, dict(whole))
    assert len(str(caught.value)) < 500
    if not any(str(value).endswith("\n") for value in fields.values()):
        assert any(field in str(misfit) for misfit in schemas.errors_in(name, whole))


@pytest.mark.parametrize("name", NOUNS)
def test_every_required_field_is_missed(name: str) -> None:
    for field in schemas.load(name)["required"]:
        whole = _least(name)
        del whole[field]
        with pytest.raises(BadMessage, match=field):
            schemas.check(name, whole)


def test_defaults_go_as_deep_as_the_groups_and_lists() -> None:
    schema = {
        "properties": {
            "group": {"default": {}, "properties": {"n": {"default": 1}}},
            "rows": {"items": {"properties": {"on": {"default": True}}}},
        }
    }
    assert schemas.with_defaults(schema, {"rows": [{}, {"on": False}]}) == {
        "group": {"n": 1},
        "rows": [{"on": True}, {"on": False}],
    }
    assert schemas.with_defaults(schema, {}) == {"group": {"n": 1}}
    assert "n" not in json.dumps(schema["properties"]["group"]["default"])


def test_defaults_are_found_behind_a_reference_and_in_maps_but_not_in_alternatives() -> None:
    schema = {
        "definitions": {
            "retry": {"properties": {"limit": {"default": 5}}},
            "policy": {
                "properties": {
                    "retry": {"$ref": "#/definitions/retry", "default": {}},
                    "ttl": {"default": 0},
                    "name": True,
                }
            },
        },
        "properties": {
            "defaults": {"default": {}, "allOf": [{"$ref": "#/definitions/policy"}], "properties": {"name": False}},
            "queues": {"anyOf": [{"additionalProperties": {"$ref": "#/definitions/policy"}}]},
            "clients": {"additionalProperties": {"properties": {"mode": {"default": "0700"}}}},
        },
    }
    assert schemas.with_defaults(schema, {"queues": {"a": {}}, "clients": {"c": {}}}) == {
        "defaults": {"retry": {"limit": 5}, "ttl": 0},
        "queues": {"a": {}},
        "clients": {"c": {"mode": "0700"}},
    }


KNOWN = "known are ackByKey, archive, dedupWindowSec, dlq, poisonAfter, retry, ttlSec, visibilityTimeoutSec"


@pytest.mark.parametrize(
    ("queues", "misfits"),
    [
        ({"a": {"colour": 1}}, [(("a", "colour"), f"unknown key 'colour'; {KNOWN}")]),
        (
            [{"name": "a", "colour": 1}, 5],
            [((0, "colour"), f"unknown key 'colour'; {KNOWN}"), ((1,), "5 is not of type")],
        ),
        (5, [((), "5 is not valid under any of the given schemas")]),
    ],
    ids=["a map", "a list", "neither"],
)
def test_what_may_be_written_in_two_ways_is_judged_by_the_one_that_is_meant(
    queues: object, misfits: list[tuple[tuple[str | int, ...], str]]
) -> None:
    told = schemas.errors_in("config/mq", {"queues": queues})
    assert [place for place, _ in told] == [("queues", *place) for place, _ in misfits]
    assert all(said.startswith(begins) for (_, said), (_, begins) in zip(told, misfits, strict=True))


def test_what_does_not_fit_is_left_out_and_named_but_what_must_hold_stays() -> None:
    given = {"task_id": 7, "status": "success", "summary": 5, "metrics": {"cost_usd": "x", "duration_seconds": 1}}
    whole, left_out = schemas.forgiving("result", given, lambda place: place[0] == "task_id")
    assert whole == {"task_id": 7, "status": "success", "metrics": {"duration_seconds": 1}}
    assert {place for place, _ in left_out} == {("summary",), ("metrics", "cost_usd")}
    assert all(why for _, why in left_out)
    assert given["summary"] == 5, "the value itself is left as it was"


def test_where_a_schema_says_nothing_of_other_keys_they_are_kept() -> None:
    assert schemas.without_unknown("event", {"id": "a", "theirs": 1}) == ({"id": "a", "theirs": 1}, [])
    assert schemas.without_unknown("config/king", {"colour": 1, "slack": {}})[0] == {"slack": {}}


def test_keys_of_earlier_systems_stand_in_their_groups() -> None:
    assert schemas.with_moved_keys("config/mq", {"dbPath": "a", "paths": {"dataRoot": "b"}, "dataRoot": "c"}) == {
        "sqlite": {"dbPath": "a"},
        "paths": {"dataRoot": "b"},
    }
    assert schemas.with_moved_keys("config/mq", [1]) == [1]


def test_schemas_travel_with_the_program() -> None:
    assert Path(FOLDER / "event.schema.json").is_file()


def test_the_code_of_a_schema_is_kept_beside_it_until_the_schema_changes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = home / "toy.schema.json"
    monkeypatch.setattr(schemas, "find_schema", lambda name: schema)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)

    def takes(value: dict[str, Any]) -> bool:
        schemas._compiled.cache_clear()  # as another process would begin
        try:
            return bool(schemas.check("toy", value))
        except BadMessage:
            return False

    schema.write_text('{"properties": {"a": {"type": "string"}}}')
    assert (takes({"a": "x"}), takes({"a": 1})) == (True, False)
    (kept,) = home.glob("__pycache__/*.pyc")
    before = kept.stat().st_mtime_ns
    assert takes({"a": "x"})
    assert kept.stat().st_mtime_ns == before
    schema.write_text('{"properties": {"a": {"type": "integer"}}}')
    assert (takes({"a": "x"}), takes({"a": 1})) == (False, True)
    kept.write_bytes(b"half")
    assert (takes({"a": "x"}), takes({"a": 1})) == (False, True)


def test_a_value_is_judged_in_words_and_stays_as_it_is() -> None:
    judged = schemas.judge({"type": "object", "properties": {"a": {"type": "integer", "default": 1}}})
    value: dict[str, Any] = {}
    assert (judged(value), value) == ("", {})
    assert judged({"a": "x"}) == "a must be integer"


def patterns(part: Any) -> set[str]:
    if isinstance(part, list):
        return {found for inner in part for found in patterns(inner)}
    if not isinstance(part, dict):
        return set()
    own = {part["pattern"]} if isinstance(part.get("pattern"), str) else set()
    return own | {found for inner in part.values() for found in patterns(inner)}


def test_what_a_pattern_asks_for_is_said_in_words() -> None:
    assert {found for name in ALL for found in patterns(schemas.load(name))} == FORMS.keys()


def test_nobody_is_shown_a_pattern() -> None:
    with pytest.raises(BadMessage) as refused:
        schemas.check("event", event("evt/1"))
    assert "id must be a name of at most 200 letters (A to Z), digits and . _ : @ + -" in str(refused.value)
    assert str(refused.value).endswith("not 'evt/1'")
    ((place, told),) = schemas.errors_in("config/mq", {"policyDefaults": {"visibilityTimeoutSec": "soon"}})
    assert told == "must be a number or a time span, such as 250ms, 30s, 5m or 7d, not 'soon'", place
