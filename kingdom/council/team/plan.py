"""The tasks of one plan in coordinator's memory: what each waits for, who has it, and what became of it."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_TRIES = 2
MOST_ROUNDS = 3
AHEAD = 2
"""Tasks that an ignitian may have at once while there are more than ignitians: nobody waits for the next one."""
PRIORITIES = {"critical": 0, "high": 1, "normal": 2, "low": 3}
SCHEMA = """
create table if not exists tasks (
    thread text, id text, number integer, phase integer, priority integer, missing integer, skill text,
    state text, worker text, tries integer, rounds integer, body text, deliverables text, primary key (thread, id)
);
create index if not exists by_state on tasks (thread, state, phase, priority, number);
create table if not exists needs (thread text, needed text, id text, primary key (thread, needed, id)) without rowid;
create index if not exists needed_by on needs (thread, id);
create table if not exists skilled (thread text, worker text, skill text, primary key (thread, worker, skill))
    without rowid;
create table if not exists phases (thread text, phase integer, left integer, primary key (thread, phase)) without rowid;
"""
# state: waiting (for others), ready, out (an ignitian has it), done (it is evaluated), accepted, failed


@dataclass(frozen=True, slots=True)
class Row:
    body: Mapping[str, Any]
    deliverables: list[Any]
    rounds: int


@dataclass(frozen=True, slots=True)
class PlanCounts:
    total: int
    out: int
    accepted: int


class TeamPlan:
    """The rows of one thread."""

    def __init__(self, memory: sqlite3.Connection, thread: str) -> None:
        self._memory, self._thread = memory, thread
        memory.executescript(SCHEMA)

    def add(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Add tasks, each once: a list that comes twice adds nothing."""
        for number, task in enumerate(tasks):
            id, needed = str(task["task_id"]), _needed(task)
            row = self._run(
                "insert or ignore into tasks values (?, ?, ?, ?, ?, ?, ?, ?, '', 0, 0, ?, '[]')",
                id,
                number,
                _number(task.get("phase"), 1),
                PRIORITIES.get(str(task.get("priority")), 2),
                len(needed),
                _skill(task),
                "waiting" if needed else "ready",
                json.dumps(dict(task)),
            )
            if row.rowcount:
                self._memory.executemany(
                    "insert or ignore into needs values (?, ?, ?)", [(self._thread, one, id) for one in needed]
                )
                self._run(
                    "insert into phases values (?, ?, 1) on conflict do update set left = left + 1",
                    _number(task.get("phase"), 1),
                )

    def fault(self) -> str:
        """Return why a plan cannot be followed to its end; "" when it can."""
        lost = self._one(
            "select needed from needs where thread = ? and needed not in (select id from tasks where thread = ?)",
            self._thread,
        )
        if lost is not None:
            return f"a task needs {lost[0]}, which is not in the plan"
        left: dict[str, int] = dict(self._run("select id, missing from tasks where thread = ?").fetchall())
        phases = dict(self._run("select id, phase from tasks where thread = ?").fetchall())
        users: dict[str, list[str]] = {}
        for needed, id in self._run("select needed, id from needs where thread = ?"):
            users.setdefault(needed, []).append(id)
            if phases[needed] > phases[id]:
                return f"{id} needs {needed}, which is of a later phase"
        free = [id for id, missing in left.items() if not missing]
        for id in free:
            for user in users.get(id, ()):
                left[user] -= 1
                if not left[user]:
                    free.append(user)
        return "" if len(free) == len(left) else "tasks need each other in a circle"

    def assign(self, workers: Sequence[str]) -> list[tuple[str, str]]:
        """Return which tasks go to whom now, and note that. Whoever has done the like before is preferred."""
        phase = self._one("select min(phase) from phases where thread = ? and left > 0")
        if phase is None or phase[0] is None:
            return []
        has = Counter(worker for (worker,) in self._run("select worker from tasks where thread = ? and state = 'out'"))
        room = sum(max(0, AHEAD - has[worker]) for worker in workers)
        ready = self._run(
            "select id, skill from tasks where thread = ? and state = 'ready' and phase <= ? "
            "order by phase, priority, number limit ?",
            phase[0],
            room,
        ).fetchall()
        skilled = {(worker, skill) for worker, skill in self._run("select worker, skill from skilled where thread = ?")}
        most = AHEAD if len(ready) > len(workers) else 1
        given = []
        for id, skill in ready:
            able = [worker for worker in workers if has[worker] < most]
            if not able:
                break
            worker = min(able, key=lambda one: (has[one], (one, skill) not in skilled, workers.index(one)))
            has[worker] += 1
            self._run("update tasks set state = 'out', worker = ?2 where thread = ?1 and id = ?3", worker, id)
            given.append((id, worker))
        return given

    def is_out(self, task: str, worker: str) -> bool:
        """Return whether this worker has this task now."""
        row = self._one("select worker from tasks where thread = ? and id = ? and state = 'out'", task)
        return row is not None and row[0] == worker.replace("-", "_")

    def try_again(self, task: str) -> bool:
        """Let a task that failed be given out again. False, and it is not, when it has failed too often."""
        self._run(
            "update tasks set tries = tries + 1, worker = '', "
            "state = case when tries + 1 < ?3 then 'ready' else 'failed' end where thread = ?1 and id = ?2",
            task,
            MOST_TRIES,
        )
        row = self._one("select tries from tasks where thread = ? and id = ?", task)
        return row is not None and row[0] < MOST_TRIES

    def deliver(self, task: str, deliverables: object) -> None:
        """Note what a task has delivered; others may need it now."""
        self._run(
            "insert or ignore into skilled select thread, worker, skill from tasks where thread = ? and id = ?", task
        )
        self._run(
            "update tasks set state = 'done', deliverables = ?3 where thread = ?1 and id = ?2",
            task,
            json.dumps(deliverables),
        )
        for (user,) in self._run("select id from needs where thread = ? and needed = ?", task).fetchall():
            self._run(
                "update tasks set missing = missing - 1, "
                "state = case when missing = 1 and state = 'waiting' then 'ready' else state end "
                "where thread = ? and id = ?",
                user,
            )

    def accept(self, task: str) -> bool:
        """Note that a task's work is good. False when that is known, or there is no such work."""
        if not self._run(
            "update tasks set state = 'accepted' where thread = ? and id = ? and state = 'done'", task
        ).rowcount:
            return False
        self._run(
            "update phases set left = left - 1 where thread = ?1 "
            "and phase = (select phase from tasks where thread = ?1 and id = ?2)",
            task,
        )
        return True

    def revise(self, task: str, deliverables: object) -> bool:
        """Note what has replaced a task's work, for one more evaluation. False when it is not under evaluation."""
        found = isinstance(deliverables, list) and deliverables
        row = self._run(
            "update tasks set rounds = rounds + 1, deliverables = case when ?3 = '' then deliverables else ?3 end "
            "where thread = ?1 and id = ?2 and state = 'done'",
            task,
            json.dumps(deliverables) if found else "",
        )
        return bool(row.rowcount)

    def rounds(self, task: str) -> int:
        row = self._one("select rounds from tasks where thread = ? and id = ?", task)
        return 0 if row is None else int(row[0])

    def task(self, task: str) -> Row:
        row = self._one("select body, deliverables, rounds from tasks where thread = ? and id = ?", task)
        return _row(row)

    def last(self) -> Row:
        """Return the last task of the plan, whose deliverables are those of the whole."""
        return _row(
            self._one(
                "select body, deliverables, rounds from tasks where thread = ? order by phase desc, number desc limit 1"
            )
        )

    def inputs(self, task: str) -> list[Any]:
        """Return the deliverables that a task needs, in the plan's order."""
        rows = self._run(
            "select tasks.deliverables from needs "
            "join tasks on tasks.thread = needs.thread and tasks.id = needs.needed "
            "where needs.thread = ? and needs.id = ? order by tasks.number",
            task,
        )
        return [one for (text,) in rows for one in json.loads(text)[:1]]

    def counts(self) -> PlanCounts:
        rows = dict(self._run("select state, count(*) from tasks where thread = ? group by state").fetchall())
        return PlanCounts(sum(rows.values()), rows.get("out", 0) + rows.get("done", 0), rows.get("accepted", 0))

    def _run(self, statement: str, *values: object) -> sqlite3.Cursor:
        return self._memory.execute(statement, (self._thread, *values))

    def _one(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._run(statement, *values).fetchone()
        return row


def _row(row: tuple[Any, ...] | None) -> Row:
    if row is None:
        return Row({}, [], 0)
    deliverables = json.loads(row[1])
    return Row(json.loads(row[0]), deliverables if isinstance(deliverables, list) else [], int(row[2]))


def _needed(task: Mapping[str, Any]) -> list[str]:
    listed = task.get("dependencies")
    return list(dict.fromkeys(map(str, listed))) if isinstance(listed, list) else []


def _skill(task: Mapping[str, Any]) -> str:
    listed = task.get("skills_required")
    return str(listed[0]) if isinstance(listed, list) and listed else ""


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
