"""Clients of the hall in a process of their own: `python -m bench.chat_load`, the order as JSON on standard input.

They speak Socket.IO and web sockets by hand: a client library would take the processor from what is measured, and add
its own way from socket to caller to every figure. What they found is printed as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

import orjson

DRAIN_SECONDS = 20.0
CONTENT = "x" * 100


def _frame(text: str) -> bytes:
    """Return a whole text frame as a client sends it, masked with zeros."""
    payload = text.encode()
    size = bytes((0x80 | len(payload),)) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
    return b"\x81" + size + b"\0\0\0\0" + payload


class Client(asyncio.Protocol):
    """One socket in one room."""

    def __init__(self, load: Load, room: str) -> None:
        self.load = load
        self.room = room
        self.waiting: dict[int, float] = {}
        self.answered = asyncio.Event()
        self.joined = asyncio.Event()
        self._numbers = 1
        self._last = ""
        self._data = b""
        self._is_open = False

    async def connect(self, url: str, token: str) -> None:
        address = urlsplit(url)
        self._token = token
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, address.hostname, address.port)
        self.socket: asyncio.Transport = transport
        asked = ("GET /socket.io/?EIO=4&transport=websocket HTTP/1.1", f"Host: {address.netloc}", "Upgrade: websocket")
        key = ("Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
        self.socket.write("\r\n".join((*asked, *key, "", "")).encode())
        await asyncio.wait_for(self.joined.wait(), 30)

    def send(self) -> None:
        number, self._numbers = self._numbers, self._numbers + 1
        id = str(uuid.uuid4())
        message = f'{{"roomId":"{self.room}","clientMsgId":"{id}","content":"{CONTENT}"}}'
        frame = _frame(f'42{number}["sendMessage",{message}]')
        now = time.perf_counter()
        self.waiting[number] = now
        self.load.sent[id] = now
        self.socket.write(frame)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        data, at = self._data + data, 0
        if not self._is_open:
            head, end, rest = data.partition(b"\r\n\r\n")
            self._is_open, data = bool(end), rest if end else data
            assert not end or b" 101 " in head, head
        while self._is_open and len(data) - at >= 2:
            begin, size = at + 2, data[at + 1]
            if size > 125:
                begin = at + (4 if size == 126 else 10)
                size = int.from_bytes(data[at + 2 : begin], "big")
            if begin + size > len(data):
                break
            self._take(data[begin : begin + size], now)
            at = begin + size
        self._data = data[at:]

    def _take(self, packet: bytes, now: float) -> None:
        if packet.startswith(b'42["newMessage"'):
            self._hear(orjson.loads(packet[2:])[1], now)
        elif packet.startswith(b"430["):
            self.joined.set()
        elif packet.startswith(b"43"):
            at = packet.index(b"[")
            began = self.waiting.pop(int(packet[2:at]))
            answer = orjson.loads(packet[at:])[0]
            self.load.answers[answer["status"]] = self.load.answers.get(answer["status"], 0) + 1
            if answer["status"] == "ACCEPTED":
                self.load.accepted.append(now - began)
            self.answered.set()
        elif packet.startswith(b"40"):
            self.socket.write(_frame(f'420["joinRoom",{{"roomId":"{self.room}"}}]'))
        elif packet.startswith(b"0"):
            self.socket.write(_frame(f"40{json.dumps({'token': self._token})}"))
        elif packet == b"2":
            self.socket.write(_frame("3"))

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
    clients = [Client(load, who["room"]) for who in order["people"]]
    for client, who in zip(clients, order["people"], strict=True):
        await client.connect(order["url"], who["token"])
    if order.get("idle"):
        print("connected", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        return {}
    began = time.perf_counter()
    if order["rate"]:
        await _paced(clients, order["rate"], order["seconds"], began)
    else:
        await asyncio.gather(*(_closed_loop(client, order["window"], began + order["seconds"]) for client in clients))
    members: dict[str, int] = {}
    for client in clients:
        members[client.room] = members.get(client.room, 0) + 1
    give_up = time.perf_counter() + DRAIN_SECONDS
    expected = len(load.sent) * len(clients) // len(members)
    while (len(load.accepted) < len(load.sent) or load.heard < expected) and time.perf_counter() < give_up:
        await asyncio.sleep(0.005)
    for client in clients:
        client.socket.close()
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
        clients[number % len(clients)].send()


async def _closed_loop(client: Client, window: int, until: float) -> None:
    while time.perf_counter() < until:
        if len(client.waiting) < window:
            client.send()
        else:
            client.answered.clear()
            await client.answered.wait()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(json.loads(sys.stdin.readline())))))
