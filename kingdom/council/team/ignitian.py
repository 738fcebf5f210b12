"""Ignitian: does one task, and says where the work lies."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from kingdom.council.team import goals
from kingdom.council.team.context import Context, TeamMessage
from kingdom.council.team.work import deliverable, read_work


def work(context: Context, message: TeamMessage) -> None:
    task, begun = message.text("task_id"), time.monotonic()
    done: dict[str, Any] = {"task_id": task, "title": message.text("title")}
    try:
        text = goals.draft(message.body, [read_work(given) for given in message.body.get("inputs", ())])
    except (OSError, KeyError, TypeError, ValueError) as error:
        error_of = {"type": type(error).__name__, "message": str(error)[:500] or "it cannot be done by rules"}
        done |= {"status": "error", "error": error_of}
    else:
        file = goals.file_of(message.body)
        location = deliverable(context.folder, message.thread, task, file, text)
        done |= {"status": "success", "deliverables": [_described(file, message.text("title"), location)]}
    done["execution_time"] = round(time.monotonic() - begun, 3)
    context.send(["coordinator"], "task_completed", done)


def _described(file: str, title: str, location: Path) -> dict[str, str]:
    return {"file": file, "description": title, "location": str(location)}


ANSWERS = {"task_assignment": work}
