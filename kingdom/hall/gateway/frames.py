"""Listen, and write to web sockets without a detour: one frame, encoded once, goes to many of them."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import threading
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol
from urllib.parse import unquote

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.http11 import Response as Answer
from websockets.protocol import State
from websockets.server import ServerProtocol

from kingdom.base.errors import KingdomError

LARGEST_INCOMING = 128 << 10
BACKLOG = 2048
"""After a restart everybody comes back at once."""
KEEP_ALIVE_SECONDS = 20
REQUEST_SECONDS = 30.0
CLOSE_SECONDS = 5.0
"""How long a client may take to close a web socket after it was told to; one that does not read never does."""
_TEXT = 0x81
QUIET = logging.getLogger("kingdom.sockets")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
FRAMES = "kingdom.frames"
"""Under this name the connection stands in the state of its ASGI scope."""


class PortTaken(KingdomError):
    """cannot listen on {host} port {port}: {why}; free it, or change `port` in config/hall.yaml"""


def text_frame(payload: bytes) -> bytes:
    """Return a whole text frame as a server sends it."""
    size = len(payload)
    if size < 126:
        return bytes((_TEXT, size)) + payload
    if size < 1 << 16:
        return bytes((_TEXT, 126)) + size.to_bytes(2, "big") + payload
    return bytes((_TEXT, 127)) + size.to_bytes(8, "big") + payload


class Reader(Protocol):
    """What takes the texts of a web socket."""

    def take(self, packet: str) -> None:
        """Take a text."""

    def lost(self, unexpected: bool) -> None:
        """Learn that the connection has ended; `unexpected` if neither side had meant it to."""


class WebSocket(asyncio.Protocol):
    """A web socket. An ASGI application admits it; then its `reader` takes each text, and `put` finished frames."""

    #: Set by the application before it returns.
    reader: Reader | None = None
    _is_cut = False
    #: Whether frames may be sent now.
    _is_open = False
    #: What is left of a frame that another thread has begun to send.
    _rest = b""
    _end: asyncio.TimerHandle | None = None

    def __init__(self, *, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self._app = config.loaded_app
        self._connections, self._tasks = server_state.connections, server_state.tasks
        self._wire = ServerProtocol(max_size=LARGEST_INCOMING, logger=QUIET)
        #: The text whose last fragment has not come.
        self._text = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        #: Held while a frame is sent, and while the socket is given up: its number may be another's afterwards.
        self._sending = threading.Lock()
        self._socket: int = transport.get_extra_info("socket").fileno()
        self.transport = transport
        self._connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        unexpected = self._wire.state is State.OPEN and not self._is_cut and not isinstance(exc, OSError)
        with self._sending:
            self._is_cut, self._is_open = True, False
        self._connections.discard(self)
        if self._end is not None:
            self._end.cancel()
        if self.reader is not None:
            self.reader.lost(unexpected)

    def eof_received(self) -> None:
        self._wire.receive_eof()

    def data_received(self, data: bytes) -> None:
        self._wire.receive_data(data)
        for event in self._wire.events_received():
            if isinstance(event, Request):
                self._admit(event)
            elif isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.CONT):
                self._take(event)
        self._answer()

    def pause(self) -> None:
        """Read no more from the client for now."""
        self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def put(self, frame: bytes) -> int:
        """Send a frame, and return how many bytes wait for the reader now."""
        if not self._is_open:
            return 0
        with self._sending:
            self.transport.write(self._rest + frame)
            self._rest = b""
        return self.transport.get_write_buffer_size()

    def put_at_once(self, frame: bytes) -> bool:
        """Send a frame on any thread. Return False where the event loop has to do it, because something waits."""
        with self._sending:
            if not self._is_open or self._rest or self.transport.get_write_buffer_size():
                return False
            try:
                sent = os.write(self._socket, frame)
            except OSError:
                return False
            if sent < len(frame):
                self._rest = frame[sent:]
                self.loop.call_soon_threadsafe(self.put, b"")
            return True

    def close(self, code: int = CloseCode.NORMAL_CLOSURE) -> None:
        """End the connection politely; a client that does not read is cut."""
        if self._is_open:
            self._wire.send_close(code)
            self._answer()
        self._end_later()

    def cut(self) -> None:
        """End the connection at once; what waits is lost."""
        with self._sending:
            self._is_cut, self._is_open = True, False
        self.transport.abort()

    def shutdown(self) -> None:
        """End the connection because the gateway stops."""
        self.close(CloseCode.SERVICE_RESTART)
        self.transport.close()

    def _answer(self) -> None:
        """Send what the protocol itself has to say, and end the connection when that is over."""
        self._is_open = self._wire.state is State.OPEN and not self._is_cut
        if output := b"".join(self._wire.data_to_send()):
            with self._sending:
                self.transport.write(self._rest + output)
                self._rest = b""
        if self._wire.close_expected():
            self._end_later()

    def _end_later(self) -> None:
        if self._end is None:
            self._end = self.loop.call_later(CLOSE_SECONDS, self.cut)
        if self._wire.close_expected():
            self.transport.close()

    def _take(self, event: Frame) -> None:
        self._text += event.data
        if not event.fin:
            return
        whole, self._text = self._text, b""
        try:
            text = whole.decode()
        except UnicodeDecodeError:
            self._wire.fail(CloseCode.INVALID_DATA)
            return
        if self.reader is not None:
            self.reader.take(text)

    def _admit(self, request: Request) -> None:
        """Ask the application whether this web socket may begin."""
        path, _, query = request.path.partition("?")
        scope = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws",
            "server": self.transport.get_extra_info("sockname")[:2],
            "client": self.transport.get_extra_info("peername")[:2],
            "root_path": "",
            "path": unquote(path),
            "raw_path": path.encode("ascii"),
            "query_string": query.encode("ascii"),
            "headers": [(key.lower().encode(), value.encode("latin-1")) for key, value in request.headers.raw_items()],
            "subprotocols": [],
            "state": {FRAMES: self},
            "extensions": {"websocket.http.response": {}},
        }
        refusal: dict[str, Any] = {}

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(event: MutableMapping[str, Any]) -> None:
            refusal.update(event)
            if event["type"] == "websocket.accept":
                self._wire.send_response(self._wire.accept(request))
            elif event["type"] == "websocket.http.response.body":
                headers = Headers([(name.decode(), value.decode("latin-1")) for name, value in refusal["headers"]])
                headers["Connection"] = "close"
                self._wire.send_response(Answer(refusal["status"], "", headers, refusal["body"]))
            if not self._is_cut:
                self._answer()

        task = asyncio.ensure_future(self._app(scope, receive, send))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._admitted)

    def _admitted(self, task: asyncio.Task[None]) -> None:
        """Cut the connection if the application has failed."""
        if task.cancelled() or task.exception() is not None:
            self.transport.abort()


class HttpProtocol(H11Protocol):
    """HTTP whose requests must arrive whole within `request_seconds`, so that nobody stays connected without one."""

    _coming: asyncio.TimerHandle | None = None

    def __init__(self, *, request_seconds: float, **given: Any) -> None:
        super().__init__(**given)
        self._request_seconds = request_seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_request()

    def _wait_for_request(self) -> None:
        # After an upgrade the connection belongs to the web socket: from then on no request is awaited.
        is_http = self.transport.get_protocol() is self and not self.transport.is_closing()
        is_coming = is_http and self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if is_coming and self._coming is None:
            self._coming = self.loop.call_later(self._request_seconds, self.transport.close)
        elif not is_coming and self._coming is not None:
            self._coming.cancel()
            self._coming = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._coming is not None:
            self._coming.cancel()


class Listener:
    """The sockets that the gateway listens on, and the connections that came in."""

    def __init__(self, app: ASGIApp, request_seconds: float = REQUEST_SECONDS) -> None:
        self._request_seconds = request_seconds
        self._config = uvicorn.Config(
            app,
            http=HttpProtocol,
            ws=WebSocket,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._config.load()
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []

    async def listen(self, host: str, *ports: int) -> int:
        """Listen on the first of these ports that is free, on both families where the host is loopback; return it."""
        loop = asyncio.get_running_loop()
        factory: Callable[[], Any] = partial(
            _http_protocol(self._config),
            request_seconds=self._request_seconds,
            config=self._config,
            server_state=self._state,
            app_state={},
        )
        for bound in _bind(host, *ports):
            self._servers.append(await loop.create_server(factory, sock=bound, backlog=BACKLOG))
        return int(self._servers[0].sockets[0].getsockname()[1])

    def refuse_more(self) -> None:
        """Stop listening. Connections that are open go on."""
        for server in self._servers:
            server.close()

    async def close(self, seconds: float) -> None:
        """End every connection, after the requests that are under way, for which there is so much time."""
        self.refuse_more()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=seconds)
        for task in self._state.tasks:
            task.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()


def _http_protocol(config: uvicorn.Config) -> Callable[..., Any]:
    protocol: Callable[..., Any] = config.http_protocol_class
    return protocol


def _bind(host: str, *ports: int) -> list[socket.socket]:
    *others, last = ports
    for port in others:
        with suppress(PortTaken):
            return _bind_one(host, port)
    return _bind_one(host, last)


def _bind_one(host: str, port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    try:
        bound.append(_bound(host, port))
        if host in ("127.0.0.1", "localhost"):
            bound += _bound_if_there("::1", bound[0].getsockname()[1])
    except OSError as error:
        for one in bound:
            one.close()
        raise PortTaken(host=host, port=port, why=error.strerror or error) from None
    return bound


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends without delay (TCP_NODELAY) only where the protocol is named.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setblocking(False)
        bound.bind((host, port))
        # Two that are bound and do not listen yet may have the same port.
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


def _bound_if_there(host: str, port: int) -> list[socket.socket]:
    """Return the socket of a family that this machine may not have."""
    try:
        return [_bound(host, port)]
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise
        return []
