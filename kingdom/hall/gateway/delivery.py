"""Read what was stored and signalled, and bring it to the sockets of this gateway in its order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from kingdom.hall.database.base import DatabaseRefused, Unavailable
from kingdom.hall.database.records import BadEvent, MessagePersisted, Signal
from kingdom.hall.gateway.clients import Clients, Outgoing
from kingdom.hall.gateway.store import ChatStore
from kingdom.hall.topics.base import Follower, PositionGone, TopicRecord, Topics, TopicsAway
from kingdom.hall.topics.names import PERSISTED, SIGNALS

POLL_SECONDS = 0.5
PAUSE_SECONDS = 0.5
AT_ONCE = 0.004
"""After so long the event loop serves others before it goes on with a burst."""
NAME_SECONDS = 0.5
MOST_NAMES = 50_000


class Names:
    """What the senders of messages are called."""

    def __init__(self, store: ChatStore) -> None:
        self._store = store
        self._known: dict[str, str | None] = {}

    async def learn(self, users: set[str]) -> None:
        """Look up those that are not known yet. While the database is away messages travel without names."""
        missing = [user for user in users if user not in self._known]
        if not missing:
            return
        if len(self._known) + len(missing) > MOST_NAMES:
            self._known.clear()
        try:
            rows = await self._store.read(lambda db: [db.one("user_by_id", id=user) for user in missing], NAME_SECONDS)
        except (Unavailable, DatabaseRefused):
            return
        for user, row in zip(missing, rows, strict=True):
            self._known[user] = row["name"] if row else None

    def of(self, user: str) -> str | None:
        return self._known.get(user)


class RoomDelivery:
    """A thread that waits for the topics, and what is then done in the event loop."""

    def __init__(
        self,
        topics: Topics,
        clients: Clients,
        names: Names,
        hear: Callable[[Signal], Awaitable[None]],
        lost: Callable[[str], None],
        report: Callable[[str], None],
    ) -> None:
        """`lost` hears that events were removed before they were read here, `report` what people should know."""
        self._topics = topics
        self._clients = clients
        self._names = names
        self._hear = hear
        self._lost = lost
        self._report = report
        self._last: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._crashed: BaseException | None = None
        self._follower: Follower | None = None
        #: Rung after each round of the thread, as a sign of life, whether or not there was anything.
        self.moved = asyncio.Event()
        #: Whether there is a position from which on nothing is missed: sockets may come.
        self.follows = False
        #: Why nothing can be read now, or "".
        self.away = ""
        self.delivered = 0

    def start(self) -> None:
        """Begin to follow the topics."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def check(self) -> None:
        """Raise what has ended the thread, if anything has."""
        if self._crashed is not None:
            raise self._crashed

    def stop(self) -> None:
        """Let the thread end."""
        self._stop.set()
        if self._follower is not None:
            self._follower.close()

    async def ended(self, seconds: float) -> None:
        """Wait for the end of the thread, while the loop keeps running, because the thread may wait for it."""
        until = time.monotonic() + seconds
        while self._thread.is_alive() and time.monotonic() < until:
            await asyncio.sleep(0.02)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._turn()
        except BaseException as error:  # noqa: BLE001
            # The edge of the thread: the role's loop raises it again and ends, and its successor starts afresh.
            self._crashed = error
        self._tell(self.moved.set)

    def _turn(self) -> None:
        try:
            if self._follower is None:
                self._follower = self._topics.follow(PERSISTED, SIGNALS)
                self.follows = True
            records = self._follower.poll(POLL_SECONDS)
            self.away = ""
        except TopicsAway as error:
            if not self.away:
                self._tell(partial(self._report, str(error)))
            self.away = str(error)
            self._stop.wait(PAUSE_SECONDS)
            records = []
        except PositionGone as error:
            self._tell(partial(self._lost, str(error)))
            records = []
        if records and not self._stop.is_set():
            # The next are read when these are on their way: what waits, waits in the topic.
            asyncio.run_coroutine_threadsafe(self.deliver(records), self._loop).result()
        self._tell(self.moved.set)

    def _tell(self, what: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what)

    async def deliver(self, records: Sequence[TopicRecord]) -> None:
        """Bring records to those who are concerned."""
        messages: list[MessagePersisted] = []
        for record in records:
            try:
                if record.topic == SIGNALS:
                    await self._hear(Signal.from_json(record.value))
                else:
                    message = MessagePersisted.from_json(record.value)
                    if self._clients.has_room(message.key):
                        messages.append(message)
            except BadEvent as error:
                self._report(f"left out {record.topic} {record.position}: {error}")
        await self._names.learn({message.sender_id for message in messages})
        began = time.perf_counter()
        for message in messages:
            self._deliver(message)
            if time.perf_counter() - began > AT_ONCE:
                await asyncio.sleep(0)
                began = time.perf_counter()

    def _deliver(self, message: MessagePersisted) -> None:
        room = message.key
        # The worker publishes again what it had published before it was killed; ids grow within a room.
        if message.message_id <= self._last.get(room, ""):
            return
        self._last[room] = message.message_id
        name = self._names.of(message.sender_id)
        new = {
            "messageId": message.message_id,
            "id": message.message_id,
            "roomId": message.room_id,
            "senderId": message.sender_id,
            **({} if name is None else {"senderName": name}),
            "clientMsgId": message.client_msg_id,
            "type": message.message_type,
            "content": message.content,
            "createdAt": message.created_at,
            **({} if message.removes is None else {"removes": message.removes}),
            **({"removed": True} if message.removed else {}),
            **({} if message.about is None else {"about": message.about}),
        }
        self.delivered += self._clients.send_to_room(room, Outgoing("newMessage", new))
