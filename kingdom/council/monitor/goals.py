"""The goals that a general has given the council: whether one still goes on, what waits for a yes, and its end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import read_json_or, to_json
from kingdom.base.errors import BadMessage, BadName
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.base.words import one_line
from kingdom.council.bodies import read_body
from kingdom.council.monitor.messages import CouncilMessage

MOST_TITLES = 500
Goal = Mapping[str, Any]


class Goals:
    """Notes of goals by thread. The general writes them, we write what it has to know of each."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[str, tuple[tuple[int, int], Goal]] = {}
        make_folder(services.places.council_goals)
        make_folder(services.places.council_news)

    def take_over(self, services: Services) -> None:
        """Use new configuration."""
        self._services = services

    def of(self, thread: str) -> Goal | None:
        """Return the goal of a thread; None when no general has given it."""
        if not thread:
            return None
        try:
            path = self._services.places.council_goal(thread)
            about = os.stat(path)
        except (FileNotFoundError, BadName):
            return None
        mark = about.st_ino, about.st_mtime_ns
        known = self._known.get(thread)
        if known is None or known[0] != mark:
            known = self._known[thread] = mark, read_json_or(path, {})
        return known[1] or None

    def is_over(self, thread: str) -> str:
        """Return why nobody works on a thread any more; "" while somebody does."""
        goal = self.of(thread)
        return str(goal.get("over") or "") if goal is not None else ""

    def holds(self, message: CouncilMessage) -> bool:
        """Return whether a message waits for a person's yes: the plan of a goal that has to be approved."""
        goal = self.of(message.thread)
        is_plan = message.type == "task_list" and message.agent == "coordinator"
        return is_plan and goal is not None and bool(goal.get("approve")) and not goal.get("approved")

    def note_plan(self, message: CouncilMessage) -> None:
        """Note the plan in a message for the goal's general, once."""
        if self.of(message.thread) is None:
            return
        places = self._services.places
        path = places.council_plan(message.thread)
        if path.exists():
            return
        tasks = _body(message).get("tasks")
        rows = [task for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
        titles = [one_line(row.get("title") or row.get("task_id") or "?", 200) for row in rows[:MOST_TITLES]]
        self._write(path, {"thread": message.thread, "titles": titles})

    def note_end(self, message: CouncilMessage) -> bool:
        """Note the end of a goal when leader reports it. Return whether this is such a report."""
        body = _body(message)
        if body.get("final") is not True or message.sender != "leader" or self.of(message.thread) is None:
            return False
        self._end(message.thread, {name: body[name] for name in ("status", "summary", "deliverables") if name in body})
        return True

    def is_open(self, thread: str) -> bool:
        """Return whether leader has a goal, or had it, and nobody has ended it."""
        goal = self.of(thread)
        is_sent = goal is not None and bool(goal.get("sent")) and not goal.get("over")
        return is_sent and not self._services.places.council_end(thread).exists()

    def end(self, thread: str, status: str, summary: str) -> None:
        """Note the end of a goal that leader will not report any more."""
        self._end(thread, {"status": status, "summary": summary})

    def _end(self, thread: str, said: Mapping[str, Any]) -> None:
        path = self._services.places.council_end(thread)
        if not path.exists():
            self._write(path, {"thread": thread, **said})

    def _write(self, path: Path, note: Mapping[str, Any]) -> None:
        at = stamp(self._services.clock())
        self._services.disk.rewrite(path, to_json({**note, "at": at}))


def _body(message: CouncilMessage) -> Mapping[str, Any]:
    try:
        return read_body(message.body)
    except BadMessage:
        return {}
