"""A valid home: a day's work of every kind, as the roles leave it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import make_folder
from kingdom.base.home.places import Places
from tests.fixtures import event as new_event
from tests.fixtures import founded, message, put, task, write

DAY, T1, ASKED, RUNS = "20260207", "task-20260207-001", "task-20260207-002", "task-20260207-003"
MORNING = "2026-02-07T10:00:00Z"


def told(home: Path, id: str, task_id: str, type: str, key: str) -> None:
    put(home, "messages", "sent", **message(id, type, task_id=task_id, dedup_key=f"{task_id}:{key}"))


def event(name: str, **fields: Any) -> dict[str, Any]:
    return new_event(name, priority="normal", **fields)


def healthy(home: Path, now: float) -> Places:
    """Make an ended task, one with a question, a running one, a waiting event, and a file in dead/."""
    places = founded(home)
    home.chmod(0o700)
    index = []
    for number, (name, state) in enumerate(((T1, "completed"), (ASKED, "completed"), (RUNS, "dispatched")), 1):
        start = f"msg-{DAY}-{2 * number - 1:03d}"
        status = "dispatched" if state == "dispatched" else "completed"
        put(home, "events", state, **event(f"evt-{number}", task_id=name, letters={"start": start}, status=status))
        told(home, start, name, "thread_start", "thread_start:open")
        index.append(f"{DAY} evt-{number} {name}\n")
    put(home, "events", "pending", **event("evt-4"))
    ended = {"status": "completed", "attempt": 0}
    put(
        home,
        "tasks",
        "completed",
        **task(T1, event_id="evt-1", outcome="success", letters={"final": f"msg-{DAY}-002"}, **ended),
    )
    told(home, f"msg-{DAY}-002", T1, "notification", "notification:success")
    asked = {"outcome": "needs_human", "letters": {"question": f"msg-{DAY}-004"}}
    put(home, "tasks", "completed", **task(ASKED, event_id="evt-2", **asked, **ended))
    told(home, f"msg-{DAY}-004", ASKED, "human_input_request", "human_input_request:needs_human")
    put(home, "tasks", "in_progress", **task(RUNS, event_id="evt-3"))
    write(places.result(T1), {"task_id": T1, "status": "success", "summary": "well"})
    write(places.result(ASKED), {"task_id": ASKED, "status": "needs_human", "question": "Which?"})
    write(places.checkpoint(ASKED), {"task_id": ASKED, "target_general": "gen-pr", "question": "Which?"})
    places.session_id(ASKED).write_text("s-1\n")
    places.prompt(RUNS).write_text("Do it\n")
    make_folder(places.workspace("gen-pr", RUNS))
    make_folder(places.soldier_folder(RUNS))
    make_folder(places.control_folder("gen-pr", RUNS))
    rows = [{"task_id": RUNS, "id": f"soldier-{RUNS}-0", "soldier": f"soldier-{RUNS}-0", "general": "gen-pr", "pid": 1}]
    places.sessions.write_text(json.dumps(rows))
    for role in ("king", "chamberlain", "envoy", "sentinel", "cli"):
        make_folder(places.scratch(role))
    places.replay_index.write_text("".join(index))
    (places.own("king") / "task-seq").write_text(f"{DAY}:003\n")
    (places.own("king") / "msg-seq").write_text(f"{DAY}:006\n")
    write(places.own("king") / "schedule-sent.json", {})
    write(places.own("chamberlain") / "alerts.json", {})
    for folder in places.posting():
        make_folder(folder)
    for path, content in zip(places.conversations(), ("{}", "[]", "{}"), strict=True):
        path.write_text(content)
    dead = places.folder("events", "dead") / "evt-bad.json"
    dead.write_text("{")
    write(dead.with_name("evt-bad.json.reason"), {"reason": "empty"})
    places.env_file.write_text("A=b\n")
    places.env_file.chmod(0o600)
    for path in home.rglob("*"):
        os.utime(path, (now, now), follow_symlinks=False)
    return places
