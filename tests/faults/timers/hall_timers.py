"""Hold every kind of connection to the hall, idle and busy, past its timers.

What is cut that must not be is counted, and so is what must be cut and is not.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

import aiohttp
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from kingdom.base.disk.codec import read_json
from kingdom.hall.gateway import app, engine, frames, presence, sockets
from tests.hall.gateway.halls import SECONDS, Hall, Person

BEAT_SECONDS = 20.0
"""As docs/chat.md asks of clients."""
LATE_SECONDS = app.HOUSEKEEPING_SECONDS + 4.0
"""How much later than its time a cut may come on a busy machine."""
KINDS = {"web socket": ["websocket"], "polling": ["polling"], "upgraded": ["polling", "websocket"]}
NOTHING_SENT = b""
HALF_HEAD = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half"
HALF_BODY = b"POST /auth/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n{"
HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@dataclass
class Held:
    """What happened while connections were held."""

    sent: int = 0
    drops: int = 0
    flaps: int = 0
    lost: int = 0
    cuts: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        unexpected = f"{self.drops} drops, {self.flaps} flaps, {self.lost} of {self.sent} messages lost"
        return f"{unexpected}, {self.cuts} cuts as listed"


class Room:
    """A room in which some talk, until it is over."""

    def __init__(self, hall: Hall, seconds: float) -> None:
        self.hall = hall
        self.owner = hall.person()
        self.id = self.owner.room()
        self.held = Held()
        self._until = time.monotonic() + seconds
        self.contents: list[str] = []

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._until

    def member(self) -> Person:
        """Return somebody new in the room."""
        person = self.hall.person()
        assert person.call("POST", f"/rooms/{self.id}/join").status_code == 201
        return person


async def stock_client(
    room: Room, everybody: asyncio.Barrier, person: Person, kind: str, busy: bool, beats: bool
) -> None:
    """Stay with the stock client, and talk if busy. Who does not beat seems away after a minute, and is not cut."""
    async with person.socket(room.id, transports=KINDS[kind]) as socket:
        await everybody.wait()  # nobody misses a message
        beaten = 0.0
        while not room.is_over and not socket.all("disconnect"):
            if busy:
                content = f"{kind} {len(room.contents)}"
                room.contents.append(content)
                assert (await socket.send(room.id, content))["status"] == "ACCEPTED"
            if beats and time.monotonic() - beaten >= BEAT_SECONDS:
                beaten = time.monotonic()
                assert await socket.call("heartbeat") == {"success": True}
            await asyncio.sleep(1.0)
        room.held.drops += len(socket.all("disconnect"))
        with suppress(TimeoutError):
            last = room.contents[-1]
            await socket.wait("newMessage", lambda told: told["content"] == last)
        told = {message["content"] for message in socket.all("newMessage")}
        room.held.lost += len(set(room.contents) - told)
        gone = [told["userId"] for told in socket.all("presence") if not told["on"]]
        room.held.flaps += sum(user in AWAKE for user in gone)
        await everybody.wait()  # nobody sees others leave


AWAKE: set[str] = set()
"""The users who say every 20 s that they are there."""


async def kept_alive(room: Room) -> None:
    """Ask again and again on one connection, each time just before it would be closed."""
    reader, writer = await _opened(room.hall)
    pause = frames.KEEP_ALIVE_SECONDS - 5
    while not room.is_over:
        writer.write(HEALTH)
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
        except asyncio.IncompleteReadError:
            room.held.drops += 1
            room.held.wrong.append("a connection that is kept alive was cut")
            break
        size = next(
            int(line.split(b":")[1]) for line in head.lower().splitlines() if line.startswith(b"content-length")
        )
        await reader.readexactly(size)
        await asyncio.sleep(pause)
    writer.close()


async def half_requests(room: Room, sent: bytes, seconds: float) -> None:
    """Send this, then nothing: the connection is closed after its time, not before."""
    began = time.monotonic()
    reader, writer = await _opened(room.hall)
    writer.write(sent)
    with suppress(TimeoutError):
        while await asyncio.wait_for(reader.read(4096), seconds + LATE_SECONDS):
            """What it answers does not matter."""
    writer.close()
    _judge(room.held, f"HTTP that sent {sent[:20]!r}", time.monotonic() - began, seconds)


async def strangers_socket(room: Room) -> None:
    """Answer pings, but never sign in."""
    began = time.monotonic()
    async with _raw(room.hall) as socket:
        await _to_the_end(socket, sockets.SIGN_IN_SECONDS, answers_pings=True)
    _judge(room.held, "a web socket without a user", time.monotonic() - began, sockets.SIGN_IN_SECONDS)


async def strangers_polls(room: Room) -> None:
    """Poll and answer pings, but never sign in."""
    began = time.monotonic()
    path = f"{room.hall.url}/socket.io/?EIO=4&transport=polling"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(2 * SECONDS)) as web:
        async with web.get(path) as opened:
            sid = json.loads((await opened.text())[1:])["sid"]
        while time.monotonic() - began < sockets.SIGN_IN_SECONDS + LATE_SECONDS:
            async with web.get(f"{path}&sid={sid}") as polled:
                if polled.status != 200:
                    break
                if await polled.text() == "2":
                    async with web.post(f"{path}&sid={sid}", data="3"):
                        """It is answered."""
    _judge(room.held, "polls without a user", time.monotonic() - began, sockets.SIGN_IN_SECONDS)


async def silent_socket(room: Room) -> None:
    """Sign in, then answer no ping, as a client whose network is away."""
    began = time.monotonic()
    async with _raw(room.hall) as socket:
        await socket.recv()
        await socket.send(f'40{{"token":"{room.owner.token}"}}')
        seconds = engine.PING_SECONDS + engine.PONG_SECONDS
        await _to_the_end(socket, seconds, answers_pings=False)
    _judge(room.held, "a web socket that answers no pings", time.monotonic() - began, seconds)


async def half_upgrade(room: Room) -> None:
    """Open a web socket for a polling client, and leave it at that."""
    began = time.monotonic()
    async with aiohttp.ClientSession() as web:
        async with web.get(f"{room.hall.url}/socket.io/?EIO=4&transport=polling") as opened:
            sid = json.loads((await opened.text())[1:])["sid"]
        async with _raw(room.hall, f"&sid={sid}") as socket:
            await _to_the_end(socket, engine.UPGRADE_SECONDS, answers_pings=False)
    _judge(room.held, "an upgrade that is not finished", time.monotonic() - began, engine.UPGRADE_SECONDS)


async def refused_socket(room: Room) -> None:
    """Show a bad token, and do not hang up."""
    began = time.monotonic()
    async with _raw(room.hall) as socket:
        await socket.recv()
        await socket.send('40{"token":"bad"}')
        await _to_the_end(socket, sockets.CLOSE_SECONDS, answers_pings=True)
    _judge(room.held, "a refused socket", time.monotonic() - began, sockets.REFUSAL_SECONDS + sockets.CLOSE_SECONDS)


async def away_without_beats(room: Room) -> None:
    """Say nothing for a minute: others are told that one is away, and the connection stays."""
    quiet = room.member()
    async with room.owner.socket(room.id) as watching, quiet.socket(room.id) as socket:
        began = time.monotonic()
        with suppress(TimeoutError):
            seconds = presence.TTL_SECONDS + LATE_SECONDS
            await watching.wait("presence", lambda told: told["userId"] == quiet.id and not told["on"], seconds)
        _judge(room.held, "presence without heartbeats", time.monotonic() - began, presence.TTL_SECONDS)
        room.held.drops += len(socket.all("disconnect"))


async def wrong_timers(hall: Hall, seconds: float) -> Held:
    """Hold every kind of connection for so long."""
    room = Room(hall, seconds)
    work: dict[str, Callable[[], Awaitable[None]]] = {}
    everybody = asyncio.Barrier(3 * len(KINDS))
    for kind in KINDS:
        for busy, beats in ((False, True), (True, True), (False, False)):
            person = room.member()
            AWAKE.update([person.id] if beats else [])
            given = room, everybody, person, kind, busy, beats
            work[f"{kind} {busy} {beats}"] = partial(stock_client, *given)
    work["kept alive"] = partial(kept_alive, room)
    for sent, limit in (
        (NOTHING_SENT, frames.REQUEST_SECONDS),
        (HALF_HEAD, frames.REQUEST_SECONDS),
        (HALF_BODY, frames.REQUEST_SECONDS),
        (HEALTH, frames.KEEP_ALIVE_SECONDS),
    ):
        work[f"HTTP {sent!r}"] = partial(half_requests, room, sent, limit)
    for one in (strangers_socket, strangers_polls, silent_socket, half_upgrade, refused_socket, away_without_beats):
        work[one.__name__] = partial(one, room)
    ended = await asyncio.gather(*(start() for start in work.values()), return_exceptions=True)
    held = room.held
    held.sent = len(room.contents)
    held.wrong += [f"{type(end).__name__}: {end}" for end in ended if isinstance(end, BaseException)]
    counts = {"connections were cut": held.drops, "people seemed to leave": held.flaps, "messages were lost": held.lost}
    held.wrong += [f"{count} {what}" for what, count in counts.items() if count]
    figures = read_json(hall.places.gateway_figures("gateway"))
    if figures["unexpected_ends"]:
        held.wrong.append(f"the gateway counts {figures['unexpected_ends']} unexpected ends")
    return held


def _judge(held: Held, what: str, took: float, seconds: float) -> None:
    if seconds - 1.0 <= took <= seconds + LATE_SECONDS:
        held.cuts += 1
    else:
        held.wrong.append(f"{what} was cut after {took:.1f} s, not {seconds:g}")


async def _opened(hall: Hall) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(hall.url)
    return await asyncio.open_connection(address.hostname, address.port)


@asynccontextmanager
async def _raw(hall: Hall, query: str = "") -> AsyncIterator[ClientConnection]:
    address = hall.url.replace("http", "ws", 1)
    path = f"{address}/socket.io/?EIO=4&transport=websocket{query}"
    async with connect(path, ping_interval=None, close_timeout=1) as socket:
        yield socket


async def _to_the_end(socket: ClientConnection, seconds: float, *, answers_pings: bool) -> None:
    """Read until the connection ends, or until it should have ended long ago."""
    with suppress(ConnectionClosed, TimeoutError):
        async with asyncio.timeout(seconds + LATE_SECONDS + 1):
            while True:
                if await socket.recv() == "2" and answers_pings:
                    await socket.send("3")
