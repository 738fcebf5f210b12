"""Orders: retry a task, cancel one, put an event or a message back into pending, discard an event.

An order ends in done/ with its outcome in words and as a code, also when it was refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import is_there
from kingdom.base.errors import BadInput
from kingdom.base.home.places import check_name
from kingdom.base.home.states import MOVES
from kingdom.base.records import notes
from kingdom.base.records.messages import Order, Task
from kingdom.base.words import Said
from kingdom.court.king import messages
from kingdom.court.king.context import KingContext

WHERE_REQUEUED_GO = {
    "events": ("pending", "dispatched"),
    "tasks": ("pending", "in_progress", "completed"),
    "messages": ("pending", "sent"),
}
"""The states in which a record may be found once it has been put back into pending."""
NOT_INHERITED = (
    "cancelled_by_order",
    "requeued_by",
    "retried_as",
    "spent_usd",
    "spent_tokens",
    "waits_because",
    "waits_for",
)
"""Fields of a task that its retry does not inherit."""


class OrderRefused(Exception):
    """Why an order is not carried out; it stands in the order's outcome."""

    def __init__(self, why: Said) -> None:
        super().__init__(why)
        self.says = why.to_json()


class KingOrders:
    def __init__(self, king: KingContext) -> None:
        self._king = king
        self.backlog = king.backlog(king.queues.orders)

    def carry_out_next(self) -> None:
        """Carry out the order that waits longest."""
        queued = self.backlog.waiting[0]
        order = self.backlog.take(queued.filename)
        self.backlog.drop([queued.filename])
        if order is not None:
            self._carry_out(order)

    def _carry_out(self, order: Order) -> None:
        says = None
        try:
            outcome, code = ORDERS[order.action](self, order), "done"
        except (OrderRefused, BadInput) as error:
            outcome, code = f"refused: {error}", "refused"
            says = error.says if isinstance(error, OrderRefused) else None
        self._king.log.info(f"{order.id}: {order.action} {order.target}, asked by {order.by}: {outcome}")
        # Read again, because what the action has noted in it must stay until it lies in done/.
        self._king.queues.orders.change("pending", order.id, outcome=outcome, code=code, says=says)
        self._king.queues.orders.move([order.id], "pending", "done")

    def retry(self, order: Order) -> str:
        """Make a new task like the ended one, in the same thread. Its id is noted in the order first."""
        task = self._task(order.target, "completed")
        made = order.made
        if not made:
            made = self._king.task_ids(1)[0]
            self._king.queues.orders.update("pending", [replace(order, made=made)])
        if not self._king.queues.tasks.was_made(made):
            fresh: dict[str, Any] = dict.fromkeys(NOT_INHERITED)
            again = replace(
                task,
                id=made,
                status="pending",
                outcome=None,
                message_ids={},
                attempt=0,
                not_before=None,
                created_at=self._king.now(),
                thread_task_id=task.thread,
                **fresh,
            )
            self._king.queues.tasks.create([again])
            data = {"event_type": again.type, "target_general": again.target_general, "priority": again.priority}
            self._king.log.event("task.created", task_id=made, **data)
        retries = task.retried_as if isinstance(task.retried_as, list) else []
        if made not in retries:
            self._king.queues.tasks.update("completed", [replace(task, retried_as=[*retries, made])])
        return f"{made} tries it again"

    def cancel(self, order: Order) -> str:
        """Cancel a task that is not claimed, or whose general is not installed; else its general cancels it."""
        queues = self._king.queues
        check_name("task", order.target)
        claimed = queues.tasks.has(order.target, "pending") and queues.tasks.move(
            [order.target], "pending", "completed"
        )
        if claimed or queues.tasks.has(order.target, "in_progress"):
            task = self._task(order.target, "in_progress")
            if task.target_general not in self._king.places.installed_generals():
                queues.tasks.move([task.id], "in_progress", "completed")
                return self._cancelled(order)
            notes.note_cancelled(self._king.places, self._king.disk, task.id, order.by)
            return "its general has been told to end it"
        return self._cancelled(order)

    def _cancelled(self, order: Order) -> str:
        queues = self._king.queues
        task = self._task(order.target, "completed")
        if task.outcome is not None and task.cancelled_by_order != order.id:
            said = f"{task.id} has ended already: {task.outcome}"
            raise OrderRefused(Said("order_ended", said, task=task.id, outcome=task.outcome))
        ended = replace(task, status="discarded", outcome="discarded", cancelled_by_order=order.id)
        draft = messages.cancelled(ended, self._king.channel, order.by)
        if draft.part not in ended.message_ids:
            ended = replace(ended, message_ids={**ended.message_ids, draft.part: self._king.message_ids(1)[0]})
        queues.tasks.update("completed", [ended])
        message_id = str(ended.message_ids[draft.part])
        if not queues.messages.was_made(message_id):
            queues.messages.create([draft.message(message_id, self._king.now())])
        self._end_event(task, order)
        return "cancelled before it started"

    def _end_event(self, task: Task, order: Order) -> None:
        queues = self._king.queues
        if not queues.events.has(task.event_id, "dispatched"):
            return
        event = queues.events.read("dispatched", task.event_id)
        reason = f"{task.id} was cancelled by {order.by}"
        ended = replace(event, status="discarded", discarded_reason=reason, discarded_code="cancelled")
        queues.events.end([ended], "dispatched", "completed")

    def _task(self, name: str, state: str) -> Task:
        if not self._king.queues.tasks.has(name, state):
            where = next((other for other in MOVES["tasks"] if self._king.queues.tasks.has(name, other)), None)
            if where is None:
                raise OrderRefused(Said("order_no_task", f"there is no task {name}", task=name))
            raise OrderRefused(Said("order_elsewhere", f"{name} is in {where}, not in {state}", task=name, where=where))
        return self._king.queues.tasks.read(state, name)

    def requeue(self, order: Order) -> str:
        """Put back into pending: a discarded event, a message that failed, or a file from dead/ that has been mended.

        The order's id is noted in it first, so that an order that was interrupted knows its own work again.
        """
        queues = self._king.queues
        if (moved := self._requeued_before(order)) is not None:
            return moved
        if queues.events.has(order.target, "completed"):
            event = queues.events.read("completed", order.target)
            if event.status != "discarded" and event.requeued_by != order.id:
                said = f"{event.id} was not discarded ({event.status}); `retry` its task {event.task_id} instead"
                values = {"event": event.id, "status": event.status, "task": event.task_id}
                raise OrderRefused(Said("order_not_discarded", said, **values))
            fresh = replace(
                event,
                status="pending",
                discarded_reason=None,
                discarded_code=None,
                message_ids={},
                requeued_by=order.id,
            )
            queues.events.update("completed", [fresh])
            return self._move_to_pending("events", order.target, "completed")
        if queues.messages.has(order.target, "failed"):
            message = queues.messages.read("failed", order.target)
            again = replace(message, status="pending", tries=None, not_before=None, requeued_by=order.id)
            queues.messages.update("failed", [again])
            return self._move_to_pending("messages", order.target, "failed")
        for kind in ("events", "tasks", "messages"):
            if queues.of(kind).has(order.target, "dead"):
                return self._requeue_dead(kind, order)
        said = f"nothing named {order.target} is discarded, failed or in dead/"
        raise OrderRefused(Said("order_nothing", said, name=order.target))

    def _requeued_before(self, order: Order) -> str | None:
        """Return what was done of this order before a restart: the file has left its old place, with our note in it."""
        for kind, states in WHERE_REQUEUED_GO.items():
            queue = self._king.queues.of(kind)
            for state in states:
                if queue.has(order.target, state) and queue.read(state, order.target).requeued_by == order.id:
                    self._drop_reason(kind, order.target)
                    return f"back in {kind}/pending"
        return None

    def _requeue_dead(self, kind: str, order: Order) -> str:
        self._king.queues.of(kind).change("dead", order.target, requeued_by=order.id)
        if kind == "tasks":
            notes.forget_cancelled(self._king.places, self._king.disk, order.target)
        moved = self._move_to_pending(kind, order.target, "dead")
        self._drop_reason(kind, order.target)
        return moved

    def _drop_reason(self, kind: str, name: str) -> None:
        path: Path = self._king.places.queue_file(kind, "dead", name)
        if not is_there(path):
            self._king.disk.remove(path.with_name(f"{path.name}.reason"))

    def _move_to_pending(self, kind: str, name: str, src: str) -> str:
        if self._king.queues.of(kind).move([name], src, "pending"):
            said = f"{name} could not be put back: {kind}/pending already has one of that name"
            raise OrderRefused(Said("order_twice", said, name=name, folder=f"{kind}/pending"))
        return f"back in {kind}/pending"

    def discard(self, order: Order) -> str:
        """End an event that waits."""
        check_name("event", order.target)
        if not self._king.queues.events.has(order.target, "pending"):
            if self._was_discarded(order):
                return "discarded"
            raise OrderRefused(Said("order_no_event", f"no event {order.target} is waiting", event=order.target))
        event = self._king.queues.events.read("pending", order.target)
        reason = f"by {order.by}"
        discarded = replace(
            event,
            status="discarded",
            discarded_reason=reason,
            discarded_code="by_order",
            discarded_by_order=order.id,
        )
        self._king.queues.events.end([discarded], "pending", "completed")
        self._king.log.event("event.discarded", event_id=event.id, event_type=event.type, reason=reason)
        return "discarded"

    def _was_discarded(self, order: Order) -> bool:
        if not self._king.queues.events.has(order.target, "completed"):
            return False
        event = self._king.queues.events.read("completed", order.target)
        return event.discarded_by_order == order.id


ORDERS: Mapping[str, Callable[[KingOrders, Order], str]] = {
    "retry": KingOrders.retry,
    "cancel": KingOrders.cancel,
    "requeue": KingOrders.requeue,
    "discard": KingOrders.discard,
}
