"""The king's turn: results become letters, orders are obeyed, the clock makes work of its own, events become tasks."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kingdom.king import messages
from kingdom.king.context import Desk
from kingdom.king.dispatch import Dispatch
from kingdom.king.orders import Orders
from kingdom.king.outcomes import BATCH, Cases
from kingdom.king.schedule_log import Diary
from kingdom.king.watchman import Watchman
from kingdom.records.backlog import LOOK_AGAIN_SECONDS, Backlog
from kingdom.records.messages import alert
from kingdom.runtime.role import Services, Turn
from kingdom.steward.roll_call import What, log_findings
from kingdom.times import stamp

Arrivals = dict[Path, list[str]] | None

LOST_SECONDS = 60.0
"""Between looks at every event under way: only a task that was buried or taken away by hand makes one worth while."""


class Court:
    def __init__(self, services: Services) -> None:
        self._desk = Desk(services)
        self._dispatch = Dispatch(self._desk)
        self._cases = Cases(self._desk)
        self._diary = Diary(services, self._desk.done)
        self._orders = Orders(services, self._desk.look_period, lambda: self._desk.task_ids(1)[0])
        self._watchman = Watchman(services)
        self._tasks = [
            Backlog(services.queues.tasks, state, period=self._desk.look_period) for state in ("pending", "in_progress")
        ]
        """Generals look only at their own tasks; one that nobody can read is the king's to bury, and takes no room."""
        self._next_events = self._next_results = self._next_schedules = self._next_lost = 0.0

    def folders(self) -> Iterable[Path]:
        places = self._desk.services.places
        yield from (places.folder("events", "pending"), places.folder("orders", "pending"))
        yield from (places.results, places.manifests)
        yield from (places.folder("tasks", state) for state in ("in_progress", "completed"))

    def reload(self, services: Services) -> None:
        self._desk.take_over(services)
        self._diary.take_over(services)
        self._orders.take_over(services)

    def close(self) -> None:
        """Nothing is held in memory that the directories do not hold."""
        with suppress(OSError):
            # A full disk costs a gap in the numbers, no more.
            self._desk.close()

    def turn(self, arrivals: Arrivals) -> Turn:
        if self._desk.read_manifests():
            for warning in self._diary.check(self._desk.generals):
                self._desk.services.log.warn(warning)
            self._next_schedules = 0.0
        worked = self._judge(arrivals)
        if self._desk.services.monotonic() >= self._next_events:
            arrivals = None
        worked = self._hear_orders(arrivals) or worked
        worked = self._keep_schedules(arrivals) or worked
        worked = self._serve_events(arrivals) or worked
        self._watch_chamberlain()
        next_look = min(self._next_events, self._next_results, self._next_schedules, self._watchman.due)
        return Turn(worked, wait=next_look - self._desk.services.monotonic(), busy=self._unsettled)

    def _serve_events(self, arrivals: Arrivals) -> bool:
        self._look_for_events(arrivals)
        return self._dispatch.serve()

    def _look_for_events(self, arrivals: Arrivals) -> None:
        now = self._desk.services.monotonic()
        if arrivals is None:
            self._dispatch.backlog.rescan()
            for tasks in self._tasks:
                tasks.rescan()
            period = self._desk.config["intervals"]["event_check_seconds"]
            self._next_events = now + period
        else:
            self._dispatch.backlog.note(arrivals.get(self._desk.services.places.folder("events", "pending"), ()))
        if self._unsettled:
            self._next_events = min(self._next_events, now + LOOK_AGAIN_SECONDS)

    @property
    def _unsettled(self) -> bool:
        return (
            self._orders.unsettled
            or self._dispatch.backlog.unsettled
            or any(backlog.unsettled for backlog in self._tasks)
        )

    def _judge(self, arrivals: Arrivals) -> bool:
        now = self._desk.services.monotonic()
        places = self._desk.services.places
        if arrivals is None or now >= self._next_results:
            self._next_results = now + self._desk.config["intervals"]["result_check_seconds"]
        elif places.results not in arrivals and places.folder("tasks", "in_progress") not in arrivals:
            return False
        if arrivals is None or now >= self._next_lost:
            self._next_lost = now + LOST_SECONDS
            self._cases.close_lost()
        judged = self._cases.judge()
        if judged == BATCH:
            self._next_results = now
        return judged > 0

    def _hear_orders(self, arrivals: Arrivals) -> bool:
        pending = self._desk.services.places.folder("orders", "pending")
        self._orders.look(None if arrivals is None else arrivals.get(pending, ()))
        return self._orders.obey()

    def _watch_chamberlain(self) -> None:
        findings = list(self._watchman.look(self._desk.services))
        log_findings(findings, self._desk.services.log)
        for finding in findings:
            if finding.what is What.RESTARTED:
                now = stamp(self._desk.services.clock())
                alarm = alert(self._desk.letter_ids(1)[0], str(finding), self._desk.channel, now)
                self._desk.services.queues.messages.create([alarm])

    def _keep_schedules(self, arrivals: Arrivals) -> bool:
        now = self._desk.services.monotonic()
        is_due = arrivals is None or now >= self._next_schedules
        if not is_due and not self._diary.holds_what_may_go(self._desk.gate):
            return False
        run = self._diary.next_due(self._desk.zone, self._desk.gate())
        if run is None:
            most = self._desk.config["intervals"]["schedule_check_seconds"]
            self._next_schedules = now + self._diary.sleep(most)
            return False
        if run.task_id is None:
            run = self._diary.intend(run, self._desk.task_ids(1)[0], self._desk.letter_ids(1)[0])
        task = self._diary.task(run, stamp(self._desk.services.clock()))
        if not self._desk.there("tasks", task.id, run.repeated):
            self._desk.services.queues.tasks.create([task])
        self._desk.write_letters(
            [([messages.started(task, self._desk.channel)], {"start": run.letter_id}, run.repeated)]
        )
        self._diary.done(run)
        self._desk.services.log.info(f"{run.entry.key} is due → {task.id}")
        self._desk.services.log.event("task.created", task_id=task.id, general=task.target_general)
        return True
