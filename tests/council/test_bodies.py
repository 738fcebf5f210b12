"""The body of each type of message: the least that fits, and nothing less."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kingdom.base.errors import BadMessage
from kingdom.council.bodies import faults_of_body, original_of, read_body, with_original

TASK = {"task_id": "task_001", "title": "t"}
INFO = {"retry_count": 3, "max_retries": 3, "last_error": "timed out", "moved_at": "2026-02-10T12:00:00+09:00"}
LEAST: dict[str, dict[str, Any]] = {
    "user_goal": {"goal": "g"},
    "strategy_request": {"goal": "g"},
    "strategy_response": {"strategy": "s"},
    "task_list": {"tasks": [TASK]},
    "architecture_request": {"goal": "g", "question": "q"},
    "architecture_response": {"goal": "g", "proposed_architecture": {}},
    "task_assignment": TASK,
    "task_completed": {"task_id": "task_001", "status": "success", "deliverables": []},
    "evaluation_request": {**TASK, "deliverables": []},
    "evaluation_result": {"task_id": "task_001", "verdict": "pass"},
    "improvement_request": {"task_id": "task_001", "issues": []},
    "improvement_suggestion": {"title": "t", "proposed_improvement": {}},
    "improvement_completed": {"task_id": "task_001", "improvements_made": []},
    "progress_update": {"repository": "", "summary": "s"},
    "system_init": {"message": "m", "action": "a"},
    "github_event": {"event_type": "pr_merged"},
    "github_task": {"trigger": "mention", "repository": "o/r", "issue_number": 42},
    "design_review_request": {"goal": "g", "proposed_strategy": "s"},
    "design_review_response": {"goal": "g", "review_result": "fine"},
    "quality_plan_request": {"goal": "g", "tasks": []},
    "quality_plan_response": {"goal": "g", "quality_criteria": []},
    "insight_request": {"goal": "g", "proposed_strategy": "s"},
    "insight_response": {"goal": "g", "insights": []},
    "escalation": {
        "task_id": "task_001",
        "failure_reason": "timed out",
        "retry_count": 3,
        "max_retries": 3,
        "recommended_action": "manual_review",
    },
    "dead_letter": {"original_file": "a.mime", "failure_info": INFO, "original_message": "From: a\n"},
}


@pytest.mark.parametrize("kind", LEAST)
def test_the_least_body_fits_and_more_is_allowed(kind: str) -> None:
    assert faults_of_body(kind, yaml.safe_dump(LEAST[kind])) == []
    assert faults_of_body(kind, yaml.safe_dump({**LEAST[kind], "more": [1]})) == []


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind, body in LEAST.items() for field in body])
def test_a_body_without_one_of_its_fields_is_refused(kind: str, field: str) -> None:
    less = {name: value for name, value in LEAST[kind].items() if name != field}
    (fault,) = faults_of_body(kind, yaml.safe_dump({**less, "more": 1}))
    assert fault.startswith(f"the body of a {kind}: ")


def test_a_body_that_repeats_its_headers_counts_as_its_payload() -> None:
    wrapped = {"type": "user_goal", "from": "user", "to": "leader", "priority": "high", "payload": {"goal": "g"}}
    assert read_body(yaml.safe_dump(wrapped)) == {"goal": "g"}


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))))
@example(b"")
@example(b"\n")
@example(b"a\n\n\n")
@example(b"  a\n b\n   \n")
@example(b"a\r\nb")
@example("\u2028\u0085\ufeff왕⚔😀".encode())
def test_a_dead_letter_gives_back_its_message_byte_for_byte(original: bytes) -> None:
    facts = {"original_file": 'a "b"\x85\udcff', "failure_info": {"retry_count": 3, "last_error": ": \x7f"}}
    body = read_body(with_original(facts, original))
    assert original_of(body) == original
    assert body["failure_info"] == facts["failure_info"]


def test_a_dead_letter_is_read_as_it_is_where_that_can_be() -> None:
    said = with_original({"original_file": "leader/a.mime"}, b"A: b\n\nc: d\n  e\n")
    assert said == 'original_file: "leader/a.mime"\noriginal_message: |2\n  A: b\n\n  c: d\n    e\n'


@pytest.mark.parametrize(
    "body", [{}, {"original_message": 7}, {"original_message": "%", "original_encoding": "base64"}]
)
def test_a_dead_letter_without_its_message_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadMessage, match="original_message"):
        original_of(body)
