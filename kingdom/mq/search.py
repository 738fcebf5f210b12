"""Find one message among those that wait: a part of them in each turn, since they may be very many."""

from __future__ import annotations

from kingdom.mq import names
from kingdom.mq.budget import Budget, Steps
from kingdom.mq.errors import Refusal
from kingdom.mq.queue_state import QueueState


class MessageSearch:
    """Look for a message among those that wait in a queue. What comes or goes meanwhile is ignored, but a message
    that is handed out and given back meanwhile may be overlooked."""

    __slots__ = ("_parts", "at", "found", "key", "message_id", "queue")

    def __init__(self, queue: QueueState | None, key: str) -> None:
        """`queue` is None when there is none of that name."""
        self.queue = queue
        self.key = key
        self.message_id = names.id_of_key(key)
        #: Its name; empty as long as it is not found.
        self.found = ""
        #: Where it stands in QueueState.ready, as long as nothing else is done with the queue; -1: not there.
        self.at = -1
        self._parts = iter(()) if queue is None else queue.parts()

    def go_on(self, budget: Budget) -> bool:
        """Look through as many as the budget allows. Return whether it is found or all have been looked through."""
        while budget.is_left():
            part = next(self._parts, None)
            if part is None:
                return True
            budget.spend()
            # In one text a name is found faster than in a list of them.
            if self.message_id in "\n".join(part.names) and self._is_in(part.names, part.at):
                return True
        return False

    def through(self) -> Steps[None]:
        """Look through all, a part in each turn."""
        while not self.go_on(Budget()):
            yield

    def _is_in(self, part: list[str], at: int) -> bool:
        for index, name in enumerate(part):
            if name.endswith(self.message_id):
                self.found, self.at = name, at + index if at >= 0 else -1
                return True
        return False


class NotSeenYet(Refusal):
    """no message {key!r} has been found so far"""

    # For those who can wait: `search` goes on, and then it is known why the lease under `lease_id` cannot be ended.

    code = "ERR_MESSAGE_NOT_FOUND"

    def __init__(self, search: MessageSearch, lease_id: str) -> None:
        super().__init__(key=search.key)
        self.search = search
        self.lease_id = lease_id
