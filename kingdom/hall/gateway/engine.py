"""Engine.IO 4: connections that poll, or are web sockets, and go over from the one to the other."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from contextlib import suppress
from typing import Protocol
from urllib.parse import parse_qs

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from kingdom.hall.gateway.frames import FRAMES, LARGEST_INCOMING, WebSocket, text_frame
from kingdom.hall.gateway.refusals import HttpRefusal, answer

PING_SECONDS, PONG_SECONDS = 25, 20
UPGRADE_SECONDS = 10.0
"""How long a polling client may take to go over to a web socket that it has opened."""
END_SECONDS = 5.0
"""How long a client that polls may take to fetch the end of its connection."""
MOST_PACKETS = 1000
"""What a polling client may send in one request."""
MOST_WAITING = 64
"""Messages of one client that wait for their turn before no more are read from it."""
_BETWEEN = "\x1e"


class Packet:
    """A packet for any number of clients, encoded once."""

    __slots__ = ("frame", "payload")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.frame = text_frame(payload)


CLOSE, PING, NOOP = Packet(b"1"), Packet(b"2"), Packet(b"6")


class Receiver(Protocol):
    """What takes the messages of connections."""

    def opened(self, pipe: Pipe) -> None:
        """Learn of a new connection."""

    def take(self, pipe: Pipe, message: str) -> Awaitable[None] | None:
        """Take a message. What is returned is awaited before the next message of this connection is taken."""

    def ended(self, pipe: Pipe, unexpected: bool) -> None:
        """Learn, once, that a connection has ended; `unexpected` if neither side had meant it to."""


class Pipe:
    """One connection. Times run on the loop's steady clock."""

    def __init__(self, engine: EngineIO, authorization: str) -> None:
        self.sid = secrets.token_urlsafe(15)
        #: The Authorization header of the request that opened it, until its user is known.
        self.authorization = authorization
        #: The web socket, once nothing waits for a poll any more.
        self.frames: WebSocket | None = None
        self.is_closed = self.is_upgrading = False
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._size = 0
        self._poll: asyncio.Future[None] | None = None
        self._inbox: list[str] = []
        self._turn: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(PING_SECONDS, self._ping)

    def put(self, packet: Packet) -> int:
        """Send a packet, and return how many bytes wait for this client now."""
        if self.frames is not None:
            return self.frames.put(packet.frame)
        self._waiting.append(packet.payload)
        self._size += len(packet.payload)
        self.wake()
        return self._size

    async def poll(self) -> str:
        """Return what waits for the client, and wait for something if it is nothing."""
        if not self._waiting and not self.is_upgrading and not self.is_closed:
            self.wake()  # an older poll
            self._poll = self._loop.create_future()
            await self._poll
        if self.is_upgrading:
            return NOOP.payload.decode()  # what waits goes over the web socket
        found, self._waiting, self._size = self._waiting or [NOOP.payload], [], 0
        return _BETWEEN.join(packet.decode() for packet in found)

    def take(self, packet: str) -> None:
        """Take a packet of the client: messages each in their turn, other packets at once."""
        if self.is_closed:
            return
        if packet[:1] == "4":
            if self._turn is None:
                self._begin(packet)
            else:
                self._inbox.append(packet)
                if self.frames is not None and len(self._inbox) >= MOST_WAITING:
                    self.frames.pause()
        elif packet == "3":
            self._timer.cancel()
            self._timer = self._loop.call_later(PING_SECONDS, self._ping)
        elif packet[:1] == "1":
            self.drop()

    def lost(self, unexpected: bool) -> None:
        """Learn that the web socket has ended."""
        self._end(unexpected)

    async def settled(self) -> None:
        """Return when the messages that were taken are dealt with."""
        if self._turn is not None:
            await asyncio.wait([self._turn])

    def upgrade(self, frames: WebSocket) -> None:
        """Go over to a web socket; what waits goes there first."""
        for payload in self._waiting:
            frames.put(text_frame(payload))
        self._waiting, self._size = [], 0
        self.frames, frames.reader = frames, self

    def close(self) -> None:
        """End the connection, of which the client is told."""
        if self.is_closed:
            return
        self.put(CLOSE)
        if self.frames is not None:
            self.frames.close()
        else:
            self._loop.call_later(END_SECONDS, self._engine.pipes.pop, self.sid, None)
        self._end(unexpected=False, forget=self.frames is not None)

    def drop(self, *, unexpected: bool = False) -> None:
        """End the connection at once; what waits is lost."""
        if self.frames is not None:
            self.frames.cut()
        self._end(unexpected)

    def _end(self, unexpected: bool, *, forget: bool = True) -> None:
        if forget:
            self._engine.pipes.pop(self.sid, None)
        if not self.is_closed:
            self.is_closed = True
            self._timer.cancel()
            self._inbox.clear()
            self.wake()
            self._engine.hall.ended(self, unexpected)

    def _begin(self, packet: str) -> None:
        work = self._engine.hall.take(self, packet[1:])
        if work is not None:
            self._turn = asyncio.ensure_future(self._go_on(work))

    async def _go_on(self, work: Awaitable[None]) -> None:
        await work
        self._turn = None
        while self._inbox and self._turn is None:
            self._begin(self._inbox.pop(0))
        if self.frames is not None and not self._inbox:
            self.frames.resume()

    def _ping(self) -> None:
        self.put(PING)
        self._timer = self._loop.call_later(PONG_SECONDS, self.drop)

    def wake(self) -> None:
        """End the poll that is under way."""
        if self._poll is not None and not self._poll.done():
            self._poll.set_result(None)


class _Upgrade:
    """A web socket by the side of a connection that polls, until that goes over to it."""

    def __init__(self, pipe: Pipe, frames: WebSocket) -> None:
        self._pipe = pipe
        self._frames = frames
        self._timer = asyncio.get_running_loop().call_later(UPGRADE_SECONDS, self._give_up)

    def take(self, packet: str) -> None:
        """Take the probe, and then the word to go over."""
        if packet == "2probe" and not self._pipe.is_upgrading:
            self._pipe.is_upgrading = True
            self._frames.put(text_frame(b"3probe"))
            self._pipe.wake()
        elif packet == "5" and self._pipe.is_upgrading and not self._pipe.is_closed:
            self._timer.cancel()
            self._pipe.upgrade(self._frames)
        else:
            self._give_up()

    def lost(self, unexpected: bool) -> None:
        """Learn that the web socket has ended: the client goes on polling."""
        self._timer.cancel()
        self._pipe.is_upgrading = False

    def _give_up(self) -> None:
        self._frames.close()
        self.lost(False)


class EngineIO:
    """All connections, by their ids, and the requests that belong to them."""

    def __init__(self, hall: Receiver) -> None:
        self.hall = hall
        self.pipes: dict[str, Pipe] = {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let a web socket in."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        sid = query.get("sid", [""])[0]
        try:
            if not sid and query.get("EIO") != ["4"]:
                raise HttpRefusal(400, "Only Engine.IO 4 is spoken here")
            transport = query.get("transport", ["polling"])
            if transport != ["polling" if scope["type"] == "http" else "websocket"]:
                raise HttpRefusal(400, f"Invalid {'websocket upgrade' if transport == ['websocket'] else 'transport'}")
            pipe = self._known(sid) if sid else None
            if scope["type"] == "http":
                await (await self._answer(pipe, Request(scope, receive)))(scope, receive, send)
                return
        except HttpRefusal as refusal:
            await answer(refusal)(scope, receive, send)
            return
        await send({"type": "websocket.accept"})
        frames: WebSocket = scope["state"][FRAMES]
        if pipe is not None:
            frames.reader = _Upgrade(pipe, frames)
        else:
            pipe = self._opened(scope)
            pipe.upgrade(frames)
            frames.put(text_frame(_open_packet(pipe, [])))

    def _known(self, sid: str) -> Pipe:
        pipe = self.pipes.get(sid)
        if pipe is None or pipe.frames is not None:
            raise HttpRefusal(400, "Invalid session")
        return pipe

    def _opened(self, scope: Scope) -> Pipe:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"}
        pipe = Pipe(self, headers.get(b"authorization", ""))
        self.pipes[pipe.sid] = pipe
        self.hall.opened(pipe)
        return pipe

    async def _answer(self, pipe: Pipe | None, request: Request) -> Response:
        if request.method == "POST" and pipe is not None:
            for packet in await _packets(request):
                pipe.take(packet)
            await pipe.settled()
            return PlainTextResponse("ok")
        if request.method != "GET":
            raise (
                HttpRefusal(400, "Invalid session")
                if request.method == "POST"
                else HttpRefusal(405, "Method Not Allowed")
            )
        if pipe is None:
            pipe = self._opened(request.scope)
            return PlainTextResponse(_open_packet(pipe, ["websocket"]))
        try:
            return PlainTextResponse(await pipe.poll())
        except Exception:
            # A poll that fails ends its connection; the client comes back with another one.
            pipe.drop(unexpected=True)
            raise


async def _packets(request: Request) -> list[str]:
    """Return what a polling client has sent."""
    body = b""
    with suppress(ClientDisconnect):
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_INCOMING:
                raise HttpRefusal(413, "The body is too large")
    try:
        packets = body.decode().split(_BETWEEN)
    except UnicodeDecodeError:
        raise HttpRefusal(400, "The body is no text") from None
    if len(packets) > MOST_PACKETS:
        raise HttpRefusal(400, "Too many packets")
    return packets


def _open_packet(pipe: Pipe, upgrades: list[str]) -> bytes:
    facts = {
        "sid": pipe.sid,
        "upgrades": upgrades,
        "pingTimeout": PONG_SECONDS * 1000,
        "pingInterval": PING_SECONDS * 1000,
        "maxPayload": LARGEST_INCOMING,
    }
    return b"0" + orjson.dumps(facts)
