"""How long the gateway waits for a request, and that no connection at work ends with that wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect

from kingdom.hall.gateway import frames
from kingdom.hall.gateway.frames import FRAMES, Listener, WebSocket, text_frame
from tests.faults.oracle import Figure
from tests.waiting import SOON

pytestmark = pytest.mark.anyio
REQUEST_SECONDS = 0.3


class Echo:
    """An application that answers what it is sent; `error`, `cut` and `close` end the web socket."""

    def __init__(self) -> None:
        self.unexpected = 0
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})
            return
        await send({"type": "websocket.accept"})
        self._frames: WebSocket = scope["state"][FRAMES]
        self._frames.reader = Echoing(self, self._frames)


class Echoing:
    def __init__(self, echo: Echo, frames: WebSocket) -> None:
        self._echo, self._frames = echo, frames

    def take(self, packet: str) -> None:
        if packet == "cut":
            self._frames.cut()
        elif packet == "close":
            while self._frames.put(text_frame(b"x" * 100_000)) < 1 << 20:
                pass
            self._frames.close()
        elif packet == "error":
            self._frames.transport.close()
        else:
            self._frames.put(text_frame(packet.encode()))

    def lost(self, unexpected: bool) -> None:
        self._echo.unexpected += unexpected
        self._echo.ended.set()


@asynccontextmanager
async def listening(app: Echo) -> AsyncIterator[int]:
    listener = Listener(app, REQUEST_SECONDS)
    port = await listener.listen("127.0.0.1", 0)
    try:
        yield port
    finally:
        await listener.close(SOON)


async def test_a_web_socket_outlives_the_wait_for_a_request_idle_and_busy() -> None:
    echo = Echo()
    async with listening(echo) as port:
        idle, busy = [await connect(f"ws://127.0.0.1:{port}") for _ in range(2)]
        until = asyncio.get_running_loop().time() + 3 * REQUEST_SECONDS
        while asyncio.get_running_loop().time() < until:
            await busy.send("a word")
            assert await asyncio.wait_for(busy.recv(), SOON) == "a word"
        await idle.send("still here")
        assert await asyncio.wait_for(idle.recv(), SOON) == "still here"
        await asyncio.gather(idle.close(), busy.close())
    assert not echo.unexpected


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_a_request_that_does_not_come_whole_ends_its_connection(sent: bytes) -> None:
    async with listening(Echo()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await asyncio.wait_for(reader.read(), SOON)
        writer.close()


@pytest.mark.parametrize(("word", "count"), [("error", 1), ("cut", 0), ("leave", 0), ("vanish", 0)])
async def test_only_an_end_that_neither_side_meant_is_unexpected(word: str, count: int) -> None:
    echo = Echo()
    async with listening(echo) as port:
        socket = await connect(f"ws://127.0.0.1:{port}")
        if word == "leave":
            await socket.close()
        elif word == "vanish":
            socket.transport.abort()
        else:
            await socket.send(word)
            await asyncio.wait_for(socket.wait_closed(), SOON)
        await asyncio.wait_for(echo.ended.wait(), SOON)
    assert echo.unexpected == count


async def test_a_gateway_that_stops_ends_its_web_sockets_on_purpose() -> None:
    echo = Echo()
    async with listening(echo) as port:
        socket = await connect(f"ws://127.0.0.1:{port}")
        await socket.send("hello")
        assert await socket.recv() == "hello"
    await asyncio.wait_for(socket.wait_closed(), SOON)
    assert not echo.unexpected


async def test_who_is_hung_up_on_and_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch, figure: Figure) -> None:
    monkeypatch.setattr(frames, "CLOSE_SECONDS", 0.2)
    echo = Echo()
    async with listening(echo) as port:
        socket = await connect(f"ws://127.0.0.1:{port}", max_queue=1, ping_interval=None)
        await socket.send("close")
        socket.transport.pause_reading()
        await asyncio.wait_for(echo.ended.wait(), SOON)
        socket.transport.abort()
    figure(f"a web socket that was closed and does not read: {echo.unexpected} unexpected ends")
    assert not echo.unexpected
