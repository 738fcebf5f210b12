"""The Socket.IO part: who connects, what they ask for, and the table of it."""

from __future__ import annotations

import asyncio
import heapq
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import orjson

from kingdom.hall.database.base import Unavailable
from kingdom.hall.database.ids import iso, new_uuid
from kingdom.hall.database.records import MessageCreated
from kingdom.hall.gateway import inputs
from kingdom.hall.gateway.clients import ChatClient, Clients
from kingdom.hall.gateway.engine import Packet, Pipe
from kingdom.hall.gateway.limits import Rate
from kingdom.hall.gateway.membership import Membership
from kingdom.hall.gateway.rooms import Rooms
from kingdom.hall.gateway.sessions import ChatSessions
from kingdom.hall.gateway.tokens import Tokens
from kingdom.hall.topics.base import Producer, PublishOutcome
from kingdom.hall.topics.names import MESSAGES

SIGN_IN_SECONDS = 45.0
"""How long a connection may be open without a user: as long as under the stock server."""
CLOSE_SECONDS = 1.0
"""How long a refused client may take to hang up by itself."""
REFUSAL_SECONDS = 0.1
"""Some clients overlook a refusal that comes in one piece with the connection."""
BUSY_RETRY_MS = 1000
SUCCESS = {"success": True}
NOT_AUTHENTICATED = "Not authenticated"
INVALID = "Invalid message format"
NOT_A_MEMBER = "Not a member of this room"
UNDELIVERED = "Message delivery failed"
LONGEST_NUMBER = 16
"""Digits of the number of a call."""
DISCONNECT = Packet(b"41")


class CallAnswer(NamedTuple):
    """The answer to a call of a client, which may be given later."""

    client: ChatClient
    #: None: the client does not want to know.
    number: int | None
    clients: Clients

    def give(self, result: object) -> None:
        """Send it."""
        if self.number is not None:
            self.clients.send(self.client, _answer(self.number, result))

    def give_at_once(self, result: object) -> bool:
        """Send it on any thread, if nothing else waits for this client. Return whether that was so."""
        frames = self.client.pipe.frames
        if self.number is None or frames is None:
            return False
        return frames.put_at_once(_answer(self.number, result).frame)


class Settled(NamedTuple):
    """What became of a message that was appended."""

    answer: CallAnswer
    client_msg_id: str
    outcome: PublishOutcome

    @property
    def accepted(self) -> dict[str, object]:
        """What the client is told when it is stored."""
        return {"clientMsgId": self.client_msg_id, "status": "ACCEPTED"}


class Sockets:
    """Everything that happens on sockets."""

    def __init__(
        self,
        clients: Clients,
        rooms: Rooms,
        membership: Membership,
        tokens: Tokens,
        producer: Producer,
        rate: Rate,
        calls: Rate,
        sessions: ChatSessions,
        report: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        """`rate` is for messages, `calls` for a socket's other requests; `report` tells of defects."""
        #: Why messages are not taken now, or "".
        self.refuses = ""
        self.rate = rate
        self._calls = calls
        self.accepted = self.failed = self.refused_sockets = 0
        #: Connections of users that ended for no known reason, and how long the last one had been open.
        self.unexpected_ends, self.ended_after = 0, 0.0
        self._clients = clients
        self._rooms = rooms
        self._membership = membership
        self._tokens = tokens
        self._producer = producer
        self._sessions = sessions
        self._report = report
        self._clock = clock
        self._ends: list[tuple[float, str]] = []
        #: Connections that have no user yet.
        self._strangers: dict[str, asyncio.TimerHandle] = {}
        #: Events whose fate is not known.
        self._under_way: set[str] = set()
        self._settled: deque[Settled] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    # Connections

    def opened(self, pipe: Pipe) -> None:
        """Give a new connection some time to sign in."""
        self._loop = asyncio.get_running_loop()
        self._strangers[pipe.sid] = self._loop.call_later(SIGN_IN_SECONDS, pipe.drop)

    def ended(self, pipe: Pipe, unexpected: bool) -> None:
        """Forget a connection, and count an unexpected end of one that had a user."""
        self._forget_stranger(pipe)
        client = self._clients.by_pipe.get(pipe.sid)
        if client is None:
            return
        if unexpected:
            self.unexpected_ends += 1
            self.ended_after = time.monotonic() - client.since
        self._rooms.gone(client)

    def _forget_stranger(self, pipe: Pipe) -> None:
        if (timer := self._strangers.pop(pipe.sid, None)) is not None:
            timer.cancel()

    def end_sessions(self) -> None:
        """Disconnect those whose tokens have ended."""
        now = self._clock()
        while self._ends and self._ends[0][0] <= now:
            client = self._clients.by_pipe.get(heapq.heappop(self._ends)[1])
            if client is not None:
                self.disconnect(client)

    def disconnect_ended(self) -> None:
        """Disconnect those whose sessions were ended before their time."""
        for client in list(self._clients.by_pipe.values()):
            if self._sessions.has_ended(client.caller):
                self.disconnect(client)

    def disconnect(self, client: ChatClient) -> None:
        """Tell a client that it is not served any more, and hang up if it does not."""
        self._rooms.gone(client)
        self._hang_up_later(client.pipe)

    def _hang_up_later(self, pipe: Pipe) -> None:
        pipe.put(DISCONNECT)
        asyncio.get_running_loop().call_later(CLOSE_SECONDS, pipe.close)

    # Messages

    def take(self, pipe: Pipe, message: str) -> Awaitable[None] | None:
        """Take a packet of Socket.IO. The next one of this client waits for what is returned."""
        kind, rest = message[:1], message[1:]
        if rest.startswith("/"):
            namespace, _, rest = rest.partition(",")
            if namespace.partition("?")[0] != "/":
                if kind == "0":
                    pipe.put(Packet(f'44{namespace},{{"message":"Invalid namespace"}}'.encode()))
                return None
        if kind == "0":
            return self._connect(pipe, rest)
        if kind == "1" and (client := self._clients.by_pipe.get(pipe.sid)) is not None:
            self._rooms.gone(client)
        return self._event(pipe, rest) if kind == "2" else None

    async def _connect(self, pipe: Pipe, given: str) -> None:
        """Let a user in. A refused client sees that it is connected, and then why not: otherwise it would try again."""
        sid, authorization, pipe.authorization = new_uuid(), pipe.authorization, ""
        pipe.put(Packet(b'40{"sid":"%s"}' % sid.encode()))
        caller = self._tokens.read(_token(given, authorization))
        try:
            is_good = caller is not None and await self._sessions.is_good(caller)
        except Unavailable:
            # It comes back by itself; a refusal would sign it out.
            pipe.drop()
            return
        if pipe.is_closed:
            return  # it left while the database was asked
        if caller is None or not is_good or pipe.sid in self._clients.by_pipe:
            self.refused_sockets += 1
            await asyncio.sleep(REFUSAL_SECONDS)
            self._hang_up_later(pipe)
            return
        self._forget_stranger(pipe)
        self._clients.add(ChatClient(pipe, sid, caller))
        heapq.heappush(self._ends, (caller.until, pipe.sid))

    def _event(self, pipe: Pipe, text: str) -> Awaitable[None] | None:
        start = text.find("[")
        given = text[: max(0, start)]
        if start < 0 or (given and not (given.isascii() and given.isdigit() and len(given) <= LONGEST_NUMBER)):
            return None
        try:
            data = _parsed(text[start:])
        except ValueError:
            return None
        event, payload = (data[0] if data else None), (data[1] if len(data) > 1 else None)
        return self.handle(pipe, event, payload, int(given) if given else None)

    def handle(self, pipe: Pipe, event: object, payload: object, number: int | None) -> Awaitable[None] | None:
        """Carry out one event. The next one of this client waits for what is returned."""
        client = self._clients.by_pipe.get(pipe.sid)
        if client is None:
            if number is not None:
                failed = _failed("", NOT_AUTHENTICATED) if event == "sendMessage" else _error(NOT_AUTHENTICATED)
                pipe.put(_answer(number, failed))
            return None
        answer = CallAnswer(client, number, self._clients)
        handler = EVENTS.get(event) if isinstance(event, str) else None
        if event != "sendMessage" and (wait := self._calls.wait_seconds(client.sid)):
            answer.give({**_error("Too many requests"), "retryAfterMs": int(wait * 1000) + 1})
        elif handler is None:
            answer.give(_error("Unknown event"))
        else:
            try:
                work = handler(self, client, payload, answer)
            except Exception as error:  # noqa: BLE001
                self._report_defect(event, error, answer)
            else:
                return None if work is None else self._finish(event, work, answer)
        return None

    async def _finish(self, event: object, work: Awaitable[None], answer: CallAnswer) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001
            self._report_defect(event, error, answer)

    def _report_defect(self, event: object, error: Exception, answer: CallAnswer) -> None:
        """Report an unexpected error in one event. The connection goes on: a new one would send the event again."""
        self._report(f"{event} of a client failed: {type(error).__name__}: {error}")
        answer.give(_failed("", UNDELIVERED) if event == "sendMessage" else _error("Internal server error"))

    def send_message(self, client: ChatClient, payload: object, answer: CallAnswer) -> Awaitable[None] | None:
        """Take a message in. It is accepted when the topic has it durably."""
        sent = inputs.sent(payload)
        if sent is None:
            self._fail(answer, "", INVALID)
        elif not self._is_over_limit(client, sent, answer):
            if not self._membership.knows(sent.room, client.caller.user):
                return self._append_for_member(sent, client.caller.user, answer)
            self._append(sent, client.caller.user, answer)
        return None

    async def _append_for_member(self, sent: inputs.Sent, user: str, answer: CallAnswer) -> None:
        if why := await self._may_not_send(sent.room, user):
            self._fail(answer, sent.client_msg_id, why)
        else:
            self._append(sent, user, answer)

    def _is_over_limit(self, client: ChatClient, sent: inputs.Sent, answer: CallAnswer) -> bool:
        """Count a message; where there are too many now, answer so."""
        if wait := self.rate.wait_seconds(client.sid):
            self._fail(answer, sent.client_msg_id, "Too many messages", int(wait * 1000) + 1)
        elif self.refuses:
            self._fail(answer, sent.client_msg_id, self.refuses, BUSY_RETRY_MS)
        else:
            return False
        return True

    async def _may_not_send(self, room: str, user: str) -> str:
        try:
            return "" if await self._membership.ask(room, user) else NOT_A_MEMBER
        except Unavailable:
            return UNDELIVERED

    def _append(self, sent: inputs.Sent, user: str, answer: CallAnswer) -> None:
        event = MessageCreated(
            new_uuid(), sent.room, user, sent.client_msg_id, sent.type, sent.content, iso(self._clock())
        )

        def done(outcome: PublishOutcome, why: str) -> None:
            self._under_way.discard(event.event_id)
            self._settle(Settled(answer, sent.client_msg_id, outcome))

        self._under_way.add(event.event_id)
        self._producer.append(MESSAGES, event.key, event.to_json(), done)

    def _settle(self, settled: Settled) -> None:
        """Let the event loop answer. Called on any thread; a batch of a topic wakes the loop once.

        What was the only one under way is answered here: the sender has it before the loop is awake.
        """
        if settled.outcome is PublishOutcome.STORED:
            self.accepted += 1
            if not self._under_way and not self._settled and settled.answer.give_at_once(settled.accepted):
                return
        wakes = not self._settled
        self._settled.append(settled)
        if wakes and self._loop is not None:
            self._loop.call_soon_threadsafe(self.answer_settled)

    def answer_settled(self) -> None:
        """Answer all whose fate is known."""
        while self._settled:
            settled = self._settled.popleft()
            if settled.outcome is PublishOutcome.STORED:
                settled.answer.give(settled.accepted)
            else:
                # Also when nobody knows: the client sends again under its own id, and the doubled one is dropped.
                self._fail(settled.answer, settled.client_msg_id, UNDELIVERED)

    def _fail(self, answer: CallAnswer, client_msg_id: str, error: str, retry_after_ms: int = 0) -> None:
        self.failed += 1
        answer.give(_failed(client_msg_id, error, retry_after_ms))

    async def join_room(self, client: ChatClient, payload: object, answer: CallAnswer) -> None:
        """Let a member have what comes into a room."""
        given = payload.get("roomId") if isinstance(payload, Mapping) else None
        if not inputs.is_uuid(given):
            answer.give(_error("Invalid room id"))
            return
        room = str(given).lower()
        if why := await self._may_not_send(room, client.caller.user):
            answer.give(_error("The room cannot be joined now" if why is UNDELIVERED else why))
        elif not client.pipe.is_closed:  # and not gone while the database was asked
            answer.give(SUCCESS)
            self._rooms.enter(client, room)

    def heartbeat(self, client: ChatClient, payload: object, answer: CallAnswer) -> None:
        """Note that a client is there."""
        self._rooms.seen(client)
        answer.give(SUCCESS)

    def typing(self, client: ChatClient, payload: object, answer: CallAnswer) -> None:
        """Tell the others in a room that somebody types, or no longer does."""
        given = payload if isinstance(payload, Mapping) else {}
        room = str(given.get("roomId")).lower()
        if room not in client.rooms or not isinstance(given.get("on"), bool):
            answer.give(_error(NOT_A_MEMBER if isinstance(given.get("on"), bool) else INVALID))
            return
        self._rooms.typing(client, room, given["on"])
        answer.give(SUCCESS)


EVENTS: dict[str, Callable[[Sockets, ChatClient, object, CallAnswer], Awaitable[None] | None]] = {
    "joinRoom": Sockets.join_room,
    "sendMessage": Sockets.send_message,
    "heartbeat": Sockets.heartbeat,
    "typing": Sockets.typing,
}
"""What clients may call."""


def _answer(number: int, result: object) -> Packet:
    return Packet(b"43%d" % number + orjson.dumps([result]))


def _parsed(text: str) -> Any:
    """Return the value in a JSON text; also one with half a surrogate pair, which is refused with an answer."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError from None


def _token(given: str, authorization: str) -> object:
    """Return the token of a client that connects: in what it gives, or in its header."""
    try:
        auth = _parsed(given) if given else None
    except ValueError:
        auth = None
    if isinstance(auth, dict) and auth.get("token") is not None:
        return auth["token"]
    kind, _, token = authorization.partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _failed(client_msg_id: str, error: str, retry_after_ms: int = 0) -> dict[str, object]:
    later = {"retryAfterMs": retry_after_ms} if retry_after_ms else {}
    return {"clientMsgId": client_msg_id, "status": "FAILED", "error": error, **later}


def _error(why: str) -> dict[str, object]:
    return {"success": False, "error": why}
