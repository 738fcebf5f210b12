"""Which request and which deduplication key led to which message, so that asking twice makes no second one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from kingdom.mq import message_format, names
from kingdom.mq.expiring_map import Recall, fingerprint
from kingdom.mq.queue_state import Line
from kingdom.mq.stores.base import Memo

KEPT_MS = 86_400_000
MOST_REQUESTS = 1_000_000
MOST_KEYS = 6 * 699_050
"""Six parts, each two thirds of a power of two: with one entry more a mapping takes twice the memory."""


class Memos:
    _requests: Recall[int | tuple[int, ...]]
    _keys: Recall[str]

    def __init__(self) -> None:
        self.fresh: list[Memo] = []
        """For the store, with the next commit."""
        self.forget()

    def forget(self) -> None:
        self.fresh = []
        self._requests = Recall(KEPT_MS, MOST_REQUESTS)
        self._keys = Recall(KEPT_MS, MOST_KEYS)

    def recall(self, memos: Iterable[Memo]) -> None:
        """What an earlier life remembered, oldest first."""
        for memo in memos:
            if memo.kind == "dedup":
                self._keys.put(fingerprint(memo.queue, memo.key), memo.ids[0], memo.at)
            else:
                self._keep_request(memo)

    def known(self, request_id: str, count: int) -> tuple[str, ...] | None:
        """The ids that this request led to, with gaps for what was refused or lost."""
        message_format.whole_text("requestId", request_id)
        found = self._requests.get(fingerprint(request_id))
        if found is None:
            return None
        ids = tuple(_id_text(number) for number in ((found,) if isinstance(found, int) else found))
        return (*ids, *[""] * (count - len(ids)))

    def twin(self, line: Line, dedup_key: str, now: int) -> str | None:
        """The id of the message that came under the same key, within the queue's window."""
        message_format.whole_text("deduplicationKey", dedup_key)
        name = self._keys.get(fingerprint(line.name, dedup_key))
        if name is None or names.created_of(name) + line.policy.dedup_ms <= now:
            return None
        return name[-36:]

    def note_request(self, queue: str, request_id: str, ids: tuple[str, ...], now: int) -> None:
        memo = Memo("request", now, queue, request_id, ids)
        self._keep_request(memo)
        self.fresh.append(memo)

    def note_key(self, queue: str, dedup_key: str, name: str, now: int) -> None:
        self._keys.put(fingerprint(queue, dedup_key), name, now)
        self.fresh.append(Memo("dedup", now, queue, dedup_key, (name[-36:],)))

    def _keep_request(self, memo: Memo) -> None:
        """What a crash left of a request may tell only a part of it: it adds to what the journal knows."""
        numbers = tuple(_id_number(each) for each in memo.ids)
        key = fingerprint(memo.key)
        before = self._requests.get(key)
        if before is not None:
            known = (before,) if isinstance(before, int) else before
            numbers = tuple(new or old for new, old in zip_longest(numbers, known, fillvalue=0))
        self._requests.put(key, numbers[0] if len(numbers) == 1 else numbers, memo.at)


def _id_number(message_id: str) -> int:
    return int(message_id.replace("-", ""), 16) if message_id else 0


def _id_text(number: int) -> str:
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}" if number else ""
