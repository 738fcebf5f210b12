"""A task that the council works on: its goal goes to leader, a person's words follow, its end becomes the result.

No soldier waits for it. All that is known of a goal lies in one note by its thread, so a restart goes on from there;
what leader is sent has names and ids made of the task, so that a repetition is the same message.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from kingdom.base.disk.atomic import is_there, make_folder
from kingdom.base.disk.codec import read_bytes, read_json_or, to_json
from kingdom.base.errors import BadFile, BadName, Collision
from kingdom.base.home import config
from kingdom.base.home.places import Places, as_filename
from kingdom.base.records import notes
from kingdom.base.records.messages import Result, Task
from kingdom.base.times import moment
from kingdom.base.words import duration, one_line
from kingdom.council import mime
from kingdom.council.agents import COUNCIL
from kingdom.council.bodies import yaml_of
from kingdom.court.general import report
from kingdom.court.general.context import GeneralContext, Steps
from kingdom.court.soldiers.budgets import days_of
from kingdom.court.soldiers.consent import meaning
from kingdom.court.soldiers.handle import SoldierHandle

MOST_FILES, LARGEST_FILE = 32, 1 << 20
LONGEST_GOAL = 8000
SHALL_IT = "Shall the council go on? Answer yes or no; leader is told of any other words, and you are asked again."
Note = dict[str, Any]


def step(general: GeneralContext, task: Task, soldier: SoldierHandle) -> bool | None:
    """Do what is next for a goal. Return True when its task has ended, False when more was done, None when nothing."""
    places = general.services.places
    thread = _thread_of(places, task)
    note = read_json_or(places.council_goal(thread), {})
    if (by := notes.cancelled_by(places, task.id)) is not None:
        cancelled = _failed(task, f"cancelled by {by}")
        if note and note["task"] != task.id:  # a person's words; the goal that they are about goes on
            return report.finish(general, task, soldier, cancelled)
        return _finish(general, task, soldier, thread, cancelled)
    if note and note["task"] != task.id:
        return _take_words(general, task, soldier, thread, note)
    if not note:
        return _begin(general, task, soldier, thread)
    if not note["sent"]:
        _send(general, task, thread, _goal_body(note))
        _write(general, {**note, "sent": True})
    if end := read_json_or(places.council_end(thread), {}):
        return _finish(general, task, soldier, thread, _result(general, task, end))
    if note["approve"] and note["approved"] is None and (plan := read_json_or(places.council_plan(thread), {})):
        return _ask(general, task, soldier, thread, note, plan)
    seconds = general.services.clock() - moment(note["begun"])
    if seconds > general.manifest.timeout_seconds:
        why = f"timeout: it took {duration(seconds)} (timeout_seconds of {general.name})"
        return _finish(general, task, soldier, thread, _failed(task, why))
    return None


def _thread_of(places: Places, task: Task) -> str:
    """Return the council's thread: that of the goal that a person's words are about while it is open, else its own."""
    said = task.payload.get("session_id") if task.type == "resume" else None
    try:
        note = read_json_or(places.council_goal(str(said)), {}) if said else {}
    except BadName:
        note = {}
    is_open = bool(note) and (not note.get("over") or note.get("task") == task.id)
    return str(said) if is_open else task.id


def _begin(general: GeneralContext, task: Task, soldier: SoldierHandle, thread: str) -> bool | None:
    """Note a goal, as soon as there is a workspace for it."""
    goal = _goal(general, task)
    if not goal:
        refused = Result(task_id=task.id, status="skipped", reason='no goal; try `kingdom council plan "…"`')
        return report.finish(general, task, soldier, refused)
    workspace = task.payload.get("folder")
    if not isinstance(workspace, str) or task.repo is not None:
        made = general.workspaces.prepare(task, None)
        if made is None:
            return None
        workspace = str(made)
    approve = task.payload.get("approve") or config.for_looking(general.services.places, "council")[0]["approve"]
    note: Note = {
        "thread": thread,
        "task": task.id,
        "root": task.thread,
        "goal": goal,
        "context": _context(general, task),
        "workspace": workspace,
        "reply_to": task.reply_to,
        "reply_context": _reply_context(general, task, thread),
        "approve": approve == "plan",
        "approved": None,
        "begun": general.now(),
        "sent": False,
        "over": None,
    }
    _write(general, note)
    general.services.log.event("task.started", soldier_id=thread, task_id=task.id, attempt=task.attempt)
    return False


def _goal(general: GeneralContext, task: Task) -> str:
    """Return the goal in a task: what was planned, said or seen."""
    said = task.payload.get("human_response") if task.type == "resume" else None
    planned, text, headline = (task.payload.get(name) for name in ("goal", "text", "headline"))
    for given in (said, planned, text, headline):
        if isinstance(given, str) and (words := given.strip()[:LONGEST_GOAL]):
            return _without_keyword(general, words) if given is text else words
    return ""


def _without_keyword(general: GeneralContext, words: str) -> str:
    """Return what somebody said without the keyword at its beginning, which only called the council."""
    for keyword in sorted(general.manifest.keywords, key=len, reverse=True):
        rest = words[len(keyword) :]
        if words.lower().startswith(keyword.lower()) and not rest[:1].isalnum():
            return rest.lstrip(" :,-") or words
    return words


def _context(general: GeneralContext, task: Task) -> str:
    """Return what leader should know besides: what was said with the goal, and how an earlier one of its talk ended."""
    given = task.payload.get("context")
    parts = [given] if isinstance(given, str) and given.strip() else []
    if task.type == "resume":
        earlier = read_json_or(general.services.places.result(str(task.original)), {}) if task.original else {}
        parts.append(
            f"an earlier goal of this conversation ended with: {earlier.get('summary') or earlier.get('status')}"
        )
    return "\n".join(parts)


def _reply_context(general: GeneralContext, task: Task, thread: str) -> Note:
    """Return what a reply in the task's conversation needs: by `session_id` we know the thread again."""
    return {
        "general": general.name,
        "session_id": thread,
        "repo": task.repo,
        "task_id": task.id,
        "thread_task_id": task.thread,
        "matter": task.subject,
    }


def _goal_body(note: Mapping[str, Any]) -> Note:
    body = {"goal": note["goal"], "workspace": note["workspace"]}
    return {**body, "context": note["context"]} if note["context"] else body


def _take_words(general: GeneralContext, task: Task, soldier: SoldierHandle, thread: str, note: Note) -> bool | None:
    """Take what a person says about an open goal: the answer whether its plan is good, or words for leader."""
    words = str(task.payload.get("human_response") or "").strip()
    if note["approve"] and note["approved"] is None and task.original == note["task"]:
        taken = {"task": task.id, "begun": general.now(), "reply_context": _reply_context(general, task, thread)}
        answer = meaning(words)
        if answer is False:
            refused = Result(task_id=task.id, status="skipped", reason="the plan was not approved")
            return _finish(general, task, soldier, thread, refused)
        if answer:
            _write(general, {**note, **taken, "approved": True, "reply_to": task.reply_to})
            return False
        _send(general, task, thread, {"goal": words, "context": "said of the plan, which waits for a yes"})
        _write(general, {**note, **taken, "said": one_line(words, 200)})
        return False
    _send(general, task, thread, {"goal": words, "context": "said of the goal that is under way"})
    heard = Result(
        task_id=task.id, status="success", summary="leader has your words; the goal goes on", session_id=thread
    )
    return report.finish(general, task, soldier, heard)


def _send(general: GeneralContext, task: Task, thread: str, body: Mapping[str, Any]) -> None:
    """Send leader a goal or words of a person, once."""
    services, places = general.services, general.services.places
    key = crc32(task.id.encode())
    seconds = int(moment(task.created_at))
    identity = f"<{seconds}.{key}.{as_filename(task.id)}@ignite.local>"
    name = f"user_goal_{seconds * 1_000_000 + key % 1_000_000:016d}.mime"
    waiting, told = places.agent("leader") / name, places.told("leader") / name
    if is_there(waiting) or is_there(told) or _was_told(places, thread, identity):
        return
    make_folder(told.parent)
    message = mime.build_message(
        from_agent="user",
        to_agents="leader",
        msg_type="user_goal",
        priority="high",
        thread_id=thread,
        repo=_one_line(task.repo),
        body=yaml_of(body),
    )
    try:
        services.disk.create(waiting, mime.update_header(message, "Message-ID", identity).encode())
    except Collision:
        return
    services.log.info(f"{task.id} is with leader as {name}")


def _one_line(text: str | None) -> str:
    return one_line(text or "", 200)


def _was_told(places: Places, thread: str, identity: str) -> bool:
    """Return whether the council has taken a message: then it may be gone."""
    try:
        return identity.encode() in read_bytes(places.council_threads / f"{as_filename(thread)}.jsonl", 64 << 20)
    except (FileNotFoundError, BadFile):
        return False


def _ask(
    general: GeneralContext, task: Task, soldier: SoldierHandle, thread: str, note: Note, plan: Mapping[str, Any]
) -> bool:
    """Ask people whether the plan is good, with what such tasks have cost before."""
    listed = [str(title) for title in plan.get("titles", ())]
    lines = [f"{note['said']!r} is no yes and no no: leader has been told."] if note.get("said") else []
    lines += [f"The plan for {one_line(note['goal'], 200)!r} has {len(listed)} tasks:"]
    lines += [f"{number}. {one_line(title, 120)}" for number, title in enumerate(listed, start=1)]
    lines += [_estimate(general.services.places, len(listed)), SHALL_IT]
    _write(general, {**note, "tasks": len(listed)})
    asked = Result(task_id=task.id, status="needs_human", question="\n".join(lines), session_id=thread)
    return report.finish(general, task, soldier, asked)


def _estimate(places: Places, tasks: int) -> str:
    """Say what a plan will cost when its tasks cost as much as those of earlier goals."""
    earlier = [note for path in places.council_goals.glob("*.json") if (note := read_json_or(path, {})).get("seconds")]
    done = sum(int(note.get("tasks") or 0) for note in earlier)
    if not done:
        return "What it will cost is not known: no plan has been carried out yet."
    since = min(str(note["begun"])[:10] for note in earlier)
    days = {**read_json_or(places.ledger, {}), **days_of(read_json_or(places.budgets, {}))}
    rows = [rows[COUNCIL] for day, rows in days.items() if day >= since and COUNCIL in rows]
    usd, tokens = (sum(float(row[name]) for row in rows) * tasks / done for name in ("usd", "tokens"))
    seconds = sum(float(note["seconds"]) for note in earlier) * tasks / done
    cost = f"{usd:.2f} USD and {tokens:,.0f} tokens" if usd or tokens else "nothing that engines report"
    return f"Going by {done} tasks of earlier goals, it will cost {cost}, and take {duration(seconds)}."


def _result(general: GeneralContext, task: Task, end: Mapping[str, Any]) -> Result:
    """Return the result that leader's last report means."""
    status, summary = str(end.get("status") or "success"), str(end.get("summary") or "")
    if status == "refused":
        return Result(task_id=task.id, status="skipped", reason=summary)
    if status in ("failed", "error"):
        return _failed(task, summary or "leader says it failed")
    kept, lost = _keep_deliverables(general, task, end.get("deliverables"))
    lines = [summary, *(f"deliverable: {path}" for path in kept)]
    return Result(task_id=task.id, status="success", summary="\n".join(filter(None, lines)), warnings=lost or None)


def _keep_deliverables(general: GeneralContext, task: Task, listed: object) -> tuple[list[Path], list[str]]:
    """Copy what agents have delivered to where people find it. Only files in agents' own folders are taken."""
    places, kept, lost = general.services.places, [], []
    allowed = places.workspaces / COUNCIL
    for one in (listed if isinstance(listed, list) else [])[:MOST_FILES]:
        location = str(one.get("location") or "") if isinstance(one, Mapping) else str(one)
        path = Path(os.path.realpath(location))
        target = places.deliverables / task.id / as_filename(path.name)
        try:
            if not path.is_relative_to(allowed):
                raise BadFile(path=location, why="it lies in no folder of an agent")
            data = read_bytes(path, LARGEST_FILE)
        except (FileNotFoundError, BadFile) as error:
            lost.append(f"a deliverable is left out: {one_line(error, 200)}")
            continue
        make_folder(target.parent)
        general.services.disk.rewrite(target, data)
        kept.append(target)
    return kept, lost


def _failed(task: Task, why: str) -> Result:
    return Result(task_id=task.id, status="failed", error=why)


def _finish(general: GeneralContext, task: Task, soldier: SoldierHandle, thread: str, result: Result) -> bool | None:
    """End a goal: its note says so first, for the council, which then ends whoever is still at work on it.

    None while it is being found out whether its workspace holds work.
    """
    if general.work_left(task) is None:
        return None
    places = general.services.places
    note = read_json_or(places.council_goal(thread), {})
    if note and not note.get("over"):
        now = general.services.clock()
        why = result.error or result.reason or result.status
        more = {
            "seconds": round(now - moment(note["begun"]), 1),
            "tasks": note.get("tasks") or _tasks_of(places, thread),
        }
        _write(general, {**note, "over": one_line(why, 300), **(more if result.status == "success" else {})})
    result = Result.from_json({**result.to_json(), "session_id": thread})
    return report.finish(general, task, soldier, result)


def _tasks_of(places: Places, thread: str) -> int:
    return len(read_json_or(places.council_plan(thread), {}).get("titles", ()))


def _write(general: GeneralContext, note: Mapping[str, Any]) -> None:
    places = general.services.places
    make_folder(places.council_goals)
    general.services.disk.rewrite(places.council_goal(str(note["thread"])), to_json(dict(note)))


def _news(places: Places) -> Path:
    make_folder(places.council_news)
    return places.council_news


STEPS = Steps(_news, step)
