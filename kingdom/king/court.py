"""The king's turn: results become letters, orders are obeyed, the clock makes work of its own, events become tasks."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kingdom.king import letters
from kingdom.king.cases import BATCH, Cases
from kingdom.king.desk import Desk
from kingdom.king.diary import Diary
from kingdom.king.dispatch import Dispatch
from kingdom.king.orders import Orders
from kingdom.king.watchman import Watchman
from kingdom.messages import alert
from kingdom.role import Kit, Turn
from kingdom.shelf import LOOK_AGAIN_SECONDS, Shelf
from kingdom.steward.roll_call import What
from kingdom.times import stamp

Arrivals = dict[Path, list[str]] | None

LOST_SECONDS = 60.0
"""Between looks at every event under way: only a task that was buried or taken away by hand makes one worth while."""


class Court:
    def __init__(self, kit: Kit) -> None:
        self._desk = Desk(kit)
        self._dispatch = Dispatch(self._desk)
        self._cases = Cases(self._desk)
        self._diary = Diary(kit, self._desk.done)
        self._orders = Orders(kit, lambda: self._desk.task_ids(1)[0])
        self._watchman = Watchman(kit)
        self._tasks = [Shelf(kit.post, "tasks", state) for state in ("pending", "in_progress")]
        """Generals look only at their own tasks; one that nobody can read is the king's to bury, and takes no room."""
        self._next_events = self._next_results = self._next_schedules = self._next_lost = 0.0

    def folders(self) -> Iterable[Path]:
        places = self._desk.kit.places
        yield from (places.folder("events", "pending"), places.folder("orders", "pending"))
        yield from (places.results, places.manifests)
        yield from (places.folder("tasks", state) for state in ("in_progress", "completed"))

    def reload(self, kit: Kit) -> None:
        self._desk.take_over(kit)
        self._diary.take_over(kit)
        self._orders.take_over(kit)

    def close(self) -> None:
        """Nothing is held in memory that the directories do not hold."""
        with suppress(OSError):
            # A full disk costs a gap in the numbers, no more.
            self._desk.close()

    def turn(self, arrivals: Arrivals) -> Turn:
        if self._desk.read_manifests():
            for warning in self._diary.check(self._desk.generals):
                self._desk.kit.log.warn(warning)
            self._next_schedules = 0.0
        worked = self._judge(arrivals)
        if self._desk.kit.ticks() >= self._next_events:
            arrivals = None
        worked = self._hear_orders(arrivals) or worked
        worked = self._keep_schedules(arrivals) or worked
        worked = self._serve_events(arrivals) or worked
        self._watch_chamberlain()
        next_look = min(self._next_events, self._next_results, self._next_schedules, self._watchman.due)
        return Turn(worked, wait=next_look - self._desk.kit.ticks(), busy=self._unsettled)

    def _serve_events(self, arrivals: Arrivals) -> bool:
        self._look_for_events(arrivals)
        return self._dispatch.serve()

    def _look_for_events(self, arrivals: Arrivals) -> None:
        now = self._desk.kit.ticks()
        if arrivals is None:
            self._dispatch.shelf.rescan()
            for tasks in self._tasks:
                tasks.rescan()
            period = self._desk.config["intervals"]["event_check_seconds"]
            self._next_events = now + period
        else:
            self._dispatch.shelf.note(arrivals.get(self._desk.kit.places.folder("events", "pending"), ()))
        if self._unsettled:
            self._next_events = min(self._next_events, now + LOOK_AGAIN_SECONDS)

    @property
    def _unsettled(self) -> bool:
        return self._orders.unsettled or any(shelf.unsettled for shelf in (self._dispatch.shelf, *self._tasks))

    def _judge(self, arrivals: Arrivals) -> bool:
        now = self._desk.kit.ticks()
        places = self._desk.kit.places
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
        pending = self._desk.kit.places.folder("orders", "pending")
        self._orders.look(None if arrivals is None else arrivals.get(pending, ()))
        return self._orders.obey()

    def _watch_chamberlain(self) -> None:
        for finding in self._watchman.look(self._desk.kit):
            self._desk.kit.log.warn(str(finding))
            if finding.what is What.MISSED:
                self._desk.kit.log.event("system.heartbeat_missed", role=finding.role, detail=finding.detail)
            if finding.what is What.RESTARTED:
                self._desk.kit.log.event("recovery.session_restarted", role=finding.role, detail=finding.detail)
                now = stamp(self._desk.kit.clock())
                alarm = alert(self._desk.letter_ids(1)[0], str(finding), self._desk.channel, now)
                self._desk.kit.post.deliver("messages", [alarm])

    def _keep_schedules(self, arrivals: Arrivals) -> bool:
        now = self._desk.kit.ticks()
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
        task = self._diary.task(run, stamp(self._desk.kit.clock()))
        if not self._desk.there("tasks", task.id, run.repeated):
            self._desk.kit.post.deliver("tasks", [task])
        self._desk.write_letters(
            [([letters.started(task, self._desk.channel)], {"start": run.letter_id}, run.repeated)]
        )
        self._diary.done(run)
        self._desk.kit.log.say(f"{run.entry.key} is due → {task.id}")
        self._desk.kit.log.event("task.created", task_id=task.id, general=task.target_general)
        return True
