"""Clients of the hall in a process of their own: `python -m bench.chat_load`, the order as JSON on standard input.

They speak Socket.IO over web sockets by hand, because a whole client library would take the processor from what is
measured. What they found is printed as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from typing import Any

import aiohttp
import orjson

DRAIN_SECONDS = 20.0
CONTENT = "x" * 100


class Client:
    """One socket in one room."""

    def __init__(self, load: Load, room: str) -> None:
        self.load = load
        self.room = room
        self.waiting: dict[int, float] = {}
        self.answered = asyncio.Event()
        self.joined = asyncio.Event()
        self._numbers = 1
        self._last = ""

    async def connect(self, web: aiohttp.ClientSession, url: str, token: str) -> None:
        self.socket = await web.ws_connect(f"{url}/socket.io/?EIO=4&transport=websocket", compress=0, max_msg_size=0)
        await self.socket.receive()
        await self.socket.send_str(f"40{json.dumps({'token': token})}")
        await self.socket.receive()
        self.reader = asyncio.create_task(self._read())
        await self.socket.send_str(f'420["joinRoom",{{"roomId":"{self.room}"}}]')
        await asyncio.wait_for(self.joined.wait(), 30)

    async def send(self) -> None:
        number, self._numbers = self._numbers, self._numbers + 1
        id = str(uuid.uuid4())
        now = time.perf_counter()
        self.waiting[number] = now
        self.load.sent[id] = now
        await self.socket.send_str(
            f'42{number}["sendMessage",{{"roomId":"{self.room}","clientMsgId":"{id}","content":"{CONTENT}"}}]'
        )

    async def _read(self) -> None:
        async for frame in self.socket:
            now = time.perf_counter()
            text = frame.data
            if text.startswith('42["newMessage"'):
                self._hear(orjson.loads(text[2:])[1], now)
            elif text.startswith("430["):
                self.joined.set()
            elif text.startswith("43"):
                at = text.index("[")
                began = self.waiting.pop(int(text[2:at]))
                answer = orjson.loads(text[at:])[0]
                self.load.answers[answer["status"]] = self.load.answers.get(answer["status"], 0) + 1
                if answer["status"] == "ACCEPTED":
                    self.load.accepted.append(now - began)
                self.answered.set()
            elif text == "2":
                await self.socket.send_str("3")

    def _hear(self, message: dict[str, Any], now: float) -> None:
        if message["messageId"] <= self._last:
            self.load.disorder += 1
        self._last = message["messageId"]
        self.load.heard += 1
        self.load.heard_at = now
        if (began := self.load.sent.get(message["clientMsgId"])) is not None:
            self.load.delays.append(now - began)


class Load:
    """What all clients have seen."""

    def __init__(self) -> None:
        self.sent: dict[str, float] = {}
        self.accepted: list[float] = []
        self.delays: list[float] = []
        self.answers: dict[str, int] = {}
        self.heard = 0
        self.heard_at = 0.0
        self.disorder = 0


async def run(order: dict[str, Any]) -> dict[str, Any]:
    load = Load()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as web:
        clients = [Client(load, who["room"]) for who in order["people"]]
        for client, who in zip(clients, order["people"], strict=True):
            await client.connect(web, order["url"], who["token"])
        if order.get("idle"):
            print("connected", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            return {}
        began = time.perf_counter()
        if order["rate"]:
            await _paced(clients, order["rate"], order["seconds"], began)
        else:
            await asyncio.gather(
                *(_closed_loop(client, order["window"], began + order["seconds"]) for client in clients)
            )
        members: dict[str, int] = {}
        for client in clients:
            members[client.room] = members.get(client.room, 0) + 1
        give_up = time.perf_counter() + DRAIN_SECONDS
        expected = len(load.sent) * len(clients) // len(members)
        while (len(load.accepted) < len(load.sent) or load.heard < expected) and time.perf_counter() < give_up:
            await asyncio.sleep(0.005)
        for client in clients:
            client.reader.cancel()
            await client.socket.close()
    return {
        "accepted": load.accepted,
        "delays": load.delays,
        "answers": load.answers,
        "sent": len(load.sent),
        "missing": expected - load.heard,
        "disorder": load.disorder,
        "seconds": load.heard_at - began,
    }


async def _paced(clients: list[Client], rate: float, seconds: float, began: float) -> None:
    for number in range(int(rate * seconds)):
        wait = began + number / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        await clients[number % len(clients)].send()


async def _closed_loop(client: Client, window: int, until: float) -> None:
    while time.perf_counter() < until:
        if len(client.waiting) < window:
            await client.send()
        else:
            client.answered.clear()
            await client.answered.wait()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(json.loads(sys.stdin.readline())))))
