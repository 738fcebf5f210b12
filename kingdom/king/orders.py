"""What people tell the king to do: try a failed task again, give a task up, take an event back up, let it go.

An order ends in done/ with its outcome in words, also when it was refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kingdom import cancellations, manifests
from kingdom.atomic import is_there
from kingdom.errors import BadInput
from kingdom.king.desk import ANYWHERE
from kingdom.messages import Event, Message, Order, Task
from kingdom.places import check_name
from kingdom.role import Kit
from kingdom.shelf import Shelf
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
    def __init__(self, kit: Kit, new_task_id: Callable[[], str]) -> None:
        self._kit = kit
        self._new_task_id = new_task_id
        self._shelf = Shelf(kit.post, "orders")

    def take_over(self, kit: Kit) -> None:
        self._kit = kit

    def look(self, names: Iterable[str] | None) -> None:
        if names is None:
            self._shelf.rescan()
        else:
            self._shelf.note(names)

    @property
    def unsettled(self) -> bool:
        return self._shelf.unsettled

    def obey(self) -> bool:
        """The next order, if there is one."""
        waiting = next(iter(self._shelf), None)
        if waiting is None:
            return False
        self._shelf.drop([waiting.filename])
        order: Order | None = self._kit.post.open("orders", "pending", waiting.filename)
        if order is not None:
            self._carry_out(order)
        return True

    def _carry_out(self, order: Order) -> None:
        try:
            outcome = ACTIONS[order.action](self, order)
        except (Refused, BadInput) as refusal:
            outcome = f"refused: {refusal}"
        self._kit.log.say(f"{order.id}: {order.action} {order.target}, asked by {order.by}: {outcome}")
        # Read again, because what the action has noted in it must stay until it lies in done/.
        self._note(self._kit.post.read("orders", "pending", order.id), outcome=outcome)
        self._kit.post.move("orders", [order.id], "pending", "done")

    def _note(self, order: Order, **extra: Any) -> None:
        outcome = extra.pop("outcome", order.outcome)
        noted = order.but(outcome=outcome, extra={**order.extra, **extra})
        self._kit.post.annotate("orders", "pending", [noted])

    def retry(self, order: Order) -> str:
        """A new task like the ended one, in the same thread. Its id is noted in the order before it is made."""
        task = self._task(order.target, "completed")
        made = str(order.extra.get("made") or "")
        if not made:
            made = self._new_task_id()
            self._note(order, made=made)
        if not self._kit.post.has("tasks", made, *ANYWHERE["tasks"]):
            again = task.but(
                id=made,
                status="pending",
                outcome=None,
                letters={},
                attempt=0,
                not_before=None,
                created_at=stamp(self._kit.clock()),
                thread_task_id=task.thread,
                extra={key: each for key, each in task.extra.items() if key not in OF_ONE_LIFE},
            )
            self._kit.post.deliver("tasks", [again])
            self._kit.log.event("task.created", task_id=made, general=again.target_general)
        noted = task.extra.get("retried_as")
        retries = noted if isinstance(noted, list) else []
        if made not in retries:
            named = {**task.extra, "retried_as": [*retries, made]}
            self._kit.post.annotate("tasks", "completed", [task.but(extra=named)])
        return f"{made} tries it again"

    def cancel(self, order: Order) -> str:
        """A task that nobody has claimed, or whose general is gone, ends here; another is ended by its general."""
        post = self._kit.post
        check_name("task", order.target)
        claimed = post.has("tasks", order.target, "pending") and post.move(
            "tasks", [order.target], "pending", "completed"
        )
        if claimed or post.has("tasks", order.target, "in_progress"):
            task = self._task(order.target, "in_progress")
            if task.target_general not in manifests.names(self._kit.places):
                post.move("tasks", [task.id], "in_progress", "completed")
                return self._cancelled(order)
            cancellations.note(self._kit.places, self._kit.disk, task.id, order.by)
            return "its general has been told to end it"
        return self._cancelled(order)

    def _cancelled(self, order: Order) -> str:
        post = self._kit.post
        task = self._task(order.target, "completed")
        if task.outcome is not None and task.extra.get("cancelled_by_order") != order.id:
            raise Refused(f"{task.id} has ended already: {task.outcome}")
        noted = {**task.extra, "cancelled_by_order": order.id}
        post.annotate("tasks", "completed", [task.but(status="discarded", outcome="discarded", extra=noted)])
        self._end_event(task, order)
        return "ended before anybody took it"

    def _end_event(self, task: Task, order: Order) -> None:
        post = self._kit.post
        if not post.has("events", task.event_id, "dispatched"):
            return
        event: Event = post.read("events", "dispatched", task.event_id)
        reason = f"{task.id} was cancelled by {order.by}"
        post.annotate("events", "dispatched", [event.but(status="discarded", discarded_reason=reason)])
        post.move("events", [event.id], "dispatched", "completed")

    def _task(self, name: str, state: str) -> Task:
        if not self._kit.post.has("tasks", name, state):
            where = next((each for each in ANYWHERE["tasks"] if self._kit.post.has("tasks", name, each)), None)
            raise Refused(f"{name} is in {where}, not in {state}" if where else f"there is no task {name}")
        task: Task = self._kit.post.read("tasks", state, name)
        return task

    def requeue(self, order: Order) -> str:
        """Back to pending: a discarded event, a letter that failed, or a buried file that has been mended.

        The order's id is noted in it first, so that an order that was interrupted knows its own work again.
        """
        post = self._kit.post
        if (moved := self._went_back(order)) is not None:
            return moved
        if post.has("events", order.target, "completed"):
            event: Event = post.read("events", "completed", order.target)
            if event.status != "discarded" and event.extra.get("requeued_by") != order.id:
                raise Refused(
                    f"{event.id} was not discarded ({event.status}); `retry` its task {event.task_id} instead"
                )
            fresh = event.but(
                status="pending", discarded_reason=None, letters={}, extra={**event.extra, "requeued_by": order.id}
            )
            post.annotate("events", "completed", [fresh])
            return self._moved("events", order.target, "completed")
        if post.has("messages", order.target, "failed"):
            letter: Message = post.read("messages", "failed", order.target)
            again = {key: each for key, each in letter.extra.items() if key not in ("tries", "not_before")}
            again["requeued_by"] = order.id
            post.annotate("messages", "failed", [letter.but(status="pending", extra=again)])
            return self._moved("messages", order.target, "failed")
        for kind in ("events", "tasks", "messages"):
            if post.has(kind, order.target, "dead"):
                return self._mended(kind, order)
        raise Refused(f"nothing named {order.target} was discarded, has failed or lies in dead/")

    def _went_back(self, order: Order) -> str | None:
        """What an earlier life has done of this order: it lies anywhere but where it came from, with our note."""
        for kind, states in GOES_ON.items():
            for state in states:
                if not self._kit.post.has(kind, order.target, state):
                    continue
                thing = self._kit.post.read(kind, state, order.target)
                if thing.extra.get("requeued_by") == order.id:
                    self._drop_reason(kind, order.target)
                    return f"back in {kind}/pending"
        return None

    def _mended(self, kind: str, order: Order) -> str:
        thing = self._kit.post.read(kind, "dead", order.target)
        self._kit.post.annotate(kind, "dead", [thing.but(extra={**thing.extra, "requeued_by": order.id})])
        if kind == "tasks":
            cancellations.forget(self._kit.places, self._kit.disk, order.target)
        moved = self._moved(kind, order.target, "dead")
        self._drop_reason(kind, order.target)
        return moved

    def _drop_reason(self, kind: str, name: str) -> None:
        grave: Path = self._kit.places.letter(kind, "dead", name)
        if not is_there(grave):
            self._kit.disk.remove(grave.with_name(f"{grave.name}.reason"))

    def _moved(self, kind: str, name: str, src: str) -> str:
        if self._kit.post.move(kind, [name], src, "pending"):
            raise Refused(f"{name} could not go back: {kind}/pending holds one of that name")
        return f"back in {kind}/pending"

    def discard(self, order: Order) -> str:
        check_name("event", order.target)
        if not self._kit.post.has("events", order.target, "pending"):
            if self._was_discarded(order):
                return "discarded"
            raise Refused(f"no event {order.target} is waiting")
        event: Event = self._kit.post.read("events", "pending", order.target)
        reason = f"by {order.by}"
        noted = {**event.extra, "discarded_by_order": order.id}
        let_go = event.but(status="discarded", discarded_reason=reason, extra=noted)
        self._kit.post.annotate("events", "pending", [let_go])
        self._kit.post.move("events", [event.id], "pending", "completed")
        self._kit.log.event("event.discarded", event_id=event.id, reason=reason)
        return "discarded"

    def _was_discarded(self, order: Order) -> bool:
        if not self._kit.post.has("events", order.target, "completed"):
            return False
        event: Event = self._kit.post.read("events", "completed", order.target)
        return event.extra.get("discarded_by_order") == order.id


ACTIONS: Mapping[str, Callable[[Orders, Order], str]] = {
    "retry": Orders.retry,
    "cancel": Orders.cancel,
    "requeue": Orders.requeue,
    "discard": Orders.discard,
}
