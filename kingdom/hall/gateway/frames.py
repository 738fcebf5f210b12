"""Listen, and write to web sockets without a detour: one frame, encoded once, goes to many of them."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import apply_mask  # type: ignore[attr-defined]
from websockets.http11 import Request

from kingdom.base.errors import KingdomError

LARGEST_INCOMING = 128 << 10
BACKLOG = 2048
"""After a restart everybody comes back at once."""
KEEP_ALIVE_SECONDS = 20
REQUEST_SECONDS = 30.0
_TEXT = 0x81
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


def frame_of_client(data: bytes, at: int) -> tuple[int, int]:
    """Return where the mask of the frame at `at` begins, and where the frame ends, which is 0 if it is not whole yet.

    The mask is 0 where the library will refuse the frame: one without a mask, or too large, which ends with the data.
    """
    if len(data) - at < 2:
        return 0, 0
    size, mask = data[at + 1] & 0x7F, at + 2
    if size > 125:
        mask += 2 if size == 126 else 8
        if mask > len(data):
            return 0, 0
        size = int.from_bytes(data[at + 2 : mask], "big")
    if size > LARGEST_INCOMING:
        return 0, len(data)
    is_masked = data[at + 1] & 0x80
    end = mask + size + (4 if is_masked else 0)
    return (mask if is_masked else 0), (end if end <= len(data) else 0)


class FrameProtocol(WebSocketsSansIOProtocol):
    """A web socket that also takes finished frames, whether or not its reader keeps up.

    What a client sends is cut into frames here. Those that `take` takes at once go no further; all others are the
    library's, in their order, each of them whole.
    """

    #: Takes the payload of a frame at once, or returns False.
    take: Callable[[bytes], bool] | None = None
    #: Whether nothing of this client is under way, which must not be overtaken.
    is_idle = False
    #: Called when the connection has ended though neither side had meant it to.
    ended_unexpectedly: Callable[[], None] | None = None
    _is_cut = _has_left = False
    _part = b""
    #: What is left of a frame that another thread has begun to send.
    _rest = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        #: Held while a frame is sent, and while the socket is given up: its number may be another's afterwards.
        self._sending = threading.Lock()
        self._socket: int = transport.get_extra_info("socket").fileno()
        super().connection_made(transport)

    def eof_received(self) -> None:
        self._has_left = True

    def connection_lost(self, exc: Exception | None) -> None:
        with self._sending:
            super().connection_lost(exc)
        if self.ended_unexpectedly is not None and not self._was_meant_to_end(exc):
            self.ended_unexpectedly()

    def _was_meant_to_end(self, error: Exception | None) -> bool:
        """Return whether the client left, the network failed, or a close frame or `cut` ended it."""
        by_client = self._has_left or self.conn.close_rcvd is not None or isinstance(error, OSError)
        return by_client or self._is_cut or self.conn.close_sent is not None

    def data_received(self, data: bytes) -> None:
        if not self.handshake_complete:
            super().data_received(data)
            return
        data, at = self._part + data if self._part else data, 0
        while True:
            mask, end = frame_of_client(data, at)
            if not end:
                break
            if not self._is_taken(data, at, mask, end):
                super().data_received(data[at:end])
            at = end
        self._part = data[at:]

    def _is_taken(self, data: bytes, at: int, mask: int, end: int) -> bool:
        if self.take is None or not mask or data[at] != _TEXT or self.close_sent:
            return False
        if not self.is_idle or self.frames or not self.queue.empty():
            return False
        return self.take(apply_mask(data[mask + 4 : end], data[mask : mask + 4]))

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):  # else the handshake was refused
            self.scope["state"][FRAMES] = self

    def put(self, frame: bytes) -> int:
        """Send a frame, and return how many bytes wait for the reader now."""
        if self.close_sent or self.disconnected:
            return 0
        with self._sending:
            self.transport.write(self._rest + frame)
            self._rest = b""
        return self.transport.get_write_buffer_size()

    def put_at_once(self, frame: bytes) -> bool:
        """Send a frame on any thread. Return False where the event loop has to do it, because something waits."""
        with self._sending:
            if self.close_sent or self.disconnected or self._rest or self.transport.get_write_buffer_size():
                return False
            try:
                sent = os.write(self._socket, frame)
            except OSError:
                return False
            if sent < len(frame):
                self._rest = frame[sent:]
                self.loop.call_soon_threadsafe(self.put, b"")
            return True

    def cut(self) -> None:
        """End the connection at once; what waits is lost."""
        self._is_cut = True
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
            ws=FrameProtocol,
            ws_max_size=LARGEST_INCOMING,
            ws_ping_interval=None,  # Engine.IO has pings of its own
            ws_per_message_deflate=False,
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
