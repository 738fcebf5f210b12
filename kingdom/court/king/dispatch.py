"""Events, answers and scheduled runs become tasks: in the order of service, through the gate, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache

from kingdom.base.errors import BadInput
from kingdom.base.home.config import thawed
from kingdom.base.home.states import MOVES
from kingdom.base.records import notes
from kingdom.base.records.messages import Event, Queued, Task
from kingdom.base.times import stamp
from kingdom.court.king import messages
from kingdom.court.king.answers import Unanswerable, general_of, question_of, resume
from kingdom.court.king.context import Decision, KingContext
from kingdom.court.king.schedule_log import PRIORITY, ScheduledRun, ScheduleLog
from kingdom.court.rules.gate import Gate, Work
from kingdom.court.rules.routing import Route

BATCH = 128
"""Events are served in groups that become durable together."""


class Dispatch:
    def __init__(self, king: KingContext, schedules: ScheduleLog) -> None:
        self._king = king
        self._schedules = schedules
        self.events = king.backlog(king.queues.events)
        self._routes = king.routes
        self._known_routes: dict[str, Route | None] = {}
        """Of what the gate held, by type; of what people said, whose words decide, by file name."""
        self.has_more = False
        """Whether the last group left something that could have been in it."""

    def next_group(self, look: bool) -> bool:
        """Turn a run that is due and the next group of events into tasks. Return whether there was any."""
        # One look at the machine a turn, and none while nothing waits.
        gate = cache(self._king.gate)
        run = self._schedules.next_due(gate, look)
        if run is not None:
            self._serve_run(run)
        chosen = self._admitted(gate, 0 if run is None else 1)
        if chosen:
            self._serve_events(chosen)
        self.has_more = run is not None or len(chosen) == BATCH
        return run is not None or bool(chosen)

    def _admitted(self, gate: Callable[[], Gate], taken: int) -> list[Queued]:
        """Return the next events in the order of service. What was begun, and people's answers, always pass.

        What waits for a general that has all the soldiers it may have takes no room from the others.
        """
        chosen: list[Queued] = []
        own_room = cache(self._king.own_room)
        for queued in self.events.waiting:
            if len(chosen) == BATCH:
                break
            if self._waits_for_manifest(queued):
                continue
            if queued.begun or queued.is_answer:
                chosen.append(queued)
            elif (takes_room := self._is_admitted(queued, gate(), taken, own_room())) is not None:
                taken += takes_room
                chosen.append(queued)
        return chosen

    def _waits_for_manifest(self, queued: Queued) -> bool:
        """Return whether a manifest that cannot be read may be that of the general which takes this.

        Answers are told apart by the general that asked; it takes what it has asked for, and nothing else.
        """
        if not self._king.unknown:
            return False
        if not queued.is_answer:
            return self._route(queued) is None
        event = self.events.take(queued.filename)
        return event is not None and general_of(event, self._king.places) in self._king.unknown

    def _is_admitted(self, queued: Queued, gate: Gate, taken: int, own_room: dict[str, int]) -> int | None:
        """Return how many tasks become of it now; None if it has to wait. What nobody takes never waits."""
        work, has_room = Work(queued.priority, queued.is_chat), gate.room > taken
        if has_room and not own_room and gate.admits(work):
            return 1
        route = self._route(queued)
        if route is None:
            return 0
        own = own_room.get(route.general, 1)
        needs_model = self._king.routes.needs_model(route)
        if own <= 0 or not has_room or not gate.admits(replace(work, needs_model=needs_model)):
            return None
        if route.general in own_room:
            own_room[route.general] -= 1
        return 1

    def _route(self, queued: Queued) -> Route | None:
        """Return who gets it. What a person said is read for it."""
        if self._king.routes is not self._routes:
            self._routes = self._king.routes
            self._known_routes.clear()
        key = queued.filename if queued.is_chat else queued.type
        if key not in self._known_routes:
            event = self.events.take(queued.filename) if queued.is_chat else None
            self._known_routes[key] = self._routes.route(event) if event else self._routes.by_type(queued.type)
        return self._known_routes[key]

    def _serve_events(self, chosen: Sequence[Queued]) -> None:
        names = [queued.filename for queued in chosen]
        events = [event for name in names if (event := self.events.take(name)) is not None]
        fresh = [self._without_foreign_task(event) for event in self._drop_duplicates(events)]
        ids = iter(self._king.task_ids(sum(event.task_id is None for event in fresh)))
        decided = self._king.numbered([self._decide(event, event.task_id or next(ids)) for event in fresh])
        if decided:
            noted = self._king.queues.events.files("pending", [decision.cause for decision in decided])
            self._king.hand_over(decided, noted)
            self._finish(decided)
        self.events.drop(names)
        for queued in chosen:
            self._known_routes.pop(queued.filename if queued.is_chat else queued.type, None)

    def _serve_run(self, run: ScheduledRun) -> None:
        task_id = run.task_id or self._king.task_ids(1)[0]
        (decided,) = self._king.numbered([self._decide_run(run, task_id)])
        self._schedules.note(decided.cause)
        self._king.hand_over([decided], ())
        self._finish_run(decided.cause)

    def _decide(self, event: Event, task_id: str) -> Decision[Event]:
        if event.is_answer:
            return self._decide_answer(event, task_id)
        route = self._king.routes.route(event)
        if route is None:
            reason = f"no general subscribes to {event.type}"
            drafts = [messages.nobody_takes(event, self._king.channel)] if event.is_chat else []
            return self._ends_here(event, "discarded", "unclaimed", reason, *drafts)
        task = Task(
            id=task_id,
            event_id=event.id,
            target_general=route.general,
            type=event.type,
            repo=event.repo or self._king.routes.repos.get(route.general),
            payload=event.payload,
            priority=event.priority,
            created_at=self._king.now(),
            reply_to=messages.reply_address(event),
        )
        return self._becomes(event, task, messages.started(task, self._king.channel))

    def _decide_answer(self, event: Event, task_id: str) -> Decision[Event]:
        """Return what follows from an answer. First the question is noted as answered: the next one comes too late."""
        king = self._king
        try:
            task = resume(event, king.places, king.routes.repos, task_id, king.now())
        except Unanswerable as error:
            king.log.error(f"{event.id}: {error.why}")
            draft = messages.unanswerable(event, king.channel, error.why, error.thread)
            return self._ends_here(event, "failed", "unanswerable", error.why, draft)
        if (question := question_of(event, king.places)) is not None:
            notes.note_answer(king.places, king.disk, question, event.id)
        return self._becomes(event, task, messages.resumed(task, king.channel))

    def _decide_run(self, run: ScheduledRun, task_id: str) -> Decision[ScheduledRun]:
        plan = run.entry.schedule
        task = Task(
            id=task_id,
            event_id=run.entry.event_id,
            target_general=run.entry.general,
            type=plan.task_type,
            repo=plan.repo or run.entry.default_repo,
            payload=thawed(plan.payload),
            priority=PRIORITY,
            created_at=self._king.now(),
            scheduled_for=stamp(run.due),
        )
        draft = messages.started(task, self._king.channel)
        noted = replace(run, task_id=task_id)
        return Decision(noted, [draft], task, run.entry.run_key(run.due), begun=run.task_id is not None)

    def _becomes(self, event: Event, task: Task, draft: messages.MessageDraft) -> Decision[Event]:
        noted = replace(event, status="dispatched", task_id=task.id, discarded_reason=None, discarded_code=None)
        return Decision(noted, [draft], task, event.id, begun=event.task_id is not None, next_state="dispatched")

    def _ends_here(
        self, event: Event, status: str, code: str, why: str, *drafts: messages.MessageDraft
    ) -> Decision[Event]:
        noted = replace(event, status=status, discarded_reason=why, discarded_code=code, task_id=None)
        return Decision(noted, drafts, next_state="completed")

    def _drop_duplicates(self, events: Iterable[Event]) -> list[Event]:
        """Return the events that are new; duplicates end here."""
        fresh = []
        for event in events:
            if (task := self._first_task_of(event)) is None:
                fresh.append(event)
            else:
                self._discard_duplicate(event, task)
        return fresh

    def _first_task_of(self, event: Event) -> str | None:
        """Return what this event became when it came for the first time; None when this is the first time."""
        if self._king.queues.events.has(event.id, "dispatched", "completed"):
            return self._king.replays.task_of(event.id) or "an event that was handled before"
        if event.task_id or event.message_ids or event.requeued_by:
            return None
        return self._king.replays.task_of(event.id)

    def _discard_duplicate(self, event: Event, task: str) -> None:
        king, reason = self._king, f"duplicate of {task}"
        if king.queues.events.has(event.id, "dispatched", "completed"):
            if not self._is_a_repetition(event):
                why = f"another event of this id became {task}; give this one another id"
                king.queues.events.move_to_dead("pending", f"{event.id}.json", why)
                return
            king.disk.remove(king.places.queue_file("events", "pending", event.id))
        else:
            discarded = replace(event, status="discarded", discarded_reason=reason, discarded_code="duplicate")
            king.queues.events.end([discarded], "pending", "completed")
        said, data = f"{event.id} is discarded: {reason}", {"event_id": event.id, "event_type": event.type}
        king.log.info(said, event="event.discarded", **data, reason=reason)

    def _is_a_repetition(self, event: Event) -> bool:
        """Return whether an event says what the served one of its id said; when that cannot be read, it does."""
        for state in ("dispatched", "completed"):
            with suppress(FileNotFoundError, BadInput):
                served = self._king.queues.events.read(state, event.id)
                return (event.type, event.repo, event.payload) == (served.type, served.repo, served.payload)
        return True

    def _without_foreign_task(self, event: Event) -> Event:
        """Return the event without its note, when the task that is noted turns out to be another event's."""
        if event.task_id is None:
            return event
        for state in MOVES["tasks"]:
            try:
                other = self._king.queues.tasks.read(state, event.task_id)
            except (FileNotFoundError, BadInput):
                continue
            return event if other.event_id == event.id else replace(event, task_id=None, message_ids={})
        return event

    def _finish(self, decisions: list[Decision[Event]]) -> None:
        for decision in decisions:
            self._log(decision)
        for state in ("dispatched", "completed"):
            ids = [decision.cause.id for decision in decisions if decision.next_state == state]
            for stuck in self._king.queues.events.move(ids, "pending", state) if ids else ():
                self._king.log.warn(f"event {stuck} could not move to {state}: it is missing, or already there")

    def _log(self, decision: Decision[Event]) -> None:
        log, event, task = self._king.log, decision.cause, decision.task
        if task is None:
            said, data = f"{event.id} is {event.status}: {event.discarded_reason}", {"event_type": event.type}
            log.warn(said, event="event.discarded", event_id=event.id, **data, reason=event.discarded_reason)
            return
        data = {"task_id": task.id, "target_general": task.target_general}
        said = f"{event.id} ({event.type}) → {task.id} for {task.target_general}"
        log.info(said, event="event.dispatched", event_id=event.id, **data)
        if task.type == "resume":
            log.event("task.resumed", **data, original_task_id=task.original)
        else:
            log.event("task.created", **data, event_type=event.type, priority=task.priority)

    def _finish_run(self, run: ScheduledRun) -> None:
        self._schedules.remove(run)
        said = f"{run.entry.key} is due → {run.task_id}"
        data = {"target_general": run.entry.general, "event_type": run.entry.schedule.task_type}
        self._king.log.info(said, event="task.created", task_id=run.task_id, **data, priority=PRIORITY)
