"""Which request and which deduplication key led to which message, so that asking twice makes no second one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import zip_longest
from typing import NamedTuple, Self

from kingdom.mq import message_format, names
from kingdom.mq.expiring_map import ExpiringMap, fingerprint
from kingdom.mq.message_format import Draft
from kingdom.mq.queue_state import QueueState
from kingdom.mq.stores.base import DAY_MS, DedupEntry, MessageStore

KEPT_MS = DAY_MS
BYTES_FOR_REQUESTS = 32 << 20
BYTES_FOR_KEYS = 64 << 20


class PublishRequest(NamedTuple):
    """A publish that may come again."""

    #: As its client named it.
    id: str
    #: The same for the same id of the same client with the same content to the same queue, and for nothing else.
    key: str
    #: By which it is found in memory.
    mark: bytes

    @classmethod
    def of(cls, client: str, queue: str, request_id: str, drafts: Sequence[Draft]) -> Self:
        """Return what identifies a request: its id alone does not, as clients may use one again."""
        message_format.whole_text("requestId", request_id)
        parts = [_written((client, queue, request_id))]
        for draft in drafts:
            parts.append(_written(draft[:1]))
            parts.append(PLAIN_WRITTEN if draft[1:] == PLAIN else _written(draft[1:]))
        return cls._keyed(request_id, b"".join(parts))

    @classmethod
    def of_handed_over(cls, queue: str, message_id: str) -> Self:
        """Return what identifies a message from another store: the id that it had there."""
        text = f"handed over:{len(queue)}:{queue}:{message_format.whole_text('messageId', message_id)}"
        return cls._keyed(message_id, text.encode("utf-8", "surrogatepass"))

    @classmethod
    def _keyed(cls, request_id: str, written: bytes) -> Self:
        key = blake2b(written, digest_size=15).hexdigest()
        return cls(request_id, key, fingerprint(key))


def _written(parts: Iterable[object]) -> bytes:
    """Write parts so that no others are written alike."""
    texts = [str(part).encode("utf-8", "surrogatepass") for part in parts]
    return b"".join([b"%d:%b" % (len(text), text) for text in texts])


PLAIN = Draft("")[1:]
PLAIN_WRITTEN = _written(PLAIN)


class Remembered(NamedTuple):
    """How much is remembered for all queues together."""

    requests: int
    deduplication_keys: int
    #: The memory that they take, at most.
    bytes: int
    #: When it would be more, the oldest are forgotten before their time.
    most_bytes: int


class Deduplication:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        #: New entries, which the store is told with the next commit.
        self.unsaved: list[DedupEntry] = []
        self._requests = ExpiringMap(KEPT_MS, BYTES_FOR_REQUESTS)
        self._keys = ExpiringMap(KEPT_MS, BYTES_FOR_KEYS)

    def forget(self) -> None:
        self.unsaved = []
        self._requests.forget()
        self._keys.forget()

    def load(self, entries: Iterable[DedupEntry]) -> None:
        """Take in what was remembered before a restart, oldest first."""
        self._keys.keep_ms = self._store.kept_ms
        for entry in entries:
            if entry.kind == "dedup":
                self._keys.put(fingerprint(entry.queue, entry.key), names.id_as_bytes(entry.ids[0]), entry.at)
            else:
                self._keep_request(entry, fingerprint(entry.key))

    def remembered(self) -> Remembered:
        kept = (self._requests, self._keys)
        return Remembered(
            len(self._requests),
            len(self._keys),
            sum(kind.bytes for kind in kept),
            sum(kind.most_bytes for kind in kept),
        )

    def ids_of_request(self, request: PublishRequest, count: int) -> tuple[str, ...] | None:
        """Return the ids that this request led to, with gaps for what was refused or lost. None: it is new."""
        found = self._requests.get(request.mark)
        if found is None:
            return None
        ids = tuple(map(names.id_from_bytes, _ids_in(found)))
        return (*ids, *[""] * (count - len(ids)))

    def duplicate_of(self, queue: QueueState, dedup_key: str, now: int) -> str | None:
        """Return the id of the message that came under the same key, within the queue's window."""
        message_format.whole_text("deduplicationKey", dedup_key)
        found = self._keys.get(fingerprint(queue.name, dedup_key))
        if found is None:
            return None
        message_id = names.id_from_bytes(found)
        return message_id if names.created_of(message_id) + queue.policy.dedup_ms > now else None

    def note_request(self, queue_name: str, request: PublishRequest, ids: tuple[str, ...], now: int) -> None:
        entry = DedupEntry("request", now, queue_name, request.key, ids)
        self._keep_request(entry, request.mark)
        self.unsaved.append(entry)

    def note_key(self, queue_name: str, dedup_key: str, name: str, now: int) -> None:
        message_id = name[names.MESSAGE_ID]
        self._keys.keep_ms = self._store.kept_ms
        self._keys.put(fingerprint(queue_name, dedup_key), names.id_as_bytes(message_id), now)
        self.unsaved.append(DedupEntry("dedup", now, queue_name, dedup_key, (message_id,)))

    def _keep_request(self, entry: DedupEntry, key: bytes) -> None:
        """Add what a crash left of a request, which may be a part of it, to what the journal knows."""
        ids = [*map(names.id_as_bytes, entry.ids)]
        before = self._requests.get(key)
        if before is not None:
            ids = [new if any(new) else old for new, old in zip_longest(ids, _ids_in(before), fillvalue=names.NO_ID)]
        self._requests.put(key, b"".join(ids), entry.at)


def _ids_in(data: bytes) -> list[bytes]:
    return [data[at : at + names.ID_BYTES] for at in range(0, len(data), names.ID_BYTES)]
