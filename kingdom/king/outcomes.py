"""Results become letters: the outcome is noted in the task, the letters are written, event and task end."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from kingdom.disk.atomic import is_there
from kingdom.disk.codec import read_json
from kingdom.errors import BadFile, BadInput
from kingdom.home import schemas
from kingdom.king import messages
from kingdom.king.context import Desk, with_letters
from kingdom.king.judgement import INTERNAL_EVENT, JUDGE, STATUS
from kingdom.records import notes
from kingdom.records.messages import Event, Result, Task

BATCH = 128
"""Results are judged in groups that become durable together."""


class Cases:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def judge(self) -> int:
        """The next group of ended tasks. Returns how many there were; a whole group means there may be more."""
        queues, results = self._desk.services.queues, self._desk.services.places.results
        ready = (name for name in queues.tasks.file_names("in_progress") if is_there(results / name))
        judged = (pair for name in ready if (pair := self._verdict(name)) is not None)
        pairs = list(islice(judged, BATCH))
        if pairs:
            self._close_cases(pairs)
        return len(pairs)

    def close_lost(self) -> None:
        """An event whose task was buried, or taken away by hand, would wait for ever: it fails, and people hear why."""
        queues = self._desk.services.queues
        for event_id in queues.events.ids("dispatched"):
            try:
                event: Event = queues.events.read("dispatched", event_id)
            except (FileNotFoundError, BadInput):
                continue
            # In the order in which a task moves, so that one that moves meanwhile is seen.
            if event.task_id is None or queues.tasks.has(event.task_id, "pending", "in_progress"):
                continue
            if queues.tasks.has(event.task_id, "completed"):
                self._end(event, self._status_of(event.task_id))
            else:
                self._end_lost(event)

    def _status_of(self, task_id: str) -> str:
        try:
            return str(self._desk.services.queues.tasks.read("completed", task_id).status)
        except (FileNotFoundError, BadInput):
            # Gone by retention, or damaged by hand: its letters are written all the same.
            return "completed"

    def _end_lost(self, event: Event) -> None:
        where = (
            "it could not be read" if self._desk.services.queues.tasks.has(str(event.task_id), "dead") else "it is gone"
        )
        why = f"{event.task_id} came to nothing: {where}"
        draft = messages.lost_task(event, self._desk.channel, why)
        repeated = draft.label in event.message_ids
        noted = with_letters(event, [draft], iter([] if repeated else self._desk.letter_ids(1)))
        self._desk.services.queues.events.update("dispatched", [noted.evolve(discarded_reason=why)])
        self._desk.write_letters([([draft], noted.message_ids, repeated)])
        self._desk.services.log.error(f"{event.id} failed: {why}")
        self._end(noted.evolve(discarded_reason=why), "failed")

    def _end(self, event: Event, status: str) -> None:
        queues = self._desk.services.queues
        queues.events.update("dispatched", [event.evolve(status=status)])
        queues.events.move([event.id], "dispatched", "completed")

    def _verdict(self, filename: str) -> tuple[Task, Result] | None:
        task: Task | None = self._desk.services.queues.tasks.take("in_progress", filename)
        if task is None:
            return None
        path = self._desk.services.places.result(task.id)
        try:
            result = Result.from_json(schemas.check("result", read_json(path)))
            if result.task_id != task.id:
                raise BadFile(path=path, why=f"it is the result of {result.task_id}")
        except FileNotFoundError:
            return None
        except BadInput as trouble:
            return self._unreadable(task, path, str(trouble))
        # Its own and no other, whatever the soldier wrote.
        result = result.evolve(checkpoint_path=str(self._desk.services.places.checkpoint(task.id)))
        return task.evolve(outcome=result.status, status=STATUS[result.status]), result

    def _unreadable(self, task: Task, path: Path, why: str) -> tuple[Task, Result] | None:
        patience = self._desk.config["results"]["unreadable_seconds"]
        try:
            # Either way: a file from the future would else be waited for until then.
            age = abs(self._desk.services.clock() - os.lstat(path).st_mtime)
        except FileNotFoundError:
            return None
        if age < patience and task.outcome is None:
            self._desk.services.log.warn(f"cannot read the result of {task.id}, will try again: {why}")
            return None
        failure = Result(
            task_id=task.id, status="failed", error=f"its result could not be read for {patience:g} s: {why}"
        )
        return task.evolve(outcome="failed", status="failed"), failure

    def _close_cases(self, cases: list[tuple[Task, Result]]) -> None:
        """Note the outcome and the letters' ids in the task, write the letters, end the event, end the task."""
        queues = self._desk.services.queues
        drafts = [JUDGE[result.status](task, result, self._desk.channel) for task, result in cases]
        missing = [
            sum(d.label not in task.message_ids for d in ds) for (task, _), ds in zip(cases, drafts, strict=True)
        ]
        ids = iter(self._desk.letter_ids(sum(missing)))
        noted = [with_letters(task, ds, ids) for (task, _), ds in zip(cases, drafts, strict=True)]
        repeated = [bool(task.message_ids) for task, _ in cases]
        queues.tasks.update("in_progress", noted)
        self._desk.write_letters(
            [(ds, task.message_ids, again) for ds, task, again in zip(drafts, noted, repeated, strict=True)]
        )
        self._end_events(noted)
        for task, result in zip(noted, (result for _, result in cases), strict=True):
            self._desk.services.log.info(f"{task.id} ended: {result.status}")
            self._desk.services.log.event(INTERNAL_EVENT[result.status], task_id=task.id, general=task.target_general)
            notes.forget_cancelled(self._desk.services.places, self._desk.services.disk, task.id)
        queues.tasks.move([task.id for task in noted], "in_progress", "completed")

    def _end_events(self, tasks: list[Task]) -> None:
        ended: list[Event] = []
        for task in tasks:
            try:
                event: Event = self._desk.services.queues.events.read("dispatched", task.event_id)
            except FileNotFoundError:
                continue
            except BadInput as trouble:
                self._desk.services.log.warn(f"the event of {task.id} cannot be ended: {trouble}")
                continue
            ended.append(event.evolve(status=task.status))
        self._desk.services.queues.events.update("dispatched", ended)
        self._desk.services.queues.events.move([event.id for event in ended], "dispatched", "completed")
