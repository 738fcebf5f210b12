"""Results become messages: the outcome is noted in the task, the messages are written, event and task end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import is_there
from kingdom.base.disk.codec import read_json
from kingdom.base.errors import BadFile, BadInput
from kingdom.base.records import foreign, notes
from kingdom.base.records.backlog import Arrivals
from kingdom.base.records.messages import Event, Result, Task
from kingdom.base.records.queues import Queue, R
from kingdom.base.words import one_line
from kingdom.court.king import messages
from kingdom.court.king.context import Decision, KingContext
from kingdom.court.king.messages import MessageDraft

BATCH = 128
"""Tasks are completed in groups that become durable together."""
MOST_SEARCHED = 512
"""So many of the newest completed tasks are searched for what another king has made of events and answers."""
LOST_SECONDS = 60.0
"""Between two passes over all dispatched events: one finds something only when a task was removed or moved to dead."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What follows from a result's status."""

    #: What stands in `status` of the task and of its event.
    status: str
    #: The typed event in logs/events.log.
    logged_as: str
    #: The field of the result that the event repeats.
    repeated_field: str
    #: The messages to write, by task, result and default channel.
    drafts: Callable[[Task, Result, str], list[MessageDraft]]


OUTCOMES: Mapping[str, TaskOutcome] = {
    "success": TaskOutcome("completed", "task.completed", "status", messages.completed),
    "failed": TaskOutcome("failed", "task.failed", "error", messages.failed),
    "skipped": TaskOutcome("skipped", "task.completed", "status", messages.skipped),
    "needs_human": TaskOutcome("needs_human", "task.needs_human", "question", messages.asked),
}


def _readable(queue: Queue[R], state: str, ids: Iterable[str]) -> Iterator[R]:
    for id in ids:
        with suppress(FileNotFoundError, BadInput):
            yield queue.read(state, id)


class Outcomes:
    def __init__(self, king: KingContext) -> None:
        self._king = king
        self._in_progress = king.backlog(king.queues.tasks, "in_progress")
        self.has_more = False
        """Whether the last group was full, so that more results may be ready."""
        self.next_look = 0.0
        """When `complete` wants to be called at the latest, by the monotonic clock."""
        self._next_lost = 0.0
        self._has_noted_answers = False
        self._data: dict[str, dict[str, Any]] = {}
        """What the internal event says of a task that is about to end."""
        self._unreadable_versions: dict[str, tuple[int, int, int]] = {}
        """Results that could not be read, by task: each version of one is logged once."""

    def complete(self, arrivals: Arrivals, look: bool) -> bool:
        """Complete the next group of tasks that have a result. Return whether there was any.

        `look` searches all tasks in progress for results, as is done every `result_check_seconds` anyway; else only
        results that have just arrived are noticed.
        """
        now = self._king.monotonic()
        if now >= self._next_lost:
            self._next_lost = now + LOST_SECONDS
            self._fail_lost()
            self._note_answers_of_others()
        if arrivals is None or look or now >= self.next_look:
            self.next_look = now + self._king.config["intervals"]["result_check_seconds"]
        elif arrived := arrivals.get(self._king.places.results):
            self._in_progress.note(arrived)
        else:
            return False
        count = self._complete_group()
        self.has_more = count == BATCH
        if self.has_more:
            self.next_look = now
        return count > 0

    def _complete_group(self) -> int:
        results = self._king.places.results
        names = [queued.filename for queued in self._in_progress.waiting]
        ready = (name for name in names if is_there(results / name))
        decided = (decision for name in ready if (decision := self._decide(name)) is not None)
        if decisions := self._king.numbered(list(islice(decided, BATCH))):
            queues, events = self._king.queues, self._ended_events(decisions)
            noted = queues.tasks.files("in_progress", [decision.cause for decision in decisions])
            self._king.hand_over(decisions, noted, queues.events.files("dispatched", events))
            self._finish([event.id for event in events], decisions)
        return len(decisions)

    def _decide(self, filename: str) -> Decision[Task] | None:
        task = self._in_progress.take(filename)
        if task is None:
            self._in_progress.drop([filename])
            return None
        result = self._result(task, self._king.places.results / filename)
        if result is None:
            return None
        outcome = OUTCOMES[result.status]
        noted = replace(task, outcome=result.status, status=outcome.status)
        said = getattr(result, outcome.repeated_field)
        self._data[task.id] = {outcome.repeated_field: said and one_line(said, 300)}
        return Decision(noted, outcome.drafts(noted, result, self._king.channel), next_state="completed")

    def _result(self, task: Task, path: Path) -> Result | None:
        try:
            result, dropped = foreign.result(read_json(path))
            if result.task_id != task.id:
                raise BadFile(path=path, why=f"it is the result of {result.task_id}")
        except FileNotFoundError:
            return None
        except BadInput as error:
            return self._unreadable(task, path, str(error))
        for what in dropped:
            self._king.log.warn(f"the result of {task.id}: {what}")
        if result.status == "needs_human":
            # Its own and no other, whatever the soldier wrote.
            result = replace(result, checkpoint_path=str(self._king.places.checkpoint(task.id)))
        is_replied_to = result.status == "needs_human" or task.reply_to is not None
        return self._with_session(result) if is_replied_to and not result.session_id else result

    def _with_session(self, result: Result) -> Result:
        """Return the result with its session, which a foreign general notes beside it or in a question's checkpoint."""
        places, task, noted = self._king.places, result.task_id, None
        if result.status == "needs_human":
            with suppress(FileNotFoundError, BadInput):
                noted = notes.checkpoint(places, task).session_id
        return replace(result, session_id=noted or notes.session_id(places, task))

    def _unreadable(self, task: Task, path: Path, why: str) -> Result | None:
        patience = self._king.config["results"]["unreadable_seconds"]
        try:
            about = os.lstat(path)
        except FileNotFoundError:
            return None
        # abs: a file dated in the future must not be waited for until then.
        if abs(self._king.clock() - about.st_mtime) < patience and task.outcome is None:
            version = about.st_ino, about.st_mtime_ns, about.st_size
            if self._unreadable_versions.get(task.id) != version:
                self._king.log.warn(f"cannot read the result of {task.id}, will try again: {why}")
            self._unreadable_versions[task.id] = version
            return None
        return Result(task_id=task.id, status="failed", error=f"its result could not be read for {patience:g} s: {why}")

    def _finish(self, events: list[str], decisions: list[Decision[Task]]) -> None:
        king, tasks = self._king, [decision.cause for decision in decisions]
        king.queues.events.move(events, "dispatched", "completed")
        for task in tasks:
            said, event = f"{task.id} ended: {task.outcome}", OUTCOMES[str(task.outcome)].logged_as
            king.log.info(said, event=event, actor=task.target_general, task_id=task.id, **self._data.pop(task.id))
            notes.forget_cancelled(king.places, king.disk, task.id)
            self._unreadable_versions.pop(task.id, None)
        king.queues.tasks.move([task.id for task in tasks], "in_progress", "completed")
        self._in_progress.drop([f"{task.id}.json" for task in tasks])

    def _ended_events(self, decisions: list[Decision[Task]]) -> list[Event]:
        """Return the events of tasks that end, as they are to end with them."""
        events = self._king.queues.events
        ended: list[Event] = []
        for task in (decision.cause for decision in decisions):
            try:
                ended.append(replace(events.read("dispatched", task.event_id), status=task.status))
            except FileNotFoundError:
                if events.has(task.event_id, "pending"):
                    self._next_lost = 0.0  # a king was killed in dispatching it; once it is dispatched it ends
            except BadInput as error:
                self._king.log.warn(f"the event of {task.id} cannot be ended: {error}")
        return ended

    def _fail_lost(self) -> None:
        """End the events whose tasks were moved to dead or removed by hand: they would wait for ever."""
        events = self._king.queues.events
        dispatched = list(_readable(events, "dispatched", events.ids("dispatched")))
        foreign_ones = {event.id for event in dispatched if event.task_id is None}
        of_foreign = self._tasks_of(foreign_ones) if foreign_ones else {}
        tasks = ((event, event.task_id or of_foreign.get(event.id)) for event in dispatched)
        decided = [found for event, task in tasks if (found := self._decide_lost(event, task)) is not None]
        if decisions := self._king.numbered(decided):
            lost = [decision.cause for decision in decisions]
            self._king.hand_over(decisions, events.files("dispatched", lost))
            events.move([event.id for event in lost], "dispatched", "completed")

    def _tasks_of(self, events: set[str]) -> dict[str, str]:
        """Return the tasks of events that another king has dispatched: he does not note them in the events."""
        return {task.event_id: task.id for task in self._recent_tasks() if task.event_id in events}

    def _note_answers_of_others(self) -> None:
        """Note the answers that another king has taken while we were away: he keeps no notes of them."""
        king = self._king
        asking = set() if self._has_noted_answers else set(notes.open_questions(king.places))
        for task in self._recent_tasks() if asking else ():
            if (original := task.original) and original in asking:
                notes.note_answer(king.places, king.disk, original, task.event_id)
        self._has_noted_answers = True

    def _recent_tasks(self) -> Iterator[Task]:
        tasks = self._king.queues.tasks
        for state in ("pending", "in_progress", "completed"):
            ids = tasks.ids(state)
            yield from _readable(tasks, state, nlargest(MOST_SEARCHED, ids) if state == "completed" else ids)

    def _decide_lost(self, event: Event, task: str | None) -> Decision[Event] | None:
        tasks = self._king.queues.tasks
        # In the order in which a task moves, so that one that moves meanwhile is seen.
        if task is not None and tasks.has(task, "pending", "in_progress"):
            return None
        if task is not None and tasks.has(task, "completed"):
            return Decision(replace(event, status=self._status_of(task)), next_state="completed")
        where = "its file could not be read" if task is not None and tasks.has(task, "dead") else "its file is gone"
        why = f"{task or f'the task of {event.id}'} was lost: {where}"
        self._king.log.error(f"{event.id} failed: {why}")
        draft = messages.lost_task(event, self._king.channel, why)
        noted = replace(event, status="failed", discarded_reason=why, discarded_code="task_lost")
        return Decision(noted, [draft], next_state="completed")

    def _status_of(self, task_id: str) -> str:
        try:
            return self._king.queues.tasks.read("completed", task_id).status
        except (FileNotFoundError, BadInput):
            # Gone by retention, or damaged by hand: its messages are written all the same.
            return "completed"
