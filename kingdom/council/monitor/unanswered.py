"""Goals in which nothing goes on any more because an agent has deleted a message without the answer that it asks for.

Leader is told, and whoever asked. Where nothing follows from that either, the goal ends as failed: nobody waits for
an answer until the goal's time is over. All that is known lies in the list of the thread.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from typing import Any

from kingdom.base.home.places import as_filename
from kingdom.base.runtime.role import Services
from kingdom.council import mime
from kingdom.council.bodies import listed_rows
from kingdom.council.monitor.dead_letters import MONITOR, UNANSWERED, CouncilDeadLetters
from kingdom.council.monitor.goals import Goals
from kingdom.council.monitor.people import USER
from kingdom.council.monitor.settings import CouncilSettings

ANYTHING: tuple[str, ...] = ()
ANSWERS = {
    "user_goal": ANYTHING,
    "strategy_request": ("strategy_response",),
    "task_list": ANYTHING,
    "architecture_request": ("architecture_response",),
    "design_review_request": ("design_review_response",),
    "quality_plan_request": ("quality_plan_response",),
    "insight_request": ("insight_response",),
    "task_assignment": ("task_completed",),
    "evaluation_request": ("evaluation_result",),
    "improvement_request": ("improvement_completed", "improvement_suggestion"),
}
"""By type: what its addressee has to send in the same thread. Of ANYTHING one message is enough for all of a thread."""
Row = Mapping[str, Any]


class Unanswered:
    """Looks at the goals in which something has happened, once nothing is under way there."""

    def __init__(
        self, services: Services, settings: CouncilSettings, dead_letters: CouncilDeadLetters, goals: Goals
    ) -> None:
        self._dead_letters, self._goals = dead_letters, goals
        self.take_over(services, settings)
        names = os.listdir(services.places.council_goals)
        self._threads = {name.removesuffix(".json") for name in names if name.endswith(".json")}

    def take_over(self, services: Services, settings: CouncilSettings) -> None:
        """Use new configuration."""
        self._services, self._settings = services, settings

    def note(self, thread: str) -> None:
        """Note that something has happened in a thread."""
        if thread:
            self._threads.add(thread)

    def look(self, under_way: Container[str]) -> int:
        """Escalate messages that were deleted unanswered. Return how many messages were written for that."""
        if any(self._settings.of(agent) is None for agent in self._settings.folders() if agent != USER):
            return 0  # whom nobody starts here may be at work for all we know
        idle = [thread for thread in self._threads if thread not in under_way]
        self._threads.difference_update(idle)
        return sum(self._judge(thread) for thread in sorted(idle) if self._goals.is_open(thread))

    def _judge(self, thread: str) -> int:
        rows = list(listed_rows(self._services.places.council_threads / f"{as_filename(thread)}.jsonl"))
        told = {row["in_reply_to"] for row in rows if row["from"] == MONITOR}
        silent = missing(rows)
        new = [row for row in silent if row["id"] not in told]
        for row in new:
            self._services.log.warn(f"{thread}: {_why(row)}")
            self._dead_letters.report(row, thread, _why(row))
        if not new and rows and rows[-1]["id"].endswith(UNANSWERED):
            self._goals.end(thread, "failed", "; ".join(map(_why, silent)) or "nobody goes on with it")
            return 1
        return len(new)


def missing(rows: Sequence[Row]) -> list[Row]:
    """Return the messages of a thread that their agents have not answered.

    An answer names what it answers in In-Reply-To; one that names nothing of the kind is taken for the oldest's.
    """
    found: list[Row] = []
    for agent, kind in dict.fromkeys((row["agent"], row["type"]) for row in rows if row["type"] in ANSWERS):
        asked = {row["id"]: row for row in rows if (row["agent"], row["type"]) == (agent, kind)}
        sent = {row["id"]: row for row in rows if mime.folder_of(row["from"]) == agent}.values()
        if ANSWERS[kind] is ANYTHING:
            found += [] if sent else asked.values()
            continue
        about = [row["in_reply_to"] for row in sent if row["type"] in ANSWERS[kind]]
        loose = sum(one not in asked for one in about)
        found += [row for id, row in asked.items() if id not in about][loose:]
    return found


def _why(row: Row) -> str:
    return f"{row['agent']} has deleted a {row['type']} of {row['from']} without an answer"
