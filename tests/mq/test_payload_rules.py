"""Field rules judge as the engine did for which older configurations were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places
from kingdom.mq import configuration, time_limit
from kingdom.mq.payload_rules import checker, usable
from tests.mq.mailbox.boxes import ByHand

PATTERNS: list[tuple[str, str, bool]] = [
    ("abc", "abc", True),
    ("abc", "xabc", False),
    ("abc", "abcx", False),
    ("^abc$", "abc", True),
    ("^abc$", "abc\n", False),
    ("a|ab", "ab", True),
    (r"\d+", "٣", False),
    (r"\w+", "큐", False),
    ("[가-힣]+", "한글", True),
    (".", "\r", False),
    (".", "한", True),
    ("[^]", "\n", True),
    ("a[]", "a", False),
    ("[[:alpha:]_]+", "ab_", True),
    ("[[:digit:]]{2}", "12", True),
    ("[a&&b]+", "a&b", True),
    (r"(?<y>\d{4})-\k<y>", "2026-2026", True),
    (r"\/dev\/\w+", "/dev/tty", True),
    (r"\cJ", "\n", True),
    (r"[\w.-]+@[\w-]+\.[a-z]{2,}", "a.b@c-d.org", True),
    (r"^(?!x)\w+$", "xa", False),
    (r"[*+]+", "+*", True),
    (r"a\cJb", "a\nb", True),
]


@pytest.mark.parametrize(("pattern", "text", "fits"), PATTERNS)
def test_a_pattern_matches_fully_as_ecmascript_does(pattern: str, text: str, fits: bool) -> None:
    check = checker(None, [{"field": "f", "type": "pattern", "value": pattern}])
    assert check is not None
    assert (check(json.dumps({"f": text})) == "") is fits


JUDGED: list[tuple[dict[str, Any], Any, bool]] = [
    ({"type": "required"}, {"f": None}, True),
    ({"type": "required"}, {}, False),
    ({"type": "enum", "values": ["a"]}, {"f": "b"}, False),
    ({"type": "enum", "values": ["a"]}, {"f": 7}, True),
    ({"type": "enum", "values": ["a"]}, {"f": None}, True),
    ({"type": "maxLength", "value": 3}, {"f": "한"}, True),
    ({"type": "maxLength", "value": 3}, {"f": "한a"}, False),
    ({"type": "minLength", "value": 6}, {"f": "한글"}, True),
    ({"type": "type", "expectedType": "string"}, {"f": 1}, False),
]


@pytest.mark.parametrize(("rule", "payload", "fits"), JUDGED)
def test_a_rule_judges(rule: dict[str, Any], payload: Any, fits: bool) -> None:
    check = checker(None, [{"field": "f", **rule}])
    assert check is not None
    assert (check(json.dumps(payload)) == "") is fits


DROPPED: list[Any] = [
    {"field": "f", "type": "pattern", "value": "("},
    {"field": "f", "type": "pattern", "value": "(?i)a"},
    {"field": "f", "type": "pattern", "value": "a++"},
    {"field": "f", "type": "pattern", "value": "[a"},
    {"field": "f", "type": "pattern", "value": "a\\"},
    {"field": "f", "type": "pattern", "value": "\\A"},
    {"field": "f", "type": "pattern"},
    {"field": "f", "type": "type"},
    {"field": "f", "type": "type", "value": "string"},
    {"field": "f", "type": "type", "expectedType": "colour"},
    {"field": "f", "type": "minLength"},
    {"field": "f", "type": "minValue", "value": "many"},
    {"field": "f", "type": "enum"},
    {"field": "f", "type": "nonsense"},
    {"field": "", "type": "required"},
    {"type": "required"},
    {"field": "f"},
]


@pytest.mark.parametrize("rule", DROPPED)
def test_a_broken_rule_is_dropped_with_a_warning(home: Path, rule: Any) -> None:
    good = {"field": "g", "type": "required"}
    queues = [{"name": "telemetry", "messageSchema": {"name": "T", "rules": [rule, good]}}]
    box = ByHand(home, backend="memory", queues=queues)
    [warning] = box.settings.warnings
    assert "telemetry" in warning
    assert "rule 1" in warning
    assert box.code("publish", {"queue": "telemetry", "message": {"f": 1}}) == "ERR_VALIDATION_FAILED"
    assert box.data("publish", {"queue": "telemetry", "message": {"f": 1, "g": 2}})["messageId"]
    box.engine.close()


def test_a_custom_rule_counts_as_none_without_a_warning() -> None:
    assert usable([{"field": "f", "type": "custom", "value": "x"}]) == ([], [])


def test_an_original_configuration_with_broken_rules_is_loaded(home: Path) -> None:
    file = home / "main_mq_configuration.json"
    rules = [{"field": "payload.id", "type": "pattern", "value": "["}, {"field": "payload.id", "type": "custom"}]
    file.write_text(json.dumps({"queues": [{"name": "q", "messageSchema": {"name": "Q", "rules": rules}}]}))
    assert len(configuration.load(Places(home), file).warnings) == 1


ENDLESS: list[dict[str, Any]] = [
    {"schema": {"properties": {"f": {"pattern": "^(a|a)*$"}}}},
    {"rules": [{"field": "f", "type": "pattern", "value": "(a+)+"}]},
]


@pytest.mark.parametrize("policy", ENDLESS)
def test_a_payload_that_takes_for_ever_to_judge_is_refused(policy: dict[str, Any]) -> None:
    check = checker(policy.get("schema"), policy.get("rules", ()))
    assert check is not None
    payload = {"f": "a" * 60 + "!"}
    time_limit.start()
    try:
        assert check(json.dumps(payload)).startswith("judging it by its schema takes more than")
        assert check('{"f": "a"}') == ""
    finally:
        time_limit.stop()


def test_a_schema_judges_what_is_no_json_as_a_text() -> None:
    check = checker({"type": "string", "maxLength": 5}, ())
    assert check is not None
    assert (check("hello"), check("hello!") != "") == ("", True)
