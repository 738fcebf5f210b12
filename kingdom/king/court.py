"""The king's turn: answers and events become tasks, results become letters, the clock makes work of its own.

Every step notes its intent in the old file, creates the new files without replacing, then moves the old one.
What a killed life left half-way is found by the note and finished under the same ids.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import TypeVar

from kingdom import config, gate, manifests, routing, schemas
from kingdom.atomic import read_json
from kingdom.errors import BadFile, BadInput
from kingdom.gate import Gate
from kingdom.king import answers, letters
from kingdom.king.answers import Lost
from kingdom.king.diary import Diary
from kingdom.king.done import DoneIndex
from kingdom.king.judgement import INTERNAL_EVENT, JUDGE, STATUS
from kingdom.king.letters import Draft
from kingdom.king.orders import Orders
from kingdom.king.watchman import Watchman
from kingdom.messages import Event, Json, Message, Numbers, Result, Task, highest_number, stamp
from kingdom.post import LOOK_AGAIN_SECONDS, Shelf, Waiting
from kingdom.role import Kit, Turn
from kingdom.steward.roll_call import What

T = TypeVar("T", Event, Task)

BATCH = 128
"""Events and results are served in groups that become durable together."""
AHEAD = 64
"""Numbers noted before they are needed: a lone event does not wait for two more files."""
ANYWHERE = {"tasks": ("pending", "in_progress", "completed", "dead"), "messages": ("pending", "sent", "failed", "dead")}


@dataclass(frozen=True, slots=True)
class Decree:
    """One event decided: the note for its file, and what follows from it."""

    event: Event
    task: Task | None
    drafts: list[Draft]
    moves_to: str
    repeated: bool


class Court:
    def __init__(self, kit: Kit) -> None:
        self._take_over(kit)
        places = kit.places
        self._events = Shelf(kit.post, "events")
        self._task_numbers = self._numbers("tasks", "task-")
        self._letter_numbers = self._numbers("messages", "msg-")
        self._done = DoneIndex(kit.disk, places.own("king") / "done.idx", kit.clock)
        self._diary = Diary(kit, self._done)
        self._orders = Orders(kit, lambda: self._take_task_ids(1)[0])
        self._watchman = Watchman(kit)
        self._seen_manifests: object = None
        self._generals: list[manifests.Manifest] = []
        self._routes = routing.table([])
        self._next_events = self._next_results = self._next_schedules = 0.0

    def folders(self) -> Iterable[Path]:
        places = self._kit.places
        yield from (places.folder("events", "pending"), places.folder("orders", "pending"))
        yield from (places.results, places.manifests)
        yield from (places.folder("tasks", state) for state in ("in_progress", "completed"))

    def reload(self, kit: Kit) -> None:
        self._take_over(kit)
        self._diary.take_over(kit)
        self._orders.take_over(kit)

    def close(self) -> None:
        """Nothing is held in memory that the directories do not hold."""
        with suppress(OSError):
            # A full disk costs a gap in the numbers, no more.
            self._task_numbers.close()
            self._letter_numbers.close()

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        self._read_manifests()
        worked = self._judge(arrivals)
        worked = self._hear_orders(arrivals) or worked
        worked = self._keep_schedules(arrivals) or worked
        worked = self._serve_events(arrivals) or worked
        self._watch_chamberlain()
        next_look = min(self._next_events, self._next_results, self._next_schedules, self._watchman.due)
        return Turn(worked, wait=next_look - time.monotonic(), busy=self._kit.post.unsettled)

    # --- events

    def _serve_events(self, arrivals: dict[Path, list[str]] | None) -> bool:
        self._look_for_events(arrivals)
        chosen = self._admitted(self._look_at_gate())
        if not chosen:
            return False
        opened = [self._kit.post.open("events", "pending", each.filename) for each in chosen]
        events = [event for event in opened if event is not None]
        fresh = self._without_replays(events)
        self._carry_out(self._decide(fresh))
        self._events.drop(each.filename for each in chosen)
        return True

    def _look_for_events(self, arrivals: dict[Path, list[str]] | None) -> None:
        now = time.monotonic()
        if arrivals is None or now >= self._next_events:
            self._kit.post.unsettled = False
            self._events.rescan()
            self._bury_unreadable_tasks()
            period = self._config["intervals"]["event_check_seconds"]
            self._next_events = now + (LOOK_AGAIN_SECONDS if self._kit.post.unsettled else period)
        else:
            self._events.note(arrivals.get(self._kit.places.folder("events", "pending"), ()))
            if self._kit.post.unsettled:
                self._next_events = min(self._next_events, now + LOOK_AGAIN_SECONDS)

    def _look_at_gate(self) -> Gate:
        post = self._kit.post
        under_way = len(post.ids("tasks", "pending")) + len(post.ids("tasks", "in_progress"))
        stale = self._config["resources"]["stale_seconds"]
        at_most = self._config["concurrency"]["max_soldiers"]
        return gate.look(self._kit.places, self._kit.clock(), stale, under_way, at_most)

    def _admitted(self, gate: Gate) -> list[Waiting]:
        """In the order of service. What has begun, and what people answer, is never held."""
        chosen: list[Waiting] = []
        room = gate.room
        for each in self._events:
            if len(chosen) == BATCH:
                break
            if each.begun or each.type.endswith((".human_response", ".thread.reply")):
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
        if event.task_id or event.letters or "requeued_by" in event.extra:
            return None
        if self._kit.post.has("events", event.id, "dispatched", "completed"):
            return self._done.task_of(event.id) or "an earlier decision"
        return self._done.task_of(event.id)

    def _dismiss_replay(self, event: Event, task: str) -> None:
        reason = f"told again: it became {task}"
        post = self._kit.post
        if post.has("events", event.id, "dispatched", "completed"):
            self._kit.disk.remove(self._kit.places.letter("events", "pending", event.id))
        else:
            post.annotate("events", "pending", [event.but(status="discarded", discarded_reason=reason)])
            post.move("events", [event.id], "pending", "completed")
        self._kit.log.say(f"{event.id} is {reason}")
        self._kit.log.event("event.discarded", event_id=event.id, reason=reason)

    def _decide(self, events: Sequence[Event]) -> list[Decree]:
        need_ids = [event for event in events if not self._begun_task(event)]
        ids = dict(zip((event.id for event in need_ids), self._take_task_ids(len(need_ids)), strict=True))
        return self._with_letter_ids([self._decree(event, ids.get(event.id)) for event in events])

    def _begun_task(self, event: Event) -> str | None:
        """The task id noted in the event, unless that id turns out to be somebody else's task."""
        if event.task_id is None:
            return None
        for state in ANYWHERE["tasks"]:
            try:
                other: Task = self._kit.post.read("tasks", state, event.task_id)
            except (FileNotFoundError, BadInput):
                continue
            return event.task_id if other.event_id == event.id else None
        return event.task_id

    def _decree(self, event: Event, new_id: str | None) -> Decree:
        task_id = new_id or event.task_id or ""
        repeated = new_id is None
        task = self._task_for(event, task_id)
        if isinstance(task, Lost):
            return self._lost(event, task.why, repeated)
        if task is None:
            reason = f"no general subscribes to {event.type}"
            note = event.but(status="discarded", discarded_reason=reason, task_id=None)
            return Decree(note, None, [], "completed", repeated)
        draft = letters.resumed(task, self._channel) if task.type == "resume" else letters.started(task, self._channel)
        note = event.but(status="dispatched", task_id=task_id, discarded_reason=None)
        return Decree(note, task, [draft], "dispatched", repeated)

    def _task_for(self, event: Event, task_id: str) -> Task | Lost | None:
        now = stamp(self._kit.clock())
        if event.is_answer:
            return answers.resume(event, self._kit.places, self._routes.repos, task_id, now)
        route = self._routes.route(event)
        if route is None:
            return None
        return Task(
            id=task_id,
            event_id=event.id,
            target_general=route.general,
            type=event.type,
            repo=event.repo or self._routes.repos.get(route.general),
            payload=event.payload,
            priority=event.priority,
            created_at=now,
            status="pending",
            attempt=0,
            reply_to=letters.reply_address(event),
        )

    def _lost(self, event: Event, why: str, repeated: bool) -> Decree:
        self._kit.log.error(f"{event.id}: {why}")
        note = event.but(status="failed", discarded_reason=why, task_id=None)
        return Decree(
            note, None, [letters.lost_answer(event, self._channel, why)], "completed", repeated or bool(event.letters)
        )

    def _with_letter_ids(self, decrees: list[Decree]) -> list[Decree]:
        """Letters of a begun event keep the ids that were noted for them."""
        missing = [sum(draft.label not in decree.event.letters for draft in decree.drafts) for decree in decrees]
        ids = iter(self._take_letter_ids(sum(missing)))
        return [
            Decree(_with_letters(each.event, each.drafts, ids), each.task, each.drafts, each.moves_to, each.repeated)
            for each in decrees
        ]

    def _carry_out(self, decrees: list[Decree]) -> None:
        post = self._kit.post
        post.annotate("events", "pending", [each.event for each in decrees])
        post.deliver(
            "tasks",
            [each.task for each in decrees if each.task and not self._there("tasks", each.task.id, each.repeated)],
        )
        for each in decrees:
            self._tell_decree(each)
        self._write_letters([(each.drafts, each.event.letters, each.repeated) for each in decrees])
        self._done.note((each.event.id, each.task.id) for each in decrees if each.task)
        for place in ("dispatched", "completed"):
            names = [each.event.id for each in decrees if each.moves_to == place]
            for stuck in post.move("events", names, "pending", place):
                self._kit.log.warn(f"event {stuck} could not move to {place}: gone, or there already")

    def _tell_decree(self, decree: Decree) -> None:
        log, event = self._kit.log, decree.event
        if decree.task:
            log.say(f"{event.id} ({event.type}) → {decree.task.id} for {decree.task.target_general}")
            log.event("event.dispatched", event_id=event.id, task_id=decree.task.id)
            log.event(
                "task.resumed" if decree.task.type == "resume" else "task.created",
                task_id=decree.task.id,
                general=decree.task.target_general,
            )
        else:
            log.warn(f"{event.id} is {event.status}: {event.discarded_reason}")
            log.event("event.discarded", event_id=event.id, reason=event.discarded_reason)

    def _bury_unreadable_tasks(self) -> None:
        """Generals look only at their own tasks; one that nobody can read is the king's to put away."""
        for name in self._kit.post.names("tasks", "pending"):
            self._kit.post.open("tasks", "pending", name)

    # --- results

    def _judge(self, arrivals: dict[Path, list[str]] | None) -> bool:
        now = time.monotonic()
        places = self._kit.places
        if arrivals is None or now >= self._next_results:
            self._next_results = now + self._config["intervals"]["result_check_seconds"]
        elif places.results not in arrivals and places.folder("tasks", "in_progress") not in arrivals:
            return False
        in_progress = self._kit.post.names("tasks", "in_progress")
        ready = [name for name in in_progress if os.path.lexists(places.results / name)]
        judged = (pair for name in ready if (pair := self._verdict(name)) is not None)
        pairs = list(islice(judged, BATCH))
        if pairs:
            self._close_cases(pairs)
        if len(pairs) == BATCH:
            self._next_results = now
        return bool(pairs)

    def _verdict(self, filename: str) -> tuple[Task, Result] | None:
        task: Task | None = self._kit.post.open("tasks", "in_progress", filename)
        if task is None:
            return None
        path = self._kit.places.result(task.id)
        try:
            result = Result.from_json(schemas.check("result", read_json(path)))
            if result.task_id != task.id:
                raise BadFile(path=path, why=f"it is the result of {result.task_id}")
        except FileNotFoundError:
            return None
        except BadInput as trouble:
            return self._unreadable(task, path, str(trouble))
        return task.but(outcome=result.status, status=STATUS[result.status]), result

    def _unreadable(self, task: Task, path: Path, why: str) -> tuple[Task, Result] | None:
        patience = self._config["results"]["unreadable_seconds"]
        try:
            age = self._kit.clock() - os.lstat(path).st_mtime
        except FileNotFoundError:
            return None
        if age < patience and task.outcome is None:
            self._kit.log.warn(f"cannot read the result of {task.id}, will try again: {why}")
            return None
        failure = Result(
            task_id=task.id, status="failed", error=f"its result could not be read for {patience:g} s: {why}"
        )
        return task.but(outcome="failed", status="failed"), failure

    def _close_cases(self, cases: list[tuple[Task, Result]]) -> None:
        """Note the outcome and the letters' ids in the task, write the letters, end the event, end the task."""
        post = self._kit.post
        drafts = [self._drafts(task, result) for task, result in cases]
        missing = [sum(d.label not in task.letters for d in ds) for (task, _), ds in zip(cases, drafts, strict=True)]
        ids = iter(self._take_letter_ids(sum(missing)))
        noted = [_with_letters(task, ds, ids) for (task, _), ds in zip(cases, drafts, strict=True)]
        repeated = [bool(task.letters) for task, _ in cases]
        post.annotate("tasks", "in_progress", noted)
        self._write_letters(
            [(ds, task.letters, again) for ds, task, again in zip(drafts, noted, repeated, strict=True)]
        )
        self._end_events(noted)
        for task, result in zip(noted, (result for _, result in cases), strict=True):
            self._kit.log.say(f"{task.id} ended: {result.status}")
            self._kit.log.event(INTERNAL_EVENT[result.status], task_id=task.id, general=task.target_general)
        post.move("tasks", [task.id for task in noted], "in_progress", "completed")

    def _drafts(self, task: Task, result: Result) -> list[Draft]:
        checkpoint = str(self._kit.places.checkpoint(task.id))
        return JUDGE[result.status](task, result, self._channel, checkpoint)

    def _end_events(self, tasks: list[Task]) -> None:
        ended: list[Event] = []
        for task in tasks:
            try:
                event: Event = self._kit.post.read("events", "dispatched", task.event_id)
            except FileNotFoundError:
                continue
            except BadInput as trouble:
                self._kit.log.warn(f"the event of {task.id} cannot be ended: {trouble}")
                continue
            ended.append(event.but(status=task.status))
        self._kit.post.annotate("events", "dispatched", ended)
        self._kit.post.move("events", [event.id for event in ended], "dispatched", "completed")

    # --- orders

    def _hear_orders(self, arrivals: dict[Path, list[str]] | None) -> bool:
        pending = self._kit.places.folder("orders", "pending")
        everything = arrivals is None or time.monotonic() >= self._next_events
        self._orders.look(None if everything or arrivals is None else arrivals.get(pending, ()))
        return self._orders.obey()

    # --- the chamberlain

    def _watch_chamberlain(self) -> None:
        for finding in self._watchman.look(self._kit):
            self._kit.log.warn(str(finding))
            if finding.what is What.RESTARTED:
                self._kit.log.event("recovery.session_restarted", role=finding.role, detail=finding.detail)
                alarm = letters.alarm(
                    self._take_letter_ids(1)[0], str(finding), self._channel, stamp(self._kit.clock())
                )
                self._kit.post.deliver("messages", [alarm])

    # --- the clock

    def _keep_schedules(self, arrivals: dict[Path, list[str]] | None) -> bool:
        now = time.monotonic()
        if arrivals is not None and now < self._next_schedules:
            return False
        run = self._diary.next_due(self._zone, self._look_at_gate())
        if run is None:
            most = self._config["intervals"]["schedule_check_seconds"]
            self._next_schedules = now + self._diary.sleep(most)
            return False
        if run.task_id is None:
            run = self._diary.intend(run, self._take_task_ids(1)[0], self._take_letter_ids(1)[0])
        task = self._diary.task(run, stamp(self._kit.clock()))
        if not self._there("tasks", task.id, run.repeated):
            self._kit.post.deliver("tasks", [task])
        self._write_letters([([letters.started(task, self._channel)], {"start": run.letter_id}, run.repeated)])
        self._diary.done(run)
        self._kit.log.say(f"{run.entry.key} is due → {task.id}")
        self._kit.log.event("task.created", task_id=task.id, general=task.target_general)
        return True

    # --- shared

    def _take_over(self, kit: Kit) -> None:
        self._kit = kit
        self._config = kit.config
        named = os.environ.get("SLACK_DEFAULT_CHANNEL") or config.secrets(kit.places).get("SLACK_DEFAULT_CHANNEL")
        self._channel = named or str(kit.config["slack"]["default_channel"])
        self._zone = config.zone(kit.places, kit.system)

    def _read_manifests(self) -> None:
        seen = manifests.fingerprint(self._kit.places)
        if seen == self._seen_manifests:
            return
        self._generals, bad = manifests.installed(self._kit.places)
        self._routes = routing.table(self._generals)
        for trouble in bad:
            self._kit.log.error(f"skips a manifest: {trouble}")
        for warning in (*self._routes.warnings, *self._diary.check(self._generals)):
            self._kit.log.warn(warning)
        self._next_schedules = 0.0
        self._seen_manifests = seen
        names = ", ".join(each.name for each in self._generals) or "none"
        self._kit.log.say(f"generals: {names}; {len(self._routes.claims)} event types, {len(self._routes.words)} words")

    def _write_letters(self, sets: list[tuple[list[Draft], Json, bool]]) -> None:
        now = stamp(self._kit.clock())
        due: list[Message] = []
        for drafts, ids, repeated in sets:
            for draft in drafts:
                if not self._there("messages", ids[draft.label], repeated):
                    due.append(draft.letter(ids[draft.label], now))
        self._kit.post.deliver("messages", due)

    def _there(self, kind: str, name: str, repeated: bool) -> bool:
        """Whether an earlier life has made it already. Fresh ids need no look."""
        return repeated and self._kit.post.has(kind, name, *ANYWHERE[kind])

    def _take_task_ids(self, count: int) -> list[str]:
        return [f"task-{number}" for number in self._task_numbers.take(count)] if count else []

    def _take_letter_ids(self, count: int) -> list[str]:
        return [f"msg-{number}" for number in self._letter_numbers.take(count)] if count else []

    def _numbers(self, kind: str, prefix: str) -> Numbers:
        places = self._kit.places
        folders = [places.folder(kind, state) for state in ANYWHERE[kind]]
        path = places.own("king") / f"{prefix}seq"
        return Numbers(self._kit.disk, path, self._today, highest_number(folders, f"{prefix}{{day}}-"), AHEAD)

    def _today(self) -> date:
        now = self._kit.clock()
        return datetime.fromtimestamp(now, self._zone).date()


def _with_letters(thing: T, drafts: list[Draft], ids: Iterable[str]) -> T:
    """The thing with an id noted for every letter that follows from it."""
    named = {**thing.letters}
    for draft in drafts:
        if draft.label not in named:
            named[draft.label] = next(iter(ids))
    return thing.but(letters=named)
