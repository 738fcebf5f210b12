"""What the engine knows is loaded from the store: all of it at start and after a lost group, strays as they come."""

from __future__ import annotations

from collections.abc import Callable

from kingdom.mq import message_format, names
from kingdom.mq.deduplication import Deduplication
from kingdom.mq.errors import StoreError
from kingdom.mq.failures import Log
from kingdom.mq.leases import Leases
from kingdom.mq.message_format import MalformedBody
from kingdom.mq.names import MESSAGE_ID, Ids
from kingdom.mq.queue_state import QueueState
from kingdom.mq.queues import QueueStates
from kingdom.mq.stores.base import FoundMessages, MessageGone, MessageStore, Stray
from kingdom.mq.timers import Timers
from kingdom.mq.wall_watch import WallWatch

ALL = 1 << 40
LONGEST_OWN_ID = 48
"""Bytes of a message's own id: it must fit into the name of a file."""


class Opening:
    def __init__(
        self,
        store: MessageStore,
        queues: QueueStates,
        timers: Timers,
        leases: Leases,
        deduplication: Deduplication,
        ids: Ids,
        wall_watch: WallWatch,
        clock: Callable[[], int],
        log: Log,
        reject: Callable[[QueueState, str, int], object],
    ) -> None:
        """`reject(queue, name, now)` makes a ready message whose body is malformed a dead letter."""
        self._store = store
        self._queues = queues
        self._timers = timers
        self._leases = leases
        self._deduplication = deduplication
        self._ids = ids
        self._wall_watch = wall_watch
        self._clock = clock
        self._log = log
        self._reject = reject
        #: Whether a group was lost, so that memory may say something else than the store.
        self.stale = True
        #: How often the store was loaded.
        self.loads = 0

    def ensure_loaded(self) -> None:
        """Load everything anew if a group was lost. StoreError while its failed changes are not given up yet."""
        if self._store.broken:
            raise StoreError(
                backend=type(self._store).__name__, action="go on", why="an earlier change of this group failed"
            )
        if self.stale:
            self.load()

    def load(self) -> None:
        """Forget what is in memory and load it from the store."""
        now = self._clock()
        self.loads += 1
        self._leases.forget()
        self._timers.begin(now)
        self._deduplication.forget()
        self._queues.load()
        ready: dict[str, list[list[str]]] = {}
        for found in self._store.load():
            if found.state == "ready":
                ready.setdefault(found.queue, []).append(found.names)
            else:
                self._add(found, now)
        for queue_name, lists in ready.items():
            waiting = lists[0] if len(lists) == 1 else [name for part in lists for name in part]
            sequence = self._timers.fill(self._queues.get_or_create(queue_name), waiting, now)
            self._ids.sequence = max(self._ids.sequence, sequence)
        self._deduplication.load(self._store.recall(now - self._store.kept_ms))
        self._wall_watch.begin()
        self.stale = False
        if self._store.by_hand:
            self.adopt_strays(ALL, now)

    def _add(self, found: FoundMessages, now: int) -> None:
        queue = self._queues.get_or_create(found.queue)
        if found.state == "dlq":
            queue.fill_dead([*queue.dead.values(), *found.names])
            return
        for name in found.names:
            self._leases.restore(queue, name, now)

    def adopt_strays(self, budget: int, now: int) -> int:
        """Make files that a person laid into an inbox messages. Looks at about `budget` names. Returns how many."""
        strays = self._store.strays(budget, self._queues.not_leased)
        #: The ids of the messages that wait, by queue.
        waiting: dict[str, set[str]] = {}
        for stray in strays:
            if stray.queue not in waiting:
                waiting[stray.queue] = {name[MESSAGE_ID] for name in self._queues.not_leased(stray.queue)}
            self._adopt(stray, waiting[stray.queue], now)
        return len(strays)

    def _adopt(self, stray: Stray, waiting: set[str], now: int) -> None:
        queue = self._queues.declare(stray.queue)
        about = message_format.told_by_hand(stray.body)
        due = max(about.due, now)
        sequence = self._ids.next_sequence()
        self._forget_dead(queue, stray.file)
        message_id, identity = self._own_id(queue, about.message_id, due, now)
        if not message_id or message_id in waiting or message_id in queue.dead:
            message_id, identity = self._ids.message_id(now, sequence), {}
        fields = names.first_fields(about.expires, about.target, by_hand=True) | identity
        name = names.compose(about.priority, due, sequence, fields, message_id)
        try:
            self._store.adopt(stray, name)
        except MessageGone:
            return
        waiting.add(message_id)
        queue.published += 1
        self._queues.changed = True
        try:
            message_format.content(stray.body, True)
        except MalformedBody:
            self._reject(queue, name, now)
            return
        self._timers.add(queue, name, due, now)
        key = names.key_of(queue.name, name)
        self._log("mq.adopted", f"{stray.file} in {queue.name} is {key} now", queue=queue.name)

    def _own_id(self, queue: QueueState, text: str, due: int, now: int) -> tuple[str, dict[str, str]]:
        """Return the id of a message that says its own, and the fields that keep it; empty when it cannot be kept."""
        if not text or len(text.encode("utf-8", "surrogatepass")) > LONGEST_OWN_ID:
            return "", {}
        key = names.key(queue.name, text)
        message_id, fields = names.id_of_key(key), ({names.REVIVED: ""} if due <= now else {})
        if not names.is_ours(message_id):
            fields = names.foreign_fields(queue.name, key, now)
        lease = self._leases.by_message_id.get(message_id)
        if lease is not None:
            try:
                self._store.read(queue.name, "inflight", lease.name)
            except MessageGone:  # taken out of there by hand
                self._leases.end(lease, now)
            except MalformedBody:
                return "", {}
            else:
                return "", {}
        return message_id, fields

    def _forget_dead(self, queue: QueueState, file: str) -> None:
        """Forget a dead letter that a person has moved back to the waiting messages."""
        name = queue.dead.get(file.removesuffix(".json")[names.MESSAGE_ID])
        if name is not None:
            try:
                self._store.read(queue.name, "dlq", name)
            except MessageGone:
                queue.remove_dead(name)
            except MalformedBody:
                pass
