"""The Socket.IO part: who connects, what they ask for, and the table of it."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import orjson
import socketio
from engineio.async_socket import AsyncSocket
from engineio.exceptions import EngineIOError, SocketIsClosedError, UnknownPacketError
from engineio.packet import CLOSE, NOOP, PING, PONG, UPGRADE, Packet
from engineio.payload import Payload

from kingdom.hall.database.base import Unavailable
from kingdom.hall.database.ids import iso, new_uuid
from kingdom.hall.database.records import MessageCreated
from kingdom.hall.gateway import inputs
from kingdom.hall.gateway.clients import Client, Clients, Outgoing
from kingdom.hall.gateway.frames import FRAMES, LARGEST_INCOMING, FrameProtocol, text_frame
from kingdom.hall.gateway.limits import Rate
from kingdom.hall.gateway.membership import Membership
from kingdom.hall.gateway.rooms import Rooms
from kingdom.hall.gateway.sessions import Sessions
from kingdom.hall.gateway.tokens import Tokens
from kingdom.hall.topics.base import Outcome, Producer
from kingdom.hall.topics.names import MESSAGES

PING_SECONDS, PONG_SECONDS = 25, 20
UPGRADE_SECONDS = 10.0
"""How long a polling client may take to go over to a web socket that it has opened."""
SIGN_IN_SECONDS = 45.0
"""How long a connection may be open without a user: as long as under the stock server."""
CLOSE_SECONDS = 1.0
"""How long a refused client may take to hang up by itself."""
REFUSAL_SECONDS = 0.1
"""Some clients overlook a refusal that comes in one piece with the connection."""
MOST_PACKETS = 1000
"""What a polling client may send in one request."""
BUSY_RETRY_MS = 1000
SUCCESS = {"success": True}
NOT_AUTHENTICATED = "Not authenticated"
INVALID = "Invalid message format"
NOT_A_MEMBER = "Not a member of this room"
UNDELIVERED = "Message delivery failed"
LONGEST_NUMBER = 16
"""Digits of the number of a call."""
_CONNECT, _EVENT, _NOOP = "40", "42", "6"


class Answer(NamedTuple):
    """The answer to a call of a client, which may be given later."""

    client: Client
    #: None: the client does not want to know.
    number: int | None
    clients: Clients

    def give(self, result: object) -> None:
        """Send it."""
        if self.number is not None:
            self.clients.send(self.client, Outgoing.answer(self.number, result))

    def give_at_once(self, result: object) -> bool:
        """Send it on any thread, if nothing else waits for this client. Return whether that was so."""
        frames = self.client.frames
        if self.number is None or frames is None:
            return False
        return frames.put_at_once(Outgoing.answer(self.number, result).frame)


class Settled(NamedTuple):
    """What became of a message that was appended."""

    answer: Answer
    client_msg_id: str
    outcome: Outcome

    @property
    def accepted(self) -> dict[str, object]:
        """What the client is told when it is stored."""
        return {"clientMsgId": self.client_msg_id, "status": "ACCEPTED"}


class HallSocket:
    """A web socket under Engine.IO: its handshakes are Engine.IO's, its packets take a shorter way."""

    def __init__(self, handler: Callable[[HallSocket], Awaitable[None]], server: object) -> None:
        self._pipe: AsyncSocket = handler.__self__  # type: ignore[attr-defined]
        self._hall: Sockets = self._pipe.server.hall

    async def __call__(self, environ: dict[str, Any]) -> str:
        self._receive, self._send = environ["asgi.receive"], environ["asgi.send"]
        self._frames: FrameProtocol = environ["asgi.scope"]["state"][FRAMES]
        await self._send({"type": "websocket.accept"})
        if self._pipe.connected and not await self._upgrade():
            await self.close()
            return ""
        self._pipe.connected = self._pipe.upgraded = True
        self._hall.serve(self._pipe.sid, self._frames)
        writer = asyncio.ensure_future(self._write())
        await self._read()
        await self._pipe.queue.put(None)
        await writer
        await self._pipe.close(wait=False, abort=True, reason=self._pipe.server.reason.TRANSPORT_CLOSE)
        return ""

    async def _upgrade(self) -> bool:
        """Let a polling client go over to this web socket; return whether it did."""
        self._pipe.upgrading = True
        try:
            async with asyncio.timeout(UPGRADE_SECONDS):
                if self._pipe.upgraded or await self.wait() != f"{PING}probe":
                    return False
                await self.send(f"{PONG}probe")
                await self._pipe.queue.put(Packet(NOOP))  # ends the poll that is under way
                self._pipe.upgraded = await self.wait() == str(UPGRADE)
        except OSError:
            return False
        finally:
            self._pipe.upgrading = False
        return bool(self._pipe.upgraded)

    async def _write(self) -> None:
        """Send what comes through the queue, until the connection ends."""
        while True:
            packet = await self._pipe.queue.get()
            self._pipe.queue.task_done()
            if packet is None:
                break
            await self.send(packet.encode())
            if packet.packet_type == CLOSE:
                break
        await self.close()

    async def _read(self) -> None:
        """Take what the client sends, one after the other. Dead clients are found by their pings, in `drop_silent`."""
        self._frames.take = partial(self._hall.take, self._pipe.sid)
        while True:
            try:
                self._frames.is_idle = True
                data = await self.wait()
                self._frames.is_idle = False
                if isinstance(data, str) and data.startswith(_EVENT) and await self._hall.receive(self._pipe.sid, data):
                    continue
                await self._pipe.receive(Packet(encoded_packet=data))
            except (OSError, SocketIsClosedError):
                return
            except (ValueError, TypeError, KeyError, IndexError, AttributeError, UnknownPacketError, RecursionError):
                continue  # no packet of this protocol
            if self._pipe.closed:
                return

    async def send(self, message: str) -> None:
        """Send a packet. From a NOOP on, which comes after everything before it, frames may go directly."""
        if self._frames.put(text_frame(message.encode())) > self._hall.most_queued():
            self._frames.cut()
        if message == _NOOP or message.startswith(_CONNECT):
            self._hall.can_take_frames(self._pipe.sid, self._frames)

    async def wait(self) -> str | bytes:
        """Return the next packet; OSError when there will be none."""
        event = await self._receive()
        if event["type"] != "websocket.receive":
            raise OSError
        received: str | bytes = event["text"] if event.get("text") is not None else event["bytes"]
        return received

    async def close(self) -> None:
        """Close the web socket."""
        if not self._frames.disconnected and not self._frames.close_sent:
            await self._send({"type": "websocket.close"})


class _Server(socketio.AsyncServer):  # type: ignore[misc]
    """Socket.IO whose events go to one place: the answer to some of them is given later, in whatever order."""

    hall: Sockets

    async def _handle_event(self, eio_sid: str, namespace: str | None, id: int | None, data: object) -> None:
        if namespace in (None, "/") and isinstance(data, list) and data:
            await self.hall.handle(eio_sid, data[0], data[1] if len(data) > 1 else None, id)

    async def _handle_eio_disconnect(self, eio_sid: str, reason: str) -> None:
        await super()._handle_eio_disconnect(eio_sid, reason)
        self.hall.release(eio_sid)
        pipe: AsyncSocket | None = self.eio.sockets.get(eio_sid)
        if pipe is not None and not pipe.upgraded:
            pipe.queue.put_nowait(Packet(NOOP))  # answers the poll under way, which would else wait for its time-out


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
        most_queued: Callable[[], int],
        sessions: Sessions,
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
        self.most_queued = most_queued
        self._clients = clients
        self._rooms = rooms
        self._membership = membership
        self._tokens = tokens
        self._producer = producer
        self._sessions = sessions
        self._report = report
        self._clock = clock
        self._ends: list[tuple[float, str]] = []
        #: The web sockets by the pipes that they serve.
        self._web_sockets: dict[str, FrameProtocol] = {}
        #: Since when a pipe has no user.
        self._strangers: dict[str, float] = {}
        #: Events whose fate is not known.
        self._under_way: set[str] = set()
        self._settled: deque[Settled] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.server = _new_server(self)
        self.server.on("connect", self._connect)
        self.server.on("disconnect", self._disconnect)

    # Engine.IO

    def can_take_frames(self, pipe: str, frames: FrameProtocol) -> None:
        """Note that nothing is left on the way to a client besides what is sent to this web socket."""
        client = self._clients.by_pipe.get(pipe)
        if client is not None:
            client.frames = frames

    def serve(self, pipe: str, frames: FrameProtocol) -> None:
        """Note the web socket of a pipe."""
        self._web_sockets[pipe] = frames
        frames.ended_unexpectedly = partial(self._note_unexpected_end, pipe)

    def release(self, pipe: str) -> None:
        """Forget the web socket of a pipe that has ended."""
        self._web_sockets.pop(pipe, None)

    def _note_unexpected_end(self, pipe: str) -> None:
        """Count the end of a connection, if it had a user."""
        if (client := self._clients.by_pipe.get(pipe)) is not None:
            self.unexpected_ends += 1
            self.ended_after = time.monotonic() - client.since

    def cut(self, client: Client) -> None:
        """End the connection of a client: it comes back and resumes, or it does not read anyway."""
        frames = self._web_sockets.get(client.pipe.sid)
        if frames is not None:
            frames.cut()
        else:
            self._later(client.pipe.close(wait=False, abort=True))
            self.server.eio.sockets.pop(client.pipe.sid, None)

    async def drop_silent(self) -> None:
        """Close the connections that do not answer pings or have no user, and forget those that are closed."""
        pipes: dict[str, AsyncSocket] = self.server.eio.sockets
        now = time.monotonic()
        self._strangers = {sid: self._strangers.get(sid, now) for sid in pipes if sid not in self._clients.by_pipe}
        for sid, pipe in list(pipes.items()):
            if pipe.last_ping and time.time() - pipe.last_ping > PONG_SECONDS:
                await self._drop(pipe, self.server.eio.reason.PING_TIMEOUT)
            elif now - self._strangers.get(sid, now) > SIGN_IN_SECONDS:
                await self._drop(pipe, self.server.eio.reason.SERVER_DISCONNECT)
            if pipe.closed:
                pipes.pop(sid, None)

    async def _drop(self, pipe: AsyncSocket, reason: str) -> None:
        frames = self._web_sockets.get(pipe.sid)
        await pipe.close(wait=False, abort=True, reason=reason)
        if frames is not None:
            frames.cut()

    async def end_sessions(self) -> None:
        """Disconnect those whose tokens have ended."""
        now = self._clock()
        while self._ends and self._ends[0][0] <= now:
            client = self._clients.by_pipe.get(heapq.heappop(self._ends)[1])
            if client is not None:
                await self.disconnect(client)

    async def disconnect_ended(self) -> None:
        """Disconnect those whose sessions were ended before their time."""
        for client in list(self._clients.by_pipe.values()):
            if client.caller is not None and self._sessions.has_ended(client.caller):
                await self.disconnect(client)

    async def disconnect(self, client: Client) -> None:
        """Tell a client that it is not served any more, and hang up if it does not."""
        await self.server.disconnect(client.sid)
        self._hang_up_later(client.pipe)

    async def _connect(self, sid: str, environ: dict[str, Any], auth: object = None) -> None:
        pipe_sid = self.server.manager.eio_sid_from_sid(sid, "/")
        pipe: AsyncSocket = self.server.eio.sockets[pipe_sid]
        token = auth.get("token") if isinstance(auth, Mapping) else None
        if token is None:
            kind, _, given = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
            token = given.strip() if kind.lower() == "bearer" else None
        # It would be kept for as long as the socket lives.
        environ.clear()
        caller = self._tokens.read(token)
        try:
            is_good = caller is not None and await self._sessions.is_good(caller)
        except Unavailable:
            # It comes back by itself; a refusal would sign it out.
            await self._drop(pipe, self.server.eio.reason.TRANSPORT_CLOSE)
            return
        if pipe.closed:
            return  # it left while the database was asked
        if caller is None or not is_good or pipe_sid in self._clients.by_pipe:
            self.refused_sockets += 1
            await asyncio.sleep(REFUSAL_SECONDS)
            await self.server.disconnect(sid)
            self._hang_up_later(pipe)
            return
        client = Client(pipe)
        client.sid = sid
        self._clients.by_pipe[pipe_sid] = client
        self._clients.signed_in(client, caller)
        heapq.heappush(self._ends, (caller.until, pipe_sid))

    async def _disconnect(self, sid: str, reason: str) -> None:
        pipe_sid = self.server.manager.eio_sid_from_sid(sid, "/")
        client = self._clients.by_pipe.get(pipe_sid)
        if client is not None and client.sid == sid:
            if reason == self.server.reason.TRANSPORT_ERROR:  # of polling: a poll that was left without a ping
                self._note_unexpected_end(pipe_sid)
            self._rooms.gone(client)

    def _hang_up_later(self, pipe: AsyncSocket) -> None:
        async def hang_up() -> None:
            await asyncio.sleep(CLOSE_SECONDS)
            if not pipe.closed:
                await pipe.close(wait=False)

        self._later(hang_up())

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Events

    async def receive(self, pipe: str, text: str) -> bool:
        """Carry out an event of the default namespace; False when this is another one, or none."""
        start = text.find("[")
        number = text[len(_EVENT) : start]
        if start < 0 or (number and not (number.isascii() and number.isdigit())):
            return False
        try:
            data = orjson.loads(text[start:])
        except orjson.JSONDecodeError:
            return False
        await self.handle(pipe, data[0] if data else None, data[1] if len(data) > 1 else None, _int(number))
        return True

    def take(self, pipe: str, packet: bytes) -> bool:
        """Carry out a `sendMessage` at once, if its sender is known as a member; False when it has to wait its turn."""
        start = packet.find(b"[")
        number = packet[len(_EVENT) : start]
        if not packet.startswith(b"42") or not number.isdigit() or len(number) > LONGEST_NUMBER:
            return False
        try:
            event, payload = orjson.loads(packet[start:])
        except (ValueError, TypeError):
            return False
        client = self._clients.by_pipe.get(pipe)
        sent = inputs.sent(payload) if event == "sendMessage" else None
        if sent is None or client is None or client.caller is None:
            return False
        if not self._membership.knows(sent.room, client.caller.user):
            return False
        answer = Answer(client, int(number), self._clients)
        try:
            if not self._is_over_limit(client, sent, answer):
                self._append(sent, client.caller.user, answer)
        except Exception as error:  # noqa: BLE001
            self._report_defect(event, error, answer)
        return True

    async def handle(self, pipe: str, event: object, payload: object, number: int | None) -> None:
        """Carry out one event. The next one of this client waits until this returns."""
        client = self._clients.by_pipe.get(pipe)
        if client is None:
            await self._answer_stranger(pipe, event, number)
            return
        answer = Answer(client, number, self._clients)
        handler = EVENTS.get(event) if isinstance(event, str) else None
        if event != "sendMessage" and (wait := self._calls.wait_seconds(client.sid)):
            answer.give({**_error("Too many requests"), "retryAfterMs": int(wait * 1000) + 1})
        elif handler is None:
            answer.give(_error("Unknown event"))
        else:
            try:
                await handler(self, client, payload, answer)
            except Exception as error:  # noqa: BLE001
                self._report_defect(event, error, answer)

    def _report_defect(self, event: object, error: Exception, answer: Answer) -> None:
        """Report an unexpected error in one event. The connection goes on: a new one would send the event again."""
        self._report(f"{event} of a client failed: {type(error).__name__}: {error}")
        answer.give(_failed("", UNDELIVERED) if event == "sendMessage" else _error("Internal server error"))

    async def _answer_stranger(self, pipe: str, event: object, number: int | None) -> None:
        if number is None:
            return
        failed = _failed("", NOT_AUTHENTICATED) if event == "sendMessage" else _error(NOT_AUTHENTICATED)
        try:
            await self.server.eio.send(pipe, f"3{number}{orjson.dumps([failed]).decode()}")
        except (KeyError, EngineIOError):
            return

    async def send_message(self, client: Client, payload: object, answer: Answer) -> None:
        """Take a message in. It is accepted when the topic has it durably."""
        assert client.caller is not None
        user = client.caller.user
        sent = inputs.sent(payload)
        if sent is None:
            self._fail(answer, "", INVALID)
        elif not self._is_over_limit(client, sent, answer):
            if why := await self._may_not_send(sent.room, user):
                self._fail(answer, sent.client_msg_id, why)
            else:
                self._append(sent, user, answer)

    def _is_over_limit(self, client: Client, sent: inputs.Sent, answer: Answer) -> bool:
        """Count a message; where there are too many now, answer so."""
        if wait := self.rate.wait_seconds(client.sid):
            self._fail(answer, sent.client_msg_id, "Too many messages", int(wait * 1000) + 1)
        elif self.refuses:
            self._fail(answer, sent.client_msg_id, self.refuses, BUSY_RETRY_MS)
        else:
            return False
        return True

    async def _may_not_send(self, room: str, user: str) -> str:
        if self._membership.knows(room, user):
            return ""
        try:
            return "" if await self._membership.ask(room, user) else NOT_A_MEMBER
        except Unavailable:
            return UNDELIVERED

    def _append(self, sent: inputs.Sent, user: str, answer: Answer) -> None:
        event = MessageCreated(
            new_uuid(), sent.room, user, sent.client_msg_id, sent.type, sent.content, iso(self._clock())
        )

        def done(outcome: Outcome, why: str) -> None:
            self._under_way.discard(event.event_id)
            self._settle(Settled(answer, sent.client_msg_id, outcome))

        self._loop = asyncio.get_running_loop()
        self._under_way.add(event.event_id)
        self._producer.append(MESSAGES, event.key, event.to_json(), done)

    def _settle(self, settled: Settled) -> None:
        """Let the event loop answer. Called on any thread; a batch of a topic wakes the loop once.

        What was the only one under way is answered here: the sender has it before the loop is awake.
        """
        if settled.outcome is Outcome.STORED:
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
            if settled.outcome is Outcome.STORED:
                settled.answer.give(settled.accepted)
            else:
                # Also when nobody knows: the client sends again under its own id, and the doubled one is dropped.
                self._fail(settled.answer, settled.client_msg_id, UNDELIVERED)

    def _fail(self, answer: Answer, client_msg_id: str, error: str, retry_after_ms: int = 0) -> None:
        self.failed += 1
        answer.give(_failed(client_msg_id, error, retry_after_ms))

    async def join_room(self, client: Client, payload: object, answer: Answer) -> None:
        """Let a member have what comes into a room."""
        assert client.caller is not None
        given = payload.get("roomId") if isinstance(payload, Mapping) else None
        if not inputs.is_uuid(given):
            answer.give(_error("Invalid room id"))
            return
        room = str(given).lower()
        if why := await self._may_not_send(room, client.caller.user):
            answer.give(_error("The room cannot be joined now" if why is UNDELIVERED else why))
        elif client.pipe.sid in self._clients.by_pipe:  # and not gone while the database was asked
            answer.give(SUCCESS)
            self._rooms.enter(client, room)

    async def heartbeat(self, client: Client, payload: object, answer: Answer) -> None:
        """Note that a client is there."""
        self._rooms.seen(client)
        answer.give(SUCCESS)

    async def typing(self, client: Client, payload: object, answer: Answer) -> None:
        """Tell the others in a room that somebody types, or no longer does."""
        given = payload if isinstance(payload, Mapping) else {}
        room = str(given.get("roomId")).lower()
        if room not in client.rooms or not isinstance(given.get("on"), bool):
            answer.give(_error(NOT_A_MEMBER if isinstance(given.get("on"), bool) else INVALID))
            return
        self._rooms.typing(client, room, given["on"])
        answer.give(SUCCESS)


EVENTS: dict[str, Callable[[Sockets, Client, object, Answer], Awaitable[None]]] = {
    "joinRoom": Sockets.join_room,
    "sendMessage": Sockets.send_message,
    "heartbeat": Sockets.heartbeat,
    "typing": Sockets.typing,
}
"""What clients may call."""


def _int(number: str) -> int | None:
    return int(number) if number else None


def _failed(client_msg_id: str, error: str, retry_after_ms: int = 0) -> dict[str, object]:
    later = {"retryAfterMs": retry_after_ms} if retry_after_ms else {}
    return {"clientMsgId": client_msg_id, "status": "FAILED", "error": error, **later}


def _error(why: str) -> dict[str, object]:
    return {"success": False, "error": why}


def _new_server(hall: Sockets) -> _Server:
    quiet = logging.getLogger("kingdom.sockets")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    server = _Server(
        async_mode="asgi",
        # A refused client sees that it is connected, and then why not; otherwise it would try again and again.
        always_connect=True,
        async_handlers=False,
        # Origins are checked before anything else, in `admission`.
        cors_allowed_origins=[],
        max_http_buffer_size=LARGEST_INCOMING,
        ping_interval=PING_SECONDS,
        ping_timeout=PONG_SECONDS,
        monitor_clients=False,
        logger=quiet,
        engineio_logger=quiet,
    )
    server.hall = server.eio.hall = hall
    Payload.max_decode_packets = MOST_PACKETS
    server.eio._async = {**server.eio._async, "websocket": HallSocket}
    return server
