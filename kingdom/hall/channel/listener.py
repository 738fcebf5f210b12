"""What the hall's worker tells, read by a thread as a durable group: people's messages, and what became of ours.

The group's position moves only when what people said is safe, and behind it nothing is forgotten: the next process
reads again from there.
"""

from __future__ import annotations

import base64
import binascii
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from kingdom.base.disk.codec import parse_json
from kingdom.court.envoy.channels.base import Heard, Stuck
from kingdom.hall.database.own_rooms import USER
from kingdom.hall.database.records import BadEvent, MessagePersisted
from kingdom.hall.topics.base import GroupReader, PositionGone, TopicRecord, TopicsAway
from kingdom.hall.topics.names import DEAD

POLL_SECONDS = 0.5
PAUSE_SECONDS = 0.5
STUCK_SECONDS = 90.0


@dataclass
class _Batch:
    """Records that were read together, and what people say in them."""

    records: Sequence[TopicRecord]
    said: Sequence[Heard]
    is_safe: bool = False


class HallListener(threading.Thread):
    def __init__(
        self, reader: GroupReader, hear: Callable[[MessagePersisted], Heard | None], ring: Callable[[], None]
    ) -> None:
        """`hear` returns what a person's message says to us, `ring` wakes the envoy."""
        super().__init__(name="hall-listener", daemon=True)
        self._reader, self._hear, self._ring = reader, hear, ring
        self._expected: dict[str, Future[str]] = {}
        self._batches: deque[_Batch] = deque()
        self._gone: SimpleQueue[str] = SimpleQueue()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._moved = time.monotonic()
        self.away = ""
        """Why nothing can be read now, or ""."""

    def expect(self, client_msg_id: str) -> Future[str]:
        """Return what will say why a message of ours was refused, or "" when it is stored. To be called before it is
        published."""
        return self._expected.setdefault(client_msg_id, Future())

    def forget(self, client_msg_id: str) -> None:
        """Expect a message no longer."""
        self._expected.pop(client_msg_id, None)

    def heard(self) -> list[Heard]:
        """Return what people have said and is not noted as safe. Stuck when this thread does not move."""
        if not self.is_alive() or time.monotonic() - self._moved > STUCK_SECONDS:
            raise Stuck(f"the reader of the hall has not moved for {STUCK_SECONDS:g} s")
        with self._lock:
            return [one for batch in self._batches if not batch.is_safe for one in batch.said]

    def note_safe(self, said: Sequence[Heard]) -> None:
        """Note that this need not be read again."""
        safe = set(said)
        with self._lock:
            for batch in self._batches:
                batch.is_safe = batch.is_safe or safe.issuperset(batch.said)

    def gone(self) -> list[str]:
        """Return a sentence for each gap in what was read since the last call."""
        found = []
        try:
            while True:
                found.append(self._gone.get_nowait())
        except Empty:
            return found

    def close(self) -> None:
        """Note how far the group is, and end."""
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.is_set():
            self._moved = time.monotonic()
            self._commit()
            try:
                records = self._reader.poll(POLL_SECONDS)
                self.away = ""
            except TopicsAway as error:
                self.away = str(error)
                self._ring()
                self._ended.wait(PAUSE_SECONDS)
            except PositionGone as error:
                self._gone.put(str(error))
                self._ring()
            else:
                self._take(records)
        self._commit()
        self._reader.close()

    def _take(self, records: Sequence[TopicRecord]) -> None:
        said = [one for record in records if (one := self._said(record)) is not None]
        if records:
            with self._lock:
                self._batches.append(_Batch(records, said, is_safe=not said))
        if said:
            self._ring()

    def _said(self, record: TopicRecord) -> Heard | None:
        if record.topic == DEAD:
            self._settle(*_refused(record.value))
            return None
        try:
            message = MessagePersisted.from_json(record.value)
        except BadEvent:
            return None  # what is no message says nothing, and the gateways tell of it
        if message.sender_id.lower() == USER:
            self._settle(message.client_msg_id.lower(), "")
            return None
        return None if message.message_type == "SYSTEM" or message.removed else self._hear(message)

    def _settle(self, client_msg_id: str, why: str) -> None:
        expected = self._expected.pop(client_msg_id, None)
        if expected is not None:
            expected.set_result(why)

    def _commit(self) -> None:
        """Move the group's position behind what is safe, in order."""
        passed: list[TopicRecord] = []
        with self._lock:
            while self._batches and self._batches[0].is_safe:
                passed += self._batches.popleft().records
        if passed:
            self._reader.commit(passed)


def _refused(letter: bytes) -> tuple[str, str]:
    """Return the sender's id of the message in a dead letter, and why it could not be stored."""
    try:
        told = parse_json(letter)
        event = parse_json(base64.b64decode(told["head"]))
        return str(event["clientMsgId"]).lower(), str(told["reason"])
    except (ValueError, KeyError, TypeError, binascii.Error):
        return "", ""
