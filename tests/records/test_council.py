"""The body of each type of message: the least that fits, and nothing less."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kingdom.records.council import faults_of_body, read_body

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
