"""How long the gateway waits for a request, and that no connection at work ends with that wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect

from kingdom.hall.gateway.frames import FRAMES, FrameProtocol, Listener
from tests.waiting import SOON

pytestmark = pytest.mark.anyio
REQUEST_SECONDS = 0.3


class Echo:
    """An application that answers what it is sent, and ends the web socket on `error` and `cut`."""

    def __init__(self) -> None:
        self.unexpected = 0
        self.ended = asyncio.Event()

    def note_end(self) -> None:
        self.unexpected += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})
            return
        frames: FrameProtocol = scope["state"][FRAMES]
        frames.ended_unexpectedly = self.note_end
        await receive()
        await send({"type": "websocket.accept"})
        try:
            while (event := await receive())["type"] == "websocket.receive":
                if event["text"] == "cut":
                    frames.cut()
                assert event["text"] != "error"
                await send({"type": "websocket.send", "text": event["text"]})
        finally:
            self.ended.set()


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
