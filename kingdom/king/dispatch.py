"""Events become tasks: in the order of service, through the gate, each once.

Every step notes its intent in the event's file, creates the new files without replacing, then moves the event.
What a killed life left half-way is found by the note and finished under the same ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kingdom.errors import BadInput
from kingdom.king import answers, messages
from kingdom.king.answers import Lost
from kingdom.king.context import ANYWHERE, Desk, with_letters
from kingdom.king.messages import Draft
from kingdom.records import notes
from kingdom.records.backlog import Backlog
from kingdom.records.messages import Event, Queued, Task
from kingdom.rules.gate import Gate
from kingdom.times import stamp

BATCH = 128
"""Events are served in groups that become durable together."""


@dataclass(frozen=True, slots=True)
class Decree:
    """One event decided: the note for its file, and what follows from it."""

    event: Event
    task: Task | None
    drafts: list[Draft]
    moves_to: str
    repeated: bool


class Dispatch:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.backlog = Backlog(desk.services.queues.events, period=desk.look_period)

    def serve(self) -> bool:
        """The next group of what waits, as far as the gate admits it."""
        chosen = self._admitted(self._desk.gate())
        if not chosen:
            return False
        opened = [self._desk.services.queues.events.take("pending", each.filename) for each in chosen]
        events = [event for event in opened if event is not None]
        fresh = self._without_replays(events)
        self._carry_out(self._decide(fresh))
        self.backlog.drop(each.filename for each in chosen)
        return True

    def _admitted(self, gate: Gate) -> list[Queued]:
        """In the order of service. What has begun, and what people answer, is never held."""
        chosen: list[Queued] = []
        room = gate.room
        for each in self.backlog:
            if len(chosen) == BATCH:
                break
            if each.begun or each.is_answer:
                chosen.append(each)
            elif room > 0 and gate.admits(each.priority):
                room -= 1
                chosen.append(each)
        return chosen

    def _without_replays(self, events: Sequence[Event]) -> list[Event]:
        fresh = []
        for event in events:
            task = self._replay_of(event)
            if task is None:
                fresh.append(event)
            else:
                self._dismiss_replay(event, task)
        return fresh

    def _replay_of(self, event: Event) -> str | None:
        """What this event became before, when it is only told again."""
        if self._desk.services.queues.events.has(event.id, "dispatched", "completed"):
            return self._desk.done.task_of(event.id) or "an earlier decision"
        if event.task_id or event.message_ids or event.requeued_by:
            return None
        return self._desk.done.task_of(event.id)

    def _dismiss_replay(self, event: Event, task: str) -> None:
        reason = f"told again: it became {task}"
        queues = self._desk.services.queues
        if queues.events.has(event.id, "dispatched", "completed"):
            self._desk.services.disk.remove(self._desk.services.places.queue_file("events", "pending", event.id))
        else:
            queues.events.update("pending", [event.evolve(status="discarded", discarded_reason=reason)])
            queues.events.move([event.id], "pending", "completed")
        self._desk.services.log.info(f"{event.id} is {reason}")
        self._desk.services.log.event("event.discarded", event_id=event.id, reason=reason)

    def _decide(self, events: Sequence[Event]) -> list[Decree]:
        events = [self._disowned(event) for event in events]
        need_ids = [event for event in events if event.task_id is None]
        ids = dict(zip((event.id for event in need_ids), self._desk.task_ids(len(need_ids)), strict=True))
        return self._with_letter_ids([self._decree(event, ids.get(event.id)) for event in events])

    def _disowned(self, event: Event) -> Event:
        """Without its note, when the task that is noted turns out to be somebody else's."""
        if event.task_id is None:
            return event
        for state in ANYWHERE["tasks"]:
            try:
                other: Task = self._desk.services.queues.tasks.read(state, event.task_id)
            except (FileNotFoundError, BadInput):
                continue
            return event if other.event_id == event.id else event.evolve(task_id=None, message_ids={})
        return event

    def _decree(self, event: Event, new_id: str | None) -> Decree:
        task_id = new_id or event.task_id or ""
        repeated = new_id is None
        task = self._task_for(event, task_id)
        if isinstance(task, Lost):
            return self._lost(event, task, repeated)
        if task is None:
            reason = f"no general subscribes to {event.type}"
            note = event.evolve(status="discarded", discarded_reason=reason, task_id=None)
            return Decree(note, None, [], "completed", repeated)
        draft = (
            messages.resumed(task, self._desk.channel)
            if task.type == "resume"
            else messages.started(task, self._desk.channel)
        )
        note = event.evolve(status="dispatched", task_id=task_id, discarded_reason=None)
        return Decree(note, task, [draft], "dispatched", repeated)

    def _task_for(self, event: Event, task_id: str) -> Task | Lost | None:
        now = stamp(self._desk.services.clock())
        if event.is_answer:
            return self._resumed(event, task_id, now)
        route = self._desk.routes.route(event)
        if route is None:
            return None
        return Task(
            id=task_id,
            event_id=event.id,
            target_general=route.general,
            type=event.type,
            repo=event.repo or self._desk.routes.repos.get(route.general),
            payload=event.payload,
            priority=event.priority,
            created_at=now,
            status="pending",
            attempt=0,
            reply_to=messages.reply_address(event),
        )

    def _resumed(self, event: Event, task_id: str, now: str) -> Task | Lost:
        """A question is taken by its first answer before anything follows from it: the next one finds it taken."""
        places, disk = self._desk.services.places, self._desk.services.disk
        task = answers.resume(event, places, self._desk.routes.repos, task_id, now)
        question = answers.question_of(event)
        if isinstance(task, Task) and question is not None:
            notes.note_answer(places, disk, question, event.id)
        return task

    def _lost(self, event: Event, lost: Lost, repeated: bool) -> Decree:
        self._desk.services.log.error(f"{event.id}: {lost.why}")
        note = event.evolve(status="failed", discarded_reason=lost.why, task_id=None)
        return Decree(
            note,
            None,
            [messages.lost_answer(event, self._desk.channel, lost.why, lost.thread)],
            "completed",
            repeated or bool(event.message_ids),
        )

    def _with_letter_ids(self, decrees: list[Decree]) -> list[Decree]:
        """Letters of a begun event keep the ids that were noted for them."""
        missing = [sum(draft.label not in decree.event.message_ids for draft in decree.drafts) for decree in decrees]
        ids = iter(self._desk.letter_ids(sum(missing)))
        return [
            Decree(with_letters(each.event, each.drafts, ids), each.task, each.drafts, each.moves_to, each.repeated)
            for each in decrees
        ]

    def _carry_out(self, decrees: list[Decree]) -> None:
        queues = self._desk.services.queues
        queues.events.update("pending", [each.event for each in decrees])
        queues.tasks.create(
            [each.task for each in decrees if each.task and not self._desk.there("tasks", each.task.id, each.repeated)],
        )
        for each in decrees:
            self._tell_decree(each)
        self._desk.write_letters([(each.drafts, each.event.message_ids, each.repeated) for each in decrees])
        self._desk.done.note((each.event.id, each.task.id) for each in decrees if each.task)
        for place in ("dispatched", "completed"):
            names = [each.event.id for each in decrees if each.moves_to == place]
            for stuck in queues.events.move(names, "pending", place):
                self._desk.services.log.warn(f"event {stuck} could not move to {place}: gone, or there already")

    def _tell_decree(self, decree: Decree) -> None:
        log, event = self._desk.services.log, decree.event
        if decree.task:
            log.info(f"{event.id} ({event.type}) → {decree.task.id} for {decree.task.target_general}")
            log.event("event.dispatched", event_id=event.id, task_id=decree.task.id)
            log.event(
                "task.resumed" if decree.task.type == "resume" else "task.created",
                task_id=decree.task.id,
                general=decree.task.target_general,
            )
        else:
            log.warn(f"{event.id} is {event.status}: {event.discarded_reason}")
            log.event("event.discarded", event_id=event.id, reason=event.discarded_reason)
