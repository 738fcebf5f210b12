"""Which messages of a thread were deleted without the answer that they ask for."""

from __future__ import annotations

import pytest

from kingdom.council.monitor.unanswered import missing

GIVEN = "coordinator ignitian_1 task_assignment"
DONE = "ignitian_1 coordinator task_completed"
ASKED = "leader strategist strategy_request"


@pytest.mark.parametrize(
    ("thread", "silent"),
    [
        ([], []),
        (["user leader user_goal"], [0]),
        (["user leader user_goal", ASKED], [1]),
        ([ASKED, "strategist architect design_review_request 0"], [0, 1]),
        ([ASKED, "strategist leader strategy_response 0"], []),
        ([GIVEN, f"{DONE} 0"], []),
        ([GIVEN, GIVEN, f"{DONE} 1"], [0]),
        ([GIVEN, GIVEN, f"{DONE} 1", f"{DONE} 1"], [0]),
        ([GIVEN, GIVEN, DONE], [1]),
        ([GIVEN, "ignitian_2 coordinator task_completed 0"], [0]),
        ([GIVEN, "ignitian_1 coordinator poem 0"], [0]),
        (["strategist coordinator task_list", GIVEN], [1]),
        (["leader user progress_update"], []),
        (["evaluator innovator improvement_request", "innovator leader improvement_suggestion 0"], []),
    ],
)
def test_what_is_missing(thread: list[str], silent: list[int]) -> None:
    rows = []
    for number, line in enumerate(thread):
        sender, agent, kind, *about = line.split()
        answers = f"<{about[0]}>" if about else ""
        rows.append({"id": f"<{number}>", "from": sender, "agent": agent, "type": kind, "in_reply_to": answers})
    assert [int(row["id"][1:-1]) for row in missing([*rows, *rows])] == silent
