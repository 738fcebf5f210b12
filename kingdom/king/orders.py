"""What people tell the king to do: try a failed task again, give a task up, take an event back up, let it go.

An order ends in done/ with its outcome in words, also when it was refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kingdom.disk.atomic import is_there
from kingdom.errors import BadInput
from kingdom.home import manifests
from kingdom.home.places import check_name
from kingdom.king.context import ANYWHERE
from kingdom.records import notes
from kingdom.records.backlog import Backlog
from kingdom.records.messages import Event, Message, Order, Task
from kingdom.runtime.role import Services
from kingdom.times import stamp

GOES_ON = {
    "events": ("pending", "dispatched"),
    "tasks": ("pending", "in_progress", "completed"),
    "messages": ("pending", "sent"),
}
"""Where something may be that has been put back to pending."""
OF_ONE_LIFE = ("cancelled_by_order", "requeued_by", "retried_as", "spent_usd", "spent_tokens", "waits_because")
"""Notes in a task that its retry does not inherit."""


class Refused(Exception):
    """Said in the order's outcome."""


class Orders:
    def __init__(self, services: Services, period: Callable[[], float], new_task_id: Callable[[], str]) -> None:
        self._services = services
        self._new_task_id = new_task_id
        self._backlog = Backlog(services.queues.orders, period=period)

    def take_over(self, services: Services) -> None:
        self._services = services

    def look(self, names: Iterable[str] | None) -> None:
        if names is None:
            self._backlog.rescan()
        else:
            self._backlog.note(names)

    @property
    def unsettled(self) -> bool:
        return self._backlog.unsettled

    def obey(self) -> bool:
        """The next order, if there is one."""
        waiting = next(iter(self._backlog), None)
        if waiting is None:
            return False
        self._backlog.drop([waiting.filename])
        order: Order | None = self._services.queues.orders.take("pending", waiting.filename)
        if order is not None:
            self._carry_out(order)
        return True

    def _carry_out(self, order: Order) -> None:
        try:
            outcome, code = ACTIONS[order.action](self, order), "done"
        except (Refused, BadInput) as refusal:
            outcome, code = f"refused: {refusal}", "refused"
        self._services.log.info(f"{order.id}: {order.action} {order.target}, asked by {order.by}: {outcome}")
        # Read again, because what the action has noted in it must stay until it lies in done/.
        done = self._services.queues.orders.read("pending", order.id).evolve(outcome=outcome, code=code)
        self._services.queues.orders.update("pending", [done])
        self._services.queues.orders.move([order.id], "pending", "done")

    def retry(self, order: Order) -> str:
        """A new task like the ended one, in the same thread. Its id is noted in the order before it is made."""
        task = self._task(order.target, "completed")
        made = order.made
        if not made:
            made = self._new_task_id()
            self._services.queues.orders.update("pending", [order.evolve(made=made)])
        if not self._services.queues.tasks.has(made, *ANYWHERE["tasks"]):
            again = task.evolve(
                id=made,
                status="pending",
                outcome=None,
                message_ids={},
                attempt=0,
                not_before=None,
                created_at=stamp(self._services.clock()),
                thread_task_id=task.thread,
                **dict.fromkeys(OF_ONE_LIFE),
            )
            self._services.queues.tasks.create([again])
            self._services.log.event("task.created", task_id=made, general=again.target_general)
        retries = task.retried_as if isinstance(task.retried_as, list) else []
        if made not in retries:
            self._services.queues.tasks.update("completed", [task.evolve(retried_as=[*retries, made])])
        return f"{made} tries it again"

    def cancel(self, order: Order) -> str:
        """A task that nobody has claimed, or whose general is gone, ends here; another is ended by its general."""
        queues = self._services.queues
        check_name("task", order.target)
        claimed = queues.tasks.has(order.target, "pending") and queues.tasks.move(
            [order.target], "pending", "completed"
        )
        if claimed or queues.tasks.has(order.target, "in_progress"):
            task = self._task(order.target, "in_progress")
            if task.target_general not in manifests.names(self._services.places):
                queues.tasks.move([task.id], "in_progress", "completed")
                return self._cancelled(order)
            notes.note_cancelled(self._services.places, self._services.disk, task.id, order.by)
            return "its general has been told to end it"
        return self._cancelled(order)

    def _cancelled(self, order: Order) -> str:
        queues = self._services.queues
        task = self._task(order.target, "completed")
        if task.outcome is not None and task.cancelled_by_order != order.id:
            raise Refused(f"{task.id} has ended already: {task.outcome}")
        ended = task.evolve(status="discarded", outcome="discarded", cancelled_by_order=order.id)
        queues.tasks.update("completed", [ended])
        self._end_event(task, order)
        return "ended before anybody took it"

    def _end_event(self, task: Task, order: Order) -> None:
        queues = self._services.queues
        if not queues.events.has(task.event_id, "dispatched"):
            return
        event: Event = queues.events.read("dispatched", task.event_id)
        reason = f"{task.id} was cancelled by {order.by}"
        queues.events.update("dispatched", [event.evolve(status="discarded", discarded_reason=reason)])
        queues.events.move([event.id], "dispatched", "completed")

    def _task(self, name: str, state: str) -> Task:
        if not self._services.queues.tasks.has(name, state):
            where = next((each for each in ANYWHERE["tasks"] if self._services.queues.tasks.has(name, each)), None)
            raise Refused(f"{name} is in {where}, not in {state}" if where else f"there is no task {name}")
        task: Task = self._services.queues.tasks.read(state, name)
        return task

    def requeue(self, order: Order) -> str:
        """Back to pending: a discarded event, a letter that failed, or a buried file that has been mended.

        The order's id is noted in it first, so that an order that was interrupted knows its own work again.
        """
        queues = self._services.queues
        if (moved := self._went_back(order)) is not None:
            return moved
        if queues.events.has(order.target, "completed"):
            event: Event = queues.events.read("completed", order.target)
            if event.status != "discarded" and event.requeued_by != order.id:
                raise Refused(
                    f"{event.id} was not discarded ({event.status}); `retry` its task {event.task_id} instead"
                )
            fresh = event.evolve(status="pending", discarded_reason=None, message_ids={}, requeued_by=order.id)
            queues.events.update("completed", [fresh])
            return self._moved("events", order.target, "completed")
        if queues.messages.has(order.target, "failed"):
            letter: Message = queues.messages.read("failed", order.target)
            again = letter.evolve(status="pending", tries=None, not_before=None, requeued_by=order.id)
            queues.messages.update("failed", [again])
            return self._moved("messages", order.target, "failed")
        for kind in ("events", "tasks", "messages"):
            if queues[kind].has(order.target, "dead"):
                return self._mended(kind, order)
        raise Refused(f"nothing named {order.target} was discarded, has failed or lies in dead/")

    def _went_back(self, order: Order) -> str | None:
        """What an earlier life has done of this order: it lies anywhere but where it came from, with our note."""
        for kind, states in GOES_ON.items():
            for state in states:
                if not self._services.queues[kind].has(order.target, state):
                    continue
                thing = self._services.queues[kind].read(state, order.target)
                if thing.requeued_by == order.id:
                    self._drop_reason(kind, order.target)
                    return f"back in {kind}/pending"
        return None

    def _mended(self, kind: str, order: Order) -> str:
        thing = self._services.queues[kind].read("dead", order.target)
        self._services.queues[kind].update("dead", [thing.evolve(requeued_by=order.id)])
        if kind == "tasks":
            notes.forget_cancelled(self._services.places, self._services.disk, order.target)
        moved = self._moved(kind, order.target, "dead")
        self._drop_reason(kind, order.target)
        return moved

    def _drop_reason(self, kind: str, name: str) -> None:
        grave: Path = self._services.places.queue_file(kind, "dead", name)
        if not is_there(grave):
            self._services.disk.remove(grave.with_name(f"{grave.name}.reason"))

    def _moved(self, kind: str, name: str, src: str) -> str:
        if self._services.queues[kind].move([name], src, "pending"):
            raise Refused(f"{name} could not go back: {kind}/pending holds one of that name")
        return f"back in {kind}/pending"

    def discard(self, order: Order) -> str:
        check_name("event", order.target)
        if not self._services.queues.events.has(order.target, "pending"):
            if self._was_discarded(order):
                return "discarded"
            raise Refused(f"no event {order.target} is waiting")
        event: Event = self._services.queues.events.read("pending", order.target)
        reason = f"by {order.by}"
        let_go = event.evolve(status="discarded", discarded_reason=reason, discarded_by_order=order.id)
        self._services.queues.events.update("pending", [let_go])
        self._services.queues.events.move([event.id], "pending", "completed")
        self._services.log.event("event.discarded", event_id=event.id, reason=reason)
        return "discarded"

    def _was_discarded(self, order: Order) -> bool:
        if not self._services.queues.events.has(order.target, "completed"):
            return False
        event: Event = self._services.queues.events.read("completed", order.target)
        return event.discarded_by_order == order.id


ACTIONS: Mapping[str, Callable[[Orders, Order], str]] = {
    "retry": Orders.retry,
    "cancel": Orders.cancel,
    "requeue": Orders.requeue,
    "discard": Orders.discard,
}
