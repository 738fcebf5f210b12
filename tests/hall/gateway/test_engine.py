"""Connections that poll, and web sockets: what is sent, in which order, and when a connection ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from kingdom.hall.gateway import engine
from kingdom.hall.gateway.engine import EngineIO, Packet, Pipe
from kingdom.hall.gateway.frames import Listener
from tests.faults.oracle import Figure
from tests.waiting import SOON

pytestmark = pytest.mark.anyio


class Heard:
    """A hall that keeps what it hears, and answers it; `slow` only after a while."""

    def __init__(self) -> None:
        self.pipes: list[Pipe] = []
        self.heard: list[str] = []
        self.ends: list[bool] = []
        self.end = asyncio.Event()

    def opened(self, pipe: Pipe) -> None:
        self.pipes.append(pipe)

    def take(self, pipe: Pipe, message: str) -> Awaitable[None] | None:
        return self._later(pipe, message) if message == "slow" else self._answer(pipe, message)

    def _answer(self, pipe: Pipe, message: str) -> None:
        self.heard.append(message)
        pipe.put(Packet(b"4" + message.encode()))

    async def _later(self, pipe: Pipe, message: str) -> None:
        await asyncio.sleep(0.05)
        self._answer(pipe, message)

    def ended(self, pipe: Pipe, unexpected: bool) -> None:
        self.ends.append(unexpected)
        self.end.set()


class Wire:
    """A client that says what it is told to."""

    def __init__(self, web: aiohttp.ClientSession, address: str) -> None:
        self._web = web
        self._address = f"{address}/socket.io/?EIO=4&transport="
        self.sid = ""

    async def open(self) -> dict[str, object]:
        facts: dict[str, object] = json.loads((await self.poll())[0][1:])
        self.sid = f"&sid={facts['sid']}"
        return facts

    async def poll(self) -> list[str]:
        async with self._web.get(f"{self._address}polling{self.sid}") as answer:
            return (await answer.text()).split("\x1e") if answer.status == 200 else [str(answer.status)]

    async def post(self, *packets: str) -> int:
        async with self._web.post(f"{self._address}polling{self.sid}", data="\x1e".join(packets)) as answer:
            return answer.status

    async def web_socket(self) -> aiohttp.ClientWebSocketResponse:
        return await self._web.ws_connect(f"{self._address}websocket{self.sid}")


@asynccontextmanager
async def served(hall: Heard) -> AsyncIterator[Wire]:
    listener = Listener(EngineIO(hall).handle)
    port = await listener.listen("127.0.0.1", 0)
    async with asyncio.timeout(SOON), aiohttp.ClientSession() as web:
        try:
            yield Wire(web, f"http://127.0.0.1:{port}")
        finally:
            await listener.close(SOON)


async def test_a_client_that_polls_has_every_answer_in_order() -> None:
    async with served(hall := Heard()) as wire:
        facts = await wire.open()
        assert facts == {
            "sid": hall.pipes[0].sid,
            "upgrades": ["websocket"],
            "pingInterval": 25000,
            "pingTimeout": 20000,
            "maxPayload": 131072,
        }
        assert await wire.post("4slow", "4one", "4two") == 200
        assert await wire.poll() == ["4slow", "4one", "4two"]
        waiting = asyncio.ensure_future(wire.poll())
        await wire.post("4three")
        assert await waiting == ["4three"]
        assert await wire.post("1") == 200
        assert await wire.poll() == ["400"]
    assert hall.ends == [False]


async def test_what_waits_goes_first_when_a_client_goes_over_to_a_web_socket() -> None:
    async with served(hall := Heard()) as wire:
        await wire.open()
        under_way = asyncio.ensure_future(wire.poll())
        socket = await wire.web_socket()
        await socket.send_str("2probe")
        assert await socket.receive_str() == "3probe"
        assert await under_way == ["6"]
        await wire.post("4before")
        await socket.send_str("5")
        await socket.send_str("4slow")
        await socket.send_str("4after")
        assert [await socket.receive_str() for _ in range(3)] == ["4before", "4slow", "4after"]
        assert await wire.poll() == ["400"], "it polls no longer"
        await socket.close()
        await hall.end.wait()
    assert hall.ends == [False]


@pytest.mark.parametrize("word", ["5", "4hello", "2"])
async def test_a_web_socket_that_does_not_go_over_leaves_the_polling_as_it_is(word: str) -> None:
    async with served(hall := Heard()) as wire:
        await wire.open()
        socket = await wire.web_socket()
        await socket.send_str(word)
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        await wire.post("4still here")
        assert await wire.poll() == ["4still here"]
        assert hall.heard == ["still here"]


@pytest.mark.parametrize("hours", [-5, 5])
async def test_a_client_that_answers_no_ping_is_dropped_whatever_the_clock_says(
    hours: int, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    monkeypatch.setattr(engine, "PING_SECONDS", 0.05)
    monkeypatch.setattr(engine, "PONG_SECONDS", 0.5)
    async with served(hall := Heard()) as wire:
        socket = await wire.web_socket()
        await socket.receive_str()
        now = time.time
        for _ in range(3):
            assert await socket.receive_str() == "2"
            monkeypatch.setattr(time, "time", lambda: now() + hours * 3600)
            await socket.send_str("3")
            await socket.send_str("4there")
            assert await socket.receive_str() == "4there"
        assert hall.ends == []
        assert await socket.receive_str() == "2"
        monkeypatch.setattr(time, "time", lambda: now() - 2 * hours * 3600)
        await hall.end.wait()
    figure(f"a ping while the clock jumps by {hours} h: {len(hall.ends) - 1} wrong ends")
    assert hall.ends == [False]


async def test_what_is_no_packet_of_the_protocol_is_refused_or_passed_over() -> None:
    async with served(hall := Heard()) as wire:
        wire.sid = "&sid=unknown"
        assert await wire.poll() == ["400"]
        assert await wire.post("4hello") == 400
        wire.sid = ""
        await wire.open()
        assert await wire.post("9", "", "b4AA", "4hello") == 200
        assert await wire.post(*["4x"] * 1001) == 400
        assert await wire.post("4" + "x" * 131072) == 413
    assert hall.heard == ["hello"]
