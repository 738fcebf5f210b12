"""Which request and which deduplication key led to which message, so that asking twice makes no second one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from kingdom.mq import message_format, names
from kingdom.mq.expiring_map import ExpiringMap, fingerprint
from kingdom.mq.queue_state import QueueState
from kingdom.mq.stores.base import DAY_MS, DedupEntry

KEPT_MS = DAY_MS
MOST_REQUESTS = 1_000_000
MOST_KEYS = 6 * 699_050
"""Six parts, each two thirds of a power of two: with one entry more a mapping takes twice the memory."""


class Deduplication:
    _requests: ExpiringMap[int | tuple[int, ...]]
    _keys: ExpiringMap[str]

    def __init__(self) -> None:
        #: New entries, which the store is told with the next commit.
        self.unsaved: list[DedupEntry] = []
        self.forget()

    def forget(self) -> None:
        self.unsaved = []
        self._requests = ExpiringMap(KEPT_MS, MOST_REQUESTS)
        self._keys = ExpiringMap(KEPT_MS, MOST_KEYS)

    def load(self, entries: Iterable[DedupEntry]) -> None:
        """Take in what an earlier life remembered, oldest first."""
        for entry in entries:
            if entry.kind == "dedup":
                self._keys.put(fingerprint(entry.queue, entry.key), entry.ids[0], entry.at)
            else:
                self._keep_request(entry)

    def ids_of_request(self, request_id: str, count: int) -> tuple[str, ...] | None:
        """Return the ids that this request led to, with gaps for what was refused or lost. None: it is new."""
        message_format.whole_text("requestId", request_id)
        found = self._requests.get(fingerprint(request_id))
        if found is None:
            return None
        ids = tuple(names.id_from_number(number) for number in ((found,) if isinstance(found, int) else found))
        return (*ids, *[""] * (count - len(ids)))

    def duplicate_of(self, queue: QueueState, dedup_key: str, now: int) -> str | None:
        """Return the id of the message that came under the same key, within the queue's window."""
        message_format.whole_text("deduplicationKey", dedup_key)
        name = self._keys.get(fingerprint(queue.name, dedup_key))
        if name is None or names.created_of(name) + queue.policy.dedup_ms <= now:
            return None
        return name[names.MESSAGE_ID]

    def note_request(self, queue_name: str, request_id: str, ids: tuple[str, ...], now: int) -> None:
        entry = DedupEntry("request", now, queue_name, request_id, ids)
        self._keep_request(entry)
        self.unsaved.append(entry)

    def note_key(self, queue_name: str, dedup_key: str, name: str, now: int) -> None:
        self._keys.put(fingerprint(queue_name, dedup_key), name, now)
        self.unsaved.append(DedupEntry("dedup", now, queue_name, dedup_key, (name[names.MESSAGE_ID],)))

    def _keep_request(self, entry: DedupEntry) -> None:
        """What a crash left of a request may tell only a part of it: it adds to what the journal knows."""
        numbers = tuple(map(names.id_as_number, entry.ids))
        key = fingerprint(entry.key)
        before = self._requests.get(key)
        if before is not None:
            known = (before,) if isinstance(before, int) else before
            numbers = tuple(new or old for new, old in zip_longest(numbers, known, fillvalue=0))
        self._requests.put(key, numbers[0] if len(numbers) == 1 else numbers, entry.at)
